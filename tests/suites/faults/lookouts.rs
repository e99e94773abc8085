//! Threads that wait hear wake-ups on connections of their own: who hears what, and what becomes of these.

use std::time::{Duration, Instant};

use onelock::ErrorKind;
use onelock_tests::face::{Client, Face, side_by_side};
use onelock_tests::scripts;
use onelock_tests::servers::Flavor;
use onelock_tests::stage::{SLACK, SOON, Stage, ms, quick, quick_once};
use onelock_tests::wait::wait_until;

/// A waiter looks by itself after 800 ms at the earliest: who gets the lock sooner was woken.
const WOKEN: Duration = ms(700);

fn subscriptions(stage: &Stage) -> i64 {
    stage.server.int(&["EVAL", "return #redis.call('PUBSUB', 'CHANNELS')", "0"])
}

fn connections(stage: &Stage) -> usize {
    stage.server.text(&["CLIENT", "LIST"]).lines().count()
}

/// Who waits for `name` in a thread gets it when `release` was called, and soon after.
fn woken(stage: &Stage, client: &Client, name: &str, meanwhile: impl Fn()) {
    quick_once(WOKEN, "a wake-up", || {
        let took = wakes(stage, client, name, &meanwhile);
        wait_until(SOON, "the subscription to end", || subscriptions(stage) == 0);
        took
    });
}

/// How long that takes.
fn wakes(stage: &Stage, client: &Client, name: &str, meanwhile: impl Fn()) -> Duration {
    let holder = stage.rival(Face::Async);
    let lease = holder.lock(name).acquire().unwrap();
    let asked = || stage.requests(&scripts::acquire().with_arg(name)).len();
    let before = asked();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let lease = client.lock(name).acquire_within(ms(20_000)).unwrap();
            let at = Instant::now();
            lease.released();
            at
        });
        wait_until(SOON, "the waiter to listen, and to look again", || {
            subscriptions(stage) == 1 && asked() >= before + 2
        });
        meanwhile();
        let released = Instant::now();
        lease.released();
        waiter.join().unwrap().saturating_duration_since(released)
    })
}

#[test]
fn a_waiting_thread_is_woken_by_its_own_subscription_in_either_protocol() {
    let cases = Flavor::ALL
        .map(|flavor| ["/", "/?protocol=resp2"].map(|tail| (format!("{flavor:?} {tail}"), (flavor, tail))).to_vec());
    side_by_side(&cases.concat(), |(flavor, tail)| {
        let stage = Stage::new(*flavor);
        let client = Client::build(Face::Blocking, quick(), &stage.proxy.url_with("", tail)).unwrap();
        woken(&stage, &client, "a", || {});
        wait_until(SOON, "the subscription to end", || subscriptions(&stage) == 0);
        let before = connections(&stage);
        for name in ["b", "a", "c"] {
            woken(&stage, &client, name, || {
                // what others are told is not for this one
                let asked = stage.requests(&scripts::acquire().with_arg(name)).len();
                let other = stage.rival(Face::Blocking);
                for _ in 0..20 {
                    other.lock("somebody else's").acquire().unwrap().released();
                }
                other.close();
                let more = stage.requests(&scripts::acquire().with_arg(name)).len() - asked;
                assert!(more <= 2, "it looked {more} times, and not only of itself");
            });
            wait_until(SOON, "the subscription to end", || subscriptions(&stage) == 0);
        }
        client.close();
        // the holders' clients have gone as well by now
        wait_until(SOON, "no connection that is new", || connections(&stage) <= before);
    });
}

#[test]
fn a_waiting_thread_whose_subscription_is_cut_listens_again() {
    side_by_side(&Flavor::ALL.map(|flavor| (format!("{flavor:?}"), flavor)), |flavor| {
        let stage = Stage::new(*flavor);
        let client = stage.client(Face::Blocking);
        woken(&stage, &client, "a", || {
            assert!(stage.server.int(&["CLIENT", "KILL", "TYPE", "pubsub"]) >= 1);
            let asked = stage.requests(&scripts::acquire().with_arg("a")).len();
            wait_until(SOON, "a new subscription, and a look", || {
                subscriptions(&stage) == 1 && stage.requests(&scripts::acquire().with_arg("a")).len() > asked
            });
        });
        wait_until(SOON, "the subscription to end", || subscriptions(&stage) == 0);
    });
}

#[test]
fn more_waiting_threads_than_may_have_a_connection_of_their_own_are_all_woken() {
    quick_once(WOKEN, "the wake-ups", many_are_woken);
}

fn many_are_woken() -> Duration {
    const THREADS: usize = 24;
    let stage = Stage::valkey();
    let client = stage.client(Face::Blocking);
    let holder = stage.rival(Face::Blocking);
    let names: Vec<String> = (0..THREADS).map(|number| format!("lock {number}")).collect();
    let leases: Vec<_> = names.iter().map(|name| holder.lock(name).acquire().unwrap()).collect();
    let took = std::thread::scope(|scope| {
        let waiters: Vec<_> = names
            .iter()
            .map(|name| {
                let client = &client;
                scope.spawn(move || {
                    let lease = client.lock(name).acquire_within(ms(20_000)).unwrap();
                    lease.released();
                })
            })
            .collect();
        let looked = || names.iter().all(|name| stage.requests(&scripts::acquire().with_arg(name)).len() >= 2);
        wait_until(SOON, "all to listen", || subscriptions(&stage) == THREADS.cast_signed() as i64 && looked());
        // eight ears, and the one of all others
        let listening = stage.server.text(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count();
        assert_eq!(listening, 9);
        let released = Instant::now();
        for lease in &leases {
            lease.released();
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
        released.elapsed()
    });
    wait_until(SOON, "the subscriptions to end", || subscriptions(&stage) == 0);
    took
}

#[test]
fn a_thread_that_lost_many_races_stays_away_from_some_and_is_woken_all_the_same() {
    /// How long one stays away at least, with room for what lies between a refusal and the next message.
    const AWAY: Duration = ms(3);
    const ROUNDS: u32 = 6;
    /// Until it takes contention for high it asks at once in one race of four: after so many it does, but for bad luck of one
    /// in some hundred thousand.
    const LESSONS: u32 = 60;
    let stage = Stage::valkey();
    let client = stage.client(Face::Blocking);
    let rival = stage.rival(Face::Async);
    let lease = rival.lock("a").acquire().unwrap();
    let looks = || stage.requests(&scripts::acquire().with_arg("a")).len();
    // a message about a lock that somebody has is a race lost
    let lose = || {
        let before = looks();
        stage.server.int(&["PUBLISH", "onelock_channel:{a}", "0"]);
        wait_until(SOON, "a look", || looks() > before);
    };
    let waits = || {
        let (client, before) = (client.clone(), looks());
        let waiter = std::thread::spawn(move || {
            let lease = client.lock("a").acquire_within(ms(60_000)).unwrap();
            let at = Instant::now();
            lease.released();
            at
        });
        wait_until(SOON, "the waiter to listen, and to look again", || {
            subscriptions(&stage) == 1 && looks() >= before + 2
        });
        waiter
    };
    // what the client learns while one acquire loses, the next one knows
    let first = waits();
    (0..LESSONS).for_each(|_| lose());
    lease.released();
    first.join().unwrap();
    wait_until(SOON, "the subscription to end", || subscriptions(&stage) == 0);
    let lease = rival.lock("a").acquire().unwrap();
    let second = waits();
    let begun = Instant::now();
    (0..ROUNDS).for_each(|_| lose());
    assert!(begun.elapsed() > AWAY * ROUNDS, "{:?}", begun.elapsed());
    let released = Instant::now();
    lease.released();
    let took = second.join().unwrap().saturating_duration_since(released);
    assert!(took < WOKEN, "{took:?}");
}

#[test]
fn closing_the_client_ends_the_wait_of_a_thread() {
    let stage = Stage::valkey();
    let client = stage.client(Face::Blocking);
    let lease = stage.rival(Face::Blocking).lock("a").acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.lock("a").acquire().unwrap_err().kind());
        wait_until(SOON, "the waiter", || subscriptions(&stage) == 1 && client.stats().waiting == 1);
        let begun = Instant::now();
        client.close();
        assert_eq!(waiter.join().unwrap(), ErrorKind::Closed);
        assert!(begun.elapsed() < ms(100) + SLACK, "{:?}", begun.elapsed());
    });
    lease.released();
    wait_until(SOON, "the subscription to end", || subscriptions(&stage) == 0);
}
