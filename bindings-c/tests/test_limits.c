/* The limits of the machine (threads, file descriptors), threads that are cancelled, and signals that come often. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

static onelock_client *client;
static onelock_client *fresh(void) {
    onelock_client *made = NULL;
    OK(onelock_client_new(getenv("ONELOCK_URL"), NULL, &made, &error));
    return made;
}

static void set_limit(int which, int exhausted) {
    struct rlimit limit;
    CHECK(getrlimit(which, &limit) == 0);
    limit.rlim_cur = exhausted ? 1 : limit.rlim_max;
    CHECK(setrlimit(which, &limit) == 0);
}

static void without(int which) {
    onelock_client *mine = fresh();
    onelock_lock *lock = lock_of(mine, ONELOCK_KIND_MUTEX, unique("limit"), NULL);
    onelock_lease *lease = NULL;
    onelock_error *error = NULL;
    set_limit(which, 1);
    onelock_status status = onelock_lock_try_acquire(lock, &lease, &error);
    set_limit(which, 0);
    /* a connection may do without a thread of its own */
    if (status != ONELOCK_OK) {
        CHECK(status == ONELOCK_ERR_SYSTEM_LIMIT && onelock_status_is_retryable(status));
        CHECK(strstr(onelock_error_message(error), "defect") == NULL);
        onelock_error_free(error);
        OK(onelock_lock_acquire(lock, 30000, NULL, &lease, &error));
    }
    onelock_lease_free(lease);
    onelock_lock_free(lock);
    OK(onelock_client_close(mine, &error));
    onelock_client_free(mine);
}

static void no_descriptor_is_the_machines_limit(void) {
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("fd"), NULL);
    onelock_acquisition *acquisition = NULL;
    onelock_lease *lease = NULL;
    int fd = -1;
    OK(onelock_lock_acquire_start(lock, 30000, &acquisition, &error));
    set_limit(RLIMIT_NOFILE, 1);
    FAILS(ONELOCK_ERR_SYSTEM_LIMIT, onelock_acquisition_fd(acquisition, &fd, &error));
    set_limit(RLIMIT_NOFILE, 0);
    OK(onelock_acquisition_fd(acquisition, &fd, &error));
    EVENTUALLY(onelock_acquisition_finish(acquisition, &lease, NULL) != ONELOCK_PENDING);
    onelock_lease_free(lease);
    onelock_acquisition_free(acquisition);
    onelock_lock_free(lock);
}

struct waiter {
    onelock_lock *lock;
    volatile int began;
    volatile onelock_status status;
    volatile int returned;
    volatile int beyond;
};

static void *wait_for_it(void *argument) {
    struct waiter *waiter = argument;
    onelock_lease *lease = NULL;
    waiter->began = 1;
    waiter->status = onelock_lock_acquire(waiter->lock, 1000, NULL, &lease, NULL);
    waiter->returned = 1;
    pthread_testcancel();
    waiter->beyond = 1;
    return NULL;
}

static void a_cancelled_thread_ends_its_call_first(void) {
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("pthread"), NULL);
    onelock_lease *lease = acquired(lock);
    struct waiter waiter = {lock, 0, ONELOCK_OK, 0, 0};
    pthread_t thread;
    void *end = NULL;
    CHECK(pthread_create(&thread, NULL, wait_for_it, &waiter) == 0);
    EVENTUALLY(waiter.began);
    sleep_ms(50);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &end) == 0);
    CHECK(end == PTHREAD_CANCELED && waiter.returned && !waiter.beyond);
    CHECK(waiter.status == ONELOCK_ERR_TIMEOUT);
    released(lease);
    released(acquired(lock));
    onelock_lock_free(lock);
}

static void nothing(int number) { (void)number; }

static void signals_keep_nobody_waiting(void) {
    struct sigaction action;
    struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("signals"), NULL);
    onelock_lease *lease = acquired(lock), *none = NULL;
    int restart;
    memset(&action, 0, sizeof action);
    action.sa_handler = nothing;
    for (restart = 0; restart < 2; restart++) {
        action.sa_flags = restart ? SA_RESTART : 0;
        CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
        double begun = now_ms();
        FAILS(ONELOCK_ERR_TIMEOUT, onelock_lock_acquire(lock, 300, NULL, &none, &error));
        CHECK(now_ms() - begun < 20000);
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    }
    released(lease);
    onelock_lock_free(lock);
}

static void a_name_may_end_with_nul(void) {
    onelock_lock *counted = NULL, *ended = NULL;
    onelock_lease *lease = NULL, *none = NULL;
    const char *name = unique("str");
    OK(onelock_lock_new(client, ONELOCK_KIND_MUTEX, name, strlen(name), NULL, &counted, &error));
    OK(onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, name, NULL, &ended, &error));
    OK(onelock_lock_acquire(ended, 10000, NULL, &lease, &error));
    FAILS(ONELOCK_ERR_BUSY, onelock_lock_try_acquire(counted, &none, &error));
    released(lease);
    onelock_lock_free(counted);
    onelock_lock_free(ended);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, NULL, NULL, &ended, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "", NULL, &ended, &error));
}

int main(void) {
    /* the superuser has no limit of threads */
    if (geteuid() == 0) CHECK(setgid(64123) == 0 && setuid(64123) == 0);
    without(RLIMIT_NOFILE);
#ifdef RLIMIT_NPROC
    without(RLIMIT_NPROC);
#endif
    client = fresh();
    no_descriptor_is_the_machines_limit();
    a_cancelled_thread_ends_its_call_first();
    signals_keep_nobody_waiting();
    a_name_may_end_with_nul();
    OK(onelock_client_close(client, &error));
    onelock_client_free(client);
    puts("limits: ok");
    return 0;
}
