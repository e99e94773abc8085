/*
 * One of several processes that have a lock in turn, on the C library. See main.py for the arguments and the notes.
 *
 * Usage: turns-c PORT NAME NOTES INDEX MODE HOLD_US
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <onelock.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HOLDER, RELEASED, COUNT, CAPACITY, PORTS = 8, FIRST = 64, MANY = 500 };

static int notes, news;
static long hold_us;
static onelock_lock *lock;

static void die(const char *what, onelock_error *error) {
    fprintf(stderr, "turns-c: %s: %s\n", what, error ? onelock_error_message(error) : "");
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t get(int64_t word) {
    int64_t value;
    if (pread(notes, &value, 8, word * 8) != 8) die("the notes", NULL);
    return value;
}

static void set(int64_t word, int64_t value) {
    if (pwrite(notes, &value, 8, word * 8) != 8) die("the notes", NULL);
}

static int granted(int64_t who) {
    int64_t at = now_ns(), before = get(HOLDER), released = get(RELEASED), count = get(COUNT);
    int goes_on = count < get(CAPACITY);
    if (goes_on) {
        set(FIRST + count * 3, at - released);
        set(FIRST + count * 3 + 1, who);
        set(FIRST + count * 3 + 2, at);
        set(COUNT, count + 1);
    }
    set(HOLDER, who);
    if (before >= 0 && before != who) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)get(PORTS + before))};
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sendto(news, "!", 1, 0, (struct sockaddr *)&to, sizeof to);
    }
    return goes_on;
}

static void pause_us(long us) {
    struct timespec span = {.tv_nsec = us * 1000};
    if (us) nanosleep(&span, NULL);
}

/* One turn; false when enough has been measured. */
static int turn(int64_t who) {
    onelock_error *error = NULL;
    onelock_lease *lease = NULL;
    if (onelock_lock_acquire(lock, -1, NULL, &lease, &error) != ONELOCK_OK) die("acquire", error);
    int goes_on = granted(who);
    pause_us(hold_us);
    set(RELEASED, now_ns());
    if (onelock_lease_release(lease, NULL, &error) != ONELOCK_OK) die("release", error);
    onelock_lease_free(lease);
    return goes_on;
}

static void *work(void *number) {
    while (turn(-1 - (int64_t)(intptr_t)number)) {}
    return NULL;
}

static void ready(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(1);
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    const char *name = argv[2], *mode = argv[5];
    char url[64], byte[8];
    int64_t me = atoi(argv[4]);
    hold_us = atol(argv[6]);
    notes = open(argv[3], O_RDWR);
    news = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof here;
    if (notes < 0 || bind(news, (struct sockaddr *)&here, length) || getsockname(news, (struct sockaddr *)&here, &length))
        die("the notes", NULL);
    set(PORTS + me, ntohs(here.sin_port));
    onelock_error *error = NULL;
    onelock_client *client;
    const char *fair = getenv("BENCH_LOCK");
    int kind = fair && !strcmp(fair, "fair") ? ONELOCK_KIND_FAIR : ONELOCK_KIND_MUTEX;
    snprintf(url, sizeof url, "redis://127.0.0.1:%s/", argv[1]);
    if (onelock_client_connect(url, NULL, &client, &error) != ONELOCK_OK ||
        onelock_lock_new(client, kind, name, strlen(name), NULL, &lock, &error) != ONELOCK_OK)
        die("connect", error);
    ready();
    if (!strcmp(mode, "inside")) {
        pthread_t all[MANY];
        for (intptr_t i = 0; i < MANY; i++) {
            if (pthread_create(&all[i], NULL, work, (void *)i)) die("pthread_create", NULL);
        }
        for (int i = 0; i < MANY; i++) pthread_join(all[i], NULL);
    } else {
        while (turn(me)) {
            if (!strcmp(mode, "turns") && recv(news, byte, sizeof byte, 0) < 0) die("recv", NULL);
        }
    }
    sleep(600);
    return 0;
}
