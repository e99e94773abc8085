//! Stopped processes and wall clocks that jump.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onelock::LossReason;
use onelock_tests::clock::boot_ns;
use onelock_tests::face::{Face, on_both};
use onelock_tests::holder::Holder;
use onelock_tests::scripts;
use onelock_tests::servers::{Flavor, Server, cont, stop};
use onelock_tests::stage::{SOON, Stage, ms};
use onelock_tests::wait::wait_until;

const TTL: Duration = ms(1000);

fn holder(face: Face, url: &str) -> Holder {
    Holder::start(env!("CARGO_BIN_EXE_onelock-holder"), face, url)
}

#[test]
fn f43_a_wall_clock_that_jumps_has_no_effect() {
    on_both(|face| {
        let stage = Stage::valkey();
        let mut holder = holder(face, &stage.proxy.url());
        let fence = holder.acquire("a", ms(2500), true);
        holder.ask("look");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        for step in [300, -300, 10 * 365 * 86_400, 0] {
            let told: u64 = holder.ask(&format!("wall {step}")).parse().unwrap();
            assert!(told.abs_diff(now.saturating_add_signed(step)) < 60, "the step is seen: {told}");
            let renewals = stage.requests(&scripts::renew()).len();
            stage.proxy.wait_requests(&scripts::renew(), renewals + 2);
            assert_eq!(holder.ask("held"), "true");
        }
        let looks = holder.looks();
        assert_eq!((looks.first_lost_ns, looks.told), (0, 0), "{looks:?}");
        // neither are tokens the client's clock
        holder.ask("wall -1000000000");
        assert_eq!(holder.ask("release"), "released");
        assert!(holder.acquire("a", ms(2500), true) > fence);
        assert_eq!(holder.ask("drop"), "ok");
        wait_until(SOON, "the dropped lease to be released", || !stage.exists("a"));
        assert_eq!(holder.ask("wall 0").parse::<u64>().unwrap() / 1000, now / 1000);
    });
}

#[test]
fn f44_the_first_look_after_a_stop_beyond_the_lease_is_false() {
    on_both(|face| {
        for renewed in [true, false] {
            let stage = Stage::valkey();
            let mut holder = holder(face, &stage.proxy.url());
            let fence = holder.acquire("a", TTL, renewed);
            holder.ask("look");
            stop(holder.pid());
            let stopped = boot_ns();
            wait_until(SOON, "the server to end the lease", || !stage.exists("a"));
            // somebody else takes it while the holder cannot know
            let next = stage.rival(face).lock("a").acquire().unwrap();
            assert!(next.fence() > fence);
            wait_until(SOON, "twice the ttl", || boot_ns() - stopped > 2 * TTL.as_nanos() as u64);
            let woken = boot_ns();
            cont(holder.pid());
            assert_eq!(holder.ask("held"), "false");
            let looks = holder.looks();
            assert!(looks.last_held_ns < woken, "believed after waking: {looks:?} {woken}");
            wait_until(SOON, "the loss to be told", || holder.looks().told == 1);
            assert_eq!(holder.ask("loss"), "expired");
            assert_eq!(holder.ask("release"), "already_expired");
            let looks = holder.looks();
            assert!(!looks.revived && looks.told == 1, "{looks:?}");
            assert!(next.is_held() && stage.exists("a"), "the next holder's key is left alone");
        }
    });
}

#[test]
fn f44_a_renewal_that_was_answered_during_the_stop_revives_nothing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let mut holder = holder(face, &stage.proxy.url());
        // the reply to a renewal is held back, the process stopped, then the reply delivered into its socket
        let held = stage.proxy.on(scripts::renew()).hold_reply();
        holder.acquire("a", TTL, true);
        holder.ask("look");
        held.wait_hits(1);
        stop(holder.pid());
        let stopped = boot_ns();
        held.release();
        wait_until(SOON, "twice the ttl", || boot_ns() - stopped > 2 * TTL.as_nanos() as u64);
        let woken = boot_ns();
        cont(holder.pid());
        assert_eq!(holder.ask("held"), "false");
        let looks = holder.looks();
        assert!(looks.last_held_ns < woken && !looks.revived, "{looks:?} {woken}");
        assert_eq!(holder.ask("release"), "already_expired");
        wait_until(SOON, "nothing to be left", || !stage.exists("a"));
    });
}

#[test]
fn f44_a_stop_shorter_than_the_lease_is_survived() {
    on_both(|face| {
        let stage = Stage::valkey();
        let mut holder = holder(face, &stage.proxy.url());
        holder.acquire("a", ms(6000), true);
        holder.ask("look");
        stop(holder.pid());
        let stopped = boot_ns();
        wait_until(SOON, "a while", || boot_ns() - stopped > 500_000_000);
        cont(holder.pid());
        stage.proxy.wait_requests(&scripts::renew(), 1);
        assert_eq!(holder.ask("held"), "true");
        let looks = holder.looks();
        assert_eq!((looks.first_lost_ns, looks.told), (0, 0), "{looks:?}");
        assert_eq!(holder.ask("release"), "released");
    });
}

/// A server whose time of day can be set.
fn clocked() -> Stage {
    Stage::with(Server::builder(Flavor::Valkey91).clock().start())
}

#[test]
fn a_server_clock_that_jumps_ahead_is_noticed_without_a_renewal() {
    on_both(|face| {
        let stage = clocked();
        let client = stage.client(face);
        let lease = client.lock("a").ttl(ms(60_000)).auto_renew(false).acquire().unwrap();
        let cycle = || client.lock("b").acquire().unwrap().released();
        cycle();
        assert!(lease.is_held());
        stage.server.set_clock(90);
        wait_until(SOON, "the server's key to end early", || !stage.exists("a"));
        // whoever uses the client meanwhile hears of it
        wait_until(SOON, "the jump to be noticed", || {
            cycle();
            !lease.is_held()
        });
        assert_eq!(lease.loss(), Some(LossReason::ClockAnomaly));
        assert_eq!(client.stats().lost, 1);
    });
}
