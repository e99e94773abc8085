/* A small worker: four threads take jobs from a list that several such processes share, each job done by one of them.
 * Ctrl-C ends the waits: the cancel token may be used in a signal handler. */
#include <onelock.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, JOBS = 20 };

static onelock_client *client;
static onelock_cancel *stop;
static int done_by_thread[THREADS];

static void on_interrupt(int number) {
    (void)number;
    onelock_cancel_cancel(stop);
}

static void do_job(int job, uint64_t fencing_token) {
    /* give the token to the database with every write: it can turn away a holder that is late */
    printf("job %d under token %llu\n", job, (unsigned long long)fencing_token);
}

static void *work(void *argument) {
    int *count = argument;
    for (int job = 0; job < JOBS; job++) {
        char name[32];
        int length = snprintf(name, sizeof name, "example:job:%d", job % 5);
        onelock_error *error = NULL;
        onelock_lock *lock = NULL;
        onelock_lease *lease = NULL;
        if (onelock_lock_new(client, ONELOCK_KIND_MUTEX, name, (size_t)length, NULL, &lock, &error) == ONELOCK_OK &&
            onelock_lock_acquire(lock, 30000, stop, &lease, &error) == ONELOCK_OK) {
            do_job(job, onelock_lease_fencing_token(lease));
            *count += 1;
            onelock_lease_release(lease, NULL, NULL);
        } else {
            fprintf(stderr, "%s\n", onelock_error_message(error));
        }
        onelock_error_free(error);
        onelock_lease_free(lease);
        onelock_lock_free(lock);
        if (onelock_cancel_is_cancelled(stop)) break;
    }
    return NULL;
}

int main(void) {
    onelock_error *error = NULL;
    pthread_t threads[THREADS];
    struct sigaction action;

    stop = onelock_cancel_new();
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, NULL);

    if (onelock_client_connect(NULL, NULL, &client, &error) != ONELOCK_OK) {
        fprintf(stderr, "%s\n", onelock_error_message(error));
        onelock_error_free(error);
        onelock_cancel_free(stop);
        return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &done_by_thread[i]);
    int total = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        total += done_by_thread[i];
    }
    printf("%d jobs done\n", total);
    onelock_client_close(client, NULL);
    onelock_client_free(client);
    onelock_cancel_free(stop);
    return total == THREADS * JOBS ? 0 : 1;
}
