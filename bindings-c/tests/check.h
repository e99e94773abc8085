/* What the tests share: checks that say where they failed, clients and locks in one line, waiting for conditions. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <onelock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                          \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* The call must succeed; `error` is the name of the error variable to use in it. */
#define OK(call)                                                                                             \
    do {                                                                                                     \
        onelock_error *error = NULL;                                                                         \
        onelock_status ok_status = (call);                                                                   \
        if (ok_status != ONELOCK_OK) {                                                                       \
            fprintf(stderr, "%s:%d: %s\n    %s\n", __FILE__, __LINE__, #call,                                \
                    error ? onelock_error_message(error) : "(no error object)");                             \
            _exit(1);                                                                                        \
        }                                                                                                    \
        CHECK(error == NULL);                                                                                \
    } while (0)

/* The call must fail with this status, and the error object must say the same. */
#define FAILS(expected, call)                                                                                \
    do {                                                                                                     \
        onelock_error *error = NULL;                                                                         \
        onelock_status fails_status = (call);                                                                \
        if (fails_status != (expected)) {                                                                    \
            fprintf(stderr, "%s:%d: %s\n    expected %s, found %s: %s\n", __FILE__, __LINE__, #call,         \
                    #expected, onelock_status_name(fails_status),                                            \
                    error ? onelock_error_message(error) : "(no error object)");                             \
            _exit(1);                                                                                        \
        }                                                                                                    \
        CHECK(error != NULL && onelock_error_status(error) == (expected));                                   \
        onelock_error_free(error);                                                                           \
    } while (0)

/* Waits for a condition, at most half a minute (valgrind is slow, and so is a busy machine). */
#define EVENTUALLY(condition)                                                                                \
    do {                                                                                                     \
        int eventually_left = 30000;                                                                         \
        while (!(condition) && eventually_left-- > 0) sleep_ms(1);                                           \
        if (eventually_left <= 0) {                                                                          \
            fprintf(stderr, "%s:%d: never came: %s\n", __FILE__, __LINE__, #condition);                      \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static inline void sleep_ms(long ms) {
    struct timespec span = {ms / 1000, (ms % 1000) * 1000000};
    while (nanosleep(&span, &span) != 0 && errno == EINTR) {
    }
}

static inline double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1000.0 + (double)now.tv_nsec / 1e6;
}

/* A name of its own for every test: the server may be shared. */
static inline const char *unique(const char *what) {
    static char names[16][96];
    static unsigned next;
    char *name = names[next % 16];
    snprintf(name, sizeof names[0], "c:%s:%ld:%u", what, (long)getpid(), next++);
    return name;
}

static inline onelock_client *client_at(const char *url, const onelock_client_options *options) {
    onelock_client *client = NULL;
    OK(onelock_client_connect(url, options, &client, &error));
    CHECK(client != NULL);
    return client;
}

static inline onelock_lock *lock_of(onelock_client *client, uint32_t kind, const char *name,
                                    const onelock_lock_options *options) {
    onelock_lock *lock = NULL;
    OK(onelock_lock_new(client, kind, name, strlen(name), options, &lock, &error));
    CHECK(lock != NULL);
    return lock;
}

static inline onelock_lease *acquired(onelock_lock *lock) {
    onelock_lease *lease = NULL;
    OK(onelock_lock_acquire(lock, 10000, NULL, &lease, &error));
    CHECK(onelock_lease_is_held(lease));
    return lease;
}

static inline void released(onelock_lease *lease) {
    uint32_t outcome = 0;
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(outcome == ONELOCK_RELEASED);
    onelock_lease_free(lease);
}

#endif
