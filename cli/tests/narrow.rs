//! What is shown on a terminal of eighty columns, and what people are told there before a lock is taken away, and afterwards.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::screen::Screen;
use common::{Place, SOON, text};
use onelock_tests::proxy::{Match, Proxy};
use onelock_tests::scripts::FORCE_RELEASE;
use onelock_tests::wait::wait_until;

/// The lines that were shown, without what commands the terminal.
fn lines(shown: &str) -> Vec<String> {
    shown.replace("\u{1b}[K", "").replace("\u{1b}[J", "").trim_end().split("\r\n").map(str::to_owned).collect()
}

/// Whether a word of a text was broken, or a line is wider than the terminal.
fn assert_readable(shown: &str, expected: &str) {
    assert!(lines(shown).iter().all(|line| line.chars().count() <= 80), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(expected), "{expected:?}: {words}");
}

#[test]
fn each_lock_has_one_line_that_says_who_waits() {
    let place = Place::new();
    let long = "n".repeat(120);
    let names = [long.as_str(), "billing:invoice:2026-11", "deploy:shop", "nightly-report"];
    let _holders = names.map(|name| place.start(&["run", name, "--label", "the one that holds it", "--", "cat"]));
    let _fair = place.start(&["run", "fairq", "--fair", "--label", "holder", "--", "cat"]);
    for name in names.iter().chain(&["fairq"]) {
        place.wait_held(name);
    }
    let _waiter = place.start(&["run", "fairq", "--fair", "--label", "bob", "--", "true"]);
    wait_until(SOON, "one waits", || text(&place.output(&["list", "fairq"]).stdout).contains("1 (bob "));
    let check = |shown: &str| {
        let rows = lines(shown);
        assert_eq!(rows.len(), 6, "{rows:#?}");
        assert!(rows.iter().all(|row| row.chars().count() <= 80), "{rows:#?}");
        assert!(rows[0].starts_with("NAME ") && rows[0].contains(" HOLDER ") && rows[0].contains(" TTL "), "{rows:#?}");
        let waiting = rows[0].find("WAITING").unwrap_or_else(|| panic!("{rows:#?}"));
        let fair = rows.iter().find(|row| row.starts_with("fairq ")).unwrap();
        assert!(fair[waiting..].starts_with("1 (bob"), "{rows:#?}");
        assert!(rows.iter().any(|row| row.starts_with("deploy:shop ") && row.contains("the one that")), "{rows:#?}");
    };
    let mut screen = Screen::start(&place, &["list"], true);
    wait_until(SOON, "it ends", || screen.child.try_wait().unwrap().is_some());
    // what it wrote last may be read later
    wait_until(SOON, "six lines", || screen.shown().matches('\n').count() == 6);
    check(&screen.shown());
    let screen = Screen::start(&place, &["list", "--watch=50ms"], true);
    wait_until(SOON, "it is shown again", || screen.shown().matches("\u{1b}[H").count() > 2);
    check(screen.shown().rsplit("\u{1b}[H").nth(1).unwrap());
    // for other programs everything is there
    let table = text(&place.output(&["list"]).stdout);
    assert!(table.contains(&long) && table.contains(" CLIENT ") && table.contains(" TOKEN "), "{table}");
}

#[test]
fn a_string_without_a_ttl_is_told_to_whom_asks_for_it_by_name() {
    let place = Place::new();
    place.server.cmd(&["SET", "noex", "tok", "NX"]);
    let output = place.output(&["list", "noex"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), 1, "{output:?}");
    assert!(text(&output.stderr).contains("`onelock inspect noex`"), "{output:?}");
    for quiet in [&["list", "no*"][..], &["list", "another"]] {
        let output = place.output(quiet);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    }
    let output = place.output(&["force-release", "noex", "--yes"]);
    assert_eq!(output.status.code(), Some(64));
    let told = text(&output.stderr);
    assert!(told.contains("that stays for ever") && !told.contains("with a ttl"), "{told}");
}

#[test]
fn what_many_hold_is_taken_from_all_and_that_is_said() {
    let place = Place::new();
    let mut readers = [(); 3].map(|()| place.start(&["run", "ro", "--shared", "--label", "ada", "--", "cat"]));
    let mut permits =
        ["2", "1"].map(|number| place.start(&["run", "many", "--limit", "4", "--permits", number, "--", "cat"]));
    let sheet = |name: &str| text(&place.output(&["inspect", name]).stdout);
    wait_until(SOON, "three read", || sheet("ro").contains("readers     3: this one, "));
    assert!(sheet("ro").contains(" and 2 more\n"), "{}", sheet("ro"));
    wait_until(SOON, "three permits are held", || sheet("many").contains("hold count  3\n"));
    for (name, before, after) in [
        ("ro", "all 3 lose it", "ro: taken away from 3 readers"),
        ("many", "all 3 that are held are taken away", "many: the permits that were held (3) were taken away"),
    ] {
        let mut screen = Screen::start(&place, &["force-release", name], true);
        screen.wait_shown("[y/N]");
        assert_readable(&screen.shown(), before);
        assert!(!screen.shown().contains("The holder goes on"), "{}", screen.shown());
        screen.clear();
        screen.press(b"y\n");
        screen.wait_shown(after);
        assert_eq!(screen.code(), Some(0));
    }
    for running in readers.iter_mut().chain(&mut permits) {
        drop(running.child().stdin.take());
        assert_eq!(running.child().wait().unwrap().code(), Some(80), "each has lost it");
    }
}

#[test]
fn what_was_taken_away_from_whom_is_said() {
    let place = Place::new();
    let _holder = place.start(&["run", "x", "--label", "ada", "--", "cat"]);
    place.wait_held("x");
    let waiter = place.start(&["run", "x", "--", "true"]);
    wait_until(SOON, "one waits", || place.waiting("x") == 1);
    let mut screen = Screen::start(&place, &["force-release", "x"], true);
    screen.wait_shown("[y/N]");
    assert_readable(&screen.shown(), "so what checks tokens is safe. One waits for it, and takes it at once.");
    screen.press(b"y\n");
    screen.wait_shown("x: taken away from ada ");
    assert_eq!((screen.code(), waiter.code()), (Some(0), 0));

    let _next = place.start(&["run", "y", "--label", "bob", "--", "cat"]);
    place.wait_held("y");
    let output = place.output(&["force-release", "y", "--yes"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    assert!(text(&output.stderr).contains("y: taken away from bob "), "{output:?}");
    // one that ends between the look and the deed
    let _last = place.start(&["run", "z", "--", "cat"]);
    place.wait_held("z");
    let proxy = Proxy::start(&place.server);
    let held = proxy.on(Match::script(FORCE_RELEASE)).hold();
    let mut command = place.onelock(&["force-release", "z", "--yes"]);
    command.env("ONELOCK_URL", proxy.url());
    let late = common::Running::of(command);
    held.wait_hits(1);
    place.server.cmd(&["DEL", "z"]);
    held.release();
    let output = late.output();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("z: it was over before"), "{output:?}");
}
