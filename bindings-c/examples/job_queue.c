/* A fair job queue: three machines take jobs from one list, and each gets its turn in the order in which they ask.
 * With a plain lock, the machine that is quickest to ask again could take them all: cc job_queue.c -pthread
 * $(pkg-config --cflags --libs onelock). The address is in $ONELOCK_URL. */
#include <onelock.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { MACHINES = 3, JOBS = 30 };

/* the list; really a table or a queue that all machines read */
static int next_job;
static int taken_by[MACHINES];

static void pause_ms(long ms) {
    struct timespec span = {0, ms * 1000000L};
    nanosleep(&span, NULL);
}

static int failed(onelock_error *error) {
    fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
    return 0;
}

/* takes the next job, under the lock; 0 when there is none */
static int take(onelock_lock *lock) {
    onelock_lease *lease = NULL;
    onelock_error *error = NULL;
    if (onelock_lock_acquire(lock, 30000, NULL, &lease, &error) != ONELOCK_OK) return failed(error);
    int job = next_job < JOBS ? ++next_job : 0;
    pause_ms(10); /* the list is marked and written meanwhile, with onelock_lease_fencing_token(lease) */
    onelock_lease_release(lease, NULL, NULL);
    onelock_lease_free(lease);
    return job;
}

/* one machine: in truth a process of its own, with a client of its own */
static void *machine(void *argument) {
    int *taken = argument;
    onelock_client *client = NULL;
    onelock_lock *lock = NULL;
    onelock_error *error = NULL;
    if (onelock_client_connect(NULL, NULL, &client, &error) != ONELOCK_OK ||
        onelock_lock_new_str(client, ONELOCK_KIND_FAIR, "example:jobs", NULL, &lock, &error) != ONELOCK_OK) {
        failed(error);
    } else {
        while (take(lock) != 0) *taken += 1;
    }
    onelock_lock_free(lock);
    onelock_client_close(client, NULL);
    onelock_client_free(client);
    return NULL;
}

int main(void) {
    pthread_t threads[MACHINES];
    int total = 0, most = 0;
    for (int i = 0; i < MACHINES; i++) pthread_create(&threads[i], NULL, machine, &taken_by[i]);
    for (int i = 0; i < MACHINES; i++) {
        pthread_join(threads[i], NULL);
        total += taken_by[i];
        if (taken_by[i] > most) most = taken_by[i];
    }
    printf("%d jobs, each taken once; no machine took more than %d\n", total, most);
    return total == JOBS ? 0 : 1;
}
