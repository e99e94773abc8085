//! Schedules of fair locks and of several locks at once, of what goes wrong around them, and of the bugs that the checks
//! have to catch; see `onelock_tests::sim`. Semaphores have schedules of their own, in `permit_schedules`.
//!
//! | variable | does |
//! |---|---|
//! | `ONELOCK_SIM_FAIR_SEED` | runs and explains this one schedule of fair locks instead |
//! | `ONELOCK_SIM_SEVERAL_SEED` | the same of several locks at once |
//! | `ONELOCK_SIM_SCHEDULES` | how many schedules are run; from here on half of them have fresh seeds |

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use onelock_tests::sim::{Bug, Count, Scope, explain_in, run_in, sweep_in};

const SCHEDULES: u64 = 6_000;
const THREADS: usize = 2;
/// How many schedules a bug may survive.
const LIMIT: u64 = 6_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")))
}

fn no_violation(scope: Scope, variable: &str) {
    if let Some(seed) = number(variable) {
        println!("{}", explain_in(scope, seed, None));
        assert_eq!(run_in(scope, seed, None).err(), None);
        return;
    }
    let asked = number("ONELOCK_SIM_SCHEDULES");
    let count = asked.map_or(SCHEDULES, |asked| asked / 2);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let fresh = (clock.as_nanos() as u64) >> 8 << 20;
    for first in [Some(1), asked.map(|_| fresh)].into_iter().flatten() {
        let begin = Instant::now();
        let sweep = sweep_in(scope, first, count, None, THREADS);
        let line = format!("{scope:?}, seeds from {first}: {} schedules in {:?}", sweep.schedules, begin.elapsed());
        // past the harness, which would keep the seed of a run that passes to itself
        writeln!(std::io::stdout(), "{line}").expect("standard output takes it");
        if let Some((seed, violation)) = sweep.failure {
            panic!("{violation:?}\n{}\nrepeat it with {variable}={seed}", explain_in(scope, seed, None));
        }
        println!("{:#?}", sweep.stats);
        for rare in Count::ALL.into_iter().filter(|count| count.scope() == scope) {
            let often = sweep.stats.get(rare);
            assert!(first != 1 || count < SCHEDULES || often >= 50, "{rare:?} happened {often} times only");
        }
    }
}

fn every_bug_is_caught(scope: Scope, bugs: &[Bug]) {
    let mut table = format!("{:<21} | {:>9} | property violated\n", "planted bug", "schedules");
    let mut survivors = Vec::new();
    let mut longest = 0;
    for bug in bugs.iter().copied() {
        let line = if let Some((seed, violation)) = sweep_in(scope, 1, LIMIT, Some(bug), THREADS).failure {
            longest = longest.max(seed);
            writeln!(table, "{:<21} | {seed:>9} | {}", format!("{bug:?}"), violation.property)
        } else {
            survivors.push(bug);
            writeln!(table, "{:<21} | {:>9} | none: it survived", format!("{bug:?}"), "-")
        };
        line.expect("a string takes every line");
    }
    writeln!(std::io::stdout(), "{table}").expect("standard output takes it");
    assert!(survivors.is_empty(), "survived {LIMIT} schedules: {survivors:?}\n{table}");
    let honest = sweep_in(scope, 1, longest, None, THREADS);
    assert_eq!(honest.failure, None, "the honest client fails on the same schedules");
}

#[test]
fn no_schedule_of_fair_locks_violates_a_property() {
    no_violation(Scope::Queues, "ONELOCK_SIM_FAIR_SEED");
}

#[test]
fn every_bug_planted_in_a_queue_is_caught_and_the_honest_client_passes() {
    every_bug_is_caught(Scope::Queues, &Bug::OF_QUEUES);
}

#[test]
fn no_schedule_of_several_locks_at_once_violates_a_property() {
    no_violation(Scope::Several, "ONELOCK_SIM_SEVERAL_SEED");
}

#[test]
fn every_bug_planted_in_several_locks_is_caught_and_the_honest_client_passes() {
    every_bug_is_caught(Scope::Several, &Bug::OF_SEVERAL);
}

#[test]
fn a_seed_repeats_exactly() {
    for scope in [Scope::Queues, Scope::Several] {
        for seed in 0..50 {
            assert_eq!(explain_in(scope, seed, None), explain_in(scope, seed, None));
        }
    }
}
