// The C++ header: objects, exceptions, callbacks.
#include <onelock.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>

using namespace std::chrono_literals;

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::_Exit(1);                                                      \
        }                                                                       \
    } while (0)

template <typename Call>
static onelock_status status_of(Call call) {
    try {
        call();
    } catch (const onelock::error &error) {
        CHECK(std::string(error.what()).size() > 10);
        return error.status();
    }
    return ONELOCK_OK;
}

int main() {
    onelock::client client("", onelock::client_options().label("cpp").inspectable(true).ttl(5s).prefix("cpp:"));
    client.check();
    auto lock = client.lock("a");
    // every status has an exception of its own
    for (onelock_status status = 1; status < 1000; status++) {
        if (onelock_status_name(status) == nullptr) continue;
        try {
            onelock::detail::raise(status, nullptr);
        } catch (const onelock::error &error) {
            CHECK(error.status() == status && typeid(error) != typeid(onelock::error));
            bool waited = dynamic_cast<const onelock::not_acquired_error *>(&error) != nullptr;
            CHECK(waited == error.is_not_acquired());
        }
    }
    {
        auto lease = lock.acquire();
        try {
            lock.acquire(10ms);
            CHECK(false);
        } catch (const onelock::timeout_error &error) {
            CHECK(error.is_not_acquired());
        }
        lease.release();
    }
    {
        auto lease = lock.acquire();
        CHECK(lease && lease.fencing_token() > 0 && lease.name() == "a" && lease.kind() == onelock::kind::mutex);
        CHECK(lock.is_locked() && !lock.try_acquire());
        CHECK(status_of([&] { lock.acquire(10ms); }) == ONELOCK_ERR_TIMEOUT);
        CHECK(status_of([&] { lock.acquire(-10ms); }) == ONELOCK_ERR_INVALID_ARGUMENT);
        onelock::cancel token;
        token();
        CHECK(status_of([&] { lock.acquire(std::nullopt, &token); }) == ONELOCK_ERR_CANCELLED);
        auto seen = client.inspect("a");
        CHECK(seen && seen->owner_label() == "cpp" && seen->ttl_left() <= 5s && seen->fencing_token() > 0);
        CHECK(seen->waiting() == 0u && seen->waiters().empty() && !seen->permits() && !seen->free());
        auto page = client.list("a*");
        CHECK(page.entries.size() == 1 && page.entries[0].name == "a" && !page.next);
        CHECK(page.entries[0].inspection.fencing_token() == lease.fencing_token());
        CHECK(page.entries[0].inspection.origin() == onelock::origin::onelock && page.entries[0].waiting == 0u);
        int visited = 0;
        client.for_each_lock("*", [&](const onelock::lock_entry &entry) { visited += entry.name == "a"; });
        CHECK(visited == 1);
        CHECK(status_of([&] { client.list(""); }) == ONELOCK_ERR_INVALID_ARGUMENT);
        auto diagnosis = client.diagnose("a");
        CHECK(diagnosis.severity != onelock::severity::failed && diagnosis.grade != onelock::grade::none);
        bool measured = false;
        for (const onelock::finding &found : diagnosis.findings) {
            CHECK(!found.step.empty() && found.error == ONELOCK_OK);
            if (found.step == "round trip") measured = found.measured.at("median_us") > 0;
        }
        CHECK(measured);
        auto away = onelock::client::lazy("redis://127.0.0.1:1").diagnose();
        CHECK(away.severity == onelock::severity::failed && away.findings.back().error == ONELOCK_ERR_UNAVAILABLE);
        lease.extend(20s);
        CHECK(lease.remaining() > 15s);
        auto moved = std::move(lease);
        CHECK(moved.is_held() && !lease.is_held());
        CHECK(moved.release() == onelock::outcome::released);
        CHECK(moved.release() == onelock::outcome::already_released);
    }
    CHECK(!client.inspect("a"));
    // leaving the scope releases it
    lock.acquire();
    auto proof = lock.acquire(5s).detach();
    auto attached = lock.attach(proof);
    try {
        lock.attach(proof);
        CHECK(!"a proof attaches once");
    } catch (const onelock::lost_error &) {
    }
    CHECK(attached.is_held() && attached.release() == onelock::outcome::released);

    // several at once
    {
        auto both = client.multi_lock({"a", "b"});
        auto lease = both.acquire(5s);
        CHECK(lease.kind() == onelock::kind::multi && lease.name() == "a, b" && lease.fencing_token() == 0);
        CHECK(lease.fencing_token_of("b") > 0 && !both.try_acquire() && !lock.try_acquire());
        CHECK(lease.release() == onelock::outcome::released);
        auto mixed = onelock::multi_lock(lock, client.reentrant_lock("c"));
        CHECK(mixed.with([](onelock::lease &held) { return held.is_held(); }));
        CHECK(status_of([&] { onelock::multi_lock(lock, client.reentrant_lock("a")); }) == ONELOCK_ERR_INVALID_ARGUMENT);
        CHECK(!client.inspect("a") && !client.inspect("b") && !client.inspect("c"));
    }

    // in the background
    auto pending = lock.start(5s);
    while (!pending.is_ready()) std::this_thread::sleep_for(1ms);
    CHECK(pending.fd() >= 0);
    auto got = pending.finish();
    CHECK(got && got->is_held());
    auto second = lock.start();
    second.cancel();
    CHECK(status_of([&] { second.finish(); }) == ONELOCK_ERR_CANCELLED);

    // loss
    std::atomic<int> calls{0};
    got->on_lost([&](onelock::loss reason) { calls += reason == onelock::loss::taken ? 1 : 100; });
    got->on_jeopardy([] {});
    CHECK(client.force_release("a") && !client.force_release("a"));
    CHECK(got->wait_lost(10s) == onelock::loss::taken && got->lost_fd() >= 0);
    while (calls == 0) std::this_thread::sleep_for(1ms);
    CHECK(calls == 1);
    got.reset();

    // a scope: tells of a loss that only its release can find, and never hides what the body throws
    CHECK(lock.with([](onelock::lease &lease) { return lease.is_held() ? 7 : 0; }) == 7);
    lock.with([](onelock::lease &lease) { lease.release(); });
    auto lost_before = client.stats()[ONELOCK_STATS_LOST];
    CHECK(status_of([&] { lock.with([&](onelock::lease &) { client.force_release("a"); }, 5s); }) == ONELOCK_ERR_LOST);
    CHECK(client.stats()[ONELOCK_STATS_LOST] == lost_before + 1);
    try {
        lock.with([&](onelock::lease &) -> int {
            client.force_release("a");
            throw 7;
        });
        CHECK(false);
    } catch (int thrown) {
        CHECK(thrown == 7 && !lock.is_locked());
    }

    // re-entry and fencing
    onelock::owner owner("request 7");
    auto reentrant = client.reentrant_lock("r", onelock::lock_options().owner(owner).ttl(3s));
    auto outer = reentrant.acquire(), inner = reentrant.acquire();
    CHECK(inner.hold_count() == 2 && inner.fencing_grade() != onelock::grade::none);
    onelock::gate gate;
    CHECK(gate.admit(inner.fencing_token()) && !gate.admit(inner.fencing_token() - 1));
    inner = std::move(outer);
    CHECK(client.stats()[ONELOCK_STATS_ACQUIRED] >= 5);
    CHECK(status_of([] { onelock::client("nonsense"); }) == ONELOCK_ERR_INVALID_ARGUMENT);
    CHECK(status_of([] { onelock::client::lazy("redis://127.0.0.1:1").check(); }) == ONELOCK_ERR_UNAVAILABLE);
    {
        // the server's default user takes any password
        std::atomic<int> asked{0};
        auto ask = [&asked] {
            if (asked++ == 0) throw std::runtime_error("no token today");
            return onelock::credentials{"", "a token"};
        };
        auto other = onelock::client::lazy("", onelock::client_options().credentials(ask));
        try {
            other.check();
            CHECK(false);
        } catch (const onelock::unavailable_error &error) {
            CHECK(std::string(error.what()).find("no token today") != std::string::npos);
        }
        other.check();
        CHECK(asked >= 2);
        other.close();
        auto both = [&] { onelock::client::lazy("redis://u:p@h", onelock::client_options().credentials(ask)); };
        CHECK(status_of(both) == ONELOCK_ERR_INVALID_ARGUMENT);
    }
    auto open = lock.acquire();
    CHECK(open.loss() == onelock::loss::none && status_of([&] { open.check_loss(); }) == ONELOCK_OK);
    client.close();
    CHECK(open.loss() == onelock::loss::closed && status_of([&] { open.check_loss(); }) == ONELOCK_ERR_LOST);
    CHECK(status_of([&] { lock.acquire(); }) == ONELOCK_ERR_CLOSED);
    std::puts("cpp: ok");
}
