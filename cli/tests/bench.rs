//! `bench`: measures within its time, and leaves no lock behind.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::{Duration, Instant};

use common::{Place, SOON, text};
use onelock_tests::wait::wait_until;
use serde_json::Value;

/// The locks that are still taken.
fn held(place: &Place) -> String {
    text(&place.output(&["list", "onelock-bench:*", "--json"]).stdout)
}

#[test]
fn it_measures_within_its_time_and_leaves_no_lock() {
    let place = Place::new();
    let begun = Instant::now();
    let output = place.output(&["bench", "--time", "600ms", "--threads", "4", "--json"]);
    let took = begun.elapsed();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(took >= Duration::from_millis(500) && took < SOON, "{took:?}");
    let found: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    for part in ["cycle", "throughput", "handover"] {
        let times = &found[part];
        let at = |name: &str| times[name].as_f64().unwrap();
        assert!(times["number"].as_u64().unwrap() > 3, "{found:#}");
        assert!(
            at("least_us") > 0.0 && at("least_us") <= at("median_us") && at("median_us") <= at("worst_us"),
            "{found:#}"
        );
    }
    // a hand-over is what both do in turn: about one in each 2 ms for which the lock is held
    let turns = found["handover"]["number"].as_u64().unwrap();
    assert!(turns < 110, "{turns} in 200 ms");
    assert_eq!(held(&place), "");
    let sheet = text(&place.output(&["bench", "--time", "150ms", &place.server.url()]).stdout);
    assert_eq!(sheet.lines().count(), 4, "{sheet}");
    assert!(sheet.contains("hand-over") && sheet.is_ascii(), "{sheet}");
}

#[test]
fn an_interrupted_one_leaves_no_lock_either() {
    for signal in ["INT", "TERM"] {
        let place = Place::new();
        let running = place.start(&["bench", "--time", "1h"]);
        wait_until(SOON, "it is under way", || place.server.int(&["DBSIZE"]) > 0);
        running.signal(signal);
        let begun = Instant::now();
        let code = running.code();
        assert_eq!(code, if signal == "INT" { 130 } else { 143 });
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_eq!(held(&place), "");
    }
}

#[test]
fn what_stops_it_is_told() {
    let place = Place::new();
    place.server.kill();
    let output = place.output(&["bench", "--time", "1s"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(69), 0), "{output:?}");
    assert_eq!(place.status(&["bench", "--threads", "0"]), 64);
    assert_eq!(place.status(&["bench", "--time", "0"]), 64);
}
