/* Waiting: other threads, limits, cancel tokens (from a thread and from a signal handler), and acquires in the
 * background with a file descriptor or a callback. */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

static onelock_client *client;

struct job {
    onelock_lock *lock;
    onelock_lease *lease;
    onelock_cancel *cancel;
    onelock_status status;
    int64_t wait_ms;
};

static uint64_t counter(uint32_t which) {
    onelock_stats *stats = NULL;
    OK(onelock_client_stats(client, &stats, &error));
    uint64_t value = onelock_stats_counter(stats, which);
    onelock_stats_free(stats);
    return value;
}

static void *wait_for_it(void *argument) {
    struct job *job = argument;
    job->status = onelock_lock_acquire(job->lock, job->wait_ms, job->cancel, &job->lease, NULL);
    return NULL;
}

static void a_waiter_gets_it_when_it_is_released(void) {
    struct job job = {lock_of(client, ONELOCK_KIND_MUTEX, unique("wait"), NULL), NULL, NULL, 0, -1};
    onelock_lease *lease = acquired(job.lock);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_it, &job) == 0);
    EVENTUALLY(counter(ONELOCK_STATS_WAITING) == 1);
    released(lease);
    pthread_join(thread, NULL);
    CHECK(job.status == ONELOCK_OK && onelock_lease_is_held(job.lease));
    /* released by another thread than the one that acquired it */
    released(job.lease);
    onelock_lock_free(job.lock);
}

static void a_token_ends_a_wait(void) {
    struct job job = {lock_of(client, ONELOCK_KIND_MUTEX, unique("cancel"), NULL), NULL, onelock_cancel_new(), 0, -1};
    onelock_lease *lease = acquired(job.lock);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_it, &job) == 0);
    EVENTUALLY(counter(ONELOCK_STATS_WAITING) == 1);
    CHECK(!onelock_cancel_is_cancelled(job.cancel));
    CHECK(onelock_cancel_cancel(job.cancel) && onelock_cancel_is_cancelled(job.cancel));
    pthread_join(thread, NULL);
    CHECK(job.status == ONELOCK_ERR_CANCELLED && job.lease == NULL);
    FAILS(ONELOCK_ERR_CANCELLED, onelock_lock_acquire(job.lock, 0, job.cancel, &job.lease, &error));
    onelock_cancel_free(job.cancel);
    CHECK(!onelock_cancel_cancel(job.cancel));
    released(lease);
    released(acquired(job.lock));
    onelock_lock_free(job.lock);
}

static onelock_cancel *in_handler;

static void on_signal(int number) {
    (void)number;
    onelock_cancel_cancel(in_handler);
}

static void *raise_alarm(void *argument) {
    EVENTUALLY(counter(ONELOCK_STATS_WAITING) == 1);
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
    return NULL;
}

static void a_signal_handler_ends_a_wait(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    in_handler = onelock_cancel_new();
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("signal"), NULL);
    onelock_lease *lease = acquired(lock), *none = NULL;
    pthread_t me = pthread_self(), thread;
    CHECK(pthread_create(&thread, NULL, raise_alarm, &me) == 0);
    FAILS(ONELOCK_ERR_CANCELLED, onelock_lock_acquire(lock, -1, in_handler, &none, &error));
    pthread_join(thread, NULL);
    onelock_cancel_free(in_handler);
    released(lease);
    onelock_lock_free(lock);
}

static bool readable(int fd, int limit_ms) {
    struct pollfd wait = {fd, POLLIN, 0};
    return poll(&wait, 1, limit_ms) == 1 && (wait.revents & POLLIN);
}

static void in_the_background_with_a_descriptor(void) {
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("fd"), NULL);
    onelock_lease *holder = acquired(lock), *lease = NULL;
    onelock_acquisition *pending = NULL;
    int fd = -1, again = -1;
    OK(onelock_lock_acquire_start(lock, 20000, &pending, &error));
    OK(onelock_acquisition_fd(pending, &fd, &error));
    OK(onelock_acquisition_fd(pending, &again, &error));
    CHECK(fd >= 0 && fd == again && !readable(fd, 0));
    onelock_error *error = NULL;
    CHECK(onelock_acquisition_finish(pending, &lease, &error) == ONELOCK_PENDING && error == NULL && lease == NULL);
    CHECK(!onelock_acquisition_is_ready(pending));
    released(holder);
    CHECK(readable(fd, 10000) && onelock_acquisition_is_ready(pending));
    OK(onelock_acquisition_finish(pending, &lease, &error));
    CHECK(onelock_lease_is_held(lease) && onelock_lease_fencing_token(lease) > 0);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_acquisition_finish(pending, &holder, &error));
    onelock_acquisition_free(pending);
    CHECK(onelock_lease_is_held(lease));

    /* errors arrive in the same way; a descriptor asked for late is readable at once */
    OK(onelock_lock_acquire_start(lock, 0, &pending, &error));
    EVENTUALLY(onelock_acquisition_is_ready(pending));
    OK(onelock_acquisition_fd(pending, &fd, &error));
    CHECK(readable(fd, 0));
    FAILS(ONELOCK_ERR_BUSY, onelock_acquisition_finish(pending, &holder, &error));
    onelock_acquisition_free(pending);

    /* cancelled: it ends, and nothing is left held */
    OK(onelock_lock_acquire_start(lock, -1, &pending, &error));
    OK(onelock_acquisition_fd(pending, &fd, &error));
    EVENTUALLY(counter(ONELOCK_STATS_WAITING) == 1);
    OK(onelock_acquisition_cancel(pending, &error));
    CHECK(readable(fd, 0));
    error = NULL;
    CHECK(onelock_acquisition_finish(pending, &holder, &error) == ONELOCK_ERR_CANCELLED);
    CHECK(strstr(onelock_error_lock_name(error), "c:fd:") && strstr(onelock_error_message(error), "c:fd:"));
    onelock_error_free(error);
    OK(onelock_acquisition_cancel(pending, &error));
    onelock_acquisition_free(pending);
    EVENTUALLY(counter(ONELOCK_STATS_WAITING) == 0);
    released(lease);

    /* granted, and freed without being taken: released */
    OK(onelock_lock_acquire_start(lock, -1, &pending, &error));
    EVENTUALLY(onelock_acquisition_is_ready(pending));
    onelock_acquisition_free(pending);
    released(acquired(lock));

    /* freed while it waits: nothing is left held */
    holder = acquired(lock);
    OK(onelock_lock_acquire_start(lock, -1, &pending, &error));
    EVENTUALLY(counter(ONELOCK_STATS_WAITING) == 1);
    onelock_acquisition_free(pending);
    released(holder);
    released(acquired(lock));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_acquire_start(lock, -2, &pending, &error));
    onelock_lock_free(lock);
}

struct told {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int calls;
    onelock_status status;
    onelock_lease *lease;
};

static void on_ready(onelock_acquisition *pending, void *user_data) {
    struct told *told = user_data;
    pthread_mutex_lock(&told->mutex);
    told->calls++;
    told->status = onelock_acquisition_finish(pending, &told->lease, NULL);
    onelock_acquisition_free(pending); /* from inside its own callback */
    pthread_cond_signal(&told->cond);
    pthread_mutex_unlock(&told->mutex);
}

static void in_the_background_with_a_callback(void) {
    struct told told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, NULL};
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("callback"), NULL);
    for (int late = 0; late < 2; late++) {
        onelock_acquisition *pending = NULL;
        OK(onelock_lock_acquire_start(lock, 20000, &pending, &error));
        if (late) EVENTUALLY(onelock_acquisition_is_ready(pending));
        OK(onelock_acquisition_on_ready(pending, on_ready, &told, &error));
        pthread_mutex_lock(&told.mutex);
        while (told.calls == late) pthread_cond_wait(&told.cond, &told.mutex);
        pthread_mutex_unlock(&told.mutex);
        CHECK(told.calls == late + 1 && told.status == ONELOCK_OK);
        released(told.lease);
    }
    onelock_lock_free(lock);
}

static void *work(void *argument) {
    int *value = argument;
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, "c:counter", NULL);
    for (int i = 0; i < 25; i++) {
        onelock_lease *lease = acquired(lock);
        int seen = *value; /* guarded by the lock alone */
        sleep_ms(0);
        *value = seen + 1;
        released(lease);
    }
    onelock_lock_free(lock);
    return NULL;
}

static void threads_exclude_each_other(void) {
    static int value;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, &value) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(value == 100);
}

int main(void) {
    client = client_at(NULL, NULL); /* $ONELOCK_URL */
    a_waiter_gets_it_when_it_is_released();
    a_token_ends_a_wait();
    a_signal_handler_ends_a_wait();
    in_the_background_with_a_descriptor();
    in_the_background_with_a_callback();
    threads_exclude_each_other();
    onelock_client_free(client);
    puts("wait: ok");
    return 0;
}
