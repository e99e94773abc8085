/*
 * The floor: a blocking hiredis connection in a loop, with nothing around it.
 *
 * Usage: onelock-bench-hiredis PORT LOCK FENCE CHANNEL TTL_MS FENCE_TTL_MS ACQUIRE_SHA RELEASE_SHA DELETE_SHA
 *
 * Reads orders from standard input, one a line, and answers each with one line:
 *   scripts N   N times: acquire and release by the given scripts    ->  p50_ns mean_ns
 *   plain N     N times: SET NX PX and compare-and-delete            ->  p50_ns mean_ns
 * The end of input ends it. An unexpected reply ends it with a message and status 1.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOCK = 2, FENCE, CHANNEL, TTL_MS, FENCE_TTL_MS, ACQUIRE_SHA, RELEASE_SHA, DELETE_SHA, ARGUMENTS };

static char **arguments;
static redisContext *connection;
static unsigned long long drawn;

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

int main(int argc, char **argv) {
    if (argc != ARGUMENTS) {
        fprintf(stderr, "hiredis-loop: see the head of its source for the arguments\n");
        return 2;
    }
    arguments = argv;
    connection = redisConnect("127.0.0.1", atoi(argv[1]));
    if (!connection || connection->err) die("connect", NULL);
    char order[16];
    long count;
    while (scanf("%15s %ld", order, &count) == 2) {
        if (count < 1) return 2;
        if (!strcmp(order, "scripts")) block(scripts, count);
        else if (!strcmp(order, "plain")) block(plain, count);
        else return 2;
    }
    return 0;
}
