//! Losses: told once and only when they are real; many holds on few threads; processes that stop or die.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::{LossReason, Release};
use onelock_tests::clock::boot_ns;
use onelock_tests::face::{Client, Face, block_on, on_both};
use onelock_tests::holder::Holder;
use onelock_tests::proxy::Cut;
use onelock_tests::scripts;
use onelock_tests::servers::{Server, cont, stop};
use onelock_tests::stage::{SLACK, SOON, Stage, ms, quick};
use onelock_tests::wait::wait_until;

fn holder(face: Face, url: &str) -> Holder {
    Holder::start(env!("CARGO_BIN_EXE_onelock-holder"), face, url)
}

#[test]
fn r22_a_lease_that_runs_out_is_an_event_and_no_panic() {
    on_both(|face| {
        let stage = Stage::valkey();
        let mut holder = holder(face, &stage.server.url());
        // nobody ever looks at it or releases it
        holder.acquire("a", ms(100), false);
        wait_until(SOON, "the loss to be told", || holder.looks().told == 1);
        assert_eq!(holder.ask("loss"), "expired");
        holder.order("exit");
        assert!(holder.wait().success());
    });
}

#[test]
fn r23_a_connection_cut_while_renewing_is_no_error_and_a_loss_is_told_once() {
    on_both(|face| {
        let stage = Stage::valkey();
        let mut holder = holder(face, &stage.proxy.url());
        holder.acquire("a", ms(2500), true);
        let cut = stage.proxy.on(scripts::renew()).times(2).cut_instead_of_reply(Cut::Reset);
        cut.wait_hits(2);
        stage.proxy.wait_requests(&scripts::renew(), 4);
        assert_eq!(holder.ask("held"), "true", "renewed later");
        stage.proxy.on(scripts::renew()).cut_before(Cut::Reset);
        wait_until(SOON, "the loss to be told", || holder.looks().told == 1);
        assert_eq!((holder.ask("held").as_str(), holder.ask("loss").as_str()), ("false", "expired"));
        assert_eq!(holder.ask("release"), "already_expired");
        assert_eq!(holder.looks().told, 1);
        holder.order("exit");
        assert!(holder.wait().success());
    });
}

#[test]
fn r27_five_thousand_holds_on_a_fixed_number_of_threads() {
    on_both(|face| {
        let server = Server::valkey();
        let mut holder = holder(face, &server.url());
        let ttl = ms(3000);
        let answer = holder.ask(&format!("many 5000 {}", ttl.as_millis()));
        let threads: Vec<usize> = answer.split(' ').map(|word| word.parse().unwrap()).collect();
        assert!(threads[1] <= threads[0] + 4, "{} threads grew to {}", threads[0], threads[1]);
        let start = Instant::now();
        wait_until(5 * ttl + SOON, "five times the ttl", || start.elapsed() > 5 * ttl);
        assert_eq!(holder.ask("many-held"), "5000");
        assert_eq!(server.info("keyspace")["db0"].split(',').next(), Some("keys=5000"), "no other key is needed");
    });
}

#[test]
fn r28_a_stopped_process_does_not_believe_in_its_lease_when_it_wakes() {
    on_both(|face| {
        let stage = Stage::valkey();
        let ttl = ms(800);
        let mut holder = holder(face, &stage.server.url());
        let fence = holder.acquire("a", ttl, true);
        holder.ask("look");
        stop(holder.pid());
        let stopped = boot_ns();
        let next = stage.rival(face).lock("a").acquire_within(SOON).unwrap();
        wait_until(SOON, "three times the ttl", || boot_ns() - stopped > 3 * ttl.as_nanos() as u64);
        let woken = boot_ns();
        cont(holder.pid());
        assert_eq!(holder.ask("held"), "false");
        assert!(holder.looks().last_held_ns < woken);
        wait_until(SOON, "the loss to be told", || holder.looks().told == 1);
        assert!(next.is_held() && next.fence() > fence);
    });
}

#[test]
fn r29_a_step_of_the_system_clock_changes_nothing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let mut holder = holder(face, &stage.proxy.url());
        holder.acquire("a", ms(2000), true);
        for step in [300, -300] {
            holder.ask(&format!("wall {step}"));
            let renewals = stage.requests(&scripts::renew()).len();
            stage.proxy.wait_requests(&scripts::renew(), renewals + 2);
            assert_eq!(holder.ask("held"), "true");
        }
        assert_eq!(holder.ask("drop"), "ok");
        wait_until(SOON, "the dropped lease to be released", || !stage.exists("a"));
        assert_eq!(holder.looks().told, 0);
        holder.order("exit");
        assert!(holder.wait().success(), "no panic");
    });
}

#[test]
fn r30_releases_that_race_with_renewals_are_no_losses() {
    let lost = Arc::new(AtomicU64::new(0));
    let count = |lost: &Arc<AtomicU64>| {
        let lost = lost.clone();
        move |_: LossReason| {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    };
    // in memory, where very many fit into the time
    let client = onelock::Client::new("memory://").unwrap();
    let cycles = 100_000;
    block_on(async {
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..20 {
            let lock = client.lock(format!("{worker}")).ttl(SOON).renew_every(ms(1)).on_lost(count(&lost));
            workers.spawn(async move {
                for _ in 0..cycles / 20 {
                    let lease = lock.acquire().await.unwrap();
                    tokio::task::yield_now().await;
                    assert_eq!(lease.release().await.unwrap(), Release::Released);
                }
            });
        }
        while let Some(done) = workers.join_next().await {
            done.unwrap();
        }
    });
    assert!(client.stats().renewals > 0, "renewals did happen");
    assert_eq!((client.stats().lost, client.stats().acquired), (0, cycles));
    // and on a server, on both faces
    on_both(|face| {
        let server = Server::valkey();
        let client = Client::build(face, quick().request_timeout(ms(5000)), &server.url()).unwrap();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let lock = client.lock(format!("{worker}")).ttl(SOON).renew_every(ms(1)).on_lost(count(&lost));
                scope.spawn(move || {
                    for round in 0..500 {
                        let lease = lock.acquire().unwrap();
                        if round % 50 == 0 {
                            std::thread::sleep(ms(3));
                        }
                        assert_eq!(lease.released(), Release::Released);
                    }
                });
            }
        });
        assert!(client.stats().renewals > 0);
        assert_eq!(client.stats().lost, 0);
    });
    assert_eq!(lost.load(Ordering::Relaxed), 0);
}

#[test]
fn r31_renewal_needs_no_thread_of_the_callers() {
    let busy = |lease_held: &dyn Fn() -> bool, ttl: Duration| {
        let start = Instant::now();
        let mut looks = 0_u64;
        while start.elapsed() < 2 * ttl {
            looks = std::hint::black_box(looks + 1);
        }
        assert!(lease_held(), "after {looks} rounds of work");
    };
    let stage = Stage::valkey();
    let ttl = ms(2000);
    let client = quick().build_blocking(&stage.server.url()).unwrap();
    let lease = client.lock("a").ttl(ttl).acquire().unwrap();
    busy(&|| lease.is_held(), ttl);
    // an async caller must leave its runtime another thread
    let client = quick().build(&stage.server.url()).unwrap();
    block_on(async {
        let lease = client.lock("b").ttl(ttl).acquire().await.unwrap();
        busy(&|| lease.is_held(), ttl);
    });
}

#[test]
fn r33_scripts_that_vanish_at_any_moment_go_unnoticed() {
    on_both(|face| {
        let server = Server::valkey();
        let client = Client::build(face, quick().request_timeout(ms(5000)), &server.url()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    server.cmd(&["SCRIPT", "FLUSH"]);
                    std::thread::sleep(ms(1));
                }
            });
            for _ in 0..200 {
                let lease = client.lock("a").ttl(ms(3000)).renew_every(ms(2)).acquire().unwrap();
                lease.extend(ms(4000)).unwrap();
                assert_eq!(lease.released(), Release::Released);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn r48_a_killed_worker_blocks_the_rest_for_one_ttl() {
    on_both(|face| {
        let stage = Stage::valkey();
        let mut holder = holder(face, &stage.server.url());
        let fence = holder.acquire("a", ms(3000), true);
        let renewed = || stage.pttl("a");
        wait_until(SOON, "a renewal", || renewed() < 2200);
        wait_until(SOON, "a renewal", || renewed() > 2500);
        let client = stage.rival(face);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| (client.lock("a").acquire_within(SOON).unwrap(), Instant::now()));
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            let killed = Instant::now();
            holder.kill();
            // what it had renewed until then
            let left = Duration::from_millis(stage.pttl("a").unsigned_abs());
            let (lease, got) = waiter.join().unwrap();
            let took = got.duration_since(killed);
            assert!(took + ms(5) >= left && took < ms(3000) + SLACK, "{took:?}, and {left:?} were left");
            assert!(lease.is_held() && lease.fence() > fence);
        });
    });
}
