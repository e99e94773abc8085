//! The checks of the simulator, checked: each planted bug has to be caught, and the honest client has to pass the very
//! same schedules.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use std::fmt::Write as _;
use std::io::Write as _;

use onelock_tests::sim::{Bug, quorum, sweep};

/// The seed of the first schedule.
const FIRST: u64 = 1;
/// How many schedules a bug may survive.
const LIMIT: u64 = 30_000;
/// The same with several servers, each of whose schedules takes longer.
const QUORUM_LIMIT: u64 = 2_000;
const THREADS: usize = 2;

#[test]
fn every_planted_bug_is_caught_and_the_honest_client_passes() {
    let mut table = format!("{:<20} | {:>9} | property violated\n", "bug", "schedules");
    let mut survivors = Vec::new();
    let mut longest = 0;
    for bug in Bug::ALL {
        let line = if let Some((seed, violation)) = sweep(FIRST, LIMIT, Some(bug), THREADS).failure {
            let caught = seed - FIRST + 1;
            longest = longest.max(caught);
            writeln!(table, "{:<20} | {caught:>9} | {}", format!("{bug:?}"), violation.property)
        } else {
            survivors.push(bug);
            writeln!(table, "{:<20} | {:>9} | none: it survived", format!("{bug:?}"), "-")
        };
        line.expect("a string takes every line");
    }
    // past the harness, which would keep the table of a test that passes to itself
    writeln!(std::io::stdout(), "{table}").expect("standard output takes it");
    assert!(survivors.is_empty(), "survived {LIMIT} schedules: {survivors:?}\n{table}");
    let honest = sweep(FIRST, longest, None, THREADS);
    assert_eq!(honest.failure, None, "the honest client fails on the same schedules");
}

#[test]
fn every_bug_planted_in_the_quorum_is_caught_and_the_honest_client_passes() {
    let mut table = format!("{:<20} | {:>9} | property violated\n", "bug in the quorum", "schedules");
    let mut survivors = Vec::new();
    let mut longest = 0;
    for bug in quorum::Bug::ALL {
        let line = if let Some((seed, violation)) = quorum::sweep(FIRST, QUORUM_LIMIT, Some(bug)).1 {
            let caught = seed - FIRST + 1;
            longest = longest.max(caught);
            writeln!(table, "{:<20} | {caught:>9} | {}", format!("{bug:?}"), violation.property)
        } else {
            survivors.push(bug);
            writeln!(table, "{:<20} | {:>9} | none: it survived", format!("{bug:?}"), "-")
        };
        line.expect("a string takes every line");
        let last = table.lines().last().unwrap_or_default();
        writeln!(std::io::stdout(), "{last}").expect("standard output takes it");
    }
    assert!(survivors.is_empty(), "survived {QUORUM_LIMIT} schedules: {survivors:?}\n{table}");
    let honest = quorum::sweep(FIRST, longest, None).1;
    assert_eq!(honest, None, "the honest client fails on the same schedules");
}
