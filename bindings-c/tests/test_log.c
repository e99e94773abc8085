/* What the library logs goes to the program's function, and not into it again. */
#include "check.h"
#include "counter.h"

static counter_t lines, warnings, refused;
static onelock_client *client;

static void on_line(uint32_t level, const char *message, void *user_data) {
    CHECK(user_data == &lines && message[0] != 0 && level >= ONELOCK_LOG_ERROR && level <= ONELOCK_LOG_TRACE);
    CHECK(strlen(message) > 3);
    count_add(&lines);
    if (level == ONELOCK_LOG_WARN && strstr(message, "released by force") && strstr(message, "c:log")) {
        count_add(&warnings);
    }
    /* no function that returns a status: it would have to take locks that may be held here */
    if (onelock_client_check(client, NULL, NULL) == ONELOCK_ERR_UNSUPPORTED) count_add(&refused);
}

static void use_it(const char *name) {
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
    onelock_lease *lease = acquired(lock);
    OK(onelock_client_force_release(client, name, strlen(name), NULL, &error));
    onelock_lease_free(lease);
    onelock_lock_free(lock);
}

int main(void) {
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_log_set(17, on_line, &lines, &error));
    OK(onelock_log_set(ONELOCK_LOG_TRACE, on_line, &lines, &error));
    client = client_at(NULL, NULL);
    use_it(unique("log"));
    CHECK(count_get(&lines) > 0 && count_get(&warnings) == 1 && count_get(&refused) == count_get(&lines));

    OK(onelock_log_set(ONELOCK_LOG_ERROR, on_line, &lines, &error));
    int before = count_get(&lines);
    use_it(unique("log"));
    CHECK(count_get(&lines) == before);

    OK(onelock_log_set(ONELOCK_LOG_TRACE, NULL, NULL, &error));
    use_it(unique("log"));
    CHECK(count_get(&lines) == before);
    OK(onelock_log_set(ONELOCK_LOG_WARN, on_line, &lines, &error));
    use_it(unique("log"));
    CHECK(count_get(&warnings) == 2);
    onelock_client_free(client);
    puts("log: ok");
    return 0;
}
