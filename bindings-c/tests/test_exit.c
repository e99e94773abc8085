/* The end of a process: exit() releases what is held, at most one second long; _exit() leaves it to its ttl. */
#include "server.h"

#include <signal.h>
#include <sys/wait.h>

/* What a process of its own does before it ends. It never releases. */
static int hold(const char *way, const char *name, const char *server_pid) {
    onelock_client *client = client_at(NULL, NULL);
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
    onelock_lease *lease = acquired(lock);
    if (strcmp(way, "return") == 0) return 0;
    if (strcmp(way, "_exit") == 0) _exit(0);
    if (strcmp(way, "only-lease") == 0) {
        onelock_client_free(client);
        onelock_lock_free(lock);
        return 0;
    }
    if (strcmp(way, "all-freed") == 0) {
        /* what goes back in the background is waited for as well */
        onelock_client_free(client);
        onelock_lock_free(lock);
        onelock_lease_free(lease);
        return 0;
    }
    if (strcmp(way, "deaf-server") == 0) {
        kill((pid_t)atoi(server_pid), SIGSTOP);
        return 0;
    }
    return 3;
}

static double run(const char *self, const char *way, const char *name, const char *server_pid) {
    double since = now_ms();
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(self, self, way, name, server_pid, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return now_ms() - since;
}

int main(int count, char **arguments) {
    if (count == 4) return hold(arguments[1], arguments[2], arguments[3]);
    const char *self = "/proc/self/exe";
    char reply[4096], server_pid[16] = "";
    const char *ways[] = {"return", "only-lease", "all-freed"};
    onelock_client *client = client_at(NULL, NULL);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *name = unique(ways[i]);
        onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
        onelock_lease *lease = NULL;
        run(self, ways[i], name, "0");
        OK(onelock_lock_try_acquire(lock, &lease, &error));
        released(lease);
        onelock_lock_free(lock);
    }
    const char *name = unique("_exit");
    bool locked = false;
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
    run(self, "_exit", name, "0");
    OK(onelock_lock_is_locked(lock, &locked, &error));
    CHECK(locked);
    onelock_lock_free(lock);

    /* a server that does not answer holds the exit up for a second, not for longer */
    const char *known = getenv("ONELOCK_SERVER_PID");
    if (known != NULL) {
        CHECK(snprintf(server_pid, sizeof server_pid, "%s", known) < (int)sizeof server_pid);
    } else {
        ask_server("INFO server\r\n", reply, sizeof reply);
        const char *found = strstr(reply, "process_id:");
        CHECK(found != NULL && sscanf(found, "process_id:%15[0-9]", server_pid) == 1);
    }
    double took = run(self, "deaf-server", unique("deaf"), server_pid);
    kill((pid_t)atoi(server_pid), SIGCONT);
    CHECK(took > 900 && took < 15000);
    onelock_client_free(client);
    puts("exit: ok");
    return 0;
}
