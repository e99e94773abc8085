/*
 * The C library in the same loop as hiredis-loop.c, with the same orders.
 *
 * Usage: onelock-bench-c PORT LOCK
 *
 *   cycles N    N times: acquire and release                                        ->  p50_ns mean_ns
 *   threads N   16 threads with a lock each (LOCK with its number for "00"), N times ->  wall_ns/cycle mean_ns
 */
#include <onelock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 16 };

static onelock_client *client;
static onelock_lock *locks[THREADS];

static void die(onelock_error *error) {
    fprintf(stderr, "onelock-loop: %s\n", error ? onelock_error_message(error) : "out of memory");
    exit(1);
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void cycle(onelock_lock *lock) {
    onelock_error *error = NULL;
    onelock_lease *lease = NULL;
    if (onelock_lock_acquire(lock, -1, NULL, &lease, &error) != ONELOCK_OK ||
        onelock_lease_release(lease, NULL, &error) != ONELOCK_OK) die(error);
    onelock_lease_free(lease);
}

static int ascending(const void *a, const void *b) {
    long long left = *(const long long *)a, right = *(const long long *)b;
    return (left > right) - (left < right);
}

static long rounds;

static void *work(void *lock) {
    for (long i = 0; i < rounds; i++) cycle(lock);
    return NULL;
}

static void threads(long count) {
    pthread_t running[THREADS];
    rounds = count;
    long long begun = now_ns();
    for (int i = 0; i < THREADS; i++) pthread_create(&running[i], NULL, work, locks[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
    long long all = (now_ns() - begun) / (THREADS * count);
    printf("%lld %lld\n", all, all);
    fflush(stdout);
}

static void cycles(long count) {
    long long *took = malloc((size_t)count * sizeof *took);
    if (!took) die(NULL);
    long long begun = now_ns();
    for (long i = 0; i < count; i++) {
        long long start = now_ns();
        cycle(locks[0]);
        took[i] = now_ns() - start;
    }
    long long all = now_ns() - begun;
    qsort(took, (size_t)count, sizeof *took, ascending);
    printf("%lld %lld\n", took[count / 2], all / count);
    fflush(stdout);
    free(took);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    char url[64], name[128];
    onelock_error *error = NULL;
    snprintf(url, sizeof url, "redis://127.0.0.1:%s/", argv[1]);
    if (onelock_client_connect(url, NULL, &client, &error) != ONELOCK_OK) die(error);
    for (int i = 0; i < THREADS; i++) {
        int length = snprintf(name, sizeof name, "%s", argv[2]);
        char *digits = strstr(name, "00");
        if (digits) digits[0] = (char)('0' + i / 10), digits[1] = (char)('0' + i % 10);
        if (onelock_lock_new(client, ONELOCK_KIND_MUTEX, name, (size_t)length, NULL, &locks[i], &error) != ONELOCK_OK) die(error);
    }
    char order[16];
    long count;
    while (scanf("%15s %ld", order, &count) == 2) {
        if (count < 1) return 2;
        if (!strcmp(order, "cycles")) cycles(count);
        else if (!strcmp(order, "threads")) threads(count);
        else return 2;
    }
    return 0;
}
