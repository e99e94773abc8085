/*
 * The floor: a blocking hiredis connection in a loop, with nothing around it.
 *
 * Usage: onelock-bench-hiredis PORT LOCK FENCE CHANNEL TTL_MS FENCE_TTL_MS ACQUIRE_SHA RELEASE_SHA DELETE_SHA
 *
 * Reads orders from standard input, one a line, and answers each with one line:
 *   scripts N   N times: acquire and release by the given scripts    ->  p50_ns mean_ns
 *   plain N     N times: SET NX PX and compare-and-delete            ->  p50_ns mean_ns
 *   threads N   16 threads with a connection and a lock each (the names with the thread's number for "00"), N times
 *               the scripts                                          ->  wall_ns/cycle mean_ns
 * The end of input ends it. An unexpected reply ends it with a message and status 1.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOCK = 2, FENCE, CHANNEL, TTL_MS, FENCE_TTL_MS, ACQUIRE_SHA, RELEASE_SHA, DELETE_SHA, ARGUMENTS };

enum { THREADS = 16 };

/* of each thread: its arguments, its connection, the tokens it has drawn */
static __thread char **arguments;
static __thread redisContext *connection;
static __thread unsigned long long drawn;

static void die(const char *what, const redisReply *reply) {
    const char *detail = reply && reply->str ? reply->str : connection ? connection->errstr : strerror(errno);
    fprintf(stderr, "hiredis-loop: %s: %s\n", what, detail);
    exit(1);
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static redisReply *call(int words, const char **word) {
    redisReply *reply = redisCommandArgv(connection, words, word, NULL);
    if (!reply) die("no reply", NULL);
    return reply;
}

/* The second number of a script's reply says what it did. */
static void expect(const char *what, redisReply *reply, long long verdict) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 || reply->element[1]->integer != verdict)
        die(what, reply);
    freeReplyObject(reply);
}

/* A token of its own for every cycle, as long as the real ones; a counter, because this is the floor. */
static void draw(char *token, size_t size) {
    snprintf(token, size, "onelock1:%032llx", ++drawn);
}

static void scripts(void) {
    char token[64];
    draw(token, sizeof token);
    const char *acquire[] = {"EVALSHA", arguments[ACQUIRE_SHA], "2", arguments[LOCK], arguments[FENCE], token,
                             arguments[TTL_MS], arguments[FENCE_TTL_MS]};
    expect("acquire", call(8, acquire), 0);
    const char *release[] = {"EVALSHA", arguments[RELEASE_SHA], "1", arguments[LOCK], "m", token, arguments[CHANNEL]};
    expect("release", call(7, release), 1);
}

static void plain(void) {
    char token[64];
    draw(token, sizeof token);
    const char *set[] = {"SET", arguments[LOCK], token, "NX", "PX", arguments[TTL_MS]};
    redisReply *reply = call(6, set);
    if (reply->type != REDIS_REPLY_STATUS) die("SET", reply);
    freeReplyObject(reply);
    const char *delete[] = {"EVALSHA", arguments[DELETE_SHA], "1", arguments[LOCK], token};
    reply = call(5, delete);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1) die("compare-and-delete", reply);
    freeReplyObject(reply);
}

static int ascending(const void *a, const void *b) {
    long long left = *(const long long *)a, right = *(const long long *)b;
    return (left > right) - (left < right);
}

static void block(void (*cycle)(void), long count) {
    long long *took = malloc((size_t)count * sizeof *took);
    if (!took) die("malloc", NULL);
    long long begun = now_ns();
    for (long i = 0; i < count; i++) {
        long long start = now_ns();
        cycle();
        took[i] = now_ns() - start;
    }
    long long all = now_ns() - begun;
    qsort(took, (size_t)count, sizeof *took, ascending);
    printf("%lld %lld\n", took[count / 2], all / count);
    fflush(stdout);
    free(took);
}

static redisContext *connected(void) {
    redisContext *made = redisConnect("127.0.0.1", atoi(arguments[1]));
    connection = made;
    if (!made || made->err) die("connect", NULL);
    return made;
}

static char **of_thread[THREADS];
static redisContext *connection_of[THREADS];
static long rounds;

static void *work(void *number) {
    int own = (int)(long)number;
    arguments = of_thread[own];
    connection = connection_of[own];
    drawn = (unsigned long long)(own + 1) << 48 | (unsigned long long)now_ns();
    for (long i = 0; i < rounds; i++) scripts();
    return NULL;
}

/* Connections and names are made before the first measurement. */
static void prepare_threads(void) {
    char **common = arguments;
    redisContext *main_connection = connection;
    for (int i = 0; i < THREADS; i++) {
        of_thread[i] = malloc(ARGUMENTS * sizeof **of_thread);
        memcpy(of_thread[i], common, ARGUMENTS * sizeof **of_thread);
        for (int which = LOCK; which <= CHANNEL; which++) {
            char *name = strdup(common[which]), *digits = strstr(name, "00");
            if (digits) digits[0] = (char)('0' + i / 10), digits[1] = (char)('0' + i % 10);
            of_thread[i][which] = name;
        }
        connection_of[i] = connected();
    }
    connection = main_connection;
}

static void threads(long count) {
    pthread_t running[THREADS];
    if (!connection_of[0]) prepare_threads();
    rounds = count;
    long long begun = now_ns();
    for (long i = 0; i < THREADS; i++) pthread_create(&running[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
    long long all = (now_ns() - begun) / (THREADS * count);
    printf("%lld %lld\n", all, all);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != ARGUMENTS) {
        fprintf(stderr, "hiredis-loop: see the head of its source for the arguments\n");
        return 2;
    }
    arguments = argv;
    connection = connected();
    char order[16];
    long count;
    while (scanf("%15s %ld", order, &count) == 2) {
        if (count < 1) return 2;
        if (!strcmp(order, "scripts")) block(scripts, count);
        else if (!strcmp(order, "plain")) block(plain, count);
        else if (!strcmp(order, "threads")) threads(count);
        else return 2;
    }
    return 0;
}
