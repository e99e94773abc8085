/* Arbitrary sequences of calls of every exported function, with arguments that fit and arguments that do not.
 *
 *     fuzz [SEED [CALLS [THREADS]]]
 *
 * The same seed makes the same calls (with one thread). Whatever happens, nothing may crash, hang or leak: run it under
 * AddressSanitizer. With -DLIBFUZZER it is a libFuzzer target, and the input takes the place of the random numbers. */
#include "check.h"
#include "counter.h"

#include <pthread.h>

enum { POOL = 96, BIG = 70000 };

static void *pool[POOL];
static char big[BIG];
static counter_t callbacks;
static int threads = 1;

struct dice {
    uint64_t state;
    const uint8_t *input;
    size_t left;
    bool from_input;
};

static uint32_t roll(struct dice *dice, uint32_t sides) {
    if (dice->from_input) {
        uint32_t value = 0;
        for (int i = 0; i < 2 && dice->left > 0; i++, dice->left--) value = value << 8 | *dice->input++;
        return value % sides;
    }
    dice->state ^= dice->state << 13;
    dice->state ^= dice->state >> 7;
    dice->state ^= dice->state << 17;
    return (uint32_t)(dice->state >> 33) % sides;
}

/* A handle of any kind, dead ones among them, or what is none. */
static void *handle(struct dice *dice) {
    switch (roll(dice, 12)) {
        case 0: return NULL;
        case 1: return (void *)(uintptr_t)roll(dice, 100000);
        case 2: return (void *)((uintptr_t)__atomic_load_n(&pool[roll(dice, POOL)], __ATOMIC_SEQ_CST) ^ 1u << roll(dice, 31));
        default: return __atomic_load_n(&pool[roll(dice, POOL)], __ATOMIC_SEQ_CST);
    }
}

static void free_as_anything(void *made);

/* Into the pool; what was in its place is freed, so that nothing leaks. */
static void keep(struct dice *dice, void *made) {
    free_as_anything(__atomic_exchange_n(&pool[roll(dice, POOL)], made, __ATOMIC_SEQ_CST));
}

static size_t length(struct dice *dice) {
    static const size_t lengths[] = {0, 1, 1, 1, 2, 3, 511, 512, 513, 65536, 65537, SIZE_MAX / 2, SIZE_MAX};
    return lengths[roll(dice, sizeof lengths / sizeof *lengths)];
}

static const char *bytes(struct dice *dice) { return roll(dice, 8) == 0 ? NULL : big + roll(dice, 3); }

static const char *string(struct dice *dice) {
    static const char *const strings[] = {
        "memory://", "memory://fuzz", "memory://fuzz", "", "redis://127.0.0.1:1/", "redis://[::1", "\xff\xfe", "x://",
        "%s%n", "1.mutex.00", "label", "redis://u:p@h:99999/0", "redlock://a,b,c", "unix:///nowhere",
    };
    if (roll(dice, 16) == 0) return roll(dice, 2) ? NULL : big;
    return strings[roll(dice, sizeof strings / sizeof *strings)];
}

/* Never -1: a wait without an end would be one. */
static int64_t wait_ms(struct dice *dice) {
    static const int64_t waits[] = {0, 0, 0, 1, 2, -2, INT64_MIN};
    return waits[roll(dice, sizeof waits / sizeof *waits)];
}

static int64_t ms(struct dice *dice) {
    static const int64_t spans[] = {0, 1, 9, 10, 50, 1000, 30000, 31536000000, 31536000001, -1, INT64_MAX, INT64_MIN};
    return spans[roll(dice, sizeof spans / sizeof *spans)];
}

static double real(struct dice *dice) {
    static const double reals[] = {0.0, 0.01, 0.5, 0.6, -1.0, 1e308, -0.0};
    static const double zero;
    uint32_t which = roll(dice, 9);
    return which == 7 ? zero / zero : which == 8 ? 1 / zero : reals[which];
}

static void on_lost(onelock_lease *lease, uint32_t reason, void *data) {
    (void)reason;
    count_add(&callbacks);
    if (data == big) onelock_lease_free(lease);
}
static void on_jeopardy(onelock_lease *lease, void *data) {
    (void)data;
    count_add(&callbacks);
    (void)onelock_lease_is_held(lease);
}
static void on_ready(onelock_acquisition *acquisition, void *data) {
    count_add(&callbacks);
    if (data == big) onelock_acquisition_free(acquisition);
}
static void on_log(uint32_t level, const char *message, void *data) {
    (void)level;
    (void)data;
    CHECK(strlen(message) < 100000);
    count_add(&callbacks);
}
static void on_credentials(onelock_credentials_request *request, void *data) {
    count_add(&callbacks);
    if (data == big) onelock_credentials_request_free(request);
    else (void)onelock_credentials_request_answer(request, NULL, "secret", NULL);
}
static void on_destroy(void *data) {
    CHECK(data == big || data == NULL);
    count_add(&callbacks);
}

/* how many functions there are: each of the macros counts one */
#define STATUS(call) +1
#define TEXT(call) +1
#define VALUE(call) +1
#define OTHER(call) +1
#define NEW(call) +1
#define FREE(call) +1
enum { FUNCTIONS = 0
#include "calls.h"
};
#undef STATUS
#undef TEXT
#undef VALUE
#undef OTHER
#undef NEW
#undef FREE

static void one_call(struct dice *dice) {
    void *out = NULL;
    onelock_error *failed = NULL;
    const char *text = NULL;
    size_t size = 0;
    bool flag = false;
    uint32_t number = 0;
    uint64_t total = 0;
    int fd = -1;
    onelock_status status = ONELOCK_OK;
    uint32_t which = roll(dice, FUNCTIONS);
    uint32_t counted = 0;

/* one time in sixteen there is no place for a result */
#define PLACE(place) (roll(dice, 16) == 0 ? NULL : &(place))
#define HANDLE(type) ((type *)handle(dice))
#define LIST(type) ((const type *const[1]){HANDLE(type)})
#define OUT(type) ((type **)(void *)PLACE(out))
#define OUT_TEXT PLACE(text)
#define OUT_SIZE PLACE(size)
#define OUT_BOOL PLACE(flag)
#define OUT_NUMBER PLACE(number)
#define OUT_TOTAL PLACE(total)
#define OUT_INT PLACE(fd)
#define BYTES bytes(dice)
#define LENGTH length(dice)
#define STRING string(dice)
#define INDEX (roll(dice, 4) == 0 ? SIZE_MAX : roll(dice, 40))
#define WAIT wait_ms(dice)
#define MS ms(dice)
#define NUMBER (roll(dice, 8) == 0 ? UINT32_MAX - roll(dice, 3) : roll(dice, 34))
#define TOKEN ((uint64_t)roll(dice, 1000) << roll(dice, 60))
#define REAL real(dice)
#define FLAG (roll(dice, 2) == 0)
#define DATA ((void *)(roll(dice, 2) ? big : NULL))
#define ON_LOST (roll(dice, 3) ? on_lost : NULL)
#define ON_JEOPARDY (roll(dice, 3) ? on_jeopardy : NULL)
#define ON_READY (roll(dice, 3) ? on_ready : NULL)
#define ON_LOG (roll(dice, 3) ? on_log : NULL)
#define ON_CREDENTIALS (roll(dice, 3) ? on_credentials : NULL)
#define ON_DESTROY (roll(dice, 3) ? on_destroy : NULL)
#define ERR PLACE(failed)

#define IS_NEXT (counted++ == which)
#define STATUS(call)                                                                                         \
    if (IS_NEXT) status = (call);
/* with more than one thread the object may be freed before its text is read */
#define TEXT(call)                                                                                           \
    if (IS_NEXT) {                                                                                           \
        const char *found = (call);                                                                          \
        if (found != NULL && threads == 1) CHECK(strlen(found) < 1000000);                                   \
    }
#define VALUE(call)                                                                                          \
    if (IS_NEXT) (void)(call);
#define OTHER(call) VALUE(call)
#define NEW(call)                                                                                            \
    if (IS_NEXT) keep(dice, (call));
#define FREE(call)                                                                                           \
    if (IS_NEXT) call;
#include "calls.h"

    CHECK(counted == FUNCTIONS);
    CHECK(onelock_status_name(status) != NULL);
    if (status == ONELOCK_OK || status == ONELOCK_PENDING) {
        CHECK(failed == NULL);
    } else {
        CHECK(out == NULL && text == NULL && status != ONELOCK_ERR_INTERNAL);
    }
    if (text != NULL && size > 0 && threads == 1) CHECK(memchr(text, 'x', size) == text);
    if (out != NULL) keep(dice, out);
    if (failed != NULL) keep(dice, failed);
}

/* Frees a handle as what it is: as anything else nothing happens. */
static void free_as_anything(void *made) {
#undef HANDLE
#undef STATUS
#undef TEXT
#undef VALUE
#undef OTHER
#undef NEW
#undef FREE
#define HANDLE(type) ((type *)made)
#define STATUS(call)
#define TEXT(call)
#define VALUE(call)
#define OTHER(call)
#define NEW(call)
#define FREE(call) call;
#include "calls.h"
}

static void *play(void *argument) {
    struct dice *dice = argument;
    long calls = dice->from_input ? 1000000 : (long)dice->left;
    for (long i = 0; i < calls && !(dice->from_input && dice->left == 0); i++) {
        uint32_t place = roll(dice, POOL);
        if (roll(dice, 8) == 0) free_as_anything(__atomic_exchange_n(&pool[place], NULL, __ATOMIC_SEQ_CST));
        one_call(dice);
    }
    return NULL;
}

static void clean_up(void) {
    for (int i = 0; i < POOL; i++) {
        free_as_anything(pool[i]);
        pool[i] = NULL;
    }
    OK(onelock_log_set(ONELOCK_LOG_OFF, NULL, NULL, &error));
}

#ifdef LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dice dice = {0, data, size, true};
    memset(big, 'x', sizeof big - 1);
    play(&dice);
    clean_up();
    return 0;
}
#else
int main(int count, char **arguments) {
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    size_t calls = count > 2 ? strtoul(arguments[2], NULL, 0) : 20000;
    threads = count > 3 ? atoi(arguments[3]) : 1;
    CHECK(threads >= 1 && threads <= 8);
    memset(big, 'x', sizeof big - 1);
    struct dice dice[8];
    pthread_t running[8];
    for (int i = 0; i < threads; i++) {
        dice[i] = (struct dice){(seed + 1) * 0x9E3779B97F4A7C15u + (uint64_t)i, NULL, calls, false};
        CHECK(pthread_create(&running[i], NULL, play, &dice[i]) == 0);
    }
    for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
    clean_up();
    printf("fuzz: seed %llu, %d x %zu calls, %d callbacks: ok\n", (unsigned long long)seed, threads, calls,
           count_get(&callbacks));
    return 0;
}
#endif
