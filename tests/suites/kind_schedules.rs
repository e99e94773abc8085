//! Schedules of fair locks, of what goes wrong around them, and of the bugs that the checks have to catch; see
//! `onelock_tests::sim`. Semaphores have schedules of their own, in `permit_schedules`.
//!
//! | variable | does |
//! |---|---|
//! | `ONELOCK_SIM_FAIR_SEED` | runs and explains this one schedule instead |
//! | `ONELOCK_SIM_SCHEDULES` | how many schedules are run, half of them with fresh seeds |

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use onelock_tests::sim::{Bug, Count, Scope, Stats, explain_in, run_in, sweep_in};

const SCHEDULES: u64 = 10_000;
const THREADS: usize = 2;
/// How many schedules a bug may survive.
const LIMIT: u64 = 20_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")))
}

fn schedules(first: u64, count: u64) -> Stats {
    let begin = Instant::now();
    let sweep = sweep_in(Scope::Queues, first, count, None, THREADS);
    let line = format!("fair locks, seeds from {first}: {} schedules in {:?}", sweep.schedules, begin.elapsed());
    // past the harness, which would keep the seed of a run that passes to itself
    writeln!(std::io::stdout(), "{line}").expect("standard output takes it");
    if let Some((seed, violation)) = sweep.failure {
        let what = explain_in(Scope::Queues, seed, None);
        panic!("{violation:?}\n{what}\nrepeat it with ONELOCK_SIM_FAIR_SEED={seed}");
    }
    sweep.stats
}

#[test]
fn no_schedule_of_fair_locks_violates_a_property() {
    if let Some(seed) = number("ONELOCK_SIM_FAIR_SEED") {
        println!("{}", explain_in(Scope::Queues, seed, None));
        assert_eq!(run_in(Scope::Queues, seed, None).err(), None);
        return;
    }
    let count = number("ONELOCK_SIM_SCHEDULES").unwrap_or(SCHEDULES) / 2;
    let fixed = schedules(1, count);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    schedules((clock.as_nanos() as u64) >> 8 << 20, count);
    println!("{fixed:#?}");
    for rare in Count::ALL.into_iter().filter(|count| count.is_of_queues()) {
        assert!(count < SCHEDULES / 2 || fixed.get(rare) >= 50, "{rare:?} happened {} times only", fixed.get(rare));
    }
}

#[test]
fn every_bug_planted_in_a_queue_is_caught_and_the_honest_client_passes() {
    let mut table = format!("{:<21} | {:>9} | property violated\n", "bug in a queue", "schedules");
    let mut survivors = Vec::new();
    let mut longest = 0;
    for bug in Bug::OF_QUEUES {
        let line = if let Some((seed, violation)) = sweep_in(Scope::Queues, 1, LIMIT, Some(bug), THREADS).failure {
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
    let honest = sweep_in(Scope::Queues, 1, longest, None, THREADS);
    assert_eq!(honest.failure, None, "the honest client fails on the same schedules");
}
