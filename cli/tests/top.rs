//! `top` on a pseudo-terminal: what it shows, that it follows the terminal's size, and that it leaves the terminal as it was.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::screen::Screen;
use common::{Place, SOON, signal, text};
use onelock_tests::proxy::{Match, Proxy};
use onelock_tests::wait::wait_until;

const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// The lines of the last drawing, without what commands the terminal.
fn lines(screen: &Screen) -> Vec<String> {
    let shown = screen.shown();
    let last = shown.rsplit("\u{1b}[H").next().unwrap().split("\u{1b}[?25h").next().unwrap();
    let plain = |line: &str| {
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |text, part| text + part.split_once(|end: char| end.is_ascii_alphabetic()).unwrap().1)
    };
    last.split("\r\n").map(plain).collect()
}

#[test]
fn it_shows_who_holds_and_who_waits() {
    let place = Place::new();
    let mut quiet = place.start(&["run", "job:quiet", "--label", "early bird", "--", "cat"]);
    place.wait_held("job:quiet");
    let _holder = place.start(&["run", "job:hot", "--label", "night shift", "--", "cat"]);
    place.wait_held("job:hot");
    let _waiter = place.start(&["run", "job:hot", "--", "true"]);
    wait_until(SOON, "one waits", || place.waiting("job:hot") == 1);
    place.server.cmd(&[b"SET".as_slice(), b"job:\x1b[2J", b"v", b"PX", b"60000"]);

    let mut screen = Screen::start(&place, &["top", "job:*", "--every", "50ms", "--others"], true);
    screen.resize(80, 12);
    wait_until(SOON, "three locks on twelve rows", || lines(&screen).len() == 12 && screen.shown().contains("3 locks"));
    assert!(!screen.is_as_before(), "keys are read one by one");
    let rows = lines(&screen);
    assert!(rows.iter().all(|line| line.chars().count() <= 80), "{rows:#?}");
    assert!(rows[0].contains("valkey") && rows[0].contains("1 waiting") && rows[0].contains("round trip"), "{rows:#?}");
    assert!(rows[3].starts_with("job:hot ") && rows[3].contains("night shift") && rows[3].ends_with(" 1"), "{rows:#?}");
    assert!(rows[4].starts_with("job:quiet ") && rows[4].contains("early bird"), "{rows:#?}");
    assert!(rows[5].contains("job:\\u{1b}[2J"), "what commands a terminal is spelt out: {rows:#?}");
    assert!(rows[2].contains("GRANTS  WAITED  WAITING"), "{rows:#?}");
    // somebody has waited since it was first seen
    let cell = |row: usize, from_the_end: usize| {
        let rows = lines(&screen);
        rows[row].split_whitespace().rev().nth(from_the_end).unwrap_or_default().to_owned()
    };
    wait_until(SOON, "it is waited for", || cell(3, 1).ends_with('s') && cell(3, 1) != "0ms");
    assert_eq!((cell(3, 2), cell(4, 2), cell(4, 1)), ("0".to_owned(), "0".to_owned(), "-".to_owned()));
    // another holder of the same lock
    drop(quiet.child().stdin.take());
    assert_eq!(quiet.code(), 0);
    let _next = place.start(&["run", "job:quiet", "--label", "late bird", "--", "cat"]);
    wait_until(SOON, "the next holder", || lines(&screen)[4].contains("late bird"));
    assert_eq!(cell(4, 2), "1");
    // a server that is away is told, and does not end it
    place.server.kill();
    wait_until(SOON, "the reason", || lines(&screen)[1].contains("list"));
    assert!(lines(&screen)[3].starts_with("job:hot "), "what was known stays there");
    screen.press(b"q");
    wait_until(SOON, "the screen is left", || screen.shown().ends_with(LEAVE));
    wait_until(SOON, "the terminal is as it was", || screen.is_as_before());
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn it_names_who_waits_in_a_queue() {
    let place = Place::new();
    let _holder = place.start(&["run", "q", "--fair", "--label", "one", "--", "cat"]);
    place.wait_held("q");
    let mut screen = Screen::start(&place, &["top", "--every", "50ms"], true);
    screen.resize(80, 12);
    wait_until(SOON, "one lock", || lines(&screen).len() == 12 && screen.shown().contains("1 locks"));
    let _waiter = place.start(&["run", "q", "--fair", "--label", "two", "--", "true"]);
    wait_until(SOON, "who waits", || lines(&screen)[4].starts_with("  waiting: two "));
    assert!(lines(&screen).iter().all(|line| line.chars().count() <= 80), "{:#?}", lines(&screen));
    screen.press(b"q");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn it_follows_the_size_of_the_terminal() {
    let place = Place::new();
    let mut screen = Screen::start(&place, &["top", "--every", "1h"], true);
    screen.wait_shown("space asks at once");
    for (columns, rows) in [(120, 40), (40, 10), (20, 4)] {
        screen.clear();
        screen.resize(columns, rows);
        wait_until(SOON, "it is drawn anew", || lines(&screen).len() == usize::from(rows));
        assert!(lines(&screen).iter().all(|line| line.chars().count() <= usize::from(columns)), "{:?}", lines(&screen));
    }
    // a key asks at once
    let _holder = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    screen.resize(80, 24);
    screen.clear();
    screen.press(b" ");
    screen.wait_shown("1 locks");
    // an arrow is no Escape
    screen.press(b"\x1b[A");
    screen.clear();
    screen.press(b" ");
    screen.wait_shown("1 locks");
    screen.press(b"\x1b");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn signals_and_ctrl_c_leave_the_terminal_as_it_was() {
    let place = Place::new();
    for (name, status) in [("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        let screen = Screen::start(&place, &["top"], true);
        screen.wait_shown("space asks at once");
        assert!(!screen.is_as_before());
        signal(screen.child.id(), name);
        wait_until(SOON, "the screen is left", || screen.shown().ends_with(LEAVE));
        wait_until(SOON, "the terminal is as it was", || screen.is_as_before());
        assert_eq!(screen.code(), Some(status), "{name}");
    }
    // the rest of a key that never comes is not waited for
    let mut screen = Screen::start(&place, &["top"], true);
    screen.wait_shown("space asks at once");
    screen.press(b"\x1b[");
    signal(screen.child.id(), "TERM");
    wait_until(SOON, "the terminal is as it was", || screen.is_as_before() && screen.shown().ends_with(LEAVE));
    assert_eq!(screen.code(), Some(143));
    let mut screen = Screen::start(&place, &["top"], true);
    screen.wait_shown("space asks at once");
    screen.press(b"\x03");
    wait_until(SOON, "the terminal is as it was", || screen.is_as_before() && screen.shown().ends_with(LEAVE));
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn colours_are_left_out_when_asked() {
    let place = Place::new();
    for (no_color, coloured) in [("", true), ("1", false)] {
        let mut command = place.onelock(&["top"]);
        command.env("NO_COLOR", no_color);
        let mut screen = Screen::run(&place, command, true);
        screen.wait_shown("space asks at once");
        assert_eq!(screen.shown().contains("\u{1b}[1m"), coloured, "NO_COLOR={no_color}");
        screen.press(b"q");
        assert_eq!(screen.code(), Some(0));
    }
}

#[test]
fn without_a_terminal_or_a_server_it_says_so() {
    let place = Place::new();
    let output = place.output(&["top"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(64), 0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("list --watch"));
    place.server.kill();
    let screen = Screen::start(&place, &["top"], true);
    screen.wait_shown("onelock: ");
    assert!(!screen.shown().contains("1049h"), "the screen was not touched");
    assert_eq!(screen.code(), Some(69));
}

#[test]
fn it_stops_on_a_terminal_that_is_as_it_was_and_comes_back() {
    let place = Place::new();
    let mut screen = Screen::shell(&place, &["sh", "-i"]);
    screen.press(b"$onelock top\n");
    screen.wait_shown("0 locks");
    screen.press(b"\x1a");
    screen.wait_shown("Stopped");
    wait_until(SOON, "the shell is in front", || screen.has_shell_in_front() && screen.is_as_before());
    assert_eq!(screen.shown().matches(LEAVE).count(), 1);
    screen.clear();
    screen.press(b"fg\n");
    screen.wait_shown("0 locks");
    assert!(!screen.is_as_before());
    screen.press(b"q");
    wait_until(SOON, "the shell is in front", || screen.has_shell_in_front() && screen.is_as_before());
    screen.press(b"exit 7\n");
    assert_eq!(screen.code(), Some(7));
}

#[test]
fn a_terminal_that_shows_lines_only_is_refused() {
    let place = Place::new();
    let mut command = place.onelock(&["top"]);
    command.env("TERM", "dumb");
    let screen = Screen::run(&place, command, true);
    screen.wait_shown("list --watch");
    assert!(!screen.shown().contains('\u{1b}'));
    assert_eq!(screen.code(), Some(64));
}

#[test]
fn while_it_asks_it_says_so_and_ends_at_once() {
    let place = Place::new();
    for (keys, name, status) in [(&b"q"[..], "", 0), (b"\x03", "", 0), (b"", "TERM", 143), (b"", "HUP", 129)] {
        let proxy = Proxy::start(&place.server);
        let held = proxy.on(Match::command("SCAN")).hold();
        let mut command = place.onelock(&["top"]);
        command.env("ONELOCK_URL", proxy.url());
        let mut screen = Screen::run(&place, command, true);
        held.wait_hits(1);
        wait_until(SOON, "a title", || lines(&screen)[0].starts_with("onelock top  valkey"));
        wait_until(SOON, "what it does", || lines(&screen)[1].starts_with("asking"));
        screen.clear();
        screen.resize(50, 7);
        wait_until(SOON, "it is drawn anew", || lines(&screen).len() == 7);
        if name.is_empty() {
            screen.press(keys);
        } else {
            signal(screen.child.id(), name);
        }
        wait_until(SOON, "the screen is left", || screen.shown().ends_with(LEAVE));
        wait_until(SOON, "the terminal is as it was", || screen.is_as_before());
        let shown = screen.shown();
        assert_eq!(screen.code(), Some(status), "{keys:?} {name}");
        // before the client gave the request up, that is
        assert!(!shown.contains("no answer"), "{shown}");
        held.remove();
    }
}

#[test]
fn who_has_waited_before_it_began_has_waited_since() {
    let place = Place::new();
    let _holder = place.start(&["run", "q", "--fair", "--", "cat"]);
    place.wait_held("q");
    let _waiter = place.start(&["run", "q", "--fair", "--label", "bob", "--", "true"]);
    let waits_for_two_seconds = || {
        let sheet = text(&place.output(&["inspect", "q"]).stdout);
        let waiter = sheet.lines().find_map(|line| line.strip_prefix("waiter      bob ").map(str::to_owned));
        let span = waiter.and_then(|line| line.rsplit(' ').next().map(str::to_owned)).unwrap_or_default();
        // up to a second it is in milliseconds
        span.ends_with('s') && !span.ends_with("ms") && !span.starts_with('1')
    };
    wait_until(SOON, "one waits for two seconds", waits_for_two_seconds);
    let mut screen = Screen::start(&place, &["top", "--every", "1h"], true);
    wait_until(SOON, "who waits", || lines(&screen).get(4).is_some_and(|row| row.starts_with("  waiting: bob ")));
    let rows = lines(&screen);
    let waited = rows[3].split_whitespace().rev().nth(1).unwrap();
    assert!(waited.ends_with('s') && !waited.ends_with("ms") && !waited.starts_with('1'), "{rows:#?}");
    screen.press(b"q");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn what_does_not_fit_is_counted_and_reached_with_keys() {
    let place = Place::new();
    let fill = "for i = 1, 50 do redis.call('SET', string.format('job:%02d', i), 'token', 'PX', 600000) end";
    place.server.cmd(&["EVAL", fill, "0"]);
    let mut screen = Screen::start(&place, &["top", "--others", "--every", "1h"], true);
    screen.resize(80, 16);
    let shows = |screen: &Screen, first: &str, last: &str, more: &str| {
        let what = format!("{first} to {last}, {more:?}");
        wait_until(SOON, &what, || {
            let rows = lines(screen);
            rows.len() == 16 && rows[3].starts_with(first) && rows[13].starts_with(last) && rows[14] == more
        });
    };
    shows(&screen, "job:01", "job:11", "... and 39 more");
    for (keys, first, last, more) in [
        (&b"\x1b[B"[..], "job:02", "job:12", "... and 38 more, 1 above"),
        (b"\x1b[6~", "job:13", "job:23", "... and 27 more, 12 above"),
        (b"\x1b[5~", "job:02", "job:12", "... and 38 more, 1 above"),
        (b"\x1b[F", "job:40", "job:50", "... 39 above"),
        (b"\x1b[B\x1b[6~", "job:40", "job:50", "... 39 above"),
        (b"\x1bOA", "job:39", "job:49", "... and 1 more, 38 above"),
        (b"\x1b[H", "job:01", "job:11", "... and 39 more"),
        (b"jjk", "job:02", "job:12", "... and 38 more, 1 above"),
    ] {
        screen.press(keys);
        shows(&screen, first, last, more);
    }
    // the first lock, and the column that says who waits, stay on a narrow screen
    screen.resize(60, 16);
    wait_until(SOON, "a narrow table", || lines(&screen)[2].len() == 60 && lines(&screen)[2].ends_with(" WAITING"));
    // where all fit nothing is said
    screen.resize(60, 60);
    wait_until(SOON, "all of them", || lines(&screen).len() == 60 && lines(&screen)[52].starts_with("job:50"));
    assert!(!lines(&screen).iter().any(|row| row.starts_with("...")), "{:#?}", lines(&screen));
    screen.press(b"q");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn a_key_changes_the_order() {
    let place = Place::new();
    let _early = place.start(&["run", "z:early", "--", "cat"]);
    place.wait_held("z:early");
    let _late = place.start(&["run", "a:late", "--", "cat"]);
    place.wait_held("a:late");
    let _hot = place.start(&["run", "m:hot", "--fair", "--", "cat"]);
    place.wait_held("m:hot");
    let _waiter = place.start(&["run", "m:hot", "--fair", "--", "true"]);
    wait_until(SOON, "one waits", || text(&place.output(&["inspect", "m:hot"]).stdout).contains("waiting     1\n"));
    let mut screen = Screen::start(&place, &["top", "--every", "1h"], true);
    let order = |screen: &Screen| -> Vec<String> {
        let names = lines(screen).into_iter().filter(|row| row.starts_with(['z', 'a', 'm']));
        names.map(|row| row[..1].to_owned()).collect()
    };
    wait_until(SOON, "what is waited for first", || order(&screen) == ["m", "z", "a"]);
    for (now, expected) in [("held", ["z", "a", "m"]), ("grants", ["m", "a", "z"]), ("name", ["a", "m", "z"])] {
        screen.press(b"o");
        wait_until(SOON, now, || {
            order(&screen) == expected && lines(&screen).last().unwrap().contains(&format!("now {now}"))
        });
    }
    screen.press(b"q");
    assert_eq!(screen.code(), Some(0));
}
