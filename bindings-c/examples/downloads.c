/* At most three downloads at a time, on all machines together: each takes one of three permits: cc downloads.c -pthread
 * $(pkg-config --cflags --libs onelock). The address is in $ONELOCK_URL. */
#include <onelock.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { DOWNLOADS = 12, AT_ONCE = 3 };

static onelock_client *clients[2]; /* two machines, in truth processes */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static int connected, most, done;

static int failed(onelock_error *error) {
    fprintf(stderr, "%s\n", onelock_error_message(error));
    onelock_error_free(error);
    return 1;
}

static void count(int change, int ended) {
    pthread_mutex_lock(&counting);
    connected += change;
    done += ended;
    if (connected > most) most = connected;
    pthread_mutex_unlock(&counting);
}

static void *download(void *argument) {
    onelock_lock_options *options = onelock_lock_options_new();
    onelock_lock *semaphore = NULL;
    onelock_lease *permit = NULL;
    onelock_error *error = NULL;
    /* every program names the same number of permits */
    if (onelock_lock_options_set_permits(options, AT_ONCE, &error) != ONELOCK_OK ||
        onelock_lock_new_str(argument, ONELOCK_KIND_SEMAPHORE, "partner:downloads", options, &semaphore, &error) !=
            ONELOCK_OK ||
        onelock_lock_acquire(semaphore, 30000, NULL, &permit, &error) != ONELOCK_OK) {
        failed(error);
    } else {
        struct timespec span = {0, 30000000L};
        count(1, 0);
        nanosleep(&span, NULL);
        count(-1, 1);
        onelock_lease_release(permit, NULL, NULL);
    }
    onelock_lease_free(permit);
    onelock_lock_free(semaphore);
    onelock_lock_options_free(options);
    return NULL;
}

int main(void) {
    onelock_error *error = NULL;
    pthread_t threads[DOWNLOADS];
    for (int i = 0; i < 2; i++) {
        if (onelock_client_connect(NULL, NULL, &clients[i], &error) != ONELOCK_OK) return failed(error);
    }
    for (int i = 0; i < DOWNLOADS; i++) pthread_create(&threads[i], NULL, download, clients[i % 2]);
    for (int i = 0; i < DOWNLOADS; i++) pthread_join(threads[i], NULL);
    printf("%d downloads, %d at a time at most\n", done, most);
    for (int i = 0; i < 2; i++) {
        onelock_client_close(clients[i], NULL);
        onelock_client_free(clients[i]);
    }
    return done == DOWNLOADS && most <= AT_ONCE ? 0 : 1;
}
