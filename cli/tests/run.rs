//! `onelock run`: the lock is held exactly as long as the command runs, whatever happens to either.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, SOON, onelock, text};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::wait::wait_until;

#[test]
fn the_status_is_that_of_the_command() {
    let place = Place::new();
    assert_eq!(place.status(&["run", "x", "--", "true"]), 0);
    assert_eq!(place.status(&["run", "x", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(place.status(&["run", "x", "-c", "exit 9"]), 9);
    assert_eq!(place.status(&["run", "x", "-c", "kill -KILL $$"]), 128 + 9);
    assert_eq!(place.status(&["run", "x", "--", "/nowhere/to/be/found"]), 127);
    assert_eq!(place.status(&["run", "x", "--", "/etc/passwd"]), 126);
    assert!(!place.exists("x"), "released each time");
}

#[test]
fn the_command_has_input_output_and_environment_and_nothing_else_is_printed() {
    let place = Place::new();
    let line = "cat; echo err >&2; echo $ONELOCK_NAME $ONELOCK_FENCING_TOKEN ${ONELOCK_OWNER-none}";
    let mut running = place.start(&["run", "a name", "-c", line]);
    running.child().stdin.take().unwrap().write_all(b"in\n").unwrap();
    let output = running.output();
    let out = text(&output.stdout);
    let (_, token) = out.trim_end().split_once("a name ").unwrap();
    let token: u64 = token.strip_suffix(" none").unwrap().parse().unwrap();
    assert!(token > 1_600_000_000_000_000, "{out}");
    assert_eq!(out, format!("in\na name {token} none\n"));
    assert_eq!(text(&output.stderr), "err\n");
}

#[test]
fn the_lock_is_held_while_the_command_runs_and_says_who() {
    let place = Place::new();
    let mut running = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    let seen: serde_json::Value = serde_json::from_slice(&place.output(&["inspect", "x", "--json"]).stdout).unwrap();
    assert_eq!((&seen["kind"], &seen["owner"]["label"]), (&"lock".into(), &"cat".into()));
    assert_eq!(seen["owner"]["pid"], running.id());
    drop(running.child().stdin.take());
    assert_eq!(running.code(), 0);
    assert!(!place.exists("x"));

    let running = place.start(&["run", "r", "--reentrant", "--label", "mine", "--prefix", "app:", "--", "cat"]);
    place.wait_held("app:r");
    assert_eq!(place.server.text(&["TYPE", "app:r"]), "hash");
    assert!(text(&place.output(&["inspect", "app:r"]).stdout).contains("mine"));
    drop(running);
}

#[test]
fn so_many_run_at_the_same_time() {
    let place = Place::new();
    let [mut first, second] = [0, 1].map(|_| place.start(&["run", "x", "--limit", "2", "--ttl", "2s", "--", "cat"]));
    wait_until(SOON, "two holders", || place.server.text(&["GET", "x"]) == "0");
    assert_eq!(place.status(&["run", "x", "--limit", "2", "-w0", "--", "true"]), 75);
    let other = place.output(&["run", "x", "--limit", "3", "-w0", "--", "true"]);
    assert_eq!(other.status.code(), Some(64), "{other:?}");
    assert!(text(&other.stderr).contains('2') && text(&other.stderr).contains('3'), "{other:?}");
    let all = place.start(&[
        "run",
        "x",
        "--limit",
        "2",
        "--permits",
        "2",
        "--",
        "sh",
        "-c",
        "echo ${ONELOCK_FENCING_TOKEN-none}",
    ]);
    drop(first.child().stdin.take());
    assert_eq!(first.code(), 0);
    // one permit is free, and two are wanted
    assert_eq!(place.status(&["run", "x", "--limit", "2", "--permits", "2", "-w0", "--", "true"]), 75);
    drop(second);
    assert_eq!(text(&all.output().stdout), "none\n", "it is started when the other one's permit is free");
    for wrong in [
        &["--limit", "0"][..],
        &["--limit", "1025"],
        &["--permits", "2"],
        &["--limit", "2", "--permits", "3"],
        &["--limit", "2", "--fair"],
        &["--limit", "2", "--owner"],
    ] {
        let arguments = [&["run", "y", "-w0"], wrong, &["--", "true"]].concat();
        assert_eq!(place.status(&arguments), 64, "{wrong:?}");
    }
}

#[test]
fn many_read_at_the_same_time_or_one_writes() {
    let place = Place::new();
    // killed below, so their holds end with their ttl
    let readers = [(); 2].map(|()| place.start(&["run", "x", "--shared", "--ttl", "2s", "--", "cat"]));
    // mode, the fencing token, and the two
    wait_until(SOON, "two readers", || place.server.int(&["HLEN", "x"]) == 4);
    assert_eq!(place.status(&["run", "x", "--shared", "-w0", "--", "true"]), 0);
    assert_eq!(place.status(&["run", "x", "--exclusive", "-w0", "--", "true"]), 75);
    let writer = place.start(&["run", "x", "--exclusive", "--", "sh", "-c", "echo $ONELOCK_FENCING_TOKEN"]);
    drop(readers);
    let token: u64 = text(&writer.output().stdout).trim_end().parse().unwrap();
    assert!(token > 1_600_000_000_000_000, "{token}");
    let writer = place.start(&["run", "x", "--exclusive", "--", "cat"]);
    place.wait_held("x");
    for refused in ["--shared", "--exclusive"] {
        assert_eq!(place.status(&["run", "x", refused, "-w0", "--", "true"]), 75);
    }
    drop(writer);
    for wrong in
        [["--shared", "--exclusive"], ["--shared", "--fair"], ["--exclusive", "--limit=2"], ["--shared", "--reentrant"]]
    {
        let arguments = [&["run", "y", "-w0"], &wrong[..], &["--", "true"]].concat();
        assert_eq!(place.status(&arguments), 64, "{wrong:?}");
    }
}

#[test]
fn a_fair_lock_is_entered_in_the_order_of_asking() {
    let place = Place::new();
    let mut first = place.start(&["run", "x", "--fair", "--", "cat"]);
    place.wait_held("x");
    let log = place.path("log");
    let waiters: Vec<_> = (1..=4)
        .map(|number| {
            let running = place.start(&["run", "x", "--fair", "-c", &format!("echo {number} >> {log}")]);
            let queued = || format!("{:?}", place.server.cmd(&["ZCARD", "onelock_queue:{x}"]));
            wait_until(SOON, "a place in the queue", || queued() == format!("int({number})"));
            running
        })
        .collect();
    assert_eq!(place.status(&["run", "x", "--fair", "-w0", "--", "true"]), 75);
    drop(first.child().stdin.take());
    assert_eq!(first.code(), 0);
    for waiter in waiters {
        assert_eq!(waiter.code(), 0);
    }
    assert_eq!(fs::read_to_string(log).unwrap(), "1\n2\n3\n4\n");
}

#[test]
fn who_comes_second_waits_as_long_as_it_says() {
    let place = Place::new();
    let mut first = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    let output = place.output(&["run", "x", "--wait", "0", "--", "true"]);
    assert_eq!(output.status.code(), Some(75));
    assert!(text(&output.stderr).contains("x: held by cat ") && output.stdout.is_empty(), "{output:?}");
    assert_eq!(place.status(&["run", "x", "-w0", "-E", "3", "--", "true"]), 3);
    let output = place.output(&["run", "x", "-w0", "-E0", "--", "true"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "a conflict that is no failure is silent");
    let begun = Instant::now();
    assert_eq!(place.status(&["run", "x", "--wait", "300ms", "--", "true"]), 79);
    assert!(begun.elapsed() >= Duration::from_millis(300) && begun.elapsed() < SOON);
    assert_eq!(place.status(&["run", "x", "--wait", "100ms", "-E", "4", "--", "true"]), 4);
    // nothing of those who gave up is left
    let next = place.start(&["run", "x", "--", "echo", "my turn"]);
    wait_until(SOON, "the next one waits", || place.waiting("x") == 1);
    drop(first.child().stdin.take());
    assert_eq!(first.code(), 0);
    assert_eq!(text(&next.output().stdout), "my turn\n");
}

#[test]
fn what_goes_wrong_before_has_a_status_of_its_own() {
    let place = Place::new();
    for wrong in [
        &["run", "x"][..],
        &["run", "x", "true"],
        &["run", "x", "--wait", "soon", "--", "true"],
        &["run", "x", "-c", "true", "--", "true"],
        &["run", "x", "--fairly", "--", "true"],
        &["run", "x", "--read", "--", "true"],
        &["run", "x", "--permits", "3", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "x", "--ttl", "1ms", "--", "true"],
        &["run", "x", "--grace", "10000000000000000000", "--", "true"],
        &["run", "x", "--url", "memory://", "--", "true"],
        &["run", "x", "--min-hold", "60s", "--ttl", "30s", "--", "true"],
        &["frobnicate"],
        &[],
    ] {
        let output = place.output(wrong);
        assert_eq!(output.status.code(), Some(64), "{wrong:?} {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{wrong:?}");
    }
    let output = place.output(&["run", "x", "true"]);
    assert!(text(&output.stderr).contains("onelock run NAME -- COMMAND"), "as with flock: {output:?}");
    let away =
        onelock(&["run", "x", "--url", "redis://127.0.0.1:1", "--wait", "100ms", "--", "true"]).output().unwrap();
    assert_eq!(away.status.code(), Some(69), "{away:?}");
    let guarded = Server::builder(Flavor::Valkey91).password("secret").start();
    let run = ["run", "x", "--url", &guarded.url_with(":wrong", ""), "--", "true"];
    let refused = onelock(&run).output().unwrap();
    assert_eq!(refused.status.code(), Some(77), "{refused:?}");
    assert!(!text(&refused.stderr).contains("wrong@"), "no password: {refused:?}");
    place.server.cmd(&["RPUSH", "queue", "1"]);
    assert_eq!(place.status(&["run", "queue", "--", "true"]), 70);
    for asked in [&["--help"][..], &["--version"], &["run", "--help"], &["help", "list"]] {
        let output = place.output(asked);
        assert!(output.status.success() && output.stderr.is_empty() && !output.stdout.is_empty(), "{asked:?}");
    }
}

#[test]
fn signals_are_passed_on_and_the_command_decides() {
    let place = Place::new();
    for (number, signal) in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "WINCH"].into_iter().enumerate() {
        let file = format!("ready{number}");
        let line = format!(
            "trap 'echo got {signal}; exit 5' {signal}; echo > {}; while :; do sleep 0.02; done",
            place.path(&file)
        );
        let running = place.start(&["run", "x", "-c", &line]);
        place.wait_written(&file);
        running.signal(signal);
        let output = running.output();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(5), format!("got {signal}\n")), "{signal}");
        assert!(!place.exists("x"), "{signal}");
    }
}

#[test]
fn a_signal_while_it_waits_ends_it_and_leaves_nothing() {
    let place = Place::new();
    let mut first = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let waiting = place.start(&["run", "x", "--", "true"]);
        wait_until(SOON, "it waits", || place.waiting("x") == 1);
        waiting.signal(signal);
        let output = waiting.output();
        // on a terminal, where these tests may run, it ends by the signal
        let code = output.status.code().or(output.status.signal().map(|signal| 128 + signal));
        assert_eq!((code, output.stderr.len()), (Some(128 + number), 0), "{output:?}");
        wait_until(SOON, "nobody waits", || place.waiting("x") == 0);
    }
    drop(first.child().stdin.take());
    assert_eq!(first.code(), 0);
    assert!(!place.exists("x"));
}

#[test]
fn a_run_inside_enters_when_it_may_and_waits_when_not() {
    let place = Place::new();
    let inner = format!("{} run x --wait 0 -- sh -c 'echo $ONELOCK_FENCING_TOKEN'", env!("CARGO_BIN_EXE_onelock"));
    let both = format!("echo $ONELOCK_FENCING_TOKEN; {inner}");
    let output = place.output(&["run", "x", "--owner", "-c", &both]);
    let out = text(&output.stdout);
    let tokens: Vec<&str> = out.lines().collect();
    assert!(output.status.success() && tokens.len() == 2 && tokens[0] == tokens[1], "{output:?}");
    assert_eq!(place.status(&["run", "x", "-c", &inner]), 75, "nobody said that it may");
    assert_eq!(place.status(&["run", "y", "--owner", "-c", &inner]), 0, "another lock is another lock");
    // three deep, with another lock in between
    let deep =
        format!("{0} run y -- {0} run x -w0 -- {0} run z -- {0} run x -w0 -- true", env!("CARGO_BIN_EXE_onelock"));
    assert_eq!(place.status(&["run", "x", "--owner", "-c", &deep]), 0);
    assert_eq!(place.server.cmd(&["KEYS", "[xyz]"]), redis::Value::Array(Vec::new()));

    // the hold ended, and nobody knows yet
    let late = format!("read go; {inner}");
    let mut running = place.start(&["run", "x", "--owner", "-c", &late]);
    place.wait_held("x");
    place.server.cmd(&["DEL", "x"]);
    running.child().stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = running.output();
    assert_eq!(output.status.code(), Some(80), "{output:?}");
    assert!(output.stdout.is_empty() && text(&output.stderr).contains("has ended"), "{output:?}");
}

#[test]
fn who_enters_again_need_not_repeat_the_kind() {
    let place = Place::new();
    let exe = env!("CARGO_BIN_EXE_onelock");
    let enters = |outer: &[&str], inner: &[&str], status: i32| {
        let line = [&["run", "x", "--owner"], outer, &["--", exe, "run", "x", "-w0"], inner, &["--", "true"]].concat();
        assert_eq!(place.status(&line), status, "{outer:?} {inner:?}");
    };
    for kind in ["--reentrant", "--fair", "--shared", "--exclusive"] {
        enters(&[kind], &[], 0);
        enters(&[kind], &[kind], 0);
        // another kind is another lock, and the name is taken
        enters(&[kind], &["--limit", "2"], 70);
    }
    enters(&["--exclusive"], &["--shared"], 0);
    enters(&[], &["--fair"], 70);
    // it would wait for itself
    enters(&["--shared"], &["--exclusive"], 64);
    // a writer that waits keeps new readers out, and is none that this one waits for
    let line = format!("read go; {exe} run x -w0 --shared -- true");
    let mut reader = place.start(&["run", "x", "--shared", "--owner", "-c", &line]);
    place.wait_held("x");
    let writer = place.start(&["run", "x", "--exclusive", "--", "true"]);
    let queued = || format!("{:?}", place.server.cmd(&["ZCARD", "onelock_queue:{x}"])) == "int(1)";
    wait_until(SOON, "a writer waits", queued);
    reader.child().stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!((reader.code(), writer.code()), (0, 0));
    let address = place.server.url();
    let short = address.trim_end_matches('/');
    enters(&["--url", &format!("{short}/0")], &["--url", short], 0);
}

#[test]
#[allow(unsafe_code, reason = "a signal is ignored between fork and exec")]
fn the_status_is_known_where_the_ends_of_children_were_ignored() {
    let place = Place::new();
    let mut command = place.onelock(&["run", "x", "-c", "exit 3"]);
    // SAFETY: one system call, and no more.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        });
    }
    let output = common::Running::of(command).output();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn what_was_ignored_stays_ignored() {
    let place = Place::new();
    for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "TSTP"] {
        let line = format!("echo > {}; read go; echo still here", place.path(signal));
        let exe = env!("CARGO_BIN_EXE_onelock");
        // as `nohup` does it, and a shell without job control for what it starts in the background
        let script = format!("trap '' {signal}; exec {exe} run x -c '{line}'");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
        let mut running = common::Running::of(command);
        place.wait_written(signal);
        running.signal(signal);
        // the command could have been told meanwhile, were it not ignored
        place.status(&["inspect", "x"]);
        running.child().stdin.take().unwrap().write_all(b"\n").unwrap();
        let output = running.output();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "still here\n"), "{output:?}");
    }
}

#[test]
fn the_holder_is_named_after_the_command_and_no_secret_is_told() {
    let place = Place::new();
    for (line, label) in [("PGPASSWORD=hunter2 /usr/bin/cat /dev/stdin", "cat"), ("cat < /dev/stdin; echo done", "cat")]
    {
        let running = place.start(&["run", "x", "-c", line]);
        place.wait_held("x");
        let seen: serde_json::Value =
            serde_json::from_slice(&place.output(&["inspect", "x", "--json"]).stdout).unwrap();
        assert_eq!(seen["owner"]["label"], label);
        drop(running);
        place.server.cmd(&["DEL", "x"]);
    }
}

#[test]
fn a_signal_goes_down_through_all_runs() {
    let place = Place::new();
    let inner = format!("trap 'echo got; exit 6' TERM; echo > {}; while :; do sleep 0.02; done", place.path("ready"));
    let exe = env!("CARGO_BIN_EXE_onelock");
    let running = place.start(&["run", "x", "--owner", "--", exe, "run", "x", "--", exe, "run", "y", "-c", &inner]);
    place.wait_written("ready");
    running.signal("TERM");
    let output = running.output();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(6), "got\n"), "{output:?}");
}

#[test]
fn of_fifty_that_start_at_once_one_runs() {
    let place = Place::new();
    let line = format!("echo ran >> {}", place.path("runs"));
    let all: Vec<_> = (0..50)
        .map(|_| place.start(&["run", "nightly", "--wait", "0", "-E", "0", "--min-hold", "60s", "-c", &line]))
        .collect();
    for running in all {
        let output = running.output();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    assert_eq!(fs::read_to_string(place.file("runs")).unwrap(), "ran\n");
    // a late one
    assert_eq!(place.status(&["run", "nightly", "--wait", "0", "--", "true"]), 75);
    assert!(text(&place.output(&["list"]).stdout).contains("(released)"));
}

#[test]
fn one_after_the_other_nobody_is_lost() {
    let place = Place::new();
    fs::write(place.file("count"), "0\n").unwrap();
    let count = place.path("count");
    let line = format!("n=$(cat {count}); sleep 0.01; echo $((n + 1)) > {count}");
    let all: Vec<_> = (0..20).map(|_| place.start(&["run", "x", "-c", &line])).collect();
    for running in all {
        assert_eq!(running.code(), 0);
    }
    assert_eq!(fs::read_to_string(place.file("count")).unwrap(), "20\n");
}

#[test]
fn it_says_what_it_does_when_asked() {
    let place = Place::new();
    let output = place.onelock(&["run", "x", "-v", "--", "true"]).stdin(Stdio::null()).output().unwrap();
    let told = text(&output.stderr);
    assert!(told.contains("x: acquired, fencing token ") && told.ends_with("x: released\n"), "{told}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_token_of_another_lock_is_not_handed_down() {
    let place = Place::new();
    let exe = env!("CARGO_BIN_EXE_onelock");
    let inner = ["--", exe, "run", "y", "--limit", "2", "-c", "echo $ONELOCK_NAME ${ONELOCK_FENCING_TOKEN-none}"];
    let output = place.output(&[&["run", "x"][..], &inner].concat());
    assert_eq!(text(&output.stdout), "y none\n", "{output:?}");
}

#[test]
fn what_excludes_nobody_is_refused() {
    let place = Place::new();
    let mut by_environment = onelock(&["run", "x", "--", "true"]);
    by_environment.env("ONELOCK_URL", "memory://");
    for mut command in [place.onelock(&["run", "x", "--url", "Memory://", "--", "true"]), by_environment] {
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(64) && told.contains("file:///FOLDER"), "{output:?}");
    }
}
