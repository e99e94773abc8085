/*
 * The floor: a blocking hiredis connection in a loop, with nothing around it.
 *
 * Usage: onelock-bench-hiredis PORTS LOCK FENCE CHANNEL TTL_MS FENCE_TTL_MS ACQUIRE_SHA RELEASE_SHA DELETE_SHA
 *
 * PORTS is one port, or those of several servers with commas between: then each request is written to all of them before
 * the first reply is read, and acquire proposes a fencing token as a client of Redlock does.
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

enum { THREADS = 16, SERVERS_MAX = 9 };

static int servers;
/* of each thread: its arguments, its connection to each server and the one at work, the tokens it has drawn */
static __thread char **arguments;
static __thread redisContext *connections[SERVERS_MAX];
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

static void ask(int words, const char **word) {
    char *bytes;
    long long length = redisFormatCommandArgv(&bytes, words, word, NULL);
    if (length < 0) die("malloc", NULL);
    for (int i = 0; i < servers; i++) {
        int written = 0;
        connection = connections[i];
        if (redisAppendFormattedCommand(connection, bytes, (size_t)length) != REDIS_OK) die("malloc", NULL);
        while (!written)
            if (redisBufferWrite(connection, &written) != REDIS_OK) die("not sent", NULL);
    }
    redisFreeCommand(bytes);
}

static redisReply *answer(int server) {
    void *reply;
    connection = connections[server];
    if (redisGetReply(connection, &reply) != REDIS_OK) die("no reply", NULL);
    return reply;
}

/* The number that is a script's reply, or the second one in it, says what it did. */
static void expect(const char *what, long long verdict) {
    for (int i = 0; i < servers; i++) {
        redisReply *reply = answer(i);
        const redisReply *said = reply->type == REDIS_REPLY_ARRAY && reply->elements > 1 ? reply->element[1] : reply;
        if (said->type != REDIS_REPLY_INTEGER || said->integer != verdict) die(what, reply);
        freeReplyObject(reply);
    }
}

/* A token of its own for every cycle, as long as the real ones; a counter, because this is the floor. */
static void draw(char *token, size_t size) {
    snprintf(token, size, "onelock1:%032llx", ++drawn);
}

static void scripts(void) {
    char token[64], proposed[32];
    draw(token, sizeof token);
    /* in place of the microseconds of a clock */
    if (servers > 1) snprintf(proposed, sizeof proposed, "%llu", (1ULL << 50) + drawn);
    const char *acquire[] = {"EVALSHA", arguments[ACQUIRE_SHA], "2", arguments[LOCK], arguments[FENCE], token,
                             arguments[TTL_MS], arguments[FENCE_TTL_MS], proposed};
    ask(servers == 1 ? 8 : 9, acquire);
    expect("acquire", 0);
    const char *release[] = {"EVALSHA", arguments[RELEASE_SHA], "1", arguments[LOCK], "m", token, arguments[CHANNEL], "TIME"};
    ask(servers == 1 ? 7 : 8, release);
    expect("release", 1);
}

static void plain(void) {
    char token[64];
    draw(token, sizeof token);
    const char *set[] = {"SET", arguments[LOCK], token, "NX", "PX", arguments[TTL_MS]};
    ask(6, set);
    for (int i = 0; i < servers; i++) {
        redisReply *reply = answer(i);
        if (reply->type != REDIS_REPLY_STATUS) die("SET", reply);
        freeReplyObject(reply);
    }
    const char *delete[] = {"EVALSHA", arguments[DELETE_SHA], "1", arguments[LOCK], token};
    ask(5, delete);
    for (int i = 0; i < servers; i++) {
        redisReply *reply = answer(i);
        if (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1) die("compare-and-delete", reply);
        freeReplyObject(reply);
    }
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

/* The calling thread's connections, one to each server. */
static void connect_all(void) {
    char *ports = strdup(arguments[1]), *rest = ports, *port;
    servers = 0;
    while ((port = strsep(&rest, ","))) {
        if (servers == SERVERS_MAX) die("too many servers", NULL);
        connection = redisConnect("127.0.0.1", atoi(port));
        if (!connection || connection->err) die("connect", NULL);
        connections[servers++] = connection;
    }
    free(ports);
}

static char **of_thread[THREADS];
static redisContext *connections_of[THREADS][SERVERS_MAX];
static long rounds;

static void *work(void *number) {
    int own = (int)(long)number;
    arguments = of_thread[own];
    memcpy(connections, connections_of[own], sizeof connections);
    drawn = (unsigned long long)(own + 1) << 48 | (unsigned long long)now_ns();
    for (long i = 0; i < rounds; i++) scripts();
    return NULL;
}

/* Connections and names are made before the first measurement. */
static void prepare_threads(void) {
    char **common = arguments;
    redisContext *main_connections[SERVERS_MAX];
    memcpy(main_connections, connections, sizeof connections);
    for (int i = 0; i < THREADS; i++) {
        of_thread[i] = malloc(ARGUMENTS * sizeof **of_thread);
        memcpy(of_thread[i], common, ARGUMENTS * sizeof **of_thread);
        for (int which = LOCK; which <= CHANNEL; which++) {
            char *name = strdup(common[which]), *digits = strstr(name, "00");
            if (digits) digits[0] = (char)('0' + i / 10), digits[1] = (char)('0' + i % 10);
            of_thread[i][which] = name;
        }
        connect_all();
        memcpy(connections_of[i], connections, sizeof connections);
    }
    memcpy(connections, main_connections, sizeof connections);
}

static void threads(long count) {
    pthread_t running[THREADS];
    if (!of_thread[0]) prepare_threads();
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
    connect_all();
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
