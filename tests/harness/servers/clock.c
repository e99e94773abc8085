/* Stands in front of the C library's functions of these names in a server under test: the time of day is so many
 * nanoseconds ahead as the file that ONELOCK_CLOCK names says. All other clocks tell what they always do. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *step;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ONELOCK_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *seen = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    if (seen != MAP_FAILED) step = seen;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = (int)syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t now = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + __atomic_load_n(step, __ATOMIC_RELAXED);
        out->tv_sec = now / 1000000000;
        out->tv_nsec = now % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
