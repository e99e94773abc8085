//! What a page draws of a schedule is what happens in it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use onelock_simulator::story::{Planted, Story};
use onelock_simulator::trace::{Fate, Lane, Trace, Way};
use onelock_simulator::{Count, Scope, Stats, quorum, run_in};

/// The stories that are not schedules of the tests.
fn told() -> impl Iterator<Item = Story> {
    Story::ALL.into_iter().filter(|story| !story.name().starts_with("tests-"))
}

#[test]
fn without_a_bug_no_story_violates_a_property() {
    for story in told() {
        for seed in 0..150 {
            assert_eq!(story.run(seed, None).err(), None, "{} {seed}", story.name());
        }
    }
}

#[test]
fn each_bug_of_a_story_is_caught_and_is_the_end_of_its_trace() {
    for story in told() {
        assert!(story.bugs().len() >= 3, "{}", story.name());
        for bug in story.bugs() {
            let seed = story.search(bug, 1, 500);
            let seed = seed.unwrap_or_else(|| panic!("{} survived {}", bug.name(), story.name()));
            let expected = story.run(seed, Some(bug)).unwrap_err();
            let trace = story.play(seed, Some(bug));
            let broken = trace.broken.expect("it is caught");
            assert_eq!(broken.property, expected.property);
            let last = trace.steps.last().unwrap();
            assert_eq!((last.what, last.at, trace.end), ("violated", broken.at, broken.at));
            // the same seed without the bug
            assert_eq!(story.run(seed, None).err(), None, "{} {seed}", story.name());
        }
    }
}

#[test]
fn each_story_shows_what_it_is_about() {
    let any = |story: Story, shows: fn(&Trace) -> bool| (0..40).any(|seed| shows(&story.play(seed, None)));
    assert!(any(Story::LostReply, |trace| {
        let lost = |way| trace.messages.iter().any(|message| message.way == way && message.fate == Fate::Lost);
        lost(Way::Reply) && lost(Way::Request) && trace.steps.iter().any(|step| step.text.contains("has it already"))
    }));
    assert!(any(Story::FrozenHolder, |trace| {
        let refused = trace.writes.iter().any(|write| write.late && !write.admitted);
        refused && trace.stops.iter().any(|stop| stop.what == "frozen" && matches!(stop.lane, Lane::Client(_)))
    }));
    assert!(any(Story::LateCopies, |trace| {
        let copy = |message: &onelock_simulator::trace::Message| message.way == Way::Copy;
        trace.messages.iter().any(copy) && trace.messages.iter().any(|message| message.late)
    }));
    assert!(any(Story::Clocks, |trace| trace
        .leases
        .iter()
        .any(|lease| { lease.end.as_ref().is_some_and(|(_, how)| how.contains("clock_anomaly")) })));
    assert!(any(Story::ForgetfulServer, |trace| trace
        .leases
        .iter()
        .any(|lease| { lease.end.as_ref().is_some_and(|(_, how)| how.contains("taken")) })));
    assert!(any(Story::FairQueue, |trace| {
        trace.stops.iter().any(|stop| stop.what == "down") && trace.steps.iter().any(|step| step.text.contains("queue"))
    }));
    assert!(any(Story::SeveralLocks, |trace| trace.steps.iter().any(|step| step.text.contains("acquire all"))));
    assert!(any(Story::Redlock, |trace| {
        let down = |lane| trace.stops.iter().any(|stop| stop.what == "down" && stop.lane == lane);
        trace.servers.len() == 3 && (0..3).any(|server| down(Lane::Server(server)))
    }));
}

fn stats(scope: Scope, seed: u64) -> Stats {
    run_in(scope, seed, None).expect("no violation")
}

#[test]
fn a_schedule_that_is_written_down_is_that_of_the_tests() {
    let scopes =
        [(Story::TestsPlain, Scope::Plain), (Story::TestsQueues, Scope::Queues), (Story::TestsSeveral, Scope::Several)];
    let mut whole = 0;
    for (story, scope) in scopes {
        for seed in 1..30 {
            let (stats, trace) = (stats(scope, seed), story.play(seed, None));
            assert_eq!(trace.broken, None);
            if trace.cut {
                continue;
            }
            whole += 1;
            let handed_out = stats.get(Count::Leases) + stats.get(Count::Attached);
            assert_eq!(trace.leases.len() as u64, handed_out, "{} {seed}", story.name());
        }
    }
    assert!(whole > 50, "{whole}");
    for seed in 1..15 {
        let (tally, trace) = (quorum::run(seed, None).expect("no violation"), Story::TestsRedlock.play(seed, None));
        assert!(trace.cut || trace.leases.len() as u64 == tally.leases + tally.attached, "{seed}");
    }
}

#[test]
fn a_bug_is_caught_in_a_trace_where_it_is_caught_in_the_tests() {
    for bug in [onelock_simulator::Bug::CountingFence, onelock_simulator::Bug::NotDisarmed] {
        for seed in 1..15 {
            let expected = onelock_simulator::run(seed, Some(bug)).err().map(|violation| violation.property);
            let trace = Story::TestsPlain.play(seed, Some(Planted::One(bug)));
            assert_eq!(trace.broken.map(|broken| broken.property), expected, "{bug:?} {seed}");
        }
    }
}

#[test]
fn what_is_drawn_hangs_together() {
    for story in Story::ALL {
        for seed in 1..5 {
            let trace = story.play(seed, None);
            let name = story.name();
            assert!(!trace.steps.is_empty() && trace.steps.is_sorted_by_key(|step| step.at), "{name} {seed}");
            for step in &trace.steps {
                assert!(step.at <= trace.end);
                assert!(step.message.is_none_or(|message| message < trace.messages.len()));
                assert!(step.lease.is_none_or(|lease| lease < trace.leases.len()));
            }
            for message in &trace.messages {
                assert_eq!(message.fate == Fate::UnderWay, message.end.is_none());
                assert!(message.end.is_none_or(|end| end >= message.sent), "{name} {seed}: {message:?}");
                assert!(message.client < trace.clients.len() && message.server < trace.servers.len());
            }
            for lease in &trace.leases {
                let (at, deadline) = lease.deadlines[0];
                assert_eq!(at, lease.from);
                assert!(deadline > lease.from, "{name} {seed}: {lease:?}");
                let last = lease.deadlines.last().unwrap().1;
                assert!(lease.end.as_ref().is_none_or(|(end, _)| *end >= lease.from && *end <= last.max(lease.from)));
            }
            for key in &trace.keys {
                assert!(key.until.is_none_or(|until| until >= key.from), "{name} {seed}: {key:?}");
            }
            for stop in &trace.stops {
                assert!(stop.until.is_none_or(|until| until >= stop.from));
            }
            assert_eq!(trace.to_json(), story.play(seed, None).to_json(), "it repeats exactly");
        }
    }
}

#[test]
fn without_broken_assumptions_no_lower_token_is_admitted() {
    for story in [Story::LostReply, Story::FrozenHolder, Story::LateCopies, Story::FairQueue, Story::Redlock] {
        for seed in 0..80 {
            let trace = story.play(seed, None);
            let mut highest = 0;
            for write in &trace.writes {
                assert_eq!(write.admitted, write.token >= highest, "{} {seed}: {write:?}", story.name());
                highest = highest.max(write.token);
            }
        }
    }
}

#[test]
fn names_are_found_again() {
    for story in Story::ALL {
        assert_eq!(Story::named(story.name()), Some(story));
        for bug in story.bugs() {
            assert_eq!(story.bug(&bug.name()), Some(bug));
            assert!(bug.explain().ends_with('.'), "{}", bug.explain());
        }
    }
    assert_eq!(Story::named("no such story"), None);
    assert_eq!(Story::LostReply.bug("NoSuchBug"), None);
}
