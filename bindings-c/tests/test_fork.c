/* Forked children: leases stay with the parent, clients work again, nothing is sent and nothing is torn down. */
#include "check.h"
#include "counter.h"

#include <sys/wait.h>

/* A child leaks what it inherited on purpose: LeakSanitizer is to look at the parent only. It asks this function. */
static int in_child;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return in_child; }

static void wait_for_child(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static counter_t called;

static void on_lost(onelock_lease *lease, uint32_t reason, void *user_data) {
    (void)lease;
    (void)reason;
    (void)user_data;
    count_add(&called);
}

int main(void) {
    onelock_client *client = client_at(NULL, NULL);
    const char *name = unique("fork"), *own = unique("child");
    onelock_lock_options *options = onelock_lock_options_new();
    OK(onelock_lock_options_set_ttl(options, 4000, &error));
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, options);
    onelock_lock *quiet_lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("quiet"), options);
    onelock_lease *lease = acquired(lock), *quiet = acquired(quiet_lock), *none = NULL;
    OK(onelock_lease_on_lost(lease, on_lost, NULL, &error));
    int fd = -1;
    OK(onelock_lease_lost_fd(lease, &fd, &error));
    onelock_acquisition *pending = NULL;
    OK(onelock_lock_acquire_start(lock, -1, &pending, &error));

    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            in_child = 1;
            /* what was inherited holds nothing */
            CHECK(!onelock_lease_is_held(lease) && onelock_lease_remaining_ms(lease) == 0);
            FAILS(ONELOCK_ERR_FORKED, onelock_lease_release(lease, NULL, &error));
            FAILS(ONELOCK_ERR_FORKED, onelock_lease_extend(lease, 5000, &error));
            FAILS(ONELOCK_ERR_FORKED, onelock_lease_on_lost(lease, on_lost, NULL, &error));
            /* nobody had asked this one for anything before */
            int none_fd = -1;
            FAILS(ONELOCK_ERR_FORKED, onelock_lease_on_jeopardy(quiet, NULL, NULL, &error));
            FAILS(ONELOCK_ERR_FORKED, onelock_lease_lost_fd(quiet, &none_fd, &error));
            FAILS(ONELOCK_ERR_FORKED, onelock_acquisition_finish(pending, &none, &error));
            CHECK(!onelock_acquisition_is_ready(pending));
            if (way == 0) _exit(0);
            /* the lock is still the parent's */
            FAILS(ONELOCK_ERR_BUSY, onelock_lock_try_acquire(lock, &none, &error));
            /* and the client, the lock and its options serve the child as new ones */
            onelock_lock *mine = lock_of(client, ONELOCK_KIND_MUTEX, own, options);
            onelock_lease *held = acquired(mine);
            CHECK(onelock_lease_fencing_token(held) > 0);
            onelock_acquisition *again = NULL;
            OK(onelock_lock_acquire_start(mine, 5000, &again, &error));
            released(held);
            EVENTUALLY(onelock_acquisition_is_ready(again));
            OK(onelock_acquisition_finish(again, &held, &error));
            onelock_acquisition_free(again);
            if (way == 1) exit(0); /* held, inherited things not freed: the child's lease is released */
            onelock_acquisition_free(pending);
            onelock_lease_free(lease);
            onelock_lease_free(lease);
            onelock_lock_free(lock);
            onelock_lock_free(mine);
            onelock_lease_free(held);
            onelock_lock_options_free(options);
            if (way == 2) OK(onelock_client_close(client, &error));
            onelock_client_free(client);
            exit(0);
        }
        wait_for_child(child);
        CHECK(onelock_lease_is_held(lease));
        /* what the child held is free at once, long before its ttl */
        onelock_lock *theirs = lock_of(client, ONELOCK_KIND_MUTEX, own, options);
        double since = now_ms();
        released(acquired(theirs));
        CHECK(way == 0 || now_ms() - since < 3500);
        onelock_lock_free(theirs);
    }

    /* the parent never noticed: it is still renewed, and its acquire goes on */
    double since = now_ms();
    while (now_ms() - since < 4500) {
        CHECK(onelock_lease_is_held(lease));
        sleep_ms(20);
    }
    CHECK(count_get(&called) == 0 && !onelock_acquisition_is_ready(pending));
    released(quiet);
    onelock_lock_free(quiet_lock);
    released(lease);
    EVENTUALLY(onelock_acquisition_is_ready(pending));
    OK(onelock_acquisition_finish(pending, &lease, &error));
    released(lease);
    onelock_acquisition_free(pending);
    onelock_lock_free(lock);
    onelock_lock_options_free(options);
    onelock_client_free(client);
    puts("fork: ok");
    return 0;
}
