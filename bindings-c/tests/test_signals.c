/* Blocking calls end in time however often signals come, over plain TCP and over TLS. */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

/* Far more than a call needs, also on a busy machine: calls that are kept awake by signals went on for ever. */
#define IN_TIME_MS 20000

static volatile sig_atomic_t ticks;

static void tick(int number) {
    (void)number;
    ticks = ticks + 1;
}

/* A signal every 10 ms; 0 ends it. */
static void signals_every(long us, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = tick;
    action.sa_flags = flags;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval timer;
    timer.it_interval.tv_sec = timer.it_value.tv_sec = 0;
    timer.it_interval.tv_usec = timer.it_value.tv_usec = us;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void calls_end(const char *url, const char *authority, int flags) {
    pid_t server = (pid_t)atol(getenv("ONELOCK_TLS_PID"));
    onelock_client_options *options = onelock_client_options_new();
    OK(onelock_client_options_set_request_timeout(options, 500, &error));
    if (authority) {
        OK(onelock_client_options_set_ca_file(options, authority, &error));
    }
    onelock_client *client = client_at(url, options);
    onelock_client_options_free(options);
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("signals"), NULL);
    signals_every(10000, flags);

    onelock_lease *lease = acquired(lock), *none = NULL;
    sig_atomic_t before = ticks;
    double begun = now_ms();
    FAILS(ONELOCK_ERR_TIMEOUT, onelock_lock_acquire(lock, 300, NULL, &none, &error));
    CHECK(now_ms() - begun < IN_TIME_MS && none == NULL);
    CHECK(ticks - before >= 3);

    /* a server that does not answer: the call takes no longer than one request */
    CHECK(kill(server, SIGSTOP) == 0);
    uint32_t outcome = 0;
    begun = now_ms();
    before = ticks;
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(now_ms() - begun < IN_TIME_MS);
    CHECK(ticks - before >= 3);
    CHECK(kill(server, SIGCONT) == 0);
    CHECK(outcome == ONELOCK_UNCONFIRMED);

    signals_every(0, 0);
    onelock_lease_free(lease);
    onelock_lock_free(lock);
    onelock_client_free(client);
}

int main(void) {
    const int restarted[] = {0, SA_RESTART};
    for (unsigned at = 0; at < 2; at++) {
        calls_end(getenv("ONELOCK_PLAIN_URL"), NULL, restarted[at]);
        calls_end(getenv("ONELOCK_TLS_URL"), getenv("ONELOCK_TLS_CA"), restarted[at]);
    }
    puts("signals: ok");
    return 0;
}
