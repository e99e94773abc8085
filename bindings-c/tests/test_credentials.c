/* A callback gives the credentials of each new connection. */
#include "check.h"
#include "counter.h"
#include "server.h"

#include <pthread.h>

static char user[64];

/* One user data for each client: what it is to give, and what was asked of it. */
struct vault {
    counter_t asked, destroyed;
    /* NULL: it fails */
    const char *password;
    /* the request is kept for somebody else to answer */
    bool later;
    onelock_credentials_request *kept;
};

static void ask(onelock_credentials_request *request, void *data) {
    struct vault *vault = data;
    count_add(&vault->asked);
    CHECK(onelock_credentials_request_time_left_ms(request) > 0);
    if (vault->later) {
        onelock_credentials_request_free(__atomic_exchange_n(&vault->kept, request, __ATOMIC_SEQ_CST));
        return;
    }
    const char *password = __atomic_load_n(&vault->password, __ATOMIC_SEQ_CST);
    if (password == NULL) {
        OK(onelock_credentials_request_fail(request, "no token today", &error));
    } else {
        FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_credentials_request_answer(request, user, NULL, &error));
        FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_credentials_request_answer(request, user, "\xff", &error));
        OK(onelock_credentials_request_answer(request, user, password, &error));
    }
    /* it is answered, and its handle is dead */
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_credentials_request_answer(request, user, "other", &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_credentials_request_fail(request, "other", &error));
    CHECK(onelock_credentials_request_time_left_ms(request) == 0);
    onelock_credentials_request_free(request);
}

static void destroy(void *data) { count_add(&((struct vault *)data)->destroyed); }

static void say(const char *format, const char *word) {
    char command[256], reply[256];
    snprintf(command, sizeof command, format, user, word);
    ask_server(command, reply, sizeof reply);
    CHECK(reply[0] == '+' || reply[0] == ':');
}

static void rotate(const char *password) {
    say("ACL SETUSER %s on resetpass >%s ~* &* +@all\r\n", password);
    say("CLIENT KILL USER %s%s\r\n", "");
}

/* A client that asks the vault. */
static onelock_client *client_of(struct vault *vault) {
    onelock_client_options *options = onelock_client_options_new();
    onelock_client *client = NULL;
    OK(onelock_client_options_set_credentials(options, ask, vault, destroy, &error));
    OK(onelock_client_options_set_connect_timeout(options, 1000, &error));
    OK(onelock_client_options_set_unreachable_limit(options, 1000, &error));
    OK(onelock_client_new(NULL, options, &client, &error));
    onelock_client_options_free(options);
    CHECK(count_get(&vault->asked) == 0);
    return client;
}

/* Whether the lock can be taken now. */
static bool works(onelock_client *client) {
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, "c:credentials", NULL);
    onelock_lease *lease = NULL;
    onelock_status status = onelock_lock_try_acquire(lock, &lease, NULL);
    if (status == ONELOCK_OK) released(lease);
    onelock_lock_free(lock);
    return status == ONELOCK_OK;
}

/* Whether the lease was extended, and the vault asked since. */
static bool extended_anew(onelock_lease *lease, struct vault *vault, int asked) {
    if (count_get(&vault->asked) == asked) say("CLIENT KILL USER %s%s\r\n", "");
    return onelock_lease_extend(lease, 30000, NULL) == ONELOCK_OK && count_get(&vault->asked) > asked;
}

static void each_connection_asks_anew(void) {
    static struct vault vault = {.password = "first"};
    rotate("first");
    onelock_client *client = client_of(&vault);
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("held"), NULL);
    onelock_lease *lease = acquired(lock);
    int asked = count_get(&vault.asked);
    CHECK(asked > 0);
    __atomic_store_n(&vault.password, "second", __ATOMIC_SEQ_CST);
    rotate("second");
    /* a connection that had asked and was not yet the user's has been spared */
    EVENTUALLY(extended_anew(lease, &vault, asked));
    CHECK(onelock_lease_is_held(lease));
    released(lease);
    onelock_lock_free(lock);
    CHECK(count_get(&vault.destroyed) == 0);
    onelock_client_free(client);
    EVENTUALLY(count_get(&vault.destroyed) == 1);
}

static void a_failure_says_why_and_passes(void) {
    static struct vault vault;
    rotate("first");
    onelock_client *client = client_of(&vault);
    onelock_error *error = NULL;
    CHECK(onelock_client_check(client, NULL, &error) == ONELOCK_ERR_UNAVAILABLE);
    CHECK(strstr(onelock_error_message(error), "the credentials provider failed: no token today") != NULL);
    CHECK(onelock_error_is_retryable(error));
    onelock_error_free(error);
    error = NULL;
    __atomic_store_n(&vault.password, "hunter2", __ATOMIC_SEQ_CST);
    onelock_status status = onelock_client_check(client, NULL, &error);
    CHECK(status == ONELOCK_ERR_AUTH_FAILED && strstr(onelock_error_message(error), "hunter2") == NULL);
    onelock_error_free(error);
    __atomic_store_n(&vault.password, "first", __ATOMIC_SEQ_CST);
    EVENTUALLY(works(client));
    OK(onelock_client_close(client, &error));
    onelock_client_free(client);
    EVENTUALLY(count_get(&vault.destroyed) == 1);
}

static void *answer(void *data) {
    struct vault *vault = data;
    onelock_credentials_request *request = NULL;
    while (count_get(&vault->destroyed) == 0) {
        request = __atomic_exchange_n(&vault->kept, NULL, __ATOMIC_SEQ_CST);
        if (request != NULL) (void)onelock_credentials_request_answer(request, user, "first", NULL);
        sleep_ms(5);
    }
    return NULL;
}

static void an_answer_may_come_later(void) {
    static struct vault vault = {.later = true};
    rotate("first");
    onelock_client *client = client_of(&vault);
    /* nobody answers: the call is back in time */
    double begun = now_ms();
    FAILS(ONELOCK_ERR_UNAVAILABLE, onelock_client_check(client, NULL, &error));
    CHECK(now_ms() - begun < 6000);
    EVENTUALLY(onelock_credentials_request_time_left_ms(vault.kept) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, answer, &vault) == 0);
    EVENTUALLY(works(client));
    onelock_client_free(client);
    EVENTUALLY(count_get(&vault.destroyed) == 1);
    pthread_join(thread, NULL);
    onelock_credentials_request_free(vault.kept);
}

static void what_is_refused(void) {
    static struct vault first, second;
    onelock_client_options *options = onelock_client_options_new();
    onelock_client *none = NULL;
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT,
          onelock_client_options_set_credentials(options, NULL, &first, destroy, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_options_set_credentials(NULL, ask, &first, destroy, &error));
    CHECK(count_get(&first.destroyed) == 0);
    OK(onelock_client_options_set_credentials(options, ask, &first, destroy, &error));
    OK(onelock_client_options_set_credentials(options, ask, &second, destroy, &error));
    EVENTUALLY(count_get(&first.destroyed) == 1);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new("redis://u:p@127.0.0.1:1", options, &none, &error));
    onelock_client *client = client_at("memory://", options);
    onelock_client_options_free(options);
    CHECK(works(client) && count_get(&second.destroyed) == 0 && count_get(&second.asked) == 0);
    onelock_client_free(client);
    EVENTUALLY(count_get(&second.destroyed) == 1);
    CHECK(count_get(&first.destroyed) == 1);
}

int main(void) {
    snprintf(user, sizeof user, "c-credentials-%ld", (long)getpid());
    each_connection_asks_anew();
    a_failure_says_why_and_passes();
    an_answer_may_come_later();
    what_is_refused();
    say("ACL DELUSER %s%s\r\n", "");
    puts("credentials: ok");
    return 0;
}
