//! A hundred thousand schedules of clients, a server and what can go wrong between them; see `onelock_tests::sim`.
//!
//! | variable | does |
//! |---|---|
//! | `ONELOCK_SIM_SEED` | runs and explains this one schedule instead |
//! | `ONELOCK_SIM_QUORUM_SEED` | the same of several servers |
//! | `ONELOCK_SIM_SCHEDULES` | how many schedules are run, half of them with fresh seeds |

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use std::io::Write as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use onelock_tests::sim::{Count, Scope, Stats, explain, quorum, run, sweep};

const SCHEDULES: u64 = 100_000;
const THREADS: usize = 2;
/// Seeds that failed once, one a line; what follows a `#` is a remark.
const KEPT: &str = include_str!("../seeds.txt");
/// The same of several servers.
const KEPT_OF_SEVERAL: &str = include_str!("../seeds-quorum.txt");

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")))
}

fn schedules(first: u64, count: u64) -> Stats {
    let begin = Instant::now();
    let sweep = sweep(first, count, None, THREADS);
    let line = format!("seeds from {first}: {} schedules in {:?}", sweep.schedules, begin.elapsed());
    // past the harness, which would keep the seed of a run that passes to itself
    writeln!(std::io::stdout(), "{line}").expect("standard output takes it");
    if let Some((seed, violation)) = sweep.failure {
        panic!(
            "{violation:?}\n{}\nrepeat it with ONELOCK_SIM_SEED={seed}, and add it to tests/seeds.txt",
            explain(seed, None)
        );
    }
    sweep.stats
}

#[test]
fn no_schedule_violates_a_property() {
    if let Some(seed) = number("ONELOCK_SIM_SEED") {
        let text = explain(seed, None);
        println!("{text}");
        assert_eq!(run(seed, None).err(), None);
        return;
    }
    let count = number("ONELOCK_SIM_SCHEDULES").unwrap_or(SCHEDULES) / 2;
    let fixed = schedules(1, count);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    schedules((clock.as_nanos() as u64) >> 8 << 20, count);
    println!("{fixed:#?}");
    // rare things have to happen, or nothing is proven about them
    for rare in Count::ALL.into_iter().filter(|count| count.scope() == Scope::Plain) {
        assert!(count < SCHEDULES / 2 || fixed.get(rare) >= 50, "{rare:?} happened {} times only", fixed.get(rare));
    }
}

/// How many schedules with several servers are run.
const QUORUM_SCHEDULES: u64 = 3_000;

#[test]
fn no_schedule_of_several_servers_violates_a_property() {
    if let Some(seed) = number("ONELOCK_SIM_QUORUM_SEED") {
        let text = quorum::explain(seed, None);
        println!("{text}");
        assert_eq!(quorum::run(seed, None).err(), None);
        return;
    }
    let count = number("ONELOCK_SIM_SCHEDULES").map_or(QUORUM_SCHEDULES, |count| count / 30) / 2;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let sweep = |first: u64| {
        let begin = Instant::now();
        let swept = quorum::sweep(first, count, None);
        let line = format!("several servers, seeds from {first}: {count} schedules in {:?}", begin.elapsed());
        writeln!(std::io::stdout(), "{line}").expect("standard output takes it");
        swept
    };
    let fresh = (clock.as_nanos() as u64) >> 8 << 20;
    let sweeps = std::thread::scope(|scope| {
        let fixed = scope.spawn(|| sweep(1));
        [sweep(fresh), fixed.join().expect("a sweep does not panic")]
    });
    for (tally, failure) in sweeps {
        if let Some((seed, violation)) = failure {
            panic!(
                "{violation:?}\n{}\nrepeat it with ONELOCK_SIM_QUORUM_SEED={seed}, and add it to tests/seeds-quorum.txt",
                quorum::explain(seed, None)
            );
        }
        assert!(count < QUORUM_SCHEDULES / 2 || tally.rarest() >= 50, "rare things have to happen: {tally:#?}");
        println!("{tally:#?}");
    }
}

fn numbers(kept: &str) -> impl Iterator<Item = u64> {
    let seeds = kept.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    seeds.filter(|seed| !seed.is_empty()).map(|seed| seed.parse().expect("a file of seeds has a number a line"))
}

#[test]
fn seeds_that_failed_once_pass() {
    for seed in numbers(KEPT) {
        assert_eq!(run(seed, None).err(), None, "{}", explain(seed, None));
    }
    for seed in numbers(KEPT_OF_SEVERAL) {
        assert_eq!(quorum::run(seed, None).err(), None, "{}", quorum::explain(seed, None));
    }
}

#[test]
fn a_seed_repeats_exactly() {
    for seed in 0..200 {
        assert_eq!(explain(seed, None), explain(seed, None));
    }
}
