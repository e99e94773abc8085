/*
 * onelock: a distributed lock on Redis and Valkey.
 *
 *     onelock_client *client = NULL;
 *     onelock_lock *lock = NULL;
 *     onelock_lease *lease = NULL;
 *     onelock_error *error = NULL;
 *     if (onelock_client_connect("redis://127.0.0.1/", NULL, &client, &error) == ONELOCK_OK &&
 *         onelock_lock_new_str(client, ONELOCK_KIND_MUTEX, "orders:42", NULL, &lock, &error) == ONELOCK_OK &&
 *         onelock_lock_acquire(lock, 5000, NULL, &lease, &error) == ONELOCK_OK) {
 *         work(onelock_lease_fencing_token(lease));
 *         onelock_lease_release(lease, NULL, NULL);
 *     } else {
 *         fprintf(stderr, "%s\n", onelock_error_message(error));
 *     }
 *     onelock_error_free(error);
 *     onelock_lease_free(lease);
 *     onelock_lock_free(lock);
 *     onelock_client_free(client);
 *
 * CONVENTIONS
 *
 * Names. onelock_<noun>_<verb>. The noun is the type of the first argument; `const` there means that the call leaves
 * the object's own settings alone. Inputs come first, then outputs, then `error`.
 *
 * Handles. Objects are opaque. A handle is a number in the form of a pointer and is never used twice, so a freed
 * handle, one of another kind or an invalid one is refused with ONELOCK_ERR_INVALID_ARGUMENT; never dereference it.
 * NULL is refused in the same way, except where a function says that it may be NULL. Other pointers are real: what
 * they point at must be there during the call.
 *
 * Ownership. What a *_new, *_connect, *_acquire, *_start, *_finish, *_attach, *_inspect, *_inspection, *_list, *_stats,
 * *_check, *_diagnose, *_detach or *_named function gives is yours: free it with the *_free of its type. *_free(NULL) and a second
 * *_free do nothing. Inputs are copied. Returned text belongs to the object of the call and is freed with it; "static
 * text" stays. The order of freeing does not matter: a client stays until its last lock and lease are freed.
 *
 * Outputs are written only on success (`error` only on failure), so begin with NULL.
 *
 * Errors. Functions that can fail return an onelock_status. ONELOCK_OK is 0. With every other status but
 * ONELOCK_PENDING an error object is written to `*error`, unless `error` is NULL. Numbers are grouped, explicit, and
 * never reused; a later version may return new ones. Reading functions (onelock_lease_is_held ...) return their value,
 * or zero, false or NULL for a dead handle.
 *
 * Text is UTF-8 and NUL-terminated (addresses, labels, paths, proofs), at most 64 KiB. Names and prefixes are any bytes,
 * given with their length. Times are milliseconds in an int64_t; a wait of -1 is for ever and 0 tries once. Sets of
 * numbers (ONELOCK_KIND_ ...) are uint32_t, and a number outside the set is refused.
 *
 * Threads. Every function may be called from any thread at any time, on the same objects too. A lease may be released
 * by another thread than the one that acquired it. An object may be freed in one thread while another uses it: the
 * running call ends as if it had not been freed. Only borrowed text must not outlive its object.
 *
 * Signals. onelock_cancel_cancel and onelock_cancel_is_cancelled may be called from a signal handler. Nothing else may.
 *
 * Cancellation of threads. pthread_cancel does not reach a thread inside a call: cancellation is disabled meanwhile,
 * and a request counts at the thread's next cancellation point after it. To end a wait use an onelock_cancel token. A
 * thread with PTHREAD_CANCEL_ASYNCHRONOUS may not call the library.
 *
 * Limits of the machine. When no thread or file descriptor is available, a call returns ONELOCK_ERR_SYSTEM_LIMIT; it
 * works again when there are some. Held leases are not affected.
 *
 * Callbacks run on one thread of their own for each client, one after the other, never on the thread that renews.
 * They may call every function, blocking ones included (other callbacks of that client wait meanwhile), and may free
 * their own object. `user_data` comes last and is only passed through. After *_free of the object, or after the
 * callback was replaced, it is not called any more: these functions wait for a call that is running (so do not hold a
 * lock that the callback takes). Do not throw, longjmp or pthread_exit out of one. The log callback is different: it
 * runs on any thread, also those of the library, and may not call functions that return an onelock_status. The
 * callback for credentials runs on threads of its own, several at a time, for as long as connections may be made.
 *
 * Fork. A client made before a fork makes new connections in the child and is another client there. Leases stay with
 * the parent: in the child onelock_lease_is_held is false, releasing returns ONELOCK_ERR_FORKED, freeing sends
 * nothing, and nothing is renewed. Threads and sockets of the parent are not used. Call no function between vfork and
 * exec.
 *
 * Exit. At exit() (return from main) held leases are released, within at most one second. After _exit, abort and
 * signals they end with their ttl. dlclose does not unmap the library (it is linked with -z nodelete): its threads
 * run on.
 *
 * Panics. A defect of the library never unwinds into the program: it becomes ONELOCK_ERR_INTERNAL.
 *
 * Threads, sockets and files are made on first use: onelock_client_new starts nothing.
 *
 * This file is generated from the source by cbindgen. Do not edit it.
 */


#ifndef ONELOCK_H
#define ONELOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ONELOCK_VERSION "0.1.0"
#define ONELOCK_VERSION_MAJOR 0
#define ONELOCK_VERSION_MINOR 1
#define ONELOCK_VERSION_PATCH 0

/**
 * The mutual exclusion lock: a string key that any `SET NX PX` client respects. Not re-entrant.
 */
#define ONELOCK_KIND_MUTEX 1

/**
 * The reentrant lock: a hash that Redisson's `RLock` shares. Give it an owner to re-enter.
 */
#define ONELOCK_KIND_REENTRANT 2

/**
 * The fair lock: first come, first served among the processes that wait. Not re-entrant, and not on several servers.
 */
#define ONELOCK_KIND_FAIR 3

/**
 * The reading side of a read/write lock: any number hold it at a time while nobody writes, in the layout of Redisson's
 * `RReadWriteLock`. Give it an owner to re-enter. Not on several servers.
 */
#define ONELOCK_KIND_READ 4

/**
 * The writing side of the same lock: one holds it, and nobody reads meanwhile.
 */
#define ONELOCK_KIND_WRITE 5

/**
 * The semaphore: several hold at once, each with permits of its own, in the layout of Redisson's
 * `RPermitExpirableSemaphore`, whose clients do not queue. Who waits is served first come, first served. How many there
 * are say the options of the lock.
 */
#define ONELOCK_KIND_SEMAPHORE 6

/**
 * Several locks that are held together, from `onelock_multi_new`; not a kind for `onelock_lock_new`.
 */
#define ONELOCK_KIND_MULTI 255

/**
 * It was held, and the server has deleted the hold.
 */
#define ONELOCK_RELEASED 1

/**
 * It had ended before: expired, deleted, or force-released. There may have been another holder since.
 */
#define ONELOCK_ALREADY_EXPIRED 2

/**
 * This handle was released, detached or closed before. Nothing was sent.
 */
#define ONELOCK_ALREADY_RELEASED 3

/**
 * It is not held any more, but no server confirmed it in time; the release is retried in the background.
 */
#define ONELOCK_UNCONFIRMED 4

/**
 * Not lost.
 */
#define ONELOCK_LOSS_NONE 0

/**
 * The deadline passed without a confirmed renewal.
 */
#define ONELOCK_LOSS_EXPIRED 1

/**
 * The key is gone or has another holder: deleted, evicted, force-released, or lost in a restart.
 */
#define ONELOCK_LOSS_TAKEN 2

/**
 * `max_hold` was reached.
 */
#define ONELOCK_LOSS_MAX_HOLD 3

/**
 * The server's clock jumped, so that the key may have expired early.
 */
#define ONELOCK_LOSS_CLOCK_ANOMALY 4

/**
 * The client was closed while the lease was held, and released it.
 */
#define ONELOCK_LOSS_CLOSED 5

/**
 * No fencing tokens.
 */
#define ONELOCK_GRADE_NONE 0

/**
 * The store may forget acknowledged writes without notice (evicting policy, asynchronous replicas).
 */
#define ONELOCK_GRADE_BEST_EFFORT 1

/**
 * Tokens grow even if the counter is lost, as long as the clock of the server does not run back.
 */
#define ONELOCK_GRADE_CLOCK_BOUNDED 2

/**
 * The store keeps every acknowledged write.
 */
#define ONELOCK_GRADE_STRICT 3

/**
 * It could not be tried.
 */
#define ONELOCK_SEVERITY_SKIPPED 1

/**
 * It is as it should be.
 */
#define ONELOCK_SEVERITY_PASSED 2

/**
 * It is worth knowing; locks are safe while the server runs.
 */
#define ONELOCK_SEVERITY_REMARK 3

/**
 * Locks can be taken, but something endangers or delays them.
 */
#define ONELOCK_SEVERITY_WARNING 4

/**
 * Locks cannot be taken.
 */
#define ONELOCK_SEVERITY_FAILED 5

/**
 * A client of this library.
 */
#define ONELOCK_ORIGIN_ONELOCK 1

/**
 * Redisson, or another client that shares its layout.
 */
#define ONELOCK_ORIGIN_REDISSON 2

/**
 * Any other client: a string that `SET NX` may have written.
 */
#define ONELOCK_ORIGIN_OTHER 3

/**
 * Sharded channels where a cluster has them (7.0 and newer), else classic ones.
 */
#define ONELOCK_NOTIFY_AUTO 0

/**
 * Classic channels, which every node of a cluster forwards to all others.
 */
#define ONELOCK_NOTIFY_CLASSIC 1

/**
 * Sharded channels, which stay on the nodes of their slot.
 */
#define ONELOCK_NOTIFY_SHARDED 2

/**
 * Both.
 */
#define ONELOCK_NOTIFY_BOTH 3

/**
 * Nothing.
 */
#define ONELOCK_LOG_OFF 0

/**
 * Defects of this library.
 */
#define ONELOCK_LOG_ERROR 1

/**
 * Losses, missed renewals, settings of servers that can break locks.
 */
#define ONELOCK_LOG_WARN 2

/**
 * Events of normal use, such as a connection.
 */
#define ONELOCK_LOG_INFO 3

/**
 * Connections, retries.
 */
#define ONELOCK_LOG_DEBUG 4

/**
 * Everything.
 */
#define ONELOCK_LOG_TRACE 5

/**
 * Leases held now.
 */
#define ONELOCK_STATS_HELD 1

/**
 * Acquires waiting now.
 */
#define ONELOCK_STATS_WAITING 2

/**
 * Acquires that were granted, re-entries included.
 */
#define ONELOCK_STATS_ACQUIRED 3

/**
 * Tries that found the lock busy.
 */
#define ONELOCK_STATS_BUSY 4

/**
 * Acquires that timed out.
 */
#define ONELOCK_STATS_TIMEOUTS 5

/**
 * Acquires that their caller cancelled.
 */
#define ONELOCK_STATS_CANCELLED 6

/**
 * Acquires that failed for another reason.
 */
#define ONELOCK_STATS_FAILED 7

/**
 * Leases that their holder released.
 */
#define ONELOCK_STATS_RELEASED 8

/**
 * Leases lost.
 */
#define ONELOCK_STATS_LOST 9

/**
 * Renewals that were confirmed, one per lease and round.
 */
#define ONELOCK_STATS_RENEWALS 10

/**
 * Renewal rounds of a lease that were missed.
 */
#define ONELOCK_STATS_RENEWALS_MISSED 11

/**
 * Clean-ups that are not finished yet.
 */
#define ONELOCK_STATS_CLEANING 12

/**
 * Connections made after the first one.
 */
#define ONELOCK_STATS_RECONNECTS 13

/**
 * Requests sent to the server.
 */
#define ONELOCK_STATS_COMMANDS_SENT 14

/**
 * The histogram of the time from the call to the grant.
 */
#define ONELOCK_HISTOGRAM_WAIT 1

/**
 * The histogram of the time from the grant to the end of the hold.
 */
#define ONELOCK_HISTOGRAM_HOLD 2

/**
 * Counts the incompatible changes of this interface. A program compiled for another number must not use the library.
 */
#define ONELOCK_ABI_VERSION 1

/**
 * An acquire in the background.
 */
typedef struct onelock_acquisition onelock_acquisition;

/**
 * Cancels waiting acquires.
 */
typedef struct onelock_cancel onelock_cancel;

/**
 * A client of a lock store, for any number of threads.
 */
typedef struct onelock_client onelock_client;

/**
 * The options of a client. Those that are not set have their defaults.
 */
typedef struct onelock_client_options onelock_client_options;

/**
 * A connection that waits for credentials.
 */
typedef struct onelock_credentials_request onelock_credentials_request;

/**
 * What `onelock_client_diagnose` found: findings, numbered from 0, in the order in which the steps were tried.
 */
typedef struct onelock_diagnosis onelock_diagnosis;

/**
 * An error. It belongs to the caller that passed the `error` pointer; free it with `onelock_error_free`.
 */
typedef struct onelock_error onelock_error;

/**
 * Facts about the server, from `onelock_client_check`.
 */
typedef struct onelock_facts onelock_facts;

/**
 * Remembers the highest fencing token and refuses every lower one. For a resource inside this process.
 */
typedef struct onelock_gate onelock_gate;

/**
 * The state of a lock, from `onelock_client_inspect` or `onelock_client_list`.
 */
typedef struct onelock_inspection onelock_inspection;

/**
 * One granted hold of a lock. Any thread may use it. `onelock_lease_is_held` is always correct.
 */
typedef struct onelock_lease onelock_lease;

/**
 * A lock by name, with its options, for any number of threads. It holds nothing by itself.
 */
typedef struct onelock_lock onelock_lock;

/**
 * The options of a lock. Those that are not set have the client's values.
 */
typedef struct onelock_lock_options onelock_lock_options;

/**
 * An owner: acquires of a reentrant lock with equal owners share one hold.
 */
typedef struct onelock_owner onelock_owner;

/**
 * What `onelock_client_list` found: locks, numbered from 0, and where to go on.
 */
typedef struct onelock_page onelock_page;

/**
 * The proof of a detached hold, for `onelock_lock_attach`. The first attach with it gets the hold.
 */
typedef struct onelock_proof onelock_proof;

/**
 * Counters and histograms of a client since it was made.
 */
typedef struct onelock_stats onelock_stats;

/**
 * The status of a call: `ONELOCK_OK`, or the kind of error. Numbers are never reused.
 */
typedef uint32_t onelock_status;

/**
 * Called once when an acquisition can be finished, on a thread for callbacks.
 */
typedef void (*onelock_ready_fn)(onelock_acquisition *acquisition, void *user_data);

/**
 * Called for each new connection, on threads of its own, where it may block; on at most 16 threads at a time.
 * `request` belongs to the callback: end it with `onelock_credentials_request_answer`,
 * `onelock_credentials_request_fail` or `onelock_credentials_request_free`, now or later, from any thread.
 */
typedef void (*onelock_credentials_fn)(onelock_credentials_request *request, void *user_data);

/**
 * Called once, when `user_data` is not used any more, on any thread. It must not call this library.
 */
typedef void (*onelock_destroy_fn)(void *user_data);

/**
 * Called once when a lease is lost, with an `ONELOCK_LOSS_` reason, on a thread for callbacks.
 */
typedef void (*onelock_lost_fn)(onelock_lease *lease, uint32_t reason, void *user_data);

/**
 * Called when a renewal was missed while the lease is still valid, on a thread for callbacks.
 */
typedef void (*onelock_jeopardy_fn)(onelock_lease *lease, void *user_data);

/**
 * Called for every log line, from any thread: those of the library and those of the program. `message` is
 * NUL-terminated UTF-8 and valid during the call.
 *
 * It must be quick, and no function that returns an `onelock_status` can be called from it.
 */
typedef void (*onelock_log_fn)(uint32_t level, const char *message, void *user_data);

/**
 * Success.
 */
#define ONELOCK_OK 0

/**
 * A single try was refused: the lock is held.
 */
#define ONELOCK_ERR_BUSY 1

/**
 * The time-out passed while the lock was held.
 */
#define ONELOCK_ERR_TIMEOUT 2

/**
 * The wait was cancelled; nothing is held.
 */
#define ONELOCK_ERR_CANCELLED 3

/**
 * The lease ended without a release.
 */
#define ONELOCK_ERR_LOST 10

/**
 * The lease was released or detached before.
 */
#define ONELOCK_ERR_NOT_HELD 11

/**
 * No server could be reached in time.
 */
#define ONELOCK_ERR_UNAVAILABLE 20

/**
 * Too few of several independent servers answered in time.
 */
#define ONELOCK_ERR_NO_QUORUM 21

/**
 * User name or password were refused.
 */
#define ONELOCK_ERR_AUTH_FAILED 22

/**
 * The user lacks the permission for a command or a key.
 */
#define ONELOCK_ERR_NOT_PERMITTED 23

/**
 * The server is a replica.
 */
#define ONELOCK_ERR_READ_ONLY 24

/**
 * The server is up but refuses to write.
 */
#define ONELOCK_ERR_SERVER_REFUSED 25

/**
 * The key is another kind of lock, or not a lock.
 */
#define ONELOCK_ERR_WRONG_KIND 30

/**
 * An argument was refused before any I/O: NULL, a dead handle, a value out of its limits.
 */
#define ONELOCK_ERR_INVALID_ARGUMENT 31

/**
 * The store, or this place in the program, cannot do what was asked.
 */
#define ONELOCK_ERR_UNSUPPORTED 32

/**
 * The owner of a read lease asks for the write lock of the same name: it would wait for itself.
 */
#define ONELOCK_ERR_WOULD_DEADLOCK 33

/**
 * A semaphore has another number of permits than was said, or none is set.
 */
#define ONELOCK_ERR_PERMITS_MISMATCH 34

/**
 * The client was closed.
 */
#define ONELOCK_ERR_CLOSED 40

/**
 * The lease belongs to the parent process.
 */
#define ONELOCK_ERR_FORKED 41

/**
 * The machine has no thread, file descriptor or memory left; the same call may succeed later.
 */
#define ONELOCK_ERR_SYSTEM_LIMIT 42

/**
 * A defect of this library.
 */
#define ONELOCK_ERR_INTERNAL 50

/**
 * Not an error: a background acquire has not ended. No error object is made for it.
 */
#define ONELOCK_PENDING 1000

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A file descriptor that becomes readable when the acquisition can be finished, for `poll` and similar functions. It
 * is always the same one.
 *
 * It belongs to the acquisition: do not read, write or close it, and stop watching it before you free the acquisition.
 */
onelock_status onelock_acquisition_fd(const onelock_acquisition *acquisition, int *fd, onelock_error **error);

/**
 * Sets the callback for when the acquisition can be finished; `NULL` removes it. It is called once (at once if it is
 * ready already), on a thread for callbacks. It may finish and free the acquisition.
 */
onelock_status onelock_acquisition_on_ready(const onelock_acquisition *acquisition,
                                            onelock_ready_fn callback,
                                            void *user_data,
                                            onelock_error **error);

/**
 * Whether it can be finished. False for a dead handle, and in a forked child.
 */
bool onelock_acquisition_is_ready(const onelock_acquisition *acquisition);

/**
 * Takes the result: the lease, or the error that `onelock_lock_acquire` would have returned. Never waits:
 * `ONELOCK_PENDING` (without an error object) until it has ended. The result can be taken once.
 */
onelock_status onelock_acquisition_finish(const onelock_acquisition *acquisition,
                                          onelock_lease **lease,
                                          onelock_error **error);

/**
 * Cancels it: from now on it can be finished, with `ONELOCK_ERR_CANCELLED`, and nothing is left held. If it had ended
 * before, it keeps its result.
 */
onelock_status onelock_acquisition_cancel(const onelock_acquisition *acquisition, onelock_error **error);

/**
 * Frees the acquisition. If it has not ended it is cancelled; a lease that was granted and not taken is released in
 * the background. Waits for a running callback, as `onelock_lease_free`. Does nothing for NULL and dead handles.
 */
void onelock_acquisition_free(onelock_acquisition *acquisition);

/**
 * A new token. `NULL` when there is no room for another handle. Free it with `onelock_cancel_free`.
 */
onelock_cancel *onelock_cancel_new(void);

/**
 * Cancels every acquire with this token, within 50 ms, and every later one at once. False for a dead handle.
 *
 * May be called from any thread and from a signal handler: it is one atomic operation, without locks, memory or I/O.
 */
bool onelock_cancel_cancel(const onelock_cancel *cancel);

/**
 * Whether it was cancelled. May be called from a signal handler.
 */
bool onelock_cancel_is_cancelled(const onelock_cancel *cancel);

/**
 * Frees the token. An acquire with it continues, and can no longer be cancelled by it. Does nothing for NULL and dead
 * handles.
 */
void onelock_cancel_free(onelock_cancel *cancel);

/**
 * A client that connects when it is first used. Opens no socket and starts no thread. Free it with
 * `onelock_client_free`.
 *
 * `url` is UTF-8; `NULL` or empty means the environment variable `ONELOCK_URL`. `options` may be `NULL`.
 */
onelock_status onelock_client_new(const char *url,
                                  const onelock_client_options *options,
                                  onelock_client **client,
                                  onelock_error **error);

/**
 * A client that is connected and checked. Free it with `onelock_client_free`. Otherwise as `onelock_client_new`.
 *
 * Fails with the error of the server, and with `ONELOCK_ERR_UNSUPPORTED` when its fencing grade is below the minimum.
 */
onelock_status onelock_client_connect(const char *url,
                                      const onelock_client_options *options,
                                      onelock_client **client,
                                      onelock_error **error);

/**
 * Queries the server: fencing grade, version, and settings that can break locks.
 *
 * `facts` may be `NULL` to check only that it answers; otherwise free the result with `onelock_facts_free`.
 */
onelock_status onelock_client_check(const onelock_client *client, onelock_facts **facts, onelock_error **error);

/**
 * Looks at the servers of this client step by step, and tells which step fails and what to do. Free the result with
 * `onelock_diagnosis_free`.
 *
 * The steps: name, TCP, TLS, user, database, role; version, persistence, eviction, replicas; the clock against ours, the
 * round trip, a proxy in between; each permission, one by one; the members of a majority, Sentinels, the slots of a
 * cluster; the grade of fencing tokens, and why.
 *
 * `name`: what the names of locks begin with that this user may lock (`app:`), since permissions are tried on such a name;
 * may be empty. Nothing is changed on the server. It takes some seconds at most where everything answers. What fails is a
 * finding, not an error; an error is only what concerns the client, such as `ONELOCK_ERR_CLOSED`.
 */
onelock_status onelock_client_diagnose(const onelock_client *client,
                                       const char *name,
                                       size_t name_length,
                                       onelock_diagnosis **diagnosis,
                                       onelock_error **error);

/**
 * The state of the lock of this name, of any kind, and who waits for it. One round trip, and one more where it is held, of a
 * semaphore two.
 *
 * Writes `NULL` when it is free; otherwise free the result with `onelock_inspection_free`. `ONELOCK_ERR_WRONG_KIND`
 * when the key is not a lock.
 */
onelock_status onelock_client_inspect(const onelock_client *client,
                                      const char *name,
                                      size_t name_length,
                                      onelock_inspection **inspection,
                                      onelock_error **error);

/**
 * The locks whose names match a pattern, about `limit` of them, whoever holds them. Free the page with
 * `onelock_page_free`.
 *
 * The pattern is the server's own: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a character that stands for itself. `cursor`
 * is `NULL` for the first page and `onelock_page_next` of the one before for each further one, as long as that is not
 * `NULL`. `limit` is 1 to 10,000; a page may have some more or fewer, and none though more follow.
 *
 * What counts as a lock: one of this library, one of Redisson, and a string of at most 128 bytes with a time to live;
 * `onelock_inspection_origin` says which. A lock that stands from the first page to the last is listed, perhaps twice; one
 * that comes or goes meanwhile may be missed. The server looks at 100 keys at most in one step.
 */
onelock_status onelock_client_list(const onelock_client *client,
                                   const char *pattern,
                                   size_t pattern_length,
                                   uint32_t limit,
                                   const char *cursor,
                                   onelock_page **page,
                                   onelock_error **error);

/**
 * Releases the lock of this name without its holder, and wakes a waiter.
 *
 * `was_held` may be `NULL`. The former holder detects it at its next renewal; until then its lease counts as held. The
 * next fencing token is higher, so a resource that checks tokens stays safe.
 *
 * It deletes a lock of this library, one of Redisson, or a string with a time to live. Any other key is left
 * untouched: `ONELOCK_ERR_WRONG_KIND`.
 */
onelock_status onelock_client_force_release(const onelock_client *client,
                                            const char *name,
                                            size_t name_length,
                                            bool *was_held,
                                            onelock_error **error);

/**
 * As `onelock_client_force_release`, but it also deletes a string without a time to live.
 *
 * Such is the lock of a client that uses `SET NX` alone. Any other string is deleted as well, so be sure that the key
 * is a lock.
 */
onelock_status onelock_client_force_release_foreign(const onelock_client *client,
                                                    const char *name,
                                                    size_t name_length,
                                                    bool *was_held,
                                                    onelock_error **error);

/**
 * Counters and histograms of this client. No I/O. Free the result with `onelock_stats_free`.
 */
onelock_status onelock_client_stats(const onelock_client *client, onelock_stats **stats, onelock_error **error);

/**
 * Releases what is held, waits for clean-up (at most `close_timeout`, 1 s), and ends background work. Idempotent.
 *
 * Waiting acquires end with `ONELOCK_ERR_CLOSED`, and so does every later call but release and free.
 */
onelock_status onelock_client_close(const onelock_client *client, onelock_error **error);

/**
 * Frees the handle. It does not close the client: its locks and leases remain, and connections end with the last of
 * them. Does nothing for NULL and dead handles.
 */
void onelock_client_free(onelock_client *client);

/**
 * Options that all have their defaults. `NULL` when there is no room for another handle. Free them with
 * `onelock_client_options_free`; clients that were made with them keep a copy.
 */
onelock_client_options *onelock_client_options_new(void);

/**
 * Frees the options. Does nothing for NULL and dead handles.
 */
void onelock_client_options_free(onelock_client_options *options);

/**
 * Length of a lease: how long others wait after a crash of the holder (10 ms to one year). Default: 30 s.
 *
 * With renewal the work may take longer.
 */
onelock_status onelock_client_options_set_ttl(onelock_client_options *options, int64_t ttl_ms, onelock_error **error);

/**
 * Whether leases are renewed in the background, every third of the ttl, until they are released. Default: true.
 *
 * A lease that is not renewed ends after its ttl, unless it is extended.
 */
onelock_status onelock_client_options_set_auto_renew(onelock_client_options *options,
                                                     bool auto_renew,
                                                     onelock_error **error);

/**
 * How long a lock stays taken at least, even if it is released earlier (at most the ttl). Default: 0.
 *
 * A job that tries once, with a `min_hold` above the difference between the clocks, runs on only one of many machines
 * each time.
 */
onelock_status onelock_client_options_set_min_hold(onelock_client_options *options,
                                                   int64_t min_hold_ms,
                                                   onelock_error **error);

/**
 * The longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms). Default: no limit.
 *
 * It bounds a holder that hangs.
 */
onelock_status onelock_client_options_set_max_hold(onelock_client_options *options,
                                                   int64_t max_hold_ms,
                                                   onelock_error **error);

/**
 * How much longer than the lease the key lives: others wait that much longer after a crash. Default: 0.
 *
 * A release is not delayed by it.
 */
onelock_status onelock_client_options_set_lock_delay(onelock_client_options *options,
                                                     int64_t lock_delay_ms,
                                                     onelock_error **error);

/**
 * How much of a lease must be left when its grant arrives (less than the ttl). Default: 0.
 *
 * A grant that arrives later is undone, and waiting goes on.
 */
onelock_status onelock_client_options_set_min_validity(onelock_client_options *options,
                                                       int64_t min_validity_ms,
                                                       onelock_error **error);

/**
 * Whether each grant draws a fencing token. Default: true.
 */
onelock_status onelock_client_options_set_fencing(onelock_client_options *options, bool fencing, onelock_error **error);

/**
 * The share of the ttl by which the clocks of server and holder may run apart (0 to 0.5). Default: 0.01.
 *
 * The holder's lease ends that much earlier than the key on the server, and 2 ms on top.
 */
onelock_status onelock_client_options_set_drift_factor(onelock_client_options *options,
                                                       double drift_factor,
                                                       onelock_error **error);

/**
 * Put before every name, once (at most 512 bytes). Default: none.
 *
 * It keeps the locks of several programs on one server apart, and lets an access rule name them.
 */
onelock_status onelock_client_options_set_prefix(onelock_client_options *options,
                                                 const char *prefix,
                                                 size_t prefix_length,
                                                 onelock_error **error);

/**
 * The weakest grade of fencing tokens: `None`, `BestEffort`, `ClockBounded` or `Strict`. Default:
 * `ONELOCK_GRADE_NONE`.
 *
 * A server with a weaker grade is refused when the client connects.
 */
onelock_status onelock_client_options_set_min_fencing_grade(onelock_client_options *options,
                                                            uint32_t min_fencing_grade,
                                                            onelock_error **error);

/**
 * Names this client in `CLIENT LIST` and in inspection (at most 128 bytes, no control characters). Default: none.
 */
onelock_status onelock_client_options_set_label(onelock_client_options *options,
                                                const char *label,
                                                onelock_error **error);

/**
 * Whether a hold stores label, process, host and time for inspection. Default: false.
 *
 * Everybody who may read the key can read them.
 */
onelock_status onelock_client_options_set_inspectable(onelock_client_options *options,
                                                      bool inspectable,
                                                      onelock_error **error);

/**
 * Names of warnings about the server that are not logged, such as `persistence replicas`. Default: none.
 *
 * A name stands in brackets at the end of its warning. Names are separated by spaces or commas.
 */
onelock_status onelock_client_options_set_accepted_warnings(onelock_client_options *options,
                                                            const char *accepted_warnings,
                                                            onelock_error **error);

/**
 * Time limit of making a connection, name resolution and TLS included (at least 1 ms). Default: 2 s.
 */
onelock_status onelock_client_options_set_connect_timeout(onelock_client_options *options,
                                                          int64_t connect_timeout_ms,
                                                          onelock_error **error);

/**
 * Time limit of one request (at least 1 ms). Default: 1 s.
 *
 * A connection that is slower is closed.
 */
onelock_status onelock_client_options_set_request_timeout(onelock_client_options *options,
                                                          int64_t request_timeout_ms,
                                                          onelock_error **error);

/**
 * Time limit of closing the client (at least 1 ms). Default: 1 s.
 */
onelock_status onelock_client_options_set_close_timeout(onelock_client_options *options,
                                                        int64_t close_timeout_ms,
                                                        onelock_error **error);

/**
 * How long an acquire without a time limit retries an unreachable server (at least 1 ms). Default: 30 s.
 */
onelock_status onelock_client_options_set_unreachable_limit(onelock_client_options *options,
                                                            int64_t unreachable_limit_ms,
                                                            onelock_error **error);

/**
 * File with the certificates of the trusted authorities, PEM, for TLS. Default: the system's.
 */
onelock_status onelock_client_options_set_ca_file(onelock_client_options *options,
                                                  const char *ca_file,
                                                  onelock_error **error);

/**
 * Files with this client's certificate and private key, PEM. Default: none.
 *
 * They are for servers that ask for them. Set both.
 */
onelock_status onelock_client_options_set_client_certificate(onelock_client_options *options,
                                                             const char *cert_file,
                                                             const char *key_file,
                                                             onelock_error **error);

/**
 * Whether any certificate is accepted; for experiments only. Default: false.
 *
 * Anybody in between can then read and take locks. The client logs a warning.
 */
onelock_status onelock_client_options_set_tls_insecure(onelock_client_options *options,
                                                       bool tls_insecure,
                                                       onelock_error **error);

/**
 * How a cluster's releases are announced: `auto`, `classic`, `sharded` or `both`. Default: `ONELOCK_NOTIFY_AUTO`.
 */
onelock_status onelock_client_options_set_notify(onelock_client_options *options,
                                                 uint32_t notify,
                                                 onelock_error **error);

/**
 * How many replicas must confirm a grant, with `WAIT`; a grant that fewer confirm is undone. Default: 0.
 *
 * The loss of a lock in a failover becomes less likely, but it is not excluded. Redlock, `file://` and `memory://`
 * refuse it.
 */
onelock_status onelock_client_options_set_min_replicas(onelock_client_options *options,
                                                       uint32_t min_replicas,
                                                       onelock_error **error);

/**
 * Time limit of the confirmation by replicas (at least 1 ms). Default: 1 s.
 */
onelock_status onelock_client_options_set_replica_timeout(onelock_client_options *options,
                                                          int64_t replica_timeout_ms,
                                                          onelock_error **error);

/**
 * User name for the Sentinels; the one in the address is the master's. Default: their default user.
 */
onelock_status onelock_client_options_set_sentinel_username(onelock_client_options *options,
                                                            const char *sentinel_username,
                                                            onelock_error **error);

/**
 * Password for the Sentinels; the one in the address is the master's. Default: none.
 */
onelock_status onelock_client_options_set_sentinel_password(onelock_client_options *options,
                                                            const char *sentinel_password,
                                                            onelock_error **error);

/**
 * Whether connections to Sentinels use TLS, with the same certificate files. Default: false.
 */
onelock_status onelock_client_options_set_sentinel_tls(onelock_client_options *options,
                                                       bool sentinel_tls,
                                                       onelock_error **error);

/**
 * Redlock: time limit of one request to one server (at least 1 ms, at most the `request_timeout`). Default: 200 ms.
 *
 * A server that is slower counts as absent.
 */
onelock_status onelock_client_options_set_node_timeout(onelock_client_options *options,
                                                       int64_t node_timeout_ms,
                                                       onelock_error **error);

/**
 * Redlock: how long a server that restarted without its data does not vote. Default: twice the ttl, at least 60 s.
 *
 * It must be longer than any lease on these servers. 0 switches it off.
 */
onelock_status onelock_client_options_set_quarantine(onelock_client_options *options,
                                                     int64_t quarantine_ms,
                                                     onelock_error **error);

/**
 * A callback that gives user name and password of each new connection, for passwords that expire. Default: what the
 * address says; both at once are refused when a client is made.
 *
 * It is called for every new connection to a server, and once more when the server refuses what it gave, which may have
 * been replaced meanwhile; not for open ones. Sentinels have `onelock_client_options_set_sentinel_password`. A connection waits for the answer within its time limit. Without an
 * answer, or when the request is failed or freed, the call returns `ONELOCK_ERR_UNAVAILABLE`, and the next connection
 * calls it again.
 *
 * `callback` may be called until the options, every client made with them, and their locks and leases are freed and
 * the connections have ended. Then `destroy` is called with `user_data`, unless it is `NULL`; also when another
 * callback replaces it. It is not called when this function fails, at the end of the program, or in a forked child for
 * a callback of its parent. The callback must not use a client for which it gives credentials: that call would wait
 * for itself.
 */
onelock_status onelock_client_options_set_credentials(onelock_client_options *options,
                                                      onelock_credentials_fn callback,
                                                      void *user_data,
                                                      onelock_destroy_fn destroy,
                                                      onelock_error **error);

/**
 * Answers with a user name, `NULL` or empty for the server's default user, and a password, and frees the request. A
 * late answer is dropped. If an argument is refused, the request stays open.
 */
onelock_status onelock_credentials_request_answer(onelock_credentials_request *request,
                                                  const char *username,
                                                  const char *password,
                                                  onelock_error **error);

/**
 * Fails the request with a reason, which becomes part of the error of the call, and frees it.
 */
onelock_status onelock_credentials_request_fail(onelock_credentials_request *request,
                                                const char *reason,
                                                onelock_error **error);

/**
 * How long the connection still waits, in milliseconds; 0 when it does not wait any more, and for a dead handle.
 */
int64_t onelock_credentials_request_time_left_ms(const onelock_credentials_request *request);

/**
 * Frees a request without an answer: the connection fails. Does nothing for NULL and dead handles.
 */
void onelock_credentials_request_free(onelock_credentials_request *request);

/**
 * The gravest severity among the findings: an `ONELOCK_SEVERITY_`; 0 for a dead handle.
 */
uint32_t onelock_diagnosis_severity(const onelock_diagnosis *diagnosis);

/**
 * The grade of fencing tokens there: an `ONELOCK_GRADE_`. `ONELOCK_GRADE_NONE` if that could not be found out, and
 * without fencing.
 */
uint32_t onelock_diagnosis_grade(const onelock_diagnosis *diagnosis);

/**
 * How many findings there are.
 */
size_t onelock_diagnosis_count(const onelock_diagnosis *diagnosis);

/**
 * The server that one of them is about, without secrets; empty for what concerns all of them. `NULL` when `index` is too
 * high. Belongs to the diagnosis.
 */
const char *onelock_diagnosis_server(const onelock_diagnosis *diagnosis,
                                     size_t index);

/**
 * What was tried: `name`, `tcp`, `tls`, `user`, `role`, `permission` ... `NULL` when `index` is too high. Belongs to the
 * diagnosis.
 */
const char *onelock_diagnosis_step(const onelock_diagnosis *diagnosis,
                                   size_t index);

/**
 * How it ended: an `ONELOCK_SEVERITY_`; 0 when `index` is too high.
 */
uint32_t onelock_diagnosis_step_severity(const onelock_diagnosis *diagnosis, size_t index);

/**
 * What was found, a sentence for people. `NULL` when `index` is too high. Belongs to the diagnosis.
 */
const char *onelock_diagnosis_detail(const onelock_diagnosis *diagnosis, size_t index);

/**
 * What to do about it; empty where nothing is to be done. `NULL` when `index` is too high. Belongs to the diagnosis.
 */
const char *onelock_diagnosis_todo(const onelock_diagnosis *diagnosis, size_t index);

/**
 * The status that a call would end with because of it, if the step failed; otherwise `ONELOCK_OK`.
 */
onelock_status onelock_diagnosis_error(const onelock_diagnosis *diagnosis, size_t index);

/**
 * How many values were measured at that step.
 */
size_t onelock_diagnosis_measured_count(const onelock_diagnosis *diagnosis, size_t index);

/**
 * The name of one of these values, which ends with its unit: `median_us`. `NULL` when an index is too high. Belongs to the
 * diagnosis.
 */
const char *onelock_diagnosis_measured_name(const onelock_diagnosis *diagnosis,
                                            size_t index,
                                            size_t number);

/**
 * One of these values; 0 when an index is too high.
 */
double onelock_diagnosis_measured(const onelock_diagnosis *diagnosis, size_t index, size_t number);

/**
 * Frees the diagnosis and its texts. Does nothing for NULL and dead handles.
 */
void onelock_diagnosis_free(onelock_diagnosis *diagnosis);

/**
 * The name of a kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock`, `semaphore`, `multi_lock`;
 * `NULL` for another number. Static text.
 */
const char *onelock_kind_name(uint32_t kind);

/**
 * The name of an origin: `onelock`, `redisson`, `other`; `NULL` for another number. Static text.
 */
const char *onelock_origin_name(uint32_t origin);

/**
 * The name of a grade: `None`, `BestEffort`, `ClockBounded`, `Strict`; `NULL` for another number. Static text.
 */
const char *onelock_grade_name(uint32_t grade);

/**
 * The name of a reason of loss: `expired`, `taken`, `max_hold`, `clock_anomaly`, `closed`; `NULL` for another
 * number. Static text.
 */
const char *onelock_loss_name(uint32_t reason);

/**
 * The name of an outcome of release: `released`, `already_expired`, `already_released`, `unconfirmed`; `NULL` for
 * another number. Static text.
 */
const char *onelock_release_name(uint32_t outcome);

/**
 * The name of a severity: `skipped`, `passed`, `remark`, `warning`, `failed`; `NULL` for another number. Static text.
 */
const char *onelock_severity_name(uint32_t severity);

/**
 * The status that the call returned; `ONELOCK_OK` for NULL or a dead handle.
 */
onelock_status onelock_error_status(const onelock_error *error);

/**
 * The name of the kind of error, such as `Timeout`. Static text; `NULL` for a dead handle.
 */
const char *onelock_error_kind(const onelock_error *error);

/**
 * The message: the lock, the call, what was found, and what to do. It never contains a password. It belongs to the
 * error; `NULL` for a dead handle.
 */
const char *onelock_error_message(const onelock_error *error);

/**
 * The name of the lock, unprintable bytes escaped; `NULL` when the error concerns no lock. It belongs to the error.
 */
const char *onelock_error_lock_name(const onelock_error *error);

/**
 * The call that failed, in a few words: `acquire`, `extend`, `connect` ... It belongs to the error; `NULL` for a dead
 * handle.
 */
const char *onelock_error_tried(const onelock_error *error);

/**
 * What was found, without the name of the lock and the hint. It belongs to the error; `NULL` for a dead handle.
 */
const char *onelock_error_detail(const onelock_error *error);

/**
 * The number of answers of servers.
 */
size_t onelock_error_cause_count(const onelock_error *error);

/**
 * The answer of one server; `NULL` when `index` is too high. It belongs to the error.
 */
const char *onelock_error_cause(const onelock_error *error, size_t index);

/**
 * Whether the same call may succeed later, without any change.
 */
bool onelock_error_is_retryable(const onelock_error *error);

/**
 * Frees the error and its texts. Does nothing for NULL and dead handles.
 */
void onelock_error_free(onelock_error *error);

/**
 * The grade of fencing tokens of this server: an `ONELOCK_GRADE_`.
 */
uint32_t onelock_facts_grade(const onelock_facts *facts);

/**
 * The server's name and version, such as `valkey 9.1.0`. It belongs to the facts; `NULL` for a dead handle.
 */
const char *onelock_facts_server(const onelock_facts *facts);

/**
 * The number of settings of this server that can break locks.
 */
size_t onelock_facts_warning_count(const onelock_facts *facts);

/**
 * One of them, as a sentence; `NULL` when `index` is too high. It belongs to the facts.
 */
const char *onelock_facts_warning(const onelock_facts *facts, size_t index);

/**
 * Frees the facts and their texts. Does nothing for NULL and dead handles.
 */
void onelock_facts_free(onelock_facts *facts);

/**
 * A gate that continues from `highest`: 0 for a new one, or what the resource has stored. One gate is for one lock
 * name. `NULL` when there is no room for another handle. Free it with `onelock_gate_free`.
 */
onelock_gate *onelock_gate_new(uint64_t highest);

/**
 * Whether the token is allowed: none higher was seen. False for a dead handle. Never blocks.
 */
bool onelock_gate_admit(const onelock_gate *gate, uint64_t token);

/**
 * The highest token seen, 0 for none. Store it with the resource.
 */
uint64_t onelock_gate_highest(const onelock_gate *gate);

/**
 * Frees the gate. Does nothing for NULL and dead handles.
 */
void onelock_gate_free(onelock_gate *gate);

/**
 * The kind of lock, an `ONELOCK_KIND_`; 0 for a dead handle.
 */
uint32_t onelock_inspection_kind(const onelock_inspection *inspection);

/**
 * Which client's lock it is, as far as can be told: an `ONELOCK_ORIGIN_`; 0 for a dead handle.
 */
uint32_t onelock_inspection_origin(const onelock_inspection *inspection);

/**
 * Of a holder that is no client of this library: as much of what it wrote as tells people who it is, and is no proof or
 * secret. `NULL` where nothing of it can be shown. Belongs to the inspection.
 */
const char *onelock_inspection_foreign_holder(const onelock_inspection *inspection);

/**
 * The hold count of the holder; of a semaphore, how many permits are held.
 */
uint64_t onelock_inspection_hold_count(const onelock_inspection *inspection);

/**
 * Time to live of the key on the server, in milliseconds; -1 for a foreign key without one.
 */
int64_t onelock_inspection_ttl_left_ms(const onelock_inspection *inspection);

/**
 * The fencing token of the present hold; 0 for none.
 */
uint64_t onelock_inspection_fencing_token(const onelock_inspection *inspection);

/**
 * Whether the holder is known: it is a client of this library with `inspectable` set.
 */
bool onelock_inspection_has_owner(const onelock_inspection *inspection);

/**
 * The label of the holder's client; `NULL` when it is not known. It belongs to the inspection.
 */
const char *onelock_inspection_owner_label(const onelock_inspection *inspection);

/**
 * The name of the holder's host; `NULL` when it is not known. It belongs to the inspection.
 */
const char *onelock_inspection_owner_host(const onelock_inspection *inspection);

/**
 * The holder's process id; 0 when it is not known.
 */
uint32_t onelock_inspection_owner_pid(const onelock_inspection *inspection);

/**
 * When it was granted: wall clock, milliseconds since 1970; 0 when it is not known.
 */
uint64_t onelock_inspection_owner_since_ms(const onelock_inspection *inspection);

/**
 * Of a semaphore, how many permits there are in all; -1 for any other lock.
 */
int64_t onelock_inspection_permits(const onelock_inspection *inspection);

/**
 * Of a semaphore, how many permits are free; -1 for any other lock.
 */
int64_t onelock_inspection_free_permits(const onelock_inspection *inspection);

/**
 * How many processes wait for it, by listening or in its queue; -1 where the server doesn't tell.
 */
int64_t onelock_inspection_waiting(const onelock_inspection *inspection);

/**
 * How many of those that wait can be asked about, by their places from 0 on: the first 16 that have a place in the queue on
 * the server, the head first. These are who waits for a fair lock, for permits of a semaphore, or to write; who waits for any
 * other lock, or to read, has told the server no name.
 */
size_t onelock_inspection_waiters(const onelock_inspection *inspection);

/**
 * The label of a client that waits; `NULL` when it is not `inspectable`. It belongs to the inspection.
 */
const char *onelock_inspection_waiter_label(const onelock_inspection *inspection, size_t index);

/**
 * The name of the host of a client that waits; `NULL` when it is not `inspectable`. It belongs to the inspection.
 */
const char *onelock_inspection_waiter_host(const onelock_inspection *inspection, size_t index);

/**
 * The process id of a client that waits; 0 when it is not `inspectable`.
 */
uint32_t onelock_inspection_waiter_pid(const onelock_inspection *inspection, size_t index);

/**
 * Since when a client that waits has its place: the server's wall clock, milliseconds since 1970; 0 for no such place.
 */
uint64_t onelock_inspection_waiter_since_ms(const onelock_inspection *inspection, size_t index);

/**
 * Frees the inspection and its texts. Does nothing for NULL and dead handles.
 */
void onelock_inspection_free(onelock_inspection *inspection);

/**
 * Whether this handle holds the lock now: not released, not lost, same process, before the deadline. False for NULL
 * and dead handles.
 *
 * Without locks and I/O: a table look-up, an atomic load and a clock reading. May be called everywhere but in signal
 * handlers.
 */
bool onelock_lease_is_held(const onelock_lease *lease);

/**
 * The fencing token of this hold, for the protected resource. 0 when fencing is off, and for a lease of several locks:
 * `onelock_lease_fencing_token_of`. It grows with every grant of the
 * name; it is below 2^53.
 */
uint64_t onelock_lease_fencing_token(const onelock_lease *lease);

/**
 * The fencing token of one of the locks that a lease of several holds, by its name; of a lease of one lock, its own. 0
 * when fencing is off, and for a name that it does not hold.
 */
uint64_t onelock_lease_fencing_token_of(const onelock_lease *lease, const char *name, size_t name_length);

/**
 * The grade of the fencing token, from the server's configuration: an `ONELOCK_GRADE_`.
 */
uint32_t onelock_lease_fencing_grade(const onelock_lease *lease);

/**
 * The time until the deadline, without further renewals, in milliseconds; 0 when it is not held.
 */
int64_t onelock_lease_remaining_ms(const onelock_lease *lease);

/**
 * Why the lease was lost, an `ONELOCK_LOSS_`; `ONELOCK_LOSS_NONE` when it was not.
 */
uint32_t onelock_lease_loss(const onelock_lease *lease);

/**
 * `ONELOCK_ERR_LOST`, with an error that names the reason, if the lease was lost; `ONELOCK_OK` while it is held and
 * after a release. No I/O.
 *
 * At the end of the work, release, then call this. A release that finds the hold gone before its deadline counts as a
 * loss.
 */
onelock_status onelock_lease_check_loss(const onelock_lease *lease, onelock_error **error);

/**
 * The hold count of the owner; 1 for a lock that is not reentrant, 0 when it is not held.
 */
uint64_t onelock_lease_hold_count(const onelock_lease *lease);

/**
 * The kind of lock, an `ONELOCK_KIND_`; 0 for a dead handle.
 */
uint32_t onelock_lease_kind(const onelock_lease *lease);

/**
 * The name of the lock, not NUL-terminated; it belongs to the lease. Of several locks all names, with `, ` between them,
 * for messages.
 */
onelock_status onelock_lease_name(const onelock_lease *lease,
                                  const char **name,
                                  size_t *name_length,
                                  onelock_error **error);

/**
 * Sets the loss callback of this lease, in place of the one before; `NULL` removes it. It is called once; at once if
 * the lease is lost already.
 *
 * It runs on a thread for callbacks. This function waits for a running callback, so that the former one is never
 * called after it has returned, unless it is called from that callback itself.
 */
onelock_status onelock_lease_on_lost(const onelock_lease *lease,
                                     onelock_lost_fn callback,
                                     void *user_data,
                                     onelock_error **error);

/**
 * Sets the callback for renewals that were missed while the lease is still valid; `NULL` removes it. Otherwise as
 * `onelock_lease_on_lost`.
 */
onelock_status onelock_lease_on_jeopardy(const onelock_lease *lease,
                                         onelock_jeopardy_fn callback,
                                         void *user_data,
                                         onelock_error **error);

/**
 * A file descriptor that becomes readable when the lease is lost, for `poll` and similar functions. It is always the
 * same one.
 *
 * It belongs to the lease: do not read, write or close it, and stop watching it before the lease is freed.
 */
onelock_status onelock_lease_lost_fd(const onelock_lease *lease, int *fd, onelock_error **error);

/**
 * Waits for the loss of the lease, at most `wait_ms` (-1: without limit; then it never returns if the lease is
 * released). Writes `ONELOCK_LOSS_NONE` when it has not been lost by then.
 */
onelock_status onelock_lease_wait_lost(const onelock_lease *lease,
                                       int64_t wait_ms,
                                       uint32_t *reason,
                                       onelock_error **error);

/**
 * Sets the end of the lease to `ttl_ms` from now, unless it ends later already. It never adds or shortens.
 *
 * From 10 ms to one year. Automatic renewal continues with the longer of the two lengths. One round trip; returns
 * within `connect_timeout` + 2 x `request_timeout`. `ONELOCK_ERR_LOST` or `ONELOCK_ERR_NOT_HELD` when the lease is not
 * held; `ONELOCK_ERR_UNAVAILABLE` when no server answered (the deadline is unchanged).
 */
onelock_status onelock_lease_extend(const onelock_lease *lease, int64_t ttl_ms, onelock_error **error);

/**
 * Makes a write lease a read lease, in place: other readers may enter from now on, and at no moment could another writer.
 * The fencing token is a new one. A read lease stays what it is.
 *
 * One round trip; returns within `connect_timeout` + 2 x `request_timeout`. `ONELOCK_ERR_INVALID_ARGUMENT` for another kind
 * of lock; `ONELOCK_ERR_BUSY` while its owner enters or leaves it; `ONELOCK_ERR_LOST` or `ONELOCK_ERR_NOT_HELD` when the lease
 * is not held; `ONELOCK_ERR_UNAVAILABLE` when no server answered: it counts as a read lease then, and a further call asks again.
 */
onelock_status onelock_lease_downgrade(const onelock_lease *lease,
                                       onelock_error **error);

/**
 * Releases the lock, and reports what the server found. Idempotent; one round trip, within `request_timeout`.
 *
 * `outcome` may be `NULL`; it becomes `ONELOCK_RELEASED`, `ONELOCK_ALREADY_EXPIRED`, `ONELOCK_ALREADY_RELEASED` or
 * `ONELOCK_UNCONFIRMED`, none of which is an error. The only error for a living lease is `ONELOCK_ERR_FORKED`.
 */
onelock_status onelock_lease_release(const onelock_lease *lease, uint32_t *outcome, onelock_error **error);

/**
 * Detaches the hold for another process: this handle holds nothing from now on; the proof is for
 * `onelock_lock_attach`. Attach within the ttl; the hold is not renewed meanwhile. The first attach gets the lock. A
 * release of this handle sends nothing and reports `ONELOCK_ALREADY_RELEASED`. Free the proof with
 * `onelock_proof_free`. Of several locks it is one proof a line, in the order in which they were given to
 * `onelock_multi_new`; attach with each to its lock.
 */
onelock_status onelock_lease_detach(const onelock_lease *lease, onelock_proof **proof, onelock_error **error);

/**
 * Frees the lease. If it is still held it is released in the background, without waiting. Waits for a running callback
 * of this lease, so that none is called after this has returned; called from such a callback it takes effect when that
 * returns. Does nothing for NULL and dead handles. In a forked child it sends nothing.
 */
void onelock_lease_free(onelock_lease *lease);

/**
 * Several locks as one, all or none: `count` locks of any kinds and clients. No I/O. It is a lock as any other (acquire,
 * try, start), but has no proof to attach with. Free it with `onelock_lock_free`; the members may be freed before.
 *
 * The lease is held while all of them are, and the first loss is the loss of the whole; callbacks belong to the lease,
 * those of the members' options do not count. Plain locks on one server are taken by one request, if all are free; else
 * members are acquired one after the other, in an order that is the same for all programs, and held while later ones are
 * waited for: callers of overlapping sets never wait in a circle. A lock that is named twice is held once.
 * `ONELOCK_ERR_INVALID_ARGUMENT` for no lock, more than 32, one name as two kinds, and one lock with two owners or two
 * numbers of permits.
 */
onelock_status onelock_multi_new(const onelock_lock *const *locks,
                                 size_t count,
                                 onelock_lock **lock,
                                 onelock_error **error);

/**
 * A lock of this kind (an `ONELOCK_KIND_`) and name. No I/O. `options` may be `NULL`. Free it with
 * `onelock_lock_free`.
 *
 * A name has 1 to 512 bytes, any bytes. It belongs to one kind of lock. A wrong length names another lock: for names
 * without a NUL there is `onelock_lock_new_str`.
 */
onelock_status onelock_lock_new(const onelock_client *client,
                                uint32_t lock_kind,
                                const char *name,
                                size_t name_length,
                                const onelock_lock_options *options,
                                onelock_lock **lock,
                                onelock_error **error);

/**
 * As `onelock_lock_new`, for a NUL-terminated name.
 */
onelock_status onelock_lock_new_str(const onelock_client *client,
                                    uint32_t lock_kind,
                                    const char *name,
                                    const onelock_lock_options *options,
                                    onelock_lock **lock,
                                    onelock_error **error);

/**
 * Waits until the lock is held. Release the lease with `onelock_lease_release`, free it with `onelock_lease_free`.
 *
 * `wait_ms`: -1 waits without limit, 0 tries once (`ONELOCK_ERR_BUSY` when it is held), a positive number waits that
 * long (`ONELOCK_ERR_TIMEOUT`). `cancel` may be `NULL`; when the token is cancelled the wait ends with
 * `ONELOCK_ERR_CANCELLED`, and nothing is left held.
 *
 * Returns within `wait_ms` + `connect_timeout` + 2 x `request_timeout`, whatever the network does. Without a limit an
 * unreachable server is retried for `unreachable_limit` (30 s).
 */
onelock_status onelock_lock_acquire(const onelock_lock *lock,
                                    int64_t wait_ms,
                                    const onelock_cancel *cancel,
                                    onelock_lease **lease,
                                    onelock_error **error);

/**
 * One try, one round trip: `ONELOCK_ERR_BUSY` when it is held. Otherwise as `onelock_lock_acquire`.
 */
onelock_status onelock_lock_try_acquire(const onelock_lock *lock, onelock_lease **lease, onelock_error **error);

/**
 * Starts an acquire and returns at once, for event loops. `wait_ms` as in `onelock_lock_acquire`.
 *
 * Wait with `onelock_acquisition_fd` or `onelock_acquisition_on_ready`, then call `onelock_acquisition_finish`. Free
 * it with `onelock_acquisition_free`, which cancels it if it has not ended.
 */
onelock_status onelock_lock_acquire_start(const onelock_lock *lock,
                                          int64_t wait_ms,
                                          onelock_acquisition **acquisition,
                                          onelock_error **error);

/**
 * Takes over a hold that another process detached with `onelock_lease_detach`. The ttl begins now.
 *
 * `proof` is its text, NUL-terminated. The server replaces the token of the hold, so a proof attaches only once; the
 * fencing token stays the same (Redlock: it may be higher). `ONELOCK_ERR_LOST` when the hold has ended, or the proof
 * was used before. After an error that does not tell whether the server attached, such as `ONELOCK_ERR_UNAVAILABLE`,
 * the hold is released if it did.
 */
onelock_status onelock_lock_attach(const onelock_lock *lock,
                                   const char *proof,
                                   onelock_lease **lease,
                                   onelock_error **error);

/**
 * Whether the lock is held, by this client or another; of several locks, whether one of them is. One round trip for each.
 */
onelock_status onelock_lock_is_locked(const onelock_lock *lock,
                                      bool *is_locked,
                                      onelock_error **error);

/**
 * How many permits a semaphore has, how many of them are held, and how many are free. `known` is false, and all are 0, when
 * no number is set yet. Any of the last three may be `NULL`. One round trip.
 */
onelock_status onelock_lock_permits(const onelock_lock *lock,
                                    bool *known,
                                    uint64_t *total,
                                    uint64_t *held,
                                    uint64_t *free,
                                    onelock_error **error);

/**
 * Sets how many permits a semaphore has in all, 1 to 1024. Whoever holds permits keeps them. Programs that name another
 * number get `ONELOCK_ERR_PERMITS_MISMATCH` from now on.
 */
onelock_status onelock_lock_set_permits(const onelock_lock *lock, uint32_t permits, onelock_error **error);

/**
 * The kind of lock, an `ONELOCK_KIND_`; 0 for a dead handle.
 */
uint32_t onelock_lock_kind(const onelock_lock *lock);

/**
 * The name of the lock, not NUL-terminated; it belongs to the lock. Of several locks all names, with `, ` between them,
 * for messages.
 */
onelock_status onelock_lock_name(const onelock_lock *lock,
                                 const char **name,
                                 size_t *name_length,
                                 onelock_error **error);

/**
 * Frees the lock. Its leases remain. Does nothing for NULL and dead handles.
 */
void onelock_lock_free(onelock_lock *lock);

/**
 * Options that all have the client's values. `NULL` when there is no room for another handle. Free them with
 * `onelock_lock_options_free`; locks that were made with them keep a copy.
 */
onelock_lock_options *onelock_lock_options_new(void);

/**
 * Frees the options. Does nothing for NULL and dead handles.
 */
void onelock_lock_options_free(onelock_lock_options *options);

/**
 * The renewal period; by default a third of the ttl. For tests only.
 */
onelock_status onelock_lock_options_set_renew_every(onelock_lock_options *options,
                                                    int64_t renew_every_ms,
                                                    onelock_error **error);

/**
 * The owner; only for `ONELOCK_KIND_REENTRANT`. Without it every acquire has an owner of its own.
 */
onelock_status onelock_lock_options_set_owner(onelock_lock_options *options,
                                              const onelock_owner *owner,
                                              onelock_error **error);

/**
 * How many permits a semaphore has in all, 1 to 1024: the same in every program. By default as many as are set. Only for
 * `ONELOCK_KIND_SEMAPHORE`.
 */
onelock_status onelock_lock_options_set_permits(onelock_lock_options *options,
                                                uint32_t permits,
                                                onelock_error **error);

/**
 * How many permits one acquire takes, all or none; by default 1. Only for `ONELOCK_KIND_SEMAPHORE`.
 */
onelock_status onelock_lock_options_set_count(onelock_lock_options *options, uint32_t count, onelock_error **error);

/**
 * The loss callback of every lease of the lock; see `onelock_lease_on_lost`. `NULL` removes it.
 */
onelock_status onelock_lock_options_set_on_lost(onelock_lock_options *options,
                                                onelock_lost_fn callback,
                                                void *user_data,
                                                onelock_error **error);

/**
 * The jeopardy callback of every lease of the lock; see `onelock_lease_on_jeopardy`. `NULL` removes it.
 */
onelock_status onelock_lock_options_set_on_jeopardy(onelock_lock_options *options,
                                                    onelock_jeopardy_fn callback,
                                                    void *user_data,
                                                    onelock_error **error);

/**
 * Length of a lease: how long others wait after a crash of the holder (10 ms to one year).
 */
onelock_status onelock_lock_options_set_ttl(onelock_lock_options *options, int64_t ttl_ms, onelock_error **error);

/**
 * Whether leases are renewed in the background, every third of the ttl, until they are released.
 */
onelock_status onelock_lock_options_set_auto_renew(onelock_lock_options *options,
                                                   bool auto_renew,
                                                   onelock_error **error);

/**
 * How long a lock stays taken at least, even if it is released earlier (at most the ttl).
 */
onelock_status onelock_lock_options_set_min_hold(onelock_lock_options *options,
                                                 int64_t min_hold_ms,
                                                 onelock_error **error);

/**
 * The longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms).
 */
onelock_status onelock_lock_options_set_max_hold(onelock_lock_options *options,
                                                 int64_t max_hold_ms,
                                                 onelock_error **error);

/**
 * How much longer than the lease the key lives: others wait that much longer after a crash.
 */
onelock_status onelock_lock_options_set_lock_delay(onelock_lock_options *options,
                                                   int64_t lock_delay_ms,
                                                   onelock_error **error);

/**
 * How much of a lease must be left when its grant arrives (less than the ttl).
 */
onelock_status onelock_lock_options_set_min_validity(onelock_lock_options *options,
                                                     int64_t min_validity_ms,
                                                     onelock_error **error);

/**
 * Whether each grant draws a fencing token.
 */
onelock_status onelock_lock_options_set_fencing(onelock_lock_options *options, bool fencing, onelock_error **error);

/**
 * Sets the function of the process that takes log lines, up to this `ONELOCK_LOG_` level, in place of the one before;
 * `NULL` removes it.
 *
 * Waits for a running call, so that the former function is never called after this has returned.
 */
onelock_status onelock_log_set(uint32_t level, onelock_log_fn callback, void *user_data, onelock_error **error);

/**
 * An owner that is equal only to itself. `NULL` when there is no room for another handle. Free it with
 * `onelock_owner_free`.
 */
onelock_owner *onelock_owner_new(void);

/**
 * The owner of this name: equal to every owner with the same name in one client. Free it with `onelock_owner_free`.
 */
onelock_status onelock_owner_named(const char *name, size_t name_length, onelock_owner **owner, onelock_error **error);

/**
 * Frees the owner. Locks and options keep it. Does nothing for NULL and dead handles.
 */
void onelock_owner_free(onelock_owner *owner);

/**
 * How many locks the page has.
 */
size_t onelock_page_count(const onelock_page *page);

/**
 * The name of one of them, any bytes, without the client's prefix and without a NUL at its end. Belongs to the page.
 *
 * `length` may be `NULL`. `NULL` and length 0 when `index` is too high.
 */
const char *onelock_page_name(const onelock_page *page, size_t index, size_t *length);

/**
 * What stands under the name of one of them. Free the result with `onelock_inspection_free`.
 */
onelock_status onelock_page_inspection(const onelock_page *page,
                                       size_t index,
                                       onelock_inspection **inspection,
                                       onelock_error **error);

/**
 * How many processes wait for one of them; -1 when that cannot be told, or `index` is too high.
 */
int64_t onelock_page_waiting(const onelock_page *page, size_t index);

/**
 * What to give as `cursor` for the next page; `NULL` on the last one. Belongs to the page.
 */
const char *onelock_page_next(const onelock_page *page);

/**
 * Frees the page, its names and its cursor. NULL and dead handles are left alone.
 */
void onelock_page_free(onelock_page *page);

/**
 * The proof as text. It belongs to the proof; `NULL` for a dead handle.
 */
const char *onelock_proof_text(const onelock_proof *proof);

/**
 * Frees the proof and its text, not the hold. Does nothing for NULL and dead handles.
 */
void onelock_proof_free(onelock_proof *proof);

/**
 * One counter, an `ONELOCK_STATS_` from `HELD` to `COMMANDS_SENT`; 0 for another number.
 */
uint64_t onelock_stats_counter(const onelock_stats *stats, uint32_t counter);

/**
 * The number of times in a histogram, `ONELOCK_HISTOGRAM_WAIT` or `ONELOCK_HISTOGRAM_HOLD`.
 */
uint64_t onelock_stats_histogram_count(const onelock_stats *stats, uint32_t histogram);

/**
 * The sum of the times of a histogram, in microseconds.
 */
uint64_t onelock_stats_histogram_sum_us(const onelock_stats *stats, uint32_t histogram);

/**
 * One count of a histogram: bucket `i` counts times below `2^i` microseconds and not below `2^(i-1)`; there are 32,
 * and the last one counts all longer times.
 */
uint64_t onelock_stats_histogram_bucket(const onelock_stats *stats, uint32_t histogram, size_t bucket);

/**
 * An upper bound of a quantile (0.0 to 1.0) of a histogram, in microseconds; 0 when nothing was recorded.
 */
uint64_t onelock_stats_histogram_quantile_us(const onelock_stats *stats, uint32_t histogram, double quantile);

/**
 * Frees the snapshot. Does nothing for NULL and dead handles.
 */
void onelock_stats_free(onelock_stats *stats);

/**
 * The name of a status, such as `Busy` or `Ok`; `NULL` for another number. Static text.
 */
const char *onelock_status_name(onelock_status status);

/**
 * What to do about an error, as one sentence; `NULL` for a status that is not an error. Static text.
 */
const char *onelock_status_hint(onelock_status status);

/**
 * Whether the same call may succeed later, without any change.
 */
bool onelock_status_is_retryable(onelock_status status);

/**
 * Whether the lock was not acquired, but nothing failed: busy, timeout, cancelled.
 */
bool onelock_status_is_not_acquired(onelock_status status);

extern int pthread_setcancelstate(int state, int *before);

/**
 * The version of the loaded library, such as `0.1.0`; compare with `ONELOCK_VERSION`. Static text.
 */
const char *onelock_version(void);

/**
 * The interface of the loaded library; compare with `ONELOCK_ABI_VERSION`.
 */
uint32_t onelock_abi_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ONELOCK_H */
