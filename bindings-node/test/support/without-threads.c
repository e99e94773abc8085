/*
 * Preloaded into Node.js: while the environment has ONELOCK_TEST_NO_THREADS, nobody gets a thread, as where the machine has
 * no more of them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (getenv("ONELOCK_TEST_NO_THREADS")) return EAGAIN;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (!real) abort();
    return real(thread, attributes, work, argument);
}
