/* Several locks at once: all or none, one lease, and no circle of waiters. */
#include "check.h"
#include "counter.h"
#include "server.h"

#include <pthread.h>

static onelock_client *client, *rival;

static onelock_lock *several_of(onelock_lock *first, onelock_lock *second) {
    const onelock_lock *members[] = {first, second};
    onelock_lock *several = NULL;
    OK(onelock_multi_new(members, 2, &several, &error));
    CHECK(several != NULL && onelock_lock_kind(several) == ONELOCK_KIND_MULTI);
    return several;
}

static bool is_free(const char *name) {
    bool locked = true;
    onelock_lock *lock = lock_of(rival, ONELOCK_KIND_MUTEX, name, NULL);
    OK(onelock_lock_is_locked(lock, &locked, &error));
    onelock_lock_free(lock);
    return !locked;
}

static void all_or_none(void) {
    const char *a = unique("a"), *b = unique("b");
    onelock_lock *first = lock_of(client, ONELOCK_KIND_MUTEX, b, NULL);
    onelock_lock *second = lock_of(client, ONELOCK_KIND_MUTEX, a, NULL);
    onelock_lock *several = several_of(first, second);
    /* the members may go */
    onelock_lock_free(first);
    onelock_lock_free(second);
    onelock_lease *lease = acquired(several), *other = NULL;
    CHECK(!is_free(a) && !is_free(b));
    CHECK(onelock_lease_kind(lease) == ONELOCK_KIND_MULTI && onelock_lease_fencing_token(lease) == 0);
    CHECK(onelock_lease_fencing_token_of(lease, a, strlen(a)) > 0);
    CHECK(onelock_lease_fencing_token_of(lease, b, strlen(b)) > 0);
    CHECK(onelock_lease_fencing_token_of(lease, "c", 1) == 0);
    CHECK(onelock_lease_remaining_ms(lease) > 20000 && onelock_lease_hold_count(lease) == 1);
    CHECK(strcmp(onelock_kind_name(ONELOCK_KIND_MULTI), "multi_lock") == 0);
    const char *name = NULL;
    size_t length = 0;
    char both[200];
    snprintf(both, sizeof both, "%s, %s", b, a);
    OK(onelock_lease_name(lease, &name, &length, &error));
    CHECK(length == strlen(both) && memcmp(name, both, length) == 0);
    OK(onelock_lock_name(several, &name, &length, &error));
    CHECK(length == strlen(both) && memcmp(name, both, length) == 0);
    bool locked = false;
    OK(onelock_lock_is_locked(several, &locked, &error));
    CHECK(locked);
    FAILS(ONELOCK_ERR_BUSY, onelock_lock_try_acquire(several, &other, &error));
    FAILS(ONELOCK_ERR_UNSUPPORTED, onelock_lock_attach(several, "proof", &other, &error));
    OK(onelock_lease_extend(lease, 60000, &error));
    CHECK(onelock_lease_remaining_ms(lease) > 50000);
    released(lease);
    CHECK(is_free(a) && is_free(b));

    onelock_lock *taken = lock_of(rival, ONELOCK_KIND_MUTEX, b, NULL);
    onelock_lease *theirs = acquired(taken);
    FAILS(ONELOCK_ERR_TIMEOUT, onelock_lock_acquire(several, 50, NULL, &lease, &error));
    CHECK(is_free(a));
    released(theirs);
    onelock_lock_free(taken);
    onelock_lock_free(several);
}

static void what_does_not_go_together(void) {
    const char *name = unique("x");
    onelock_lock *mutex = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
    onelock_lock *reentrant = lock_of(client, ONELOCK_KIND_REENTRANT, name, NULL);
    onelock_lock *other = lock_of(client, ONELOCK_KIND_MUTEX, unique("y"), NULL);
    onelock_lock *several = several_of(mutex, other), *made = NULL;
    const onelock_lock *kinds[] = {mutex, reentrant}, *nested[] = {mutex, several}, *dead[] = {mutex, NULL};
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_multi_new(kinds, 2, &made, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_multi_new(nested, 2, &made, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_multi_new(dead, 2, &made, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_multi_new(kinds, 0, &made, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_multi_new(NULL, 2, &made, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_multi_new(kinds, 2, NULL, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_multi_new(kinds, SIZE_MAX, &made, &error));
    CHECK(made == NULL);
    onelock_lock_free(several);
    onelock_lock_free(other);
    onelock_lock_free(reentrant);
    onelock_lock_free(mutex);
}

static void on_lost(onelock_lease *lease, uint32_t reason, void *user_data) {
    (void)lease;
    CHECK(reason == ONELOCK_LOSS_TAKEN);
    count_add((counter_t *)user_data);
}

static void one_loss_is_the_loss_of_the_whole(void) {
    counter_t calls = {0};
    const char *a = unique("a"), *b = unique("b");
    onelock_lock *first = lock_of(client, ONELOCK_KIND_MUTEX, a, NULL);
    onelock_lock *second = lock_of(client, ONELOCK_KIND_REENTRANT, b, NULL);
    onelock_lock *several = several_of(first, second);
    onelock_lease *lease = acquired(several);
    OK(onelock_lease_on_lost(lease, on_lost, &calls, &error));
    bool was_held = false;
    uint32_t reason = 0, outcome = 0;
    OK(onelock_client_force_release(rival, b, strlen(b), &was_held, &error));
    CHECK(was_held);
    FAILS(ONELOCK_ERR_LOST, onelock_lease_extend(lease, 40000, &error));
    OK(onelock_lease_wait_lost(lease, 10000, &reason, &error));
    CHECK(reason == ONELOCK_LOSS_TAKEN && !onelock_lease_is_held(lease));
    FAILS(ONELOCK_ERR_LOST, onelock_lease_check_loss(lease, &error));
    EVENTUALLY(count_get(&calls) == 1);
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(outcome == ONELOCK_ALREADY_EXPIRED);
    EVENTUALLY(is_free(a));
    CHECK(count_get(&calls) == 1);
    onelock_lease_free(lease);
    onelock_lock_free(several);
    onelock_lock_free(second);
    onelock_lock_free(first);
}

static void in_the_background_and_cancelled(void) {
    const char *a = unique("a"), *b = unique("b");
    onelock_lock *first = lock_of(client, ONELOCK_KIND_MUTEX, a, NULL);
    onelock_lock *second = lock_of(rival, ONELOCK_KIND_MUTEX, b, NULL);
    onelock_lock *several = several_of(first, second);
    onelock_lease *theirs = acquired(second), *lease = NULL;
    onelock_acquisition *acquisition = NULL;
    OK(onelock_lock_acquire_start(several, -1, &acquisition, &error));
    EVENTUALLY(!is_free(a));
    onelock_acquisition_free(acquisition);
    EVENTUALLY(is_free(a));
    OK(onelock_lock_acquire_start(several, 10000, &acquisition, &error));
    released(theirs);
    EVENTUALLY(onelock_acquisition_is_ready(acquisition));
    OK(onelock_acquisition_finish(acquisition, &lease, &error));
    CHECK(onelock_lease_is_held(lease) && onelock_lease_kind(lease) == ONELOCK_KIND_MULTI);
    /* freed while it is held: released in the background */
    onelock_lease_free(lease);
    EVENTUALLY(is_free(a) && is_free(b));
    onelock_acquisition_free(acquisition);
    onelock_lock_free(several);
    onelock_lock_free(second);
    onelock_lock_free(first);
}

#define SEATS 4
static const char *forks[SEATS];
static counter_t used[SEATS];

static void *eat(void *at) {
    int seat = *(int *)at, next = (seat + 1) % SEATS;
    onelock_client *mine = seat % 2 ? client : rival;
    onelock_lock *left = lock_of(mine, ONELOCK_KIND_MUTEX, forks[seat], NULL);
    onelock_lock *right = lock_of(mine, ONELOCK_KIND_MUTEX, forks[next], NULL);
    onelock_lock *both = seat % 3 ? several_of(left, right) : several_of(right, left);
    for (int meal = 0; meal < 10; meal++) {
        onelock_lease *lease = NULL;
        OK(onelock_lock_acquire(both, 60000, NULL, &lease, &error));
        CHECK(count_get(&used[seat]) == 0 && count_get(&used[next]) == 0);
        count_set(&used[seat], 1);
        count_set(&used[next], 1);
        count_set(&used[seat], 0);
        count_set(&used[next], 0);
        released(lease);
    }
    onelock_lock_free(both);
    onelock_lock_free(right);
    onelock_lock_free(left);
    return NULL;
}

static void overlapping_sets_get_on(void) {
    pthread_t threads[SEATS];
    int seats[SEATS];
    for (int seat = 0; seat < SEATS; seat++) forks[seat] = unique("fork");
    for (int seat = 0; seat < SEATS; seat++) {
        seats[seat] = seat;
        CHECK(pthread_create(&threads[seat], NULL, eat, &seats[seat]) == 0);
    }
    for (int seat = 0; seat < SEATS; seat++) CHECK(pthread_join(threads[seat], NULL) == 0);
    for (int seat = 0; seat < SEATS; seat++) CHECK(is_free(forks[seat]));
}

int main(void) {
    client = client_at(NULL, NULL);
    rival = client_at(NULL, NULL);
    all_or_none();
    what_does_not_go_together();
    one_loss_is_the_loss_of_the_whole();
    in_the_background_and_cancelled();
    overlapping_sets_get_on();
    onelock_client_free(rival);
    onelock_client_free(client);
    puts("multi: ok");
    return 0;
}
