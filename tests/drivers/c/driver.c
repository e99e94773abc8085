/* The C driver: carries out what the supervisor asks for, one line of JSON at a time, with a thread for each request.
 * `driver blocking` waits in onelock_lock_acquire, `driver background` begins an acquire and polls its descriptor. The
 * protocol stands in tests/drivers/README.md. */
#include "json.h"

#include <onelock.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;

enum { OBJECTS = 4096 };

/* Clients, leases and waiting acquires under their names. */
typedef struct {
    char *name;
    void *object;
} named;

static named clients[OBJECTS], leases[OBJECTS], cancels[OBJECTS], acquisitions[OBJECTS];
static pthread_mutex_t names = PTHREAD_MUTEX_INITIALIZER, output = PTHREAD_MUTEX_INITIALIZER;
static bool background;

/* One request on its way. */
typedef struct {
    json_object *args;
    u64 id, from_ns;
    char *ok;                /* what is answered, as JSON */
    size_t ok_size;
    FILE *out;               /* writes `ok` */
    onelock_error *error;
    const char *failed;      /* the kind Body or Driver, when it was not the library */
    const char *message;
} request;

static u64 now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
}

/* Puts an object under a name (NULL takes it away) and returns what was there. */
static void *put(named *table, const char *name, void *object) {
    void *before = NULL;
    named *place = NULL;
    pthread_mutex_lock(&names);
    for (int i = 0; i < OBJECTS; i++) {
        if (table[i].name == NULL) {
            if (place == NULL) place = &table[i];
        } else if (strcmp(table[i].name, name) == 0) {
            place = &table[i];
            break;
        }
    }
    if (place != NULL) {
        before = place->object;
        free(place->name);
        place->name = object != NULL ? strdup(name) : NULL;
        place->object = object;
    }
    pthread_mutex_unlock(&names);
    return before;
}

static void *get(named *table, const char *name) {
    void *found = NULL;
    pthread_mutex_lock(&names);
    for (int i = 0; i < OBJECTS && found == NULL; i++) {
        if (table[i].name != NULL && strcmp(table[i].name, name) == 0) found = table[i].object;
    }
    pthread_mutex_unlock(&names);
    return found;
}

static const char *text(const request *r, const char *key) { return json_get(r->args, key)->text; }

static bool fail(request *r, const char *kind, const char *message) {
    r->failed = kind;
    r->message = message;
    return false;
}

static bool ok(request *r, onelock_status status) { return status == ONELOCK_OK || (r->failed = "", false); }

static void tell(const char *event, const char *lease, const char *reason) {
    u64 at_ns = now_ns();
    pthread_mutex_lock(&output);
    printf("{\"event\":\"%s\",\"lease\":", event);
    json_print(stdout, lease, strlen(lease));
    if (reason != NULL) printf(",\"reason\":\"%s\"", reason);
    printf(",\"at_ns\":%llu}\n", at_ns);
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

static void on_lost(onelock_lease *lease, uint32_t reason, void *name) {
    (void)lease;
    tell("lost", name, onelock_loss_name(reason));
}

static void on_jeopardy(onelock_lease *lease, void *name) {
    (void)lease;
    tell("jeopardy", name, NULL);
}

static void put_text(request *r, const char *found) {
    if (found == NULL) fputs("null", r->out);
    else json_print(r->out, found, strlen(found));
}

static bool view(request *r, onelock_lease *lease) {
    const char *name = "";
    size_t length = 0;
    u64 at_ns = now_ns();
    bool held = onelock_lease_is_held(lease);
    long long remaining = onelock_lease_remaining_ms(lease);
    u64 token = onelock_lease_fencing_token(lease);
    if (!ok(r, onelock_lease_name(lease, &name, &length, &r->error))) return false;
    fprintf(r->out, "{\"at_ns\":%llu,\"held\":%s,\"remaining_ms\":%lld,\"name\":", at_ns, held ? "true" : "false", remaining);
    json_print(r->out, name, length);
    fprintf(r->out, ",\"kind\":\"%s\",\"token\":", onelock_kind_name(onelock_lease_kind(lease)));
    if (token == 0) fputs("null", r->out);
    else fprintf(r->out, "%llu", token);
    fprintf(r->out, ",\"count\":%llu,\"loss\":", (u64)onelock_lease_hold_count(lease));
    put_text(r, onelock_loss_name(onelock_lease_loss(lease)));
    putc('}', r->out);
    return true;
}

/* A granted lease gets its name and its callbacks; a re-entered hold has told them before. */
static bool granted(request *r, onelock_lease *lease) {
    onelock_lease *before = put(leases, text(r, "lease"), lease);
    if (onelock_lease_hold_count(lease) <= 1) {
        char *name = strdup(text(r, "lease")); /* as long as the process: a callback may come at any time */
        if (!ok(r, onelock_lease_on_lost(lease, on_lost, name, &r->error))) return false;
        if (!ok(r, onelock_lease_on_jeopardy(lease, on_jeopardy, name, &r->error))) return false;
    }
    onelock_lease_free(before);
    return true;
}

#define SET_MS(noun, options, name)                                                                          \
    (json_get(r->args, #name "_ms")->type == ABSENT ||                                                       \
     ok(r, onelock_##noun##_set_##name(options, (int64_t)json_get(r->args, #name "_ms")->number, &r->error)))
#define SET_BOOL(noun, options, name)                                                                        \
    (json_get(r->args, #name)->type == ABSENT ||                                                             \
     ok(r, onelock_##noun##_set_##name(options, json_get(r->args, #name)->number != 0, &r->error)))

static bool set_client_options(request *r, onelock_client_options *o) {
    const json_value *prefix = json_get(r->args, "prefix"), *label = json_get(r->args, "label");
    const json_value *drift = json_get(r->args, "drift_factor"), *grade = json_get(r->args, "min_fencing_grade");
    uint32_t number = 0;
    while (grade->type == TEXT && onelock_grade_name(number) != NULL &&
           strcmp(onelock_grade_name(number), grade->text) != 0) number++;
    return (prefix->type == ABSENT || ok(r, onelock_client_options_set_prefix(o, prefix->text, prefix->length, &r->error))) &&
           (label->type == ABSENT || ok(r, onelock_client_options_set_label(o, label->text, &r->error))) &&
           (drift->type == ABSENT || ok(r, onelock_client_options_set_drift_factor(o, drift->number, &r->error))) &&
           (grade->type == ABSENT || ok(r, onelock_client_options_set_min_fencing_grade(o, number, &r->error))) &&
           SET_MS(client_options, o, ttl) && SET_BOOL(client_options, o, auto_renew) &&
           SET_MS(client_options, o, min_hold) && SET_MS(client_options, o, max_hold) &&
           SET_MS(client_options, o, lock_delay) &&
           SET_MS(client_options, o, min_validity) && SET_BOOL(client_options, o, fencing) &&
           SET_MS(client_options, o, connect_timeout) && SET_MS(client_options, o, request_timeout) &&
           SET_MS(client_options, o, close_timeout) && SET_MS(client_options, o, unreachable_limit) &&
           SET_MS(client_options, o, quarantine) &&
           SET_BOOL(client_options, o, inspectable);
}

static bool make_client(request *r) {
    onelock_client *client = NULL;
    onelock_client_options *options = onelock_client_options_new();
    bool done = set_client_options(r, options) &&
                ok(r, onelock_client_connect(text(r, "url"), options, &client, &r->error));
    onelock_client_options_free(options);
    if (done) onelock_client_free(put(clients, text(r, "client"), client));
    return done;
}

static onelock_lock *make_lock(request *r, onelock_client *client) {
    const json_value *name = json_get(r->args, "name"), *by = json_get(r->args, "owner");
    const json_value *permits = json_get(r->args, "permits"), *count = json_get(r->args, "count");
    uint32_t kind = strcmp(text(r, "kind"), "reentrant_lock") == 0 ? ONELOCK_KIND_REENTRANT
                    : strcmp(text(r, "kind"), "semaphore") == 0    ? ONELOCK_KIND_SEMAPHORE
                    : strcmp(text(r, "kind"), "fair_lock") == 0    ? ONELOCK_KIND_FAIR
                    : strcmp(text(r, "kind"), "read_lock") == 0    ? ONELOCK_KIND_READ
                    : strcmp(text(r, "kind"), "write_lock") == 0   ? ONELOCK_KIND_WRITE
                                                                   : ONELOCK_KIND_MUTEX;
    const json_value *also = json_get(r->args, "also");
    onelock_lock *lock = NULL, *second = NULL, *both = NULL;
    onelock_owner *owner = NULL;
    onelock_lock_options *o = onelock_lock_options_new();
    bool done = SET_MS(lock_options, o, ttl) && SET_BOOL(lock_options, o, auto_renew) &&
                SET_MS(lock_options, o, min_hold) && SET_MS(lock_options, o, max_hold) &&
                SET_MS(lock_options, o, lock_delay) && SET_MS(lock_options, o, min_validity) &&
                SET_BOOL(lock_options, o, fencing) &&
                (by->type == ABSENT || (ok(r, onelock_owner_named(by->text, by->length, &owner, &r->error)) &&
                                        ok(r, onelock_lock_options_set_owner(o, owner, &r->error)))) &&
                (permits->type == ABSENT ||
                 ok(r, onelock_lock_options_set_permits(o, (uint32_t)permits->number, &r->error))) &&
                (count->type == ABSENT || ok(r, onelock_lock_options_set_count(o, (uint32_t)count->number, &r->error))) &&
                ok(r, onelock_lock_new(client, kind, name->text, name->length, o, &lock, &r->error));
    if (done && also->type != ABSENT) {
        done = ok(r, onelock_lock_new(client, kind, also->text, also->length, o, &second, &r->error));
        const onelock_lock *members[] = {lock, second};
        done = done && ok(r, onelock_multi_new(members, 2, &both, &r->error));
        onelock_lock_free(lock);
        onelock_lock_free(second);
        lock = both;
    }
    onelock_lock_options_free(o);
    onelock_owner_free(owner);
    return done ? lock : NULL;
}

/* Begins in the background and polls the descriptor until there is a result. */
static onelock_status acquire_in_background(request *r, onelock_lock *lock, int64_t wait_ms, onelock_lease **lease,
                                            const char *id) {
    onelock_acquisition *acquisition = NULL;
    int fd = -1;
    onelock_status status = onelock_lock_acquire_start(lock, wait_ms, &acquisition, &r->error);
    if (status != ONELOCK_OK) return status;
    put(acquisitions, id, acquisition);
    /* a cancel may have come before that */
    if (onelock_cancel_is_cancelled(get(cancels, id))) onelock_acquisition_cancel(acquisition, NULL);
    status = onelock_acquisition_fd(acquisition, &fd, &r->error);
    struct pollfd wait = {fd, POLLIN, 0};
    while (status == ONELOCK_OK && poll(&wait, 1, -1) != 1) {
    }
    if (status == ONELOCK_OK) status = onelock_acquisition_finish(acquisition, lease, &r->error);
    put(acquisitions, id, NULL);
    onelock_acquisition_free(acquisition);
    return status;
}

static onelock_lease *acquire(request *r, onelock_client *client, bool try_once) {
    onelock_lease *lease = NULL;
    onelock_lock *lock = make_lock(r, client);
    if (lock == NULL) return NULL;
    const json_value *wait = json_get(r->args, "wait_ms");
    int64_t wait_ms = wait->type == ABSENT ? -1 : (int64_t)wait->number;
    char id[32];
    snprintf(id, sizeof id, "%llu", r->id);
    if (try_once) {
        ok(r, onelock_lock_try_acquire(lock, &lease, &r->error));
    } else if (background) {
        ok(r, acquire_in_background(r, lock, wait_ms, &lease, id));
    } else {
        onelock_cancel *cancel = get(cancels, id);
        ok(r, onelock_lock_acquire(lock, wait_ms, cancel, &lease, &r->error));
    }
    onelock_lock_free(lock);
    if (lease != NULL && !granted(r, lease)) return NULL;
    return lease;
}

/* C has no scopes that end by themselves: acquire, work, and release whatever comes. */
static bool with(request *r, onelock_client *client) {
    const char *body = text(r, "body");
    onelock_lease *lease = acquire(r, client, false);
    if (lease == NULL || !view(r, lease)) return false;
    uint32_t reason = 0;
    if (strcmp(body, "until_lost") == 0 && !ok(r, onelock_lease_wait_lost(lease, -1, &reason, &r->error))) return false;
    bool failed = strcmp(body, "fail") == 0;
    bool locked = strcmp(body, "until_free") == 0;
    onelock_lock *lock = locked ? make_lock(r, client) : NULL;
    while (locked && onelock_lock_is_locked(lock, &locked, NULL) == ONELOCK_OK) poll(NULL, 0, 10);
    onelock_lock_free(lock);
    onelock_status status = onelock_lease_release(lease, NULL, &r->error);
    if (status == ONELOCK_OK && !failed) status = onelock_lease_check_loss(lease, &r->error);
    /* who frees a lease hears no more of it: one that was lost stays until its callback has run */
    if (status == ONELOCK_OK) onelock_lease_free(put(leases, text(r, "lease"), NULL));
    if (failed) return fail(r, "Body", "the body failed");
    return ok(r, status);
}

static void put_number(request *r, const char *name, long long number) {
    fputs(name, r->out);
    if (number < 0) fputs("null", r->out);
    else fprintf(r->out, "%lld", number);
}

static void put_waiter(request *r, onelock_inspection *seen, size_t index) {
    const char *label = onelock_inspection_waiter_label(seen, index);
    fputs(index == 0 ? "{\"client\":" : ",{\"client\":", r->out);
    if (label == NULL) fputs("null", r->out);
    else {
        fputs("{\"label\":", r->out);
        put_text(r, label);
        fputs(",\"host\":", r->out);
        put_text(r, onelock_inspection_waiter_host(seen, index));
        fprintf(r->out, ",\"pid\":%u}", onelock_inspection_waiter_pid(seen, index));
    }
    fprintf(r->out, ",\"since_ms\":%llu}", (u64)onelock_inspection_waiter_since_ms(seen, index));
}

/* What was seen, without the last brace. */
static void put_inspection(request *r, onelock_inspection *seen) {
    u64 token = onelock_inspection_fencing_token(seen);
    fprintf(r->out, "{\"kind\":\"%s\",\"origin\":\"%s\",\"count\":%llu,\"token\":",
            onelock_kind_name(onelock_inspection_kind(seen)), onelock_origin_name(onelock_inspection_origin(seen)),
            (u64)onelock_inspection_hold_count(seen));
    if (token == 0) fputs("null", r->out);
    else fprintf(r->out, "%llu", token);
    long long left = onelock_inspection_ttl_left_ms(seen);
    if (left < 0) fputs(",\"ttl_left_ms\":null", r->out);
    else fprintf(r->out, ",\"ttl_left_ms\":%lld", left);
    if (onelock_inspection_has_owner(seen)) {
        fputs(",\"owner\":{\"label\":", r->out);
        put_text(r, onelock_inspection_owner_label(seen));
        fputs(",\"host\":", r->out);
        put_text(r, onelock_inspection_owner_host(seen));
        fprintf(r->out, ",\"pid\":%u,\"since_ms\":%llu}", onelock_inspection_owner_pid(seen),
                (u64)onelock_inspection_owner_since_ms(seen));
    } else {
        fputs(",\"owner\":null", r->out);
    }
    fputs(",\"foreign_holder\":", r->out);
    put_text(r, onelock_inspection_foreign_holder(seen));
    put_number(r, ",\"permits\":", onelock_inspection_permits(seen));
    put_number(r, ",\"free\":", onelock_inspection_free_permits(seen));
    put_number(r, ",\"waiting\":", onelock_inspection_waiting(seen));
    fputs(",\"waiters\":[", r->out);
    for (size_t i = 0; i < onelock_inspection_waiters(seen); i++) put_waiter(r, seen, i);
    putc(']', r->out);
    onelock_inspection_free(seen);
}

static bool inspect(request *r, onelock_client *client) {
    const json_value *name = json_get(r->args, "name");
    onelock_inspection *seen = NULL;
    if (!ok(r, onelock_client_inspect(client, name->text, name->length, &seen, &r->error))) return false;
    if (seen == NULL) return fputs("null", r->out), true;
    put_inspection(r, seen);
    putc('}', r->out);
    return true;
}

typedef struct {
    const char *name;
    size_t length, index;
    onelock_page *page;
} entry;

static int by_name(const void *one, const void *other) {
    const entry *a = one, *b = other;
    int order = memcmp(a->name, b->name, a->length < b->length ? a->length : b->length);
    return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

static bool put_entry(request *r, const entry *it) {
    onelock_inspection *seen = NULL;
    if (!ok(r, onelock_page_inspection(it->page, it->index, &seen, &r->error))) return false;
    put_inspection(r, seen);
    fputs(",\"name\":", r->out);
    bool ascii = true;
    for (size_t i = 0; i < it->length; i++) ascii = ascii && (unsigned char)it->name[i] < 0x80;
    if (ascii) {
        json_print(r->out, it->name, it->length);
    } else {
        fputs("{\"hex\":\"", r->out);
        for (size_t i = 0; i < it->length; i++) fprintf(r->out, "%02x", (unsigned char)it->name[i]);
        fputs("\"}", r->out);
    }
    putc('}', r->out);
    return true;
}

/* One page, or all of them: each name once, in the order of their bytes. */
static bool list(request *r, onelock_client *client) {
    enum { PAGES = 64, ENTRIES = 4096 };
    const json_value *pattern = json_get(r->args, "pattern"), *limit = json_get(r->args, "limit");
    const json_value *from = json_get(r->args, "cursor");
    bool one = limit->type != ABSENT, done = true;
    onelock_page *pages[PAGES] = {NULL};
    entry *found = calloc(ENTRIES, sizeof *found);
    size_t count = 0, number = 0;
    const char *cursor = from->type == TEXT ? from->text : NULL;
    do {
        onelock_page *page = NULL;
        done = number < PAGES && ok(r, onelock_client_list(client, pattern->text, pattern->length,
                                                           one ? (uint32_t)limit->number : 100, cursor, &page, &r->error));
        if (!done) break;
        pages[number++] = page;
        for (size_t i = 0; i < onelock_page_count(page) && count < ENTRIES; i++, count++) {
            found[count] = (entry){.index = i, .page = page};
            found[count].name = onelock_page_name(page, i, &found[count].length);
        }
        cursor = onelock_page_next(page);
    } while (!one && cursor != NULL);
    qsort(found, count, sizeof *found, by_name);
    if (one) fputs("{\"entries\":", r->out);
    putc('[', r->out);
    for (size_t i = 0; i < count && done; i++) {
        if (i > 0 && by_name(&found[i - 1], &found[i]) == 0) continue;
        if (i > 0) putc(',', r->out);
        done = put_entry(r, &found[i]);
    }
    putc(']', r->out);
    if (one) {
        fputs(",\"next\":", r->out);
        put_text(r, cursor);
        putc('}', r->out);
    }
    while (number > 0) onelock_page_free(pages[--number]);
    free(found);
    return done;
}

/* What a look at the servers found, with the last finding of each step. */
static bool diagnose(request *r, onelock_client *client) {
    const json_value *name = json_get(r->args, "name");
    onelock_diagnosis *found = NULL;
    if (!ok(r, onelock_client_diagnose(client, name->text, name->length, &found, &r->error))) return false;
    fputs("{\"severity\":", r->out);
    put_text(r, onelock_severity_name(onelock_diagnosis_severity(found)));
    fputs(",\"grade\":", r->out);
    put_text(r, onelock_grade_name(onelock_diagnosis_grade(found)));
    fputs(",\"steps\":{", r->out);
    for (size_t i = 0; i < onelock_diagnosis_count(found); i++) {
        if (i > 0) putc(',', r->out);
        put_text(r, onelock_diagnosis_step(found, i));
        fputs(":{\"server\":", r->out);
        put_text(r, onelock_diagnosis_server(found, i));
        fputs(",\"severity\":", r->out);
        put_text(r, onelock_severity_name(onelock_diagnosis_step_severity(found, i)));
        fputs(",\"detail\":", r->out);
        put_text(r, onelock_diagnosis_detail(found, i));
        fputs(",\"todo\":", r->out);
        put_text(r, onelock_diagnosis_todo(found, i));
        onelock_status error = onelock_diagnosis_error(found, i);
        fputs(",\"error\":", r->out);
        put_text(r, error == ONELOCK_OK ? NULL : onelock_status_name(error));
        fputs(",\"measured\":{", r->out);
        for (size_t j = 0; j < onelock_diagnosis_measured_count(found, i); j++) {
            if (j > 0) putc(',', r->out);
            put_text(r, onelock_diagnosis_measured_name(found, i, j));
            fprintf(r->out, ":%g", onelock_diagnosis_measured(found, i, j));
        }
        fputs("}}", r->out);
    }
    fputs("}}", r->out);
    onelock_diagnosis_free(found);
    return true;
}

/* Sets the number of permits if that is what is to be done, and tells it. */
static bool permits(request *r, onelock_lock *lock, bool set) {
    bool known = false;
    uint64_t total = 0, held = 0, free_ones = 0;
    uint32_t wanted = (uint32_t)json_get(r->args, "permits")->number;
    if (set && !ok(r, onelock_lock_set_permits(lock, wanted, &r->error))) return false;
    if (!ok(r, onelock_lock_permits(lock, &known, &total, &held, &free_ones, &r->error))) return false;
    if (!known) return fputs("null", r->out) >= 0;
    fprintf(r->out, "{\"total\":%llu,\"held\":%llu,\"free\":%llu}", (u64)total, (u64)held, (u64)free_ones);
    return true;
}

static bool act_on_client(request *r, const char *op, onelock_client *client) {
    bool found = false;
    onelock_lease *lease = NULL;
    if (strcmp(op, "close") == 0) return ok(r, onelock_client_close(client, &r->error)) && fputs("null", r->out) >= 0;
    if (strcmp(op, "inspect") == 0) return inspect(r, client);
    if (strcmp(op, "list") == 0) return list(r, client);
    if (strcmp(op, "diagnose") == 0) return diagnose(r, client);
    if (strcmp(op, "with") == 0) return with(r, client);
    if (strcmp(op, "acquire") == 0) return (lease = acquire(r, client, false)) != NULL && view(r, lease);
    if (strcmp(op, "try_acquire") == 0) {
        lease = acquire(r, client, true);
        if (lease != NULL) return view(r, lease);
        if (onelock_error_status(r->error) != ONELOCK_ERR_BUSY) return false;
        return fputs("null", r->out) >= 0;
    }
    if (strcmp(op, "stats") == 0) {
        onelock_stats *stats = NULL;
        if (!ok(r, onelock_client_stats(client, &stats, &r->error))) return false;
        fprintf(r->out, "{\"held\":%llu,\"waiting\":%llu,\"cleaning\":%llu,\"lost\":%llu}",
                (u64)onelock_stats_counter(stats, ONELOCK_STATS_HELD),
                (u64)onelock_stats_counter(stats, ONELOCK_STATS_WAITING),
                (u64)onelock_stats_counter(stats, ONELOCK_STATS_CLEANING),
                (u64)onelock_stats_counter(stats, ONELOCK_STATS_LOST));
        onelock_stats_free(stats);
        return true;
    }
    if (strcmp(op, "force_release") == 0) {
        const json_value *name = json_get(r->args, "name");
        const json_value *foreign = json_get(r->args, "foreign");
        bool too = foreign != NULL && foreign->number != 0;
        onelock_status status = (too ? onelock_client_force_release_foreign : onelock_client_force_release)(
            client, name->text, name->length, &found, &r->error);
        if (!ok(r, status)) return false;
        return fputs(found ? "true" : "false", r->out) >= 0;
    }
    onelock_lock *lock = make_lock(r, client);
    if (lock == NULL) return false;
    bool done = false;
    if (strcmp(op, "is_locked") == 0) {
        done = ok(r, onelock_lock_is_locked(lock, &found, &r->error)) && fputs(found ? "true" : "false", r->out) >= 0;
    } else if (strcmp(op, "permits") == 0 || strcmp(op, "set_permits") == 0) {
        done = permits(r, lock, strcmp(op, "set_permits") == 0);
    } else {
        done = ok(r, onelock_lock_attach(lock, text(r, "proof"), &lease, &r->error)) && granted(r, lease) && view(r, lease);
    }
    onelock_lock_free(lock);
    return done;
}

static bool act_on_lease(request *r, const char *op, onelock_lease *lease) {
    uint32_t number = 0;
    if (strcmp(op, "check") == 0) return view(r, lease);
    if (strcmp(op, "extend") == 0) {
        return ok(r, onelock_lease_extend(lease, (int64_t)json_get(r->args, "ttl_ms")->number, &r->error)) && view(r, lease);
    }
    if (strcmp(op, "downgrade") == 0) {
        return ok(r, onelock_lease_downgrade(lease, &r->error)) && view(r, lease);
    }
    if (strcmp(op, "release") == 0) {
        if (!ok(r, onelock_lease_release(lease, &number, &r->error))) return false;
        return put_text(r, onelock_release_name(number)), true;
    }
    if (strcmp(op, "wait_lost") == 0) {
        int64_t limit = (int64_t)json_get(r->args, "limit_ms")->number;
        if (!ok(r, onelock_lease_wait_lost(lease, limit, &number, &r->error))) return false;
        return put_text(r, onelock_loss_name(number)), true;
    }
    onelock_proof *proof = NULL;
    if (!ok(r, onelock_lease_detach(lease, &proof, &r->error))) return false;
    put_text(r, onelock_proof_text(proof));
    onelock_proof_free(proof);
    return true;
}

static bool is_one_of(const char *word, const char *words) {
    size_t length = strlen(word);
    for (const char *found = strstr(words, word); length > 0 && found != NULL; found = strstr(found + 1, word)) {
        if ((found == words || found[-1] == ' ') && (found[length] == ' ' || found[length] == 0)) return true;
    }
    return false;
}

static bool act(request *r) {
    const char *op = text(r, "op");
    for (int i = 0; i < r->args->count; i++) {
        if (!is_one_of(r->args->values[i].key,
                       "id op client url kind name also lease wait_ms limit_ms proof request body foreign pattern limit cursor owner ttl_ms auto_renew "
                       "min_hold_ms max_hold_ms lock_delay_ms min_validity_ms fencing permits count prefix drift_factor min_fencing_grade "
                       "connect_timeout_ms request_timeout_ms close_timeout_ms unreachable_limit_ms quarantine_ms label inspectable")) {
            return fail(r, "Driver", "an argument is unknown");
        }
    }
    if (strcmp(op, "hello") == 0) {
        fprintf(r->out, "{\"protocol\":1,\"language\":\"c\",\"mode\":\"%s\",\"pid\":%ld,\"now_ns\":%llu}",
                background ? "background" : "blocking", (long)getpid(), now_ns());
        return true;
    }
    if (strcmp(op, "client") == 0) return make_client(r) && fputs("null", r->out) >= 0;
    if (strcmp(op, "cancel") == 0) {
        char id[32];
        snprintf(id, sizeof id, "%.0f", json_get(r->args, "request")->number);
        /* both refuse NULL and what has ended: then there is nothing to cancel */
        onelock_cancel_cancel(get(cancels, id));
        onelock_acquisition_cancel(get(acquisitions, id), NULL);
        return fputs("null", r->out) >= 0;
    }
    if (strcmp(op, "drop") == 0) {
        onelock_lease_free(put(leases, text(r, "lease"), NULL));
        return fputs("null", r->out) >= 0;
    }
    if (is_one_of(op, "close stats acquire try_acquire attach with is_locked permits set_permits inspect list diagnose force_release")) {
        onelock_client *client = get(clients, text(r, "client"));
        return client != NULL ? act_on_client(r, op, client) : fail(r, "Driver", "there is no such client");
    }
    if (is_one_of(op, "check extend downgrade release detach wait_lost")) {
        onelock_lease *lease = get(leases, text(r, "lease"));
        return lease != NULL ? act_on_lease(r, op, lease) : fail(r, "Driver", "there is no such lease");
    }
    return fail(r, "Driver", "there is no such operation");
}

static void *serve(void *argument) {
    request *r = argument;
    char id[32];
    snprintf(id, sizeof id, "%llu", r->id);
    r->out = open_memstream(&r->ok, &r->ok_size);
    r->from_ns = now_ns();
    bool done = act(r);
    u64 to_ns = now_ns();
    fclose(r->out);
    onelock_cancel_free(put(cancels, id, NULL));

    pthread_mutex_lock(&output);
    printf("{\"id\":%llu,\"from_ns\":%llu,\"to_ns\":%llu,", r->id, r->from_ns, to_ns);
    if (done) {
        printf("\"ok\":%s}\n", r->ok);
    } else {
        const char *kind = r->failed != NULL && *r->failed ? r->failed : onelock_error_kind(r->error);
        const char *message = r->message != NULL ? r->message : onelock_error_message(r->error);
        printf("\"error\":{\"kind\":\"%s\",\"message\":", kind != NULL ? kind : "Driver");
        json_print(stdout, message != NULL ? message : "no error object", message != NULL ? strlen(message) : 15);
        printf("}}\n");
    }
    fflush(stdout);
    pthread_mutex_unlock(&output);
    onelock_error_free(r->error);
    free(r->ok);
    free(r->args);
    free(r);
    return NULL;
}

int main(int count, char **arguments) {
    char *line = NULL;
    size_t size = 0;
    background = count > 1 && strcmp(arguments[1], "background") == 0;
    while (getline(&line, &size, stdin) > 0) {
        request *r = calloc(1, sizeof *r);
        r->args = json_read(line);
        if (r->args == NULL) {
            fprintf(stderr, "not a request: %s", line);
            return 1;
        }
        r->id = (u64)json_get(r->args, "id")->number;
        char id[32];
        snprintf(id, sizeof id, "%llu", r->id);
        put(cancels, id, onelock_cancel_new()); /* before the thread runs: a cancel may be the next line */
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, r) != 0) return 1;
        pthread_detach(thread);
    }
    _exit(0); /* without an orderly end: what is still held ends as it does when a process is killed */
}
