//! Processes of every language contend for two locks while a nemesis is at work. `ONELOCK_CHAOS_SEED` and
//! `ONELOCK_CHAOS_SECONDS` choose other runs than those of the continuous integration.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a test; and the seed of a run must be known to repeat it"
)]

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use onelock_tests::chaos::{Outcome, Place, Plan, run};
use onelock_tests::history::Check;

fn plan(place: Place, seed: u64, loses_data: bool) -> Plan {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = given("ONELOCK_CHAOS_SEED").unwrap_or(seed);
    let faults = Duration::from_secs(given("ONELOCK_CHAOS_SECONDS").unwrap_or(15));
    Plan { place, seed, faults, loses_data, believes_for_ever: false }
}

/// How many runs there are at once, however many tests: each has many processes, and limits of time.
const AT_ONCE: usize = 2;
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A run's turn, until it is dropped.
struct Turn;

impl Turn {
    fn take() -> Turn {
        let running = RUNNING.lock().expect("nobody panics meanwhile");
        *ENDED.wait_while(running, |running| *running == AT_ONCE).expect("nobody panics meanwhile") += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().expect("nobody panics meanwhile") -= 1;
        ENDED.notify_one();
    }
}

fn go(plan: Plan) -> Outcome {
    println!("{plan:?}");
    let turn = Turn::take();
    let outcome = run(plan);
    drop(turn);
    let (increments, counted) = outcome.counted;
    println!(
        "{}\nrecovered in {:?}, {increments} increments, counted {counted}",
        outcome.report.summary, outcome.recovered_in
    );
    outcome.assert_good(plan);
    // A run in which nothing happened proves nothing.
    assert!(outcome.report.summary.leases > 40 && increments > 40, "too little happened: {}", outcome.report.summary);
    outcome
}

/// Nothing acknowledged is lost: the locks exclude, tokens grow, losses are known in time, calls end in time, an
/// unguarded counter is exact, and afterwards everything works and nothing is left.
#[test]
fn faults_that_keep_the_data_never_let_two_in() {
    let outcome = go(plan(Place::Single, 1, false));
    assert_eq!(outcome.counted.0, outcome.counted.1);
}

/// The server loses locks and counters: two may hold at once, and all else still holds.
#[test]
fn faults_that_lose_the_data_are_survived_by_tokens() {
    go(plan(Place::Single, 2, true));
}

/// The checks can fail: holders that do not heed `held` are found out.
#[test]
fn holders_that_believe_for_ever_are_caught() {
    let plan = Plan {
        place: Place::Single,
        seed: 3,
        faults: Duration::from_secs(6),
        loses_data: false,
        believes_for_ever: true,
    };
    let turn = Turn::take();
    let report = run(plan).report;
    drop(turn);
    assert!(!report.of(Check::Exclusion).is_empty(), "two holders at once went unseen: {}", report.summary);
    assert!(!report.of(Check::Held).is_empty(), "a hold past its end went unseen: {}", report.summary);
}

/// Behind Sentinels, with failovers in good order: nothing acknowledged is lost.
#[test]
fn failovers_in_good_order_never_let_two_in() {
    let outcome = go(plan(Place::Sentinel, 4, false));
    assert_eq!(outcome.counted.0, outcome.counted.1);
}

/// Behind Sentinels, with masters that die: two may hold at once, and all else still holds.
#[test]
fn masters_that_die_are_survived_by_tokens() {
    go(plan(Place::Sentinel, 5, true));
}

/// In a cluster whose slots move and whose masters hand over: nothing acknowledged is lost.
#[test]
fn moving_slots_never_let_two_in() {
    let outcome = go(plan(Place::Cluster, 6, false));
    assert_eq!(outcome.counted.0, outcome.counted.1);
}

/// In a cluster whose masters die: two may hold at once, and all else still holds.
#[test]
fn a_cluster_whose_masters_die_is_survived_by_tokens() {
    go(plan(Place::Cluster, 7, true));
}

/// On three independent servers that are frozen, cut off, and killed to come back empty: nothing acknowledged is lost,
/// since a server that has forgotten does not vote.
#[test]
fn several_servers_that_forget_one_by_one_never_let_two_in() {
    let outcome = go(plan(Place::Redlock, 8, false));
    assert_eq!(outcome.counted.0, outcome.counted.1);
}
