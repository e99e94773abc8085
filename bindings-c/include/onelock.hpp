// onelock for C++17: the same library as onelock.h, with objects that free themselves and exceptions.
//
//     onelock::client client("redis://127.0.0.1/");
//     auto lease = client.lock("orders:42").acquire(5s);      // waits its turn, at most five seconds
//     work(lease.fencing_token());
//     lease.release();                                        // or leave the scope: then in the background
//
// Objects own a handle of the C interface, can be moved and not copied, and `get()` gives the handle. What is said at
// the head of onelock.h about threads, callbacks, forks and exits holds here as well. A std::chrono duration is rounded
// down to milliseconds. Functions given as callbacks are copied, live as long as their object, and must not throw.

#ifndef ONELOCK_HPP
#define ONELOCK_HPP

#include <onelock.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace onelock {

using std::chrono::milliseconds;

enum class kind : std::uint32_t {
    mutex = ONELOCK_KIND_MUTEX,
    reentrant = ONELOCK_KIND_REENTRANT,
    fair = ONELOCK_KIND_FAIR,
    read = ONELOCK_KIND_READ,
    write = ONELOCK_KIND_WRITE,
    semaphore = ONELOCK_KIND_SEMAPHORE,
    multi = ONELOCK_KIND_MULTI
};
enum class origin : std::uint32_t {
    onelock = ONELOCK_ORIGIN_ONELOCK,
    redisson = ONELOCK_ORIGIN_REDISSON,
    other = ONELOCK_ORIGIN_OTHER
};
enum class outcome : std::uint32_t {
    released = ONELOCK_RELEASED,
    already_expired = ONELOCK_ALREADY_EXPIRED,
    already_released = ONELOCK_ALREADY_RELEASED,
    unconfirmed = ONELOCK_UNCONFIRMED
};
enum class loss : std::uint32_t {
    none = ONELOCK_LOSS_NONE,
    expired = ONELOCK_LOSS_EXPIRED,
    taken = ONELOCK_LOSS_TAKEN,
    max_hold = ONELOCK_LOSS_MAX_HOLD,
    clock_anomaly = ONELOCK_LOSS_CLOCK_ANOMALY,
    closed = ONELOCK_LOSS_CLOSED
};
enum class notify : std::uint32_t {
    automatic = ONELOCK_NOTIFY_AUTO,
    classic = ONELOCK_NOTIFY_CLASSIC,
    sharded = ONELOCK_NOTIFY_SHARDED,
    both = ONELOCK_NOTIFY_BOTH
};
enum class grade : std::uint32_t {
    none = ONELOCK_GRADE_NONE,
    best_effort = ONELOCK_GRADE_BEST_EFFORT,
    clock_bounded = ONELOCK_GRADE_CLOCK_BOUNDED,
    strict = ONELOCK_GRADE_STRICT
};

enum class severity : std::uint32_t {
    skipped = ONELOCK_SEVERITY_SKIPPED,
    passed = ONELOCK_SEVERITY_PASSED,
    remark = ONELOCK_SEVERITY_REMARK,
    warning = ONELOCK_SEVERITY_WARNING,
    failed = ONELOCK_SEVERITY_FAILED
};

/// Why a call failed. `what()` is the whole message.
class error : public std::runtime_error {
public:
    /// Takes over an error object of the C interface.
    error(onelock_status status, onelock_error *object)
        : std::runtime_error(text(onelock_error_message(object), "onelock call failed")),
          status_(status),
          lock_name_(text(onelock_error_lock_name(object), "")) {
        for (std::size_t i = 0; i < onelock_error_cause_count(object); i++) {
            causes_.emplace_back(onelock_error_cause(object, i));
        }
        onelock_error_free(object);
    }
    /// An ONELOCK_ERR_ number.
    onelock_status status() const noexcept { return status_; }
    /// The name of the lock, escaped; empty when no lock is concerned.
    const std::string &lock_name() const noexcept { return lock_name_; }
    /// What each server said.
    const std::vector<std::string> &causes() const noexcept { return causes_; }
    bool is_retryable() const noexcept { return onelock_status_is_retryable(status_); }
    /// Busy, timeout or cancelled: not a fault.
    bool is_not_acquired() const noexcept { return onelock_status_is_not_acquired(status_); }

private:
    static std::string text(const char *found, const char *otherwise) { return found ? found : otherwise; }
    onelock_status status_;
    std::string lock_name_;
    std::vector<std::string> causes_;
};

/// Busy, timeout or cancelled: the lock was not acquired because of waiting, not of a fault.
class not_acquired_error : public error {
public:
    using error::error;
};

/// Every status and the exception for it: ONELOCK_ERR_NAME, the class, and its base. `catch (const onelock::error &)`
/// catches them all, and statuses of later versions too.
#define ONELOCK_EXCEPTIONS(ROW) \
    ROW(ONELOCK_ERR_BUSY, busy_error, not_acquired_error) \
    ROW(ONELOCK_ERR_TIMEOUT, timeout_error, not_acquired_error) \
    ROW(ONELOCK_ERR_CANCELLED, cancelled_error, not_acquired_error) \
    ROW(ONELOCK_ERR_LOST, lost_error, error) \
    ROW(ONELOCK_ERR_NOT_HELD, not_held_error, error) \
    ROW(ONELOCK_ERR_UNAVAILABLE, unavailable_error, error) \
    ROW(ONELOCK_ERR_NO_QUORUM, no_quorum_error, error) \
    ROW(ONELOCK_ERR_AUTH_FAILED, auth_failed_error, error) \
    ROW(ONELOCK_ERR_NOT_PERMITTED, not_permitted_error, error) \
    ROW(ONELOCK_ERR_READ_ONLY, read_only_error, error) \
    ROW(ONELOCK_ERR_SERVER_REFUSED, server_refused_error, error) \
    ROW(ONELOCK_ERR_WRONG_KIND, wrong_kind_error, error) \
    ROW(ONELOCK_ERR_INVALID_ARGUMENT, invalid_argument_error, error) \
    ROW(ONELOCK_ERR_UNSUPPORTED, unsupported_error, error) \
    ROW(ONELOCK_ERR_WOULD_DEADLOCK, would_deadlock_error, error) \
    ROW(ONELOCK_ERR_PERMITS_MISMATCH, permits_mismatch_error, error) \
    ROW(ONELOCK_ERR_CLOSED, closed_error, error) \
    ROW(ONELOCK_ERR_FORKED, forked_error, error) \
    ROW(ONELOCK_ERR_SYSTEM_LIMIT, system_limit_error, error) \
    ROW(ONELOCK_ERR_INTERNAL, internal_error, error)

#define ONELOCK_CLASS(NUMBER, CLASS, BASE) \
    class CLASS : public BASE { \
    public: \
        using BASE::BASE; \
    };
ONELOCK_EXCEPTIONS(ONELOCK_CLASS)
#undef ONELOCK_CLASS

namespace detail {

/// Throws the exception for this status; takes over the error object.
[[noreturn]] inline void raise(onelock_status status, onelock_error *object) {
    switch (status) {
#define ONELOCK_RAISE(NUMBER, CLASS, BASE) \
    case NUMBER: \
        throw CLASS(status, object);
        ONELOCK_EXCEPTIONS(ONELOCK_RAISE)
#undef ONELOCK_RAISE
        default:
            throw error(status, object);
    }
}
#undef ONELOCK_EXCEPTIONS

template <typename T, void (*Free)(T *)>
class handle {
public:
    explicit handle(T *raw = nullptr) noexcept : raw_(raw) {}
    handle(handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    handle &operator=(handle &&other) noexcept {
        if (this != &other) Free(std::exchange(raw_, std::exchange(other.raw_, nullptr)));
        return *this;
    }
    ~handle() { Free(raw_); }
    T *get() const noexcept { return raw_; }

private:
    T *raw_;
};

/// Calls a function of the C interface with a place for its error, and throws what it says.
template <typename Call>
void check(Call call) {
    onelock_error *object = nullptr;
    onelock_status status = call(&object);
    if (status != ONELOCK_OK) raise(status, object);
}

inline std::int64_t ms(milliseconds span) { return span.count(); }

/// A limit of waiting: none is -1, and a negative one is refused like any other bad value.
inline std::int64_t wait_ms(std::optional<milliseconds> wait) {
    if (!wait) return -1;
    return wait->count() < 0 ? INT64_MIN : wait->count();
}

inline std::string copy(const char *text) { return text ? text : ""; }

}  // namespace detail

/// Cancels waiting acquires, from another thread or a signal handler.
class cancel : public detail::handle<onelock_cancel, onelock_cancel_free> {
public:
    cancel() : handle(onelock_cancel_new()) {}
    /// Safe in a signal handler.
    void operator()() const noexcept { onelock_cancel_cancel(get()); }
    bool is_cancelled() const noexcept { return onelock_cancel_is_cancelled(get()); }
};

/// An owner of reentrant locks.
class owner : public detail::handle<onelock_owner, onelock_owner_free> {
public:
    owner() : handle(onelock_owner_new()) {}
    explicit owner(std::string_view name) : handle(named(name)) {}

private:
    static onelock_owner *named(std::string_view name) {
        onelock_owner *made = nullptr;
        detail::check([&](auto error) { return onelock_owner_named(name.data(), name.size(), &made, error); });
        return made;
    }
};

/// The resource's half of fencing.
class gate : public detail::handle<onelock_gate, onelock_gate_free> {
public:
    explicit gate(std::uint64_t highest = 0) : handle(onelock_gate_new(highest)) {}
    bool admit(std::uint64_t token) const noexcept { return onelock_gate_admit(get(), token); }
    std::uint64_t highest() const noexcept { return onelock_gate_highest(get()); }
};

/// One granted hold. Leaving the scope releases it in the background, and says nothing of a loss; `release` also tells
/// what became of it, and `lock::with` throws when the lease was lost.
class lease : public detail::handle<onelock_lease, onelock_lease_free> {
public:
    using handle::handle;
    lease(lease &&) = default;
    lease &operator=(lease &&other) noexcept {
        // no callback may run once its function is gone: the old handle is freed first
        handle::operator=(std::move(other));
        on_lost_ = std::move(other.on_lost_);
        on_jeopardy_ = std::move(other.on_jeopardy_);
        return *this;
    }
    ~lease() { handle::operator=(handle()); }

    bool is_held() const noexcept { return onelock_lease_is_held(get()); }
    explicit operator bool() const noexcept { return is_held(); }
    std::uint64_t fencing_token() const noexcept { return onelock_lease_fencing_token(get()); }
    /// Of one of the locks that a lease of several holds.
    std::uint64_t fencing_token_of(std::string_view name) const noexcept {
        return onelock_lease_fencing_token_of(get(), name.data(), name.size());
    }
    grade fencing_grade() const noexcept { return grade(onelock_lease_fencing_grade(get())); }
    milliseconds remaining() const noexcept { return milliseconds(onelock_lease_remaining_ms(get())); }
    onelock::loss loss() const noexcept { return onelock::loss(onelock_lease_loss(get())); }
    std::uint64_t hold_count() const noexcept { return onelock_lease_hold_count(get()); }
    onelock::kind kind() const noexcept { return onelock::kind(onelock_lease_kind(get())); }
    std::string name() const {
        const char *text = nullptr;
        std::size_t size = 0;
        detail::check([&](auto error) { return onelock_lease_name(get(), &text, &size, error); });
        return std::string(text, size);
    }
    outcome release() {
        std::uint32_t found = 0;
        detail::check([&](auto error) { return onelock_lease_release(get(), &found, error); });
        return outcome(found);
    }
    /// Throws error with ONELOCK_ERR_LOST if the lease was lost: for the end of a piece of work, after `release`.
    void check_loss() const {
        detail::check([&](auto error) { return onelock_lease_check_loss(get(), error); });
    }
    void extend(milliseconds ttl) {
        detail::check([&](auto error) { return onelock_lease_extend(get(), detail::ms(ttl), error); });
    }
    /// Makes a write lease a read lease, in place.
    void downgrade() {
        detail::check([&](auto error) { return onelock_lease_downgrade(get(), error); });
    }
    /// The proof for `lock::attach` in another process.
    std::string detach() {
        onelock_proof *proof = nullptr;
        detail::check([&](auto error) { return onelock_lease_detach(get(), &proof, error); });
        detail::handle<onelock_proof, onelock_proof_free> owned(proof);
        return detail::copy(onelock_proof_text(proof));
    }
    /// The one function that is called when the lease is lost; an empty one takes it away. It must not throw, and must
    /// not destroy this object.
    void on_lost(std::function<void(onelock::loss)> function) {
        auto kept = function ? std::make_unique<std::function<void(onelock::loss)>>(std::move(function)) : nullptr;
        auto call = [](onelock_lease *, std::uint32_t reason, void *data) {
            (*static_cast<std::function<void(onelock::loss)> *>(data))(onelock::loss(reason));
        };
        detail::check([&](auto error) {
            return onelock_lease_on_lost(get(), kept ? +call : nullptr, kept.get(), error);
        });
        on_lost_ = std::move(kept);
    }
    /// The one function that is called when a renewal was missed; as `on_lost`.
    void on_jeopardy(std::function<void()> function) {
        auto kept = function ? std::make_unique<std::function<void()>>(std::move(function)) : nullptr;
        auto call = [](onelock_lease *, void *data) { (*static_cast<std::function<void()> *>(data))(); };
        detail::check([&](auto error) {
            return onelock_lease_on_jeopardy(get(), kept ? +call : nullptr, kept.get(), error);
        });
        on_jeopardy_ = std::move(kept);
    }
    /// A descriptor that becomes readable at loss. It belongs to the lease.
    int lost_fd() const {
        int fd = -1;
        detail::check([&](auto error) { return onelock_lease_lost_fd(get(), &fd, error); });
        return fd;
    }
    /// Waits for the loss; `loss::none` when it has not come within `wait`.
    onelock::loss wait_lost(std::optional<milliseconds> wait = std::nullopt) const {
        std::uint32_t reason = 0;
        detail::check([&](auto error) {
            return onelock_lease_wait_lost(get(), detail::wait_ms(wait), &reason, error);
        });
        return onelock::loss(reason);
    }

private:
    std::unique_ptr<std::function<void(onelock::loss)>> on_lost_;
    std::unique_ptr<std::function<void()>> on_jeopardy_;
};

/// An acquire that goes on in the background. Leaving the scope cancels it.
class acquisition : public detail::handle<onelock_acquisition, onelock_acquisition_free> {
public:
    using handle::handle;
    bool is_ready() const noexcept { return onelock_acquisition_is_ready(get()); }
    /// A descriptor that becomes readable when it is ready. It belongs to this object.
    int fd() const {
        int fd = -1;
        detail::check([&](auto error) { return onelock_acquisition_fd(get(), &fd, error); });
        return fd;
    }
    void cancel() {
        detail::check([&](auto error) { return onelock_acquisition_cancel(get(), error); });
    }
    /// The lease, or nothing as long as it goes on.
    std::optional<lease> finish() {
        onelock_lease *granted = nullptr;
        onelock_error *object = nullptr;
        onelock_status status = onelock_acquisition_finish(get(), &granted, &object);
        if (status == ONELOCK_PENDING) return std::nullopt;
        if (status != ONELOCK_OK) detail::raise(status, object);
        return lease(granted);
    }
};

/// The options of a lock; setters return it.
class lock_options : public detail::handle<onelock_lock_options, onelock_lock_options_free> {
public:
    lock_options() : handle(onelock_lock_options_new()) {}
    // written by tools/options.py: lock
    lock_options &ttl(milliseconds value) { return set(onelock_lock_options_set_ttl, detail::ms(value)); }
    lock_options &auto_renew(bool value) { return set(onelock_lock_options_set_auto_renew, value); }
    lock_options &min_hold(milliseconds value) { return set(onelock_lock_options_set_min_hold, detail::ms(value)); }
    lock_options &max_hold(milliseconds value) { return set(onelock_lock_options_set_max_hold, detail::ms(value)); }
    lock_options &lock_delay(milliseconds value) { return set(onelock_lock_options_set_lock_delay, detail::ms(value)); }
    lock_options &min_validity(milliseconds value) {
        return set(onelock_lock_options_set_min_validity, detail::ms(value));
    }
    lock_options &fencing(bool value) { return set(onelock_lock_options_set_fencing, value); }
    // end of lock
    /// How many permits a semaphore has in all; by default as many as are set.
    lock_options &permits(std::uint32_t value) { return set(onelock_lock_options_set_permits, value); }
    /// How many permits one acquire takes, all or none; by default 1.
    lock_options &count(std::uint32_t value) { return set(onelock_lock_options_set_count, value); }
    lock_options &owner(const onelock::owner &value) { return set(onelock_lock_options_set_owner, value.get()); }

private:
    template <typename Set, typename Value>
    lock_options &set(Set set, Value value) {
        detail::check([&](auto error) { return set(get(), value, error); });
        return *this;
    }
};

/// The permits of a semaphore at one moment.
struct permits {
    std::uint64_t total, held, free;
};

/// A lock by name. It holds nothing by itself.
class lock : public detail::handle<onelock_lock, onelock_lock_free> {
public:
    using handle::handle;
    /// Waits until it is held, at most `wait` (none: as long as it takes). Throws error with ONELOCK_ERR_TIMEOUT ...
    lease acquire(std::optional<milliseconds> wait = std::nullopt, const cancel *token = nullptr) const {
        onelock_lease *granted = nullptr;
        detail::check([&](auto error) {
            return onelock_lock_acquire(get(), detail::wait_ms(wait), token ? token->get() : nullptr, &granted, error);
        });
        return lease(granted);
    }
    /// Waits as `acquire`, runs `body(lease &)` while it is held, and releases at its end.
    ///
    /// What the body throws comes through. If it ends well although the lease was lost, also when only the release finds
    /// that out, this throws error with ONELOCK_ERR_LOST. The body is not stopped at loss: it can look at `is_held`.
    template <typename Body>
    std::invoke_result_t<Body, lease &> with(Body &&body, std::optional<milliseconds> wait = std::nullopt,
                                             const cancel *token = nullptr) const {
        lease held = acquire(wait, token);
        auto run = [&]() -> decltype(auto) {
            try {
                return std::invoke(std::forward<Body>(body), held);
            } catch (...) {
                onelock_lease_release(held.get(), nullptr, nullptr);
                throw;
            }
        };
        if constexpr (std::is_void_v<std::invoke_result_t<Body, lease &>>) {
            run();
            held.release();
            held.check_loss();
        } else {
            std::invoke_result_t<Body, lease &> result = run();
            held.release();
            held.check_loss();
            return result;
        }
    }
    /// One try: nothing when somebody else holds it.
    std::optional<lease> try_acquire() const {
        onelock_lease *granted = nullptr;
        onelock_error *object = nullptr;
        onelock_status status = onelock_lock_try_acquire(get(), &granted, &object);
        if (status == ONELOCK_ERR_BUSY) {
            onelock_error_free(object);
            return std::nullopt;
        }
        if (status != ONELOCK_OK) detail::raise(status, object);
        return lease(granted);
    }
    /// Begins to acquire and returns at once.
    acquisition start(std::optional<milliseconds> wait = std::nullopt) const {
        onelock_acquisition *begun = nullptr;
        detail::check([&](auto error) {
            return onelock_lock_acquire_start(get(), detail::wait_ms(wait), &begun, error);
        });
        return acquisition(begun);
    }
    /// Goes on with a hold that was handed over. A proof attaches once; anybody after that gets `lost_error`.
    lease attach(const std::string &proof) const {
        onelock_lease *granted = nullptr;
        detail::check([&](auto error) { return onelock_lock_attach(get(), proof.c_str(), &granted, error); });
        return lease(granted);
    }
    bool is_locked() const {
        bool locked = false;
        detail::check([&](auto error) { return onelock_lock_is_locked(get(), &locked, error); });
        return locked;
    }
    /// How many permits a semaphore has, and how many are held; nothing when no number is set yet.
    std::optional<onelock::permits> permits() const {
        bool known = false;
        onelock::permits found{};
        detail::check([&](auto error) {
            return onelock_lock_permits(get(), &known, &found.total, &found.held, &found.free, error);
        });
        if (!known) return std::nullopt;
        return found;
    }
    /// Sets how many permits a semaphore has in all. Whoever holds permits keeps them.
    void set_permits(std::uint32_t total) const {
        detail::check([&](auto error) { return onelock_lock_set_permits(get(), total, error); });
    }
    onelock::kind kind() const noexcept { return onelock::kind(onelock_lock_kind(get())); }
};

/// These locks as one, all or none; see onelock_multi_new. It is a lock as any other, but has no proof to attach with.
template <typename... Locks>
lock multi_lock(const Locks &...locks) {
    const onelock_lock *members[] = {locks.get()...};
    onelock_lock *made = nullptr;
    detail::check([&](auto error) { return onelock_multi_new(members, sizeof...(locks), &made, error); });
    return lock(made);
}
/// The same for a number of locks that the program learns when it runs.
inline lock multi_lock(const std::vector<lock> &locks) {
    std::vector<const onelock_lock *> members;
    for (const lock &member : locks) members.push_back(member.get());
    onelock_lock *made = nullptr;
    detail::check([&](auto error) { return onelock_multi_new(members.data(), members.size(), &made, error); });
    return lock(made);
}

/// Many readers at a time, or one writer; from client::rw_lock.
class rw_lock {
public:
    rw_lock(lock reading, lock writing) : reading(std::move(reading)), writing(std::move(writing)) {}
    /// Any number of leases at a time, while nobody writes.
    const lock &read() const { return reading; }
    /// One lease, and nobody reads meanwhile.
    const lock &write() const { return writing; }

private:
    lock reading, writing;
};

/// A client that waits for a lock with a place in its queue.
struct waiter {
    /// Whether it is known: a client of this library with `inspectable` set.
    bool is_known;
    std::string label;
    std::string host;
    std::uint32_t pid;
    /// Since when it has its place: the server's wall clock, milliseconds since 1970.
    std::uint64_t since_ms;
};

/// What stands under a name.
class inspection : public detail::handle<onelock_inspection, onelock_inspection_free> {
public:
    using handle::handle;
    onelock::kind kind() const noexcept { return onelock::kind(onelock_inspection_kind(get())); }
    onelock::origin origin() const noexcept { return onelock::origin(onelock_inspection_origin(get())); }
    std::uint64_t hold_count() const noexcept { return onelock_inspection_hold_count(get()); }
    /// Negative for a foreign key without a time to live.
    milliseconds ttl_left() const noexcept { return milliseconds(onelock_inspection_ttl_left_ms(get())); }
    std::uint64_t fencing_token() const noexcept { return onelock_inspection_fencing_token(get()); }
    /// What tells who a holder is that is no client of this library; empty where nothing of it can be shown.
    std::string foreign_holder() const { return detail::copy(onelock_inspection_foreign_holder(get())); }
    bool has_owner() const noexcept { return onelock_inspection_has_owner(get()); }
    std::string owner_label() const { return detail::copy(onelock_inspection_owner_label(get())); }
    std::string owner_host() const { return detail::copy(onelock_inspection_owner_host(get())); }
    std::uint32_t owner_pid() const noexcept { return onelock_inspection_owner_pid(get()); }
    std::uint64_t owner_since_ms() const noexcept { return onelock_inspection_owner_since_ms(get()); }
    /// Of a semaphore, how many permits there are in all.
    std::optional<std::uint64_t> permits() const noexcept { return known(onelock_inspection_permits(get())); }
    /// Of a semaphore, how many permits are free.
    std::optional<std::uint64_t> free() const noexcept { return known(onelock_inspection_free_permits(get())); }
    /// How many processes wait for it, by listening or in its queue; nothing where the server doesn't tell.
    std::optional<std::uint64_t> waiting() const noexcept { return known(onelock_inspection_waiting(get())); }
    /// Those of them that have a place in the queue on the server, the first 16, the head first: who waits for a fair lock, for
    /// permits of a semaphore, or to write.
    std::vector<waiter> waiters() const {
        std::vector<waiter> found(onelock_inspection_waiters(get()));
        for (std::size_t i = 0; i < found.size(); i++) {
            const char *label = onelock_inspection_waiter_label(get(), i);
            found[i] = {label != nullptr, detail::copy(label), detail::copy(onelock_inspection_waiter_host(get(), i)),
                        onelock_inspection_waiter_pid(get(), i), onelock_inspection_waiter_since_ms(get(), i)};
        }
        return found;
    }

private:
    static std::optional<std::uint64_t> known(std::int64_t number) {
        return number < 0 ? std::nullopt : std::optional<std::uint64_t>(number);
    }
};

/// A lock that stands on the server.
struct lock_entry {
    std::string name;
    onelock::inspection inspection;
    /// How many processes wait for it; nothing where that cannot be told.
    std::optional<std::uint64_t> waiting;
};

/// Some of the locks of a server, and where to go on.
struct lock_page {
    std::vector<lock_entry> entries;
    /// What to give as `cursor` for the next page; nothing on the last one.
    std::optional<std::string> next;
};

/// One step of a diagnosis.
struct finding {
    /// The server, without secrets; empty for what concerns all of them.
    std::string server;
    /// What was tried: `name`, `tcp`, `tls`, `user`, `role`, `permission` ...
    std::string step;
    onelock::severity severity;
    /// What was found, a sentence for people.
    std::string detail;
    /// What to do about it; empty where nothing is to be done.
    std::string todo;
    /// The status that a call would end with because of it; ONELOCK_OK unless the step failed.
    onelock_status error;
    /// What was measured, by names that end with the unit: `median_us`.
    std::map<std::string, double> measured;
};

/// What a look at the servers found.
struct diagnosis {
    /// The gravest among the findings.
    onelock::severity severity;
    onelock::grade grade;
    /// In the order in which the steps were tried.
    std::vector<finding> findings;
};

/// What a client has done so far.
class stats : public detail::handle<onelock_stats, onelock_stats_free> {
public:
    using handle::handle;
    /// One ONELOCK_STATS_ counter.
    std::uint64_t operator[](std::uint32_t counter) const noexcept { return onelock_stats_counter(get(), counter); }
    /// An upper bound of a quantile of ONELOCK_HISTOGRAM_WAIT or ONELOCK_HISTOGRAM_HOLD.
    std::chrono::microseconds quantile(std::uint32_t histogram, double q) const noexcept {
        return std::chrono::microseconds(onelock_stats_histogram_quantile_us(get(), histogram, q));
    }
};

/// User name and password of a connection. An empty name means the server's default user.
struct credentials {
    std::string username;
    std::string password;
};

/// The options of a client; setters return it.
class client_options : public detail::handle<onelock_client_options, onelock_client_options_free> {
public:
    client_options() : handle(onelock_client_options_new()) {}
    // written by tools/options.py: client
    client_options &ttl(milliseconds value) { return set(onelock_client_options_set_ttl, detail::ms(value)); }
    client_options &auto_renew(bool value) { return set(onelock_client_options_set_auto_renew, value); }
    client_options &min_hold(milliseconds value) { return set(onelock_client_options_set_min_hold, detail::ms(value)); }
    client_options &max_hold(milliseconds value) { return set(onelock_client_options_set_max_hold, detail::ms(value)); }
    client_options &lock_delay(milliseconds value) {
        return set(onelock_client_options_set_lock_delay, detail::ms(value));
    }
    client_options &min_validity(milliseconds value) {
        return set(onelock_client_options_set_min_validity, detail::ms(value));
    }
    client_options &fencing(bool value) { return set(onelock_client_options_set_fencing, value); }
    client_options &drift_factor(double value) { return set(onelock_client_options_set_drift_factor, value); }
    client_options &prefix(std::string_view value) {
        detail::check([&](auto error) {
            return onelock_client_options_set_prefix(get(), value.data(), value.size(), error);
        });
        return *this;
    }
    client_options &min_fencing_grade(grade value) {
        return set(onelock_client_options_set_min_fencing_grade, static_cast<std::uint32_t>(value));
    }
    client_options &label(const std::string &value) { return set(onelock_client_options_set_label, value.c_str()); }
    client_options &inspectable(bool value) { return set(onelock_client_options_set_inspectable, value); }
    client_options &accepted_warnings(const std::string &value) {
        return set(onelock_client_options_set_accepted_warnings, value.c_str());
    }
    client_options &connect_timeout(milliseconds value) {
        return set(onelock_client_options_set_connect_timeout, detail::ms(value));
    }
    client_options &request_timeout(milliseconds value) {
        return set(onelock_client_options_set_request_timeout, detail::ms(value));
    }
    client_options &close_timeout(milliseconds value) {
        return set(onelock_client_options_set_close_timeout, detail::ms(value));
    }
    client_options &unreachable_limit(milliseconds value) {
        return set(onelock_client_options_set_unreachable_limit, detail::ms(value));
    }
    client_options &ca_file(const std::string &value) { return set(onelock_client_options_set_ca_file, value.c_str()); }
    client_options &client_certificate(const std::string &cert_file, const std::string &key_file) {
        detail::check([&](auto error) {
            return onelock_client_options_set_client_certificate(get(), cert_file.c_str(), key_file.c_str(), error);
        });
        return *this;
    }
    client_options &tls_insecure(bool value) { return set(onelock_client_options_set_tls_insecure, value); }
    client_options &notify(onelock::notify value) {
        return set(onelock_client_options_set_notify, static_cast<std::uint32_t>(value));
    }
    client_options &min_replicas(std::uint32_t value) { return set(onelock_client_options_set_min_replicas, value); }
    client_options &replica_timeout(milliseconds value) {
        return set(onelock_client_options_set_replica_timeout, detail::ms(value));
    }
    client_options &sentinel_username(const std::string &value) {
        return set(onelock_client_options_set_sentinel_username, value.c_str());
    }
    client_options &sentinel_password(const std::string &value) {
        return set(onelock_client_options_set_sentinel_password, value.c_str());
    }
    client_options &sentinel_tls(bool value) { return set(onelock_client_options_set_sentinel_tls, value); }
    client_options &node_timeout(milliseconds value) {
        return set(onelock_client_options_set_node_timeout, detail::ms(value));
    }
    client_options &quarantine(milliseconds value) {
        return set(onelock_client_options_set_quarantine, detail::ms(value));
    }
    // end of client
    /// The function that gives the credentials of each new connection; see onelock_client_options_set_credentials. It
    /// is called on other threads, several at a time, may block, and is destroyed when no connection can call it any
    /// more. When it throws, the call fails with the text of the exception, and the next connection calls it again.
    client_options &credentials(std::function<onelock::credentials()> function) {
        using provider = std::function<onelock::credentials()>;
        auto kept = std::make_unique<provider>(std::move(function));
        auto call = [](onelock_credentials_request *request, void *data) {
            try {
                const onelock::credentials given = (*static_cast<provider *>(data))();
                onelock_credentials_request_answer(request, given.username.c_str(), given.password.c_str(), nullptr);
            } catch (const std::exception &thrown) {
                onelock_credentials_request_fail(request, thrown.what(), nullptr);
            } catch (...) {
                onelock_credentials_request_fail(request, "it threw something that is no std::exception", nullptr);
            }
            // what could not be taken for an answer is none
            onelock_credentials_request_free(request);
        };
        auto destroy = [](void *data) { delete static_cast<provider *>(data); };
        detail::check([&](auto error) {
            return onelock_client_options_set_credentials(get(), call, kept.get(), destroy, error);
        });
        kept.release();
        return *this;
    }

private:
    template <typename Set, typename Value>
    client_options &set(Set set, Value value) {
        detail::check([&](auto error) { return set(get(), value, error); });
        return *this;
    }
};

/// A client of one lock server.
class client : public detail::handle<onelock_client, onelock_client_free> {
public:
    using handle::handle;
    /// Connected and checked. An empty `url` means $ONELOCK_URL.
    explicit client(const std::string &url, const client_options &options = {})
        : handle(make(onelock_client_connect, url, options)) {}
    /// Connects when it is first used.
    static client lazy(const std::string &url, const client_options &options = {}) {
        return client(make(onelock_client_new, url, options));
    }
    onelock::lock lock(std::string_view name, const lock_options &options = {}) const {
        return make_lock(onelock::kind::mutex, name, options);
    }
    /// The locks of these names, held all together or not at all; for other kinds and clients: onelock::multi_lock.
    onelock::lock multi_lock(const std::vector<std::string> &names, const lock_options &options = {}) const {
        std::vector<onelock::lock> members;
        for (const std::string &name : names) members.push_back(lock(name, options));
        return onelock::multi_lock(members);
    }
    onelock::lock reentrant_lock(std::string_view name, const lock_options &options = {}) const {
        return make_lock(onelock::kind::reentrant, name, options);
    }
    /// At most so many holders at a time, as many as the option `permits` says.
    onelock::lock semaphore(std::string_view name, const lock_options &options) const {
        return make_lock(onelock::kind::semaphore, name, options);
    }
    /// First come, first served among the processes that wait.
    onelock::lock fair_lock(std::string_view name, const lock_options &options = {}) const {
        return make_lock(onelock::kind::fair, name, options);
    }
    /// Many readers at a time, or one writer.
    onelock::rw_lock rw_lock(std::string_view name, const lock_options &options = {}) const {
        return onelock::rw_lock(make_lock(onelock::kind::read, name, options), make_lock(onelock::kind::write, name, options));
    }
    /// Nothing when nobody holds it.
    std::optional<inspection> inspect(std::string_view name) const {
        onelock_inspection *found = nullptr;
        detail::check([&](auto error) {
            return onelock_client_inspect(get(), name.data(), name.size(), &found, error);
        });
        if (found == nullptr) return std::nullopt;
        return inspection(found);
    }
    /// The locks whose names match `pattern`, about `limit` of them; with `cursor`, those behind the page that told it.
    lock_page list(std::string_view pattern = "*", std::uint32_t limit = 100,
                   const std::optional<std::string> &cursor = std::nullopt) const {
        onelock_page *found = nullptr;
        detail::check([&](auto error) {
            return onelock_client_list(get(), pattern.data(), pattern.size(), limit,
                                       cursor ? cursor->c_str() : nullptr, &found, error);
        });
        detail::handle<onelock_page, onelock_page_free> page(found);
        lock_page result;
        for (std::size_t i = 0; i < onelock_page_count(page.get()); i++) {
            onelock_inspection *seen = nullptr;
            detail::check([&](auto error) { return onelock_page_inspection(page.get(), i, &seen, error); });
            std::size_t length = 0;
            const char *name = onelock_page_name(page.get(), i, &length);
            std::int64_t waiting = onelock_page_waiting(page.get(), i);
            result.entries.push_back({std::string(name, length), onelock::inspection(seen), std::nullopt});
            if (waiting >= 0) result.entries.back().waiting = std::uint64_t(waiting);
        }
        if (const char *next = onelock_page_next(page.get())) result.next = next;
        return result;
    }
    /// Calls `visit(const lock_entry &)` for every lock whose name matches `pattern`.
    template <typename Visit>
    void for_each_lock(std::string_view pattern, Visit visit) const {
        std::optional<std::string> cursor;
        do {
            lock_page page = list(pattern, 100, cursor);
            for (const lock_entry &entry : page.entries) visit(entry);
            cursor = std::move(page.next);
        } while (cursor);
    }
    /// Looks at the servers step by step, and tells which step fails and what to do. `name`: what the names of locks begin
    /// with that this user may lock; permissions are tried on such a name. Nothing is changed on the server.
    onelock::diagnosis diagnose(std::string_view name = "") const {
        onelock_diagnosis *found = nullptr;
        detail::check([&](auto error) {
            return onelock_client_diagnose(get(), name.data(), name.size(), &found, error);
        });
        detail::handle<onelock_diagnosis, onelock_diagnosis_free> owned(found);
        onelock::diagnosis result{onelock::severity(onelock_diagnosis_severity(found)),
                                  onelock::grade(onelock_diagnosis_grade(found)),
                                  {}};
        for (std::size_t i = 0; i < onelock_diagnosis_count(found); i++) {
            finding one{detail::copy(onelock_diagnosis_server(found, i)),
                        detail::copy(onelock_diagnosis_step(found, i)),
                        onelock::severity(onelock_diagnosis_step_severity(found, i)),
                        detail::copy(onelock_diagnosis_detail(found, i)),
                        detail::copy(onelock_diagnosis_todo(found, i)),
                        onelock_diagnosis_error(found, i),
                        {}};
            for (std::size_t j = 0; j < onelock_diagnosis_measured_count(found, i); j++) {
                one.measured[onelock_diagnosis_measured_name(found, i, j)] = onelock_diagnosis_measured(found, i, j);
            }
            result.findings.push_back(std::move(one));
        }
        return result;
    }
    bool force_release(std::string_view name) const {
        bool was_held = false;
        detail::check([&](auto error) {
            return onelock_client_force_release(get(), name.data(), name.size(), &was_held, error);
        });
        return was_held;
    }
    bool force_release_foreign(std::string_view name) const {
        bool was_held = false;
        detail::check([&](auto error) {
            return onelock_client_force_release_foreign(get(), name.data(), name.size(), &was_held, error);
        });
        return was_held;
    }
    onelock::stats stats() const {
        onelock_stats *found = nullptr;
        detail::check([&](auto error) { return onelock_client_stats(get(), &found, error); });
        return onelock::stats(found);
    }
    /// Whether the server answers: throws what it says.
    void check() const {
        detail::check([&](auto error) { return onelock_client_check(get(), nullptr, error); });
    }
    void close() {
        detail::check([&](auto error) { return onelock_client_close(get(), error); });
    }

private:
    template <typename Make>
    static onelock_client *make(Make call, const std::string &url, const client_options &options) {
        onelock_client *made = nullptr;
        detail::check([&](auto error) { return call(url.c_str(), options.get(), &made, error); });
        return made;
    }
    onelock::lock make_lock(onelock::kind kind, std::string_view name, const lock_options &options) const {
        onelock_lock *made = nullptr;
        detail::check([&](auto error) {
            return onelock_lock_new(get(), static_cast<std::uint32_t>(kind), name.data(), name.size(), options.get(),
                                    &made, error);
        });
        return onelock::lock(made);
    }
};

}  // namespace onelock

#endif
