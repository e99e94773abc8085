/* Loss: the callback, the descriptor, waiting for it, and that nothing is called after free. */
#include "check.h"
#include "counter.h"
#include "server.h"

#include <poll.h>
#include <pthread.h>

static onelock_client *client;
static onelock_lock_options *options;

struct heard {
    counter_t calls;
    counter_t reason;
    counter_t leave;
    counter_t inside;
    onelock_lease *lease;
};

static void on_lost(onelock_lease *lease, uint32_t reason, void *user_data) {
    struct heard *heard = user_data;
    heard->lease = lease;
    count_set(&heard->reason, (int)reason);
    count_add(&heard->calls);
}

static void take_away(const char *name) {
    bool was_held = false;
    OK(onelock_client_force_release(client, name, strlen(name), &was_held, &error));
    CHECK(was_held);
}

static void everybody_hears_of_it(void) {
    struct heard heard = {0}, before = {0};
    const char *name = unique("loss");
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, options);
    onelock_lease *lease = acquired(lock);
    uint32_t reason = 99, outcome = 0;
    int fd = -1;
    OK(onelock_lease_on_lost(lease, on_lost, &before, &error));
    OK(onelock_lease_on_lost(lease, on_lost, &heard, &error)); /* one per lease: this one */
    OK(onelock_lease_lost_fd(lease, &fd, &error));
    struct pollfd wait = {fd, POLLIN, 0};
    CHECK(poll(&wait, 1, 0) == 0);
    OK(onelock_lease_wait_lost(lease, 1, &reason, &error));
    CHECK(reason == ONELOCK_LOSS_NONE);

    take_away(name);
    OK(onelock_lease_wait_lost(lease, -1, &reason, &error));
    CHECK(reason == ONELOCK_LOSS_TAKEN && onelock_lease_loss(lease) == ONELOCK_LOSS_TAKEN);
    CHECK(!onelock_lease_is_held(lease));
    CHECK(poll(&wait, 1, 10000) == 1 && (wait.revents & POLLIN));
    EVENTUALLY(count_get(&heard.calls) == 1);
    CHECK(count_get(&heard.reason) == ONELOCK_LOSS_TAKEN && heard.lease == lease && count_get(&before.calls) == 0);
    FAILS(ONELOCK_ERR_LOST, onelock_lease_extend(lease, 1000, &error));
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(outcome == ONELOCK_ALREADY_EXPIRED);

    /* too late for the event, not for the callback */
    OK(onelock_lease_on_lost(lease, on_lost, &before, &error));
    EVENTUALLY(count_get(&before.calls) == 1);
    onelock_lease_free(lease);
    onelock_lock_free(lock);
}

static void the_lock_can_bring_the_callback(void) {
    struct heard heard = {0};
    const char *name = unique("loss");
    OK(onelock_lock_options_set_on_lost(options, on_lost, &heard, &error));
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, options);
    OK(onelock_lock_options_set_on_lost(options, NULL, NULL, &error));
    onelock_lease *lease = acquired(lock);
    take_away(name);
    EVENTUALLY(count_get(&heard.calls) == 1);
    CHECK(heard.lease == lease);
    onelock_lease_free(lease);
    onelock_lock_free(lock);
}

static void no_callback_after_a_normal_end(void) {
    struct heard heard = {0};
    const char *name = unique("loss");
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, options);
    onelock_lease *lease = acquired(lock);
    OK(onelock_lease_on_lost(lease, on_lost, &heard, &error));
    released(lease);
    lease = acquired(lock);
    OK(onelock_lease_on_lost(lease, on_lost, &heard, &error));
    OK(onelock_lease_on_lost(lease, NULL, NULL, &error)); /* taken away */
    take_away(name);
    uint32_t reason = 0;
    OK(onelock_lease_wait_lost(lease, -1, &reason, &error));
    /* a callback set now runs after whatever was queued before */
    struct heard last = {0};
    OK(onelock_lease_on_lost(lease, on_lost, &last, &error));
    EVENTUALLY(count_get(&last.calls) == 1);
    CHECK(count_get(&heard.calls) == 0);
    onelock_lease_free(lease);
    onelock_lock_free(lock);
}

static void on_lost_slowly(onelock_lease *lease, uint32_t reason, void *user_data) {
    struct heard *heard = user_data;
    (void)lease;
    (void)reason;
    count_set(&heard->inside, 1);
    while (!count_get(&heard->leave)) sleep_ms(1);
    count_set(&heard->inside, 2);
}

static void *let_it_leave(void *argument) {
    struct heard *heard = argument;
    sleep_ms(50);
    count_set(&heard->leave, 1);
    return NULL;
}

static void free_waits_for_a_running_callback(void) {
    struct heard heard = {0};
    const char *name = unique("loss");
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, options);
    onelock_lease *lease = acquired(lock);
    OK(onelock_lease_on_lost(lease, on_lost_slowly, &heard, &error));
    take_away(name);
    EVENTUALLY(count_get(&heard.inside) == 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, let_it_leave, &heard) == 0);
    onelock_lease_free(lease);
    CHECK(count_get(&heard.inside) == 2);
    pthread_join(thread, NULL);
    onelock_lock_free(lock);
}

static void on_lost_free(onelock_lease *lease, uint32_t reason, void *user_data) {
    struct heard *heard = user_data;
    /* blocking calls are allowed here */
    uint32_t outcome = 0;
    CHECK(onelock_lease_release(lease, &outcome, NULL) == ONELOCK_OK);
    onelock_lease_free(lease);
    CHECK(!onelock_lease_is_held(lease) && onelock_lease_release(lease, NULL, NULL) == ONELOCK_ERR_INVALID_ARGUMENT);
    count_set(&heard->reason, (int)reason);
    count_add(&heard->calls);
}

static void a_callback_may_free_its_lease(void) {
    struct heard heard = {0};
    const char *name = unique("loss");
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, options);
    onelock_lease *lease = acquired(lock);
    OK(onelock_lease_on_lost(lease, on_lost_free, &heard, &error));
    take_away(name);
    EVENTUALLY(count_get(&heard.calls) == 1);
    onelock_lease_free(lease); /* freed twice: nothing happens */
    onelock_lock_free(lock);
}

static void max_hold_ends_a_lease(void) {
    struct heard heard = {0};
    onelock_lock_options *bounded = onelock_lock_options_new();
    OK(onelock_lock_options_set_max_hold(bounded, 100, &error));
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("max"), bounded);
    onelock_lease *lease = acquired(lock);
    OK(onelock_lease_on_lost(lease, on_lost, &heard, &error));
    EVENTUALLY(count_get(&heard.calls) == 1);
    CHECK(count_get(&heard.reason) == ONELOCK_LOSS_MAX_HOLD);
    onelock_lease_free(lease);
    onelock_lock_free(lock);
    onelock_lock_options_free(bounded);
}

static void on_jeopardy(onelock_lease *lease, void *user_data) {
    struct heard *heard = user_data;
    heard->lease = lease;
    count_add(&heard->calls);
}

static void a_missed_renewal_is_told(void) {
    struct heard heard = {0};
    onelock_client_options *impatient = onelock_client_options_new();
    OK(onelock_client_options_set_request_timeout(impatient, 100, &error));
    onelock_client *other = client_at(NULL, impatient);
    onelock_lock_options *slow = onelock_lock_options_new();
    OK(onelock_lock_options_set_ttl(slow, 20000, &error));
    OK(onelock_lock_options_set_renew_every(slow, 50, &error));
    OK(onelock_lock_options_set_on_jeopardy(slow, on_jeopardy, &heard, &error));
    onelock_lock *lock = lock_of(other, ONELOCK_KIND_MUTEX, unique("jeopardy"), slow);
    onelock_lease *lease = acquired(lock);
    char reply[64];
    ask_server("CLIENT PAUSE 600 ALL\r\n", reply, sizeof reply);
    CHECK(strcmp(reply, "+OK\r\n") == 0);
    EVENTUALLY(count_get(&heard.calls) >= 1);
    CHECK(heard.lease == lease && onelock_lease_is_held(lease));
    OK(onelock_lease_on_jeopardy(lease, NULL, NULL, &error));
    onelock_lease_free(lease);
    onelock_lock_free(lock);
    onelock_lock_options_free(slow);
    onelock_client_options_free(impatient);
    OK(onelock_client_close(other, &error));
    onelock_client_free(other);
}

int main(void) {
    client = client_at(NULL, NULL);
    options = onelock_lock_options_new();
    OK(onelock_lock_options_set_ttl(options, 10000, &error));
    OK(onelock_lock_options_set_renew_every(options, 30, &error));
    everybody_hears_of_it();
    the_lock_can_bring_the_callback();
    no_callback_after_a_normal_end();
    free_waits_for_a_running_callback();
    a_callback_may_free_its_lease();
    max_hold_ends_a_lease();
    a_missed_renewal_is_told();
    onelock_lock_options_free(options);
    onelock_client_free(client);
    puts("loss: ok");
    return 0;
}
