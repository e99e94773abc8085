/* A plug-in's life: the library is opened with dlopen and closed with a client open and a lease held. It is not linked. */
#include <dlfcn.h>
#include <onelock.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: failed: %s (%s)\n", __FILE__, __LINE__, #condition, dlerror());          \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

/* The only way that C has to turn what dlsym gives into a function. */
#define FIND(pointer, name)                                                                                  \
    do {                                                                                                     \
        void *found = dlsym(library, name);                                                                  \
        CHECK(found != NULL);                                                                                \
        memcpy(&(pointer), &found, sizeof found);                                                            \
    } while (0)

static onelock_status (*connect_to)(const char *, const onelock_client_options *, onelock_client **, onelock_error **);
static onelock_status (*new_lock)(const onelock_client *, uint32_t, const char *, size_t, const onelock_lock_options *,
                                  onelock_lock **, onelock_error **);
static onelock_status (*acquire)(const onelock_lock *, int64_t, const onelock_cancel *, onelock_lease **,
                                 onelock_error **);
static bool (*is_held)(const onelock_lease *);
static onelock_lock_options *(*new_options)(void);
static onelock_status (*set_ttl)(onelock_lock_options *, int64_t, onelock_error **);

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        FIND(connect_to, "onelock_client_connect");
        FIND(new_lock, "onelock_lock_new");
        FIND(acquire, "onelock_lock_acquire");
        FIND(is_held, "onelock_lease_is_held");
        FIND(new_options, "onelock_lock_options_new");
        FIND(set_ttl, "onelock_lock_options_set_ttl");
        onelock_client *client = NULL;
        onelock_lock *lock = NULL;
        onelock_lease *lease = NULL;
        onelock_lock_options *options = new_options();
        CHECK(set_ttl(options, 300, NULL) == ONELOCK_OK);
        CHECK(connect_to(NULL, NULL, &client, NULL) == ONELOCK_OK);
        CHECK(new_lock(client, ONELOCK_KIND_MUTEX, round ? "c:dl1" : "c:dl0", 5, options, &lock, NULL) == ONELOCK_OK);
        CHECK(acquire(lock, 5000, NULL, &lease, NULL) == ONELOCK_OK);
        CHECK(dlclose(library) == 0);
        /* still mapped, still renewing: three times the ttl later it is held */
        struct timespec span = {0, 900 * 1000 * 1000};
        nanosleep(&span, NULL);
        CHECK(is_held(lease));
    }
    /* and the end of the process is an orderly one */
    puts("dlopen: ok");
    return 0;
}
