/* Counters between threads, for C99 too, which has no <stdatomic.h>: the builtins of gcc and clang. */
#ifndef COUNTER_H
#define COUNTER_H

typedef struct {
    int value;
} counter_t;

static inline int count_get(counter_t *counter) { return __atomic_load_n(&counter->value, __ATOMIC_SEQ_CST); }
static inline void count_set(counter_t *counter, int value) {
    __atomic_store_n(&counter->value, value, __ATOMIC_SEQ_CST);
}
static inline void count_add(counter_t *counter) { __atomic_add_fetch(&counter->value, 1, __ATOMIC_SEQ_CST); }

#endif
