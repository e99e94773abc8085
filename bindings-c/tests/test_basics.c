/* One thread, everything once: kinds, outcomes, options, inspection, stats, errors. */
#include "check.h"

static const char *url;

static void versions(void) {
    CHECK(strcmp(onelock_version(), ONELOCK_VERSION) == 0);
    CHECK(onelock_abi_version() == ONELOCK_ABI_VERSION);
    CHECK(strcmp(onelock_status_name(ONELOCK_OK), "Ok") == 0);
    CHECK(strcmp(onelock_status_name(ONELOCK_ERR_NOT_HELD), "NotHeld") == 0);
    CHECK(onelock_status_name(4711) == NULL && onelock_status_hint(ONELOCK_OK) == NULL);
    CHECK(strstr(onelock_status_hint(ONELOCK_ERR_TIMEOUT), "wait longer") != NULL);
    CHECK(onelock_status_is_retryable(ONELOCK_ERR_UNAVAILABLE) && !onelock_status_is_retryable(ONELOCK_ERR_LOST));
    CHECK(onelock_status_is_not_acquired(ONELOCK_ERR_BUSY) && !onelock_status_is_not_acquired(ONELOCK_ERR_CLOSED));
    CHECK(strcmp(onelock_kind_name(ONELOCK_KIND_REENTRANT), "reentrant_lock") == 0 && onelock_kind_name(9) == NULL);
    CHECK(strcmp(onelock_loss_name(ONELOCK_LOSS_TAKEN), "taken") == 0 && onelock_loss_name(0) == NULL);
    CHECK(strcmp(onelock_release_name(ONELOCK_UNCONFIRMED), "unconfirmed") == 0 && onelock_release_name(0) == NULL);
    CHECK(strcmp(onelock_grade_name(ONELOCK_GRADE_STRICT), "Strict") == 0 && onelock_grade_name(9) == NULL);
}

static void a_lock_from_beginning_to_end(onelock_client *client) {
    const char *name = unique("basics");
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
    const char *text = NULL;
    size_t length = 0;
    bool locked = true;
    uint32_t outcome = 0;

    OK(onelock_lock_name(lock, &text, &length, &error));
    CHECK(length == strlen(name) && memcmp(text, name, length) == 0);
    CHECK(onelock_lock_kind(lock) == ONELOCK_KIND_MUTEX);
    OK(onelock_lock_is_locked(lock, &locked, &error));
    CHECK(!locked);

    onelock_lease *lease = acquired(lock);
    OK(onelock_lease_name(lease, &text, &length, &error));
    CHECK(length == strlen(name) && memcmp(text, name, length) == 0);
    CHECK(onelock_lease_kind(lease) == ONELOCK_KIND_MUTEX);
    CHECK(onelock_lease_fencing_token(lease) > 0 && onelock_lease_hold_count(lease) == 1);
    CHECK(onelock_lease_fencing_grade(lease) != ONELOCK_GRADE_NONE);
    CHECK(onelock_lease_remaining_ms(lease) > 20000 && onelock_lease_remaining_ms(lease) <= 30000);
    CHECK(onelock_lease_loss(lease) == ONELOCK_LOSS_NONE);
    OK(onelock_lock_is_locked(lock, &locked, &error));
    CHECK(locked);

    onelock_lease *other = NULL;
    FAILS(ONELOCK_ERR_BUSY, onelock_lock_try_acquire(lock, &other, &error));
    FAILS(ONELOCK_ERR_BUSY, onelock_lock_acquire(lock, 0, NULL, &other, &error));
    FAILS(ONELOCK_ERR_TIMEOUT, onelock_lock_acquire(lock, 20, NULL, &other, &error));
    CHECK(other == NULL);

    OK(onelock_lease_extend(lease, 60000, &error));
    CHECK(onelock_lease_remaining_ms(lease) > 50000);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lease_extend(lease, 0, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lease_extend(lease, -5, &error));

    uint64_t first = onelock_lease_fencing_token(lease);
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(outcome == ONELOCK_RELEASED && !onelock_lease_is_held(lease) && onelock_lease_remaining_ms(lease) == 0);
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(outcome == ONELOCK_ALREADY_RELEASED && onelock_lease_hold_count(lease) == 0);
    FAILS(ONELOCK_ERR_NOT_HELD, onelock_lease_extend(lease, 1000, &error));
    onelock_lease_free(lease);

    lease = acquired(lock);
    onelock_gate *gate = onelock_gate_new(0);
    CHECK(onelock_lease_fencing_token(lease) > first);
    CHECK(onelock_gate_admit(gate, onelock_lease_fencing_token(lease)) && !onelock_gate_admit(gate, first));
    CHECK(onelock_gate_highest(gate) == onelock_lease_fencing_token(lease));
    onelock_gate_free(gate);

    /* freed while it is held: released in the background */
    onelock_lease_free(lease);
    released(acquired(lock));
    onelock_lock_free(lock);
}

static void re_entry(onelock_client *client) {
    const char *name = unique("reentrant");
    onelock_owner *owner = onelock_owner_new(), *same = NULL, *again = NULL;
    onelock_lock_options *options = onelock_lock_options_new();
    OK(onelock_lock_options_set_owner(options, owner, &error));
    onelock_owner_free(owner);
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_REENTRANT, name, options);
    onelock_lock *wrong = lock_of(client, ONELOCK_KIND_MUTEX, name, options);
    onelock_lock *nobody = lock_of(client, ONELOCK_KIND_REENTRANT, name, NULL);

    onelock_lease *outer = acquired(lock), *inner = acquired(lock), *none = NULL;
    CHECK(onelock_lease_hold_count(inner) == 2 && onelock_lease_kind(inner) == ONELOCK_KIND_REENTRANT);
    CHECK(onelock_lease_fencing_token(inner) == onelock_lease_fencing_token(outer));
    FAILS(ONELOCK_ERR_BUSY, onelock_lock_try_acquire(nobody, &none, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_try_acquire(wrong, &none, &error));
    released(inner);
    CHECK(onelock_lease_is_held(outer));
    released(outer);

    OK(onelock_owner_named("request 7", 9, &same, &error));
    OK(onelock_owner_named("request 7", 9, &again, &error));
    OK(onelock_lock_options_set_owner(options, same, &error));
    onelock_lock *first = lock_of(client, ONELOCK_KIND_REENTRANT, name, options);
    OK(onelock_lock_options_set_owner(options, again, &error));
    onelock_lock *second = lock_of(client, ONELOCK_KIND_REENTRANT, name, options);
    outer = acquired(first);
    inner = acquired(second);
    CHECK(onelock_lease_hold_count(outer) == 2);
    released(inner);
    released(outer);

    onelock_owner_free(same);
    onelock_owner_free(again);
    onelock_lock_options_free(options);
    onelock_lock_free(lock);
    onelock_lock_free(wrong);
    onelock_lock_free(nobody);
    onelock_lock_free(first);
    onelock_lock_free(second);
}

/* Step by step; not in memory, where there are no steps. */
static void diagnosing(void) {
    onelock_client *client = client_at(url, NULL);
    onelock_diagnosis *found = NULL;
    OK(onelock_client_diagnose(client, "x", 1, &found, &error));
    size_t steps = onelock_diagnosis_count(found), round_trip = 0;
    CHECK(onelock_diagnosis_severity(found) != ONELOCK_SEVERITY_FAILED && steps > 5);
    CHECK(onelock_diagnosis_grade(found) != ONELOCK_GRADE_NONE);
    for (size_t i = 0; i < steps; i++) {
        CHECK(onelock_diagnosis_step(found, i)[0] != 0 && onelock_diagnosis_detail(found, i)[0] != 0);
        CHECK(onelock_diagnosis_error(found, i) == ONELOCK_OK && onelock_diagnosis_todo(found, i) != NULL);
        CHECK(onelock_severity_name(onelock_diagnosis_step_severity(found, i)) != NULL);
        if (strcmp(onelock_diagnosis_step(found, i), "round trip") == 0) round_trip = i;
    }
    CHECK(round_trip > 0 && onelock_diagnosis_server(found, round_trip)[0] != 0);
    size_t values = onelock_diagnosis_measured_count(found, round_trip);
    CHECK(values > 0 && onelock_diagnosis_measured_name(found, round_trip, 0)[0] != 0);
    CHECK(onelock_diagnosis_measured(found, round_trip, 0) > 0);
    CHECK(onelock_diagnosis_measured_name(found, round_trip, values) == NULL);
    CHECK(onelock_diagnosis_measured(found, steps, 0) == 0 && onelock_diagnosis_step(found, steps) == NULL);
    CHECK(onelock_diagnosis_step_severity(found, steps) == 0 && onelock_severity_name(0) == NULL);
    onelock_diagnosis_free(found);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_diagnose(client, NULL, 1, &found, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_diagnose(client, NULL, 0, NULL, &error));
    onelock_client_free(client);
}

static void looking_and_forcing(void) {
    onelock_client_options *options = onelock_client_options_new();
    OK(onelock_client_options_set_prefix(options, "c\0p:", 4, &error));
    OK(onelock_client_options_set_label(options, "test_basics", &error));
    OK(onelock_client_options_set_inspectable(options, true, &error));
    OK(onelock_client_options_set_ttl(options, 5000, &error));
    onelock_client *client = client_at(url, options);
    onelock_client_options_free(options);

    const char *name = unique("look");
    onelock_inspection *seen = (onelock_inspection *)0x1;
    OK(onelock_client_inspect(client, name, strlen(name), &seen, &error));
    CHECK(seen == NULL);

    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
    onelock_lease *lease = acquired(lock);
    OK(onelock_client_inspect(client, name, strlen(name), &seen, &error));
    CHECK(onelock_inspection_kind(seen) == ONELOCK_KIND_MUTEX && onelock_inspection_hold_count(seen) == 1);
    CHECK(onelock_inspection_ttl_left_ms(seen) > 3000 && onelock_inspection_ttl_left_ms(seen) <= 5000);
    CHECK(onelock_inspection_fencing_token(seen) == onelock_lease_fencing_token(lease));
    CHECK(onelock_inspection_has_owner(seen));
    CHECK(strcmp(onelock_inspection_owner_label(seen), "test_basics") == 0);
    CHECK(onelock_inspection_owner_host(seen)[0] != 0);
    CHECK(onelock_inspection_owner_pid(seen) == (uint32_t)getpid());
    CHECK(onelock_inspection_owner_since_ms(seen) / 1000 + 100 > (uint64_t)time(NULL));
    CHECK(onelock_inspection_waiting(seen) == 0 && onelock_inspection_waiters(seen) == 0);
    CHECK(onelock_inspection_permits(seen) == -1 && onelock_inspection_free_permits(seen) == -1);
    CHECK(onelock_inspection_waiter_label(seen, 0) == NULL && onelock_inspection_waiter_pid(seen, 0) == 0);
    onelock_inspection_free(seen);

    onelock_page *page = NULL;
    size_t length = 0;
    OK(onelock_client_list(client, "*", 1, 100, NULL, &page, &error));
    CHECK(onelock_page_count(page) == 1 && onelock_page_next(page) == NULL && onelock_page_waiting(page, 0) == 0);
    CHECK(memcmp(onelock_page_name(page, 0, &length), name, strlen(name)) == 0 && length == strlen(name));
    CHECK(onelock_page_name(page, 1, &length) == NULL && length == 0 && onelock_page_waiting(page, 1) == -1);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_page_inspection(page, 1, &seen, &error));
    OK(onelock_page_inspection(page, 0, &seen, &error));
    onelock_page_free(page);
    CHECK(onelock_inspection_origin(seen) == ONELOCK_ORIGIN_ONELOCK);
    CHECK(strcmp(onelock_origin_name(onelock_inspection_origin(seen)), "onelock") == 0);
    CHECK(strcmp(onelock_inspection_owner_label(seen), "test_basics") == 0);
    onelock_inspection_free(seen);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_list(client, "*", 1, 0, NULL, &page, &error));

    bool was_held = false;
    uint32_t outcome = 0;
    OK(onelock_client_force_release(client, name, strlen(name), &was_held, &error));
    CHECK(was_held);
    OK(onelock_client_force_release(client, name, strlen(name), &was_held, &error));
    CHECK(!was_held);
    OK(onelock_client_force_release(client, name, strlen(name), NULL, &error));
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(outcome == ONELOCK_ALREADY_EXPIRED);
    onelock_lease_free(lease);
    onelock_lock_free(lock);

    onelock_stats *stats = NULL;
    OK(onelock_client_stats(client, &stats, &error));
    CHECK(onelock_stats_counter(stats, ONELOCK_STATS_ACQUIRED) == 1);
    CHECK(onelock_stats_counter(stats, ONELOCK_STATS_HELD) == 0);
    CHECK(onelock_stats_counter(stats, ONELOCK_STATS_COMMANDS_SENT) >= 4 && onelock_stats_counter(stats, 999) == 0);
    CHECK(onelock_stats_histogram_count(stats, ONELOCK_HISTOGRAM_WAIT) == 1);
    CHECK(onelock_stats_histogram_count(stats, ONELOCK_HISTOGRAM_HOLD) == 1);
    CHECK(onelock_stats_histogram_quantile_us(stats, ONELOCK_HISTOGRAM_WAIT, 1.0) > 0);
    uint64_t sum = 0;
    for (size_t bucket = 0; bucket < 40; bucket++) {
        sum += onelock_stats_histogram_bucket(stats, ONELOCK_HISTOGRAM_WAIT, bucket);
    }
    CHECK(sum == 1 && onelock_stats_histogram_sum_us(stats, 9) == 0);
    onelock_stats_free(stats);
    onelock_client_free(client);
}

static void handing_over(onelock_client *client) {
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("hand"), NULL);
    onelock_lease *lease = acquired(lock), *next = NULL;
    uint64_t token = onelock_lease_fencing_token(lease);
    onelock_proof *proof = NULL;
    uint32_t outcome = 0;
    OK(onelock_lease_detach(lease, &proof, &error));
    CHECK(!onelock_lease_is_held(lease));
    OK(onelock_lease_release(lease, &outcome, &error));
    CHECK(outcome == ONELOCK_ALREADY_RELEASED);
    FAILS(ONELOCK_ERR_NOT_HELD, onelock_lease_detach(lease, &proof, &error));
    onelock_lease_free(lease);
    OK(onelock_lock_attach(lock, onelock_proof_text(proof), &next, &error));
    CHECK(onelock_lease_is_held(next) && onelock_lease_fencing_token(next) == token);
    onelock_lease *again = NULL;
    FAILS(ONELOCK_ERR_LOST, onelock_lock_attach(lock, onelock_proof_text(proof), &again, &error));
    CHECK(again == NULL && onelock_lease_is_held(next));
    OK(onelock_lease_extend(next, 20000, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_attach(lock, "nonsense", &next, &error));
    onelock_proof_free(proof);
    released(next);
    onelock_lock_free(lock);
}

static void every_option(void) {
    onelock_client_options *options = onelock_client_options_new();
    OK(onelock_client_options_set_auto_renew(options, false, &error));
    OK(onelock_client_options_set_min_hold(options, 0, &error));
    OK(onelock_client_options_set_max_hold(options, 60000, &error));
    OK(onelock_client_options_set_drift_factor(options, 0.02, &error));
    OK(onelock_client_options_set_lock_delay(options, 10, &error));
    OK(onelock_client_options_set_min_validity(options, 5, &error));
    OK(onelock_client_options_set_fencing(options, false, &error));
    OK(onelock_client_options_set_connect_timeout(options, 3000, &error));
    OK(onelock_client_options_set_request_timeout(options, 2000, &error));
    OK(onelock_client_options_set_close_timeout(options, 500, &error));
    OK(onelock_client_options_set_unreachable_limit(options, 1000, &error));
    OK(onelock_client_options_set_min_fencing_grade(options, ONELOCK_GRADE_NONE, &error));
    OK(onelock_client_options_set_ca_file(options, "/nowhere/ca.pem", &error));
    OK(onelock_client_options_set_client_certificate(options, "/nowhere/c.pem", "/nowhere/k.pem", &error));
    OK(onelock_client_options_set_tls_insecure(options, false, &error));
    OK(onelock_client_options_set_notify(options, ONELOCK_NOTIFY_BOTH, &error));
    OK(onelock_client_options_set_min_replicas(options, 0, &error));
    OK(onelock_client_options_set_replica_timeout(options, 500, &error));
    OK(onelock_client_options_set_node_timeout(options, 150, &error));
    OK(onelock_client_options_set_quarantine(options, 0, &error));
    OK(onelock_client_options_set_accepted_warnings(options, "persistence, replicas", &error));
    OK(onelock_client_options_set_sentinel_username(options, "watcher", &error));
    OK(onelock_client_options_set_sentinel_password(options, "secret", &error));
    OK(onelock_client_options_set_sentinel_tls(options, false, &error));
    onelock_client *client = client_at(url, options);

    onelock_lock_options *lock_options = onelock_lock_options_new();
    OK(onelock_lock_options_set_ttl(lock_options, 2000, &error));
    onelock_lock *plain = lock_of(client, ONELOCK_KIND_MUTEX, unique("options"), lock_options);
    onelock_lease *lease = acquired(plain);
    CHECK(onelock_lease_fencing_token(lease) == 0 && onelock_lease_fencing_grade(lease) == ONELOCK_GRADE_NONE);
    CHECK(onelock_lease_remaining_ms(lease) <= 2000);
    released(lease);

    OK(onelock_lock_options_set_fencing(lock_options, true, &error));
    OK(onelock_lock_options_set_auto_renew(lock_options, true, &error));
    OK(onelock_lock_options_set_min_hold(lock_options, 0, &error));
    OK(onelock_lock_options_set_max_hold(lock_options, 50000, &error));
    OK(onelock_lock_options_set_lock_delay(lock_options, 0, &error));
    OK(onelock_lock_options_set_min_validity(lock_options, 0, &error));
    OK(onelock_lock_options_set_renew_every(lock_options, 500, &error));
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("options"), lock_options);
    lease = acquired(lock);
    CHECK(onelock_lease_fencing_token(lease) > 0);
    released(lease);
    OK(onelock_lock_options_set_ttl(lock_options, 1, &error));
    onelock_lock *bad = lock_of(client, ONELOCK_KIND_MUTEX, unique("options"), lock_options);
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_lock_acquire(bad, 0, NULL, &lease, &error));

    onelock_lock_free(plain);
    onelock_lock_free(lock);
    onelock_lock_free(bad);
    onelock_lock_options_free(lock_options);
    onelock_client_free(client);

    onelock_client *none = NULL;
    OK(onelock_client_options_set_min_fencing_grade(options, ONELOCK_GRADE_STRICT, &error));
    FAILS(ONELOCK_ERR_INVALID_ARGUMENT, onelock_client_new(url, options, &none, &error));
    OK(onelock_client_options_set_fencing(options, true, &error));
    if (strncmp(url, "memory:", 7) != 0) {
        FAILS(ONELOCK_ERR_UNSUPPORTED, onelock_client_connect(url, options, &none, &error));
    }
    CHECK(none == NULL);
    onelock_client_options_free(options);
}

static void errors_say_what_happened(onelock_client *client) {
    onelock_error *error = NULL;
    const char *name = unique("error");
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, name, NULL);
    onelock_lease *lease = acquired(lock), *none = NULL;
    CHECK(onelock_lock_acquire(lock, 5, NULL, &none, &error) == ONELOCK_ERR_TIMEOUT);
    CHECK(strcmp(onelock_error_kind(error), "Timeout") == 0);
    CHECK(strcmp(onelock_error_lock_name(error), name) == 0);
    CHECK(strcmp(onelock_error_tried(error), "acquire") == 0 && onelock_error_detail(error)[0] != 0);
    CHECK(strstr(onelock_error_message(error), name) != NULL);
    CHECK(onelock_error_is_retryable(error) && onelock_error_cause(error, 99) == NULL);
    onelock_error_free(error);
    /* without an error pointer the status is all there is, and nothing leaks */
    CHECK(onelock_lock_acquire(lock, 0, NULL, &none, NULL) == ONELOCK_ERR_BUSY);
    released(lease);
    onelock_lock_free(lock);

    /* nobody listens there; the password must not show */
    onelock_client *far = NULL;
    error = NULL;
    CHECK(onelock_client_connect("redis://:hunter2@127.0.0.1:1/", NULL, &far, &error) == ONELOCK_ERR_UNAVAILABLE);
    CHECK(far == NULL && onelock_error_cause_count(error) == 1);
    CHECK(strstr(onelock_error_cause(error, 0), "127.0.0.1:1") != NULL);
    CHECK(strstr(onelock_error_message(error), "hunter2") == NULL && onelock_error_lock_name(error) == NULL);
    onelock_error_free(error);
}

static void the_server(onelock_client *client) {
    onelock_facts *facts = NULL;
    OK(onelock_client_check(client, &facts, &error));
    CHECK(onelock_facts_server(facts)[0] != 0 && onelock_facts_grade(facts) >= ONELOCK_GRADE_BEST_EFFORT);
    for (size_t i = 0; i < onelock_facts_warning_count(facts); i++) CHECK(onelock_facts_warning(facts, i)[0] != 0);
    CHECK(onelock_facts_warning(facts, onelock_facts_warning_count(facts)) == NULL);
    onelock_facts_free(facts);
    OK(onelock_client_check(client, NULL, &error));
}

static void closing(void) {
    onelock_client *client = client_at(url, NULL);
    onelock_lock *lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("close"), NULL);
    onelock_lease *lease = acquired(lock), *none = NULL;
    OK(onelock_client_close(client, &error));
    OK(onelock_client_close(client, &error));
    CHECK(!onelock_lease_is_held(lease));
    uint32_t outcome = 0;
    OK(onelock_lease_release(lease, &outcome, &error));
    FAILS(ONELOCK_ERR_CLOSED, onelock_lock_acquire(lock, 0, NULL, &none, &error));
    FAILS(ONELOCK_ERR_CLOSED, onelock_client_check(client, NULL, &error));
    onelock_lease_free(lease);
    onelock_lock_free(lock);
    onelock_client_free(client);

    /* what a closed client held is free for others; a freed handle keeps nothing from working */
    client = client_at(url, NULL);
    lock = lock_of(client, ONELOCK_KIND_MUTEX, unique("freed"), NULL);
    onelock_client_free(client);
    lease = acquired(lock);
    onelock_lock_free(lock);
    CHECK(onelock_lease_is_held(lease));
    released(lease);
}

int main(void) {
    url = getenv("ONELOCK_URL");
    versions();
    diagnosing();
    for (int round = 0; round < 2; round++) {
        onelock_client *client = client_at(url, NULL);
        a_lock_from_beginning_to_end(client);
        re_entry(client);
        looking_and_forcing();
        handing_over(client);
        every_option();
        errors_say_what_happened(client);
        the_server(client);
        onelock_client_free(client);
        closing();
        url = "memory://c-basics";
    }
    puts("basics: ok");
    return 0;
}
