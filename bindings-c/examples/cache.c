/* A cache that many read and that one refreshes: readers share the lock, and whoever finds the value too old takes
 * it alone, looks again, and refreshes it once for all: cc cache.c -pthread $(pkg-config --cflags --libs onelock).
 * The address is in $ONELOCK_URL. */
#include <onelock.h>
#include <pthread.h>
#include <stdio.h>

enum { READERS = 12 };

static onelock_client *clients[2]; /* two machines, in truth processes */
/* what all machines read: really a file or a row */
static int value, refreshed;

static void failed(onelock_error *error) {
    fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
}

static onelock_lease *enter(onelock_client *client, uint32_t side) {
    onelock_lock *lock = NULL;
    onelock_lease *lease = NULL;
    onelock_error *error = NULL;
    if (onelock_lock_new_str(client, side, "example:cache", NULL, &lock, &error) != ONELOCK_OK ||
        onelock_lock_acquire(lock, 30000, NULL, &lease, &error) != ONELOCK_OK)
        failed(error);
    onelock_lock_free(lock);
    return lease;
}

static void leave(onelock_lease *lease) {
    onelock_lease_release(lease, NULL, NULL);
    onelock_lease_free(lease);
}

static int read_value(onelock_client *client) {
    onelock_error *error = NULL;
    onelock_lease *lease = enter(client, ONELOCK_KIND_READ); /* many at a time */
    if (lease == NULL) return 0;
    int found = value;
    leave(lease);
    if (found != 0) return found;
    lease = enter(client, ONELOCK_KIND_WRITE);
    if (lease == NULL) return 0;
    if (value == 0) value = 41 + ++refreshed; /* if no other one has refreshed it while this one waited */
    /* others may read from here on, and no writer comes in between */
    if (onelock_lease_downgrade(lease, &error) != ONELOCK_OK) failed(error);
    found = value;
    leave(lease);
    return found;
}

static void *reader(void *argument) {
    int *result = argument;
    *result = read_value(clients[*result]);
    return NULL;
}

int main(void) {
    onelock_error *error = NULL;
    pthread_t threads[READERS];
    int results[READERS], served = 0;
    for (int i = 0; i < 2; i++) {
        if (onelock_client_connect(NULL, NULL, &clients[i], &error) != ONELOCK_OK) {
            failed(error);
            return 1;
        }
    }
    for (int i = 0; i < READERS; i++) {
        results[i] = i % 2;
        pthread_create(&threads[i], NULL, reader, &results[i]);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        served += results[i] == 42;
    }
    printf("%d readers, refreshed %d time\n", served, refreshed);
    for (int i = 0; i < 2; i++) {
        onelock_client_close(clients[i], NULL);
        onelock_client_free(clients[i]);
    }
    return served == READERS && refreshed == 1 ? 0 : 1;
}
