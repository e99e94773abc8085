/* What no program should do: NULL everywhere, dead handles, made-up handles, handles of another kind, freeing twice,
 * huge lengths, text that is no UTF-8. Everything gives a status, nothing crashes, nothing leaks. */
#include "check.h"

#include <pthread.h>

static void *bad; /* the handle that is tried everywhere */
static int calls;

#define HANDLE(type) ((type *)bad)
#define LIST(type) ((const type *const[1]){HANDLE(type)})
#define OUT(type) ((type **)NULL)
#define OUT_TEXT NULL
#define OUT_SIZE NULL
#define OUT_BOOL NULL
#define OUT_NUMBER NULL
#define OUT_TOTAL NULL
#define OUT_INT NULL
#define BYTES NULL
#define LENGTH 3
#define STRING NULL
#define INDEX 0
#define WAIT 0
#define MS 1000
#define NUMBER 77777
#define TOKEN 1
#define REAL 0.5
#define FLAG true
#define DATA NULL
#define ON_LOST NULL
#define ON_JEOPARDY NULL
#define ON_READY NULL
#define ON_LOG NULL
#define ON_CREDENTIALS NULL
#define ON_DESTROY NULL
#define ERR (&error)

#define STATUS(call)                                                                                         \
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, call);                                                               \
    calls++;
#define TEXT(call) CHECK((call) == NULL);
#define VALUE(call) CHECK(!(call));
#define NEW(call)
#define OTHER(call) (void)(call);
#define FREE(call) call;

static void everywhere(void *handle) {
    bad = handle;
#include "calls.h"
    /* without a place for the error object either */
#undef ERR
#undef STATUS
#undef TEXT
#undef VALUE
#undef OTHER
#undef FREE
#define ERR NULL
#define STATUS(call) CHECK((call) == ONELOCK_ERR_INVALID_ARGUMENT);
#define TEXT(call)
#define VALUE(call)
#define OTHER(call)
#define FREE(call)
#include "calls.h"
}

static void of_another_kind(void) {
    /* every kind of object against functions of other kinds */
    onelock_client *client = client_at("memory://", NULL);
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, "a", NULL);
    onelock_lease *lease = acquired(lock), *none = NULL;
    onelock_cancel *cancel = onelock_cancel_new();
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_acquire((onelock_lock *)client, 0, NULL, &none, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_acquire(lock, 0, (onelock_cancel *)lease, &none, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_close((onelock_client *)lease, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lease_release((onelock_lease *)lock, NULL, &error));
    CHECK(!onelock_cancel_cancel((onelock_cancel *)lease) && onelock_lease_is_held(lease));
    CHECK(!onelock_lease_is_held((onelock_lease *)cancel));
    onelock_client_free((onelock_client *)lease);
    onelock_lock_free((onelock_lock *)lease);
    onelock_error_free((onelock_error *)lease);
    CHECK(onelock_lease_is_held(lease));
    released(lease);
    onelock_cancel_free(cancel);
    onelock_cancel_free(cancel);
    onelock_lock_free(lock);
    onelock_lock_free(lock);
    onelock_client_free(client);
    onelock_client_free(client);
    /* the slots are used again, the old handles stay dead */
    onelock_gate *gates[200];
    for (int i = 0; i < 200; i++) gates[i] = onelock_gate_new(5);
    CHECK(!onelock_lease_is_held(lease) && !onelock_cancel_cancel(cancel));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_acquire(lock, 0, NULL, &none, &error));
    for (int i = 0; i < 200; i++) {
        CHECK(onelock_gate_highest(gates[i]) == 5);
        onelock_gate_free(gates[i]);
    }
}

static void lengths_and_texts(void) {
    onelock_client *client = client_at("memory://", NULL), *none = NULL;
    onelock_lock *lock = NULL;
    char *big = malloc(100000);
    memset(big, 'x', 99999);
    big[99999] = 0;
    size_t lengths[] = {0, 513, 65536, 65537, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        bool was_held = false;
        onelock_inspection *seen = NULL;
        FAILS(ONELOCK_ERR_INVALID_ARGUMENT,
              onelock_lock_new(client, ONELOCK_KIND_MUTEX, big, lengths[i], NULL, &lock, &error));
        FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_inspect(client, big, lengths[i], &seen, &error));
        FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_force_release(client, big, lengths[i], &was_held, &error));
    }
    OK(onelock_lock_new(client, ONELOCK_KIND_MUTEX, big, 512, NULL, &lock, &error));
    onelock_lock_free(lock);
    /* a name is bytes, any of them */
    lock = NULL;
    OK(onelock_lock_new(client, ONELOCK_KIND_MUTEX, "\0\xff\xfe", 3, NULL, &lock, &error));
    released(acquired(lock));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_attach(lock, "\xff", NULL, &error));
    onelock_lock_free(lock);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_new(client, 0, "a", 1, NULL, &lock, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_new(client, UINT32_MAX, "a", 1, NULL, &lock, &error));

    onelock_client_options *options = onelock_client_options_new();
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_options_set_label(options, "\xc3\x28", &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_options_set_label(options, big, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_options_set_ttl(options, -1, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_options_set_min_fencing_grade(options, 4, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_options_set_notify(options, 4, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_options_set_prefix(options, big, SIZE_MAX, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new(big, NULL, &none, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new("\xff\xff://", NULL, &none, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new("nonsense", NULL, &none, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new("nowhere:///tmp/locks", NULL, &none, &error));
    /* a bad option is found when the client is made */
    OK(onelock_client_options_set_drift_factor(options, 0.0 / 1.0 - 7.0, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new("memory://", options, &none, &error));
    OK(onelock_client_options_set_drift_factor(options, 0.01, &error));
    OK(onelock_client_options_set_ttl(options, INT64_MAX, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new("memory://", options, &none, &error));
    onelock_client_options_free(options);
    CHECK(none == NULL);

    /* an unaligned place for a result is no place */
    lock = lock_of(client, ONELOCK_KIND_MUTEX, "a", NULL);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT,
          onelock_lock_acquire(lock, 0, NULL, (onelock_lease **)(void *)(big + 1), &error));
    onelock_lease *lease = NULL;
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_acquire(lock, INT64_MAX, NULL, &lease, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_acquire(lock, INT64_MIN, NULL, &lease, &error));
    onelock_lock_free(lock);
    onelock_client_free(client);
    free(big);
}

static onelock_lock *shared_lock;

static void *use_until_it_is_freed(void *unused) {
    onelock_lease *lease = NULL;
    onelock_status status;
    (void)unused;
    while ((status = onelock_lock_acquire(shared_lock, 5000, NULL, &lease, NULL)) == ONELOCK_OK) {
        onelock_lease_release(lease, NULL, NULL);
        onelock_lease_free(lease);
    }
    CHECK(status == ONELOCK_ERR_INVALID_ARGUMENT);
    return NULL;
}

static void freed_under_the_feet_of_others(void) {
    for (int round = 0; round < 20; round++) {
        onelock_client *client = client_at("memory://", NULL);
        pthread_t threads[3];
        shared_lock = lock_of(client, ONELOCK_KIND_MUTEX, "a", NULL);
        for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, use_until_it_is_freed, NULL) == 0);
        sleep_ms(2);
        onelock_client_free(client);
        onelock_lock_free(shared_lock);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    }
}

int main(void) {
    onelock_gate *dead = onelock_gate_new(1), *alive = onelock_gate_new(0);
    int place = 7;
    onelock_gate_free(dead);
    everywhere(NULL);
    everywhere(dead);
    everywhere((void *)&place);
    everywhere((void *)1);
    everywhere((void *)UINTPTR_MAX);
    everywhere((void *)((uintptr_t)dead ^ (uintptr_t)1 << 30));
    CHECK(calls > 6 * 50);
    /* of another kind: no function here takes a gate, but for the gate's own */
    bad = alive;
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lease_release(HANDLE(onelock_lease), NULL, &error));
    onelock_gate_free(alive);
    of_another_kind();
    lengths_and_texts();
    freed_under_the_feet_of_others();
    puts("hostile: ok");
    return 0;
}
