//! How a command ends that runs under a lock, and what it has started with it: by a loss, by a limit, by the end of `onelock`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use common::{Place, Running, SOON, is_alive, text};
use onelock_tests::wait::wait_until;

#[test]
fn a_lost_lock_ends_the_command_and_what_it_started() {
    let place = Place::new();
    // renewed every 200 ms, so the loss is found soon
    let line = format!("trap 'echo term; exit 0' TERM; echo > {}; while :; do sleep 0.02; done", place.path("polite"));
    let running = place.start(&["run", "x", "--ttl", "600ms", "-c", &line]);
    place.wait_written("polite");
    place.server.cmd(&["DEL", "x"]);
    let output = running.output();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(80), "term\n"), "{output:?}");
    assert!(text(&output.stderr).contains("x: the lock was lost"), "{output:?}");

    // one that does not listen, and one more in the background
    let line = format!("trap '' TERM; sleep 1000 & echo $! $$ > {}; wait; sleep 1000", place.path("deaf"));
    let running = place.start(&["run", "x", "--ttl", "600ms", "--grace", "300ms", "-c", &line]);
    let pids = place.wait_written("deaf");
    place.server.cmd(&["DEL", "x"]);
    assert_eq!(running.code(), 80);
    for pid in pids.split_whitespace() {
        wait_until(SOON, "everything has ended", || !is_alive(pid.parse().unwrap()));
    }

    // the time is over
    let begun = Instant::now();
    let output = place.output(&["run", "x", "--max-hold", "500ms", "--", "sleep", "1000"]);
    assert_eq!(output.status.code(), Some(80), "{output:?}");
    assert!(begun.elapsed() >= Duration::from_millis(450));
}

#[test]
fn a_lock_that_was_gone_when_the_command_ended_is_told() {
    let place = Place::new();
    let mut running = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    place.server.cmd(&["DEL", "x"]);
    drop(running.child().stdin.take());
    let output = running.output();
    assert_eq!(output.status.code(), Some(80), "{output:?}");
    assert!(text(&output.stderr).contains("lost before the command ended"), "{output:?}");
}

#[test]
fn killed_at_any_moment_it_takes_the_command_with_it_and_the_lock_ends() {
    let place = Place::new();
    let mut commands = 0;
    for round in 0..24_u64 {
        let (name, file) = (format!("x{round}"), format!("pid{round}"));
        let line = format!("echo $$ > {}; exec sleep 1000", place.path(&file));
        let mut running = place.start(&["run", &name, "--ttl", "700ms", "-c", &line]);
        match round % 4 {
            // while it connects, takes the lock, makes the process
            0 | 1 => std::thread::sleep(Duration::from_micros(round * 700)),
            2 => place.wait_held(&name),
            _ => drop(place.wait_written(&file)),
        }
        running.child().kill().unwrap();
        assert_eq!(running.output().status.signal(), Some(9));
        place.wait_free(&name);
        // one that was killed while it wrote has ended already
        let written = fs::read_to_string(place.file(&file)).unwrap_or_default();
        if let Ok(pid) = written.trim().parse() {
            commands += 1;
            wait_until(SOON, "the command has ended", || !is_alive(pid));
        }
    }
    assert!(commands >= 6, "{commands}");
}

#[test]
fn killed_it_takes_with_it_what_the_command_has_started() {
    let place = Place::new();
    let exe = env!("CARGO_BIN_EXE_onelock");
    // a process in the background, one in the foreground, and the shell that waits for both
    let line = |file: &str| format!("sleep 1000 & echo $! $$ > {}; sleep 1000; true", place.path(file));
    let (plain, nested) = (line("plain"), line("nested"));
    let inner = format!("{exe} run y --ttl 700ms -c '{nested}'; true");
    for (file, command) in [("plain", &plain), ("nested", &inner)] {
        let mut running = place.start(&["run", "x", "--ttl", "700ms", "-c", command]);
        let pids = place.wait_written(file);
        running.child().kill().unwrap();
        for pid in pids.split_whitespace() {
            wait_until(SOON, "everything has ended", || !is_alive(pid.parse().unwrap()));
        }
        // nobody is left that holds the output open
        assert_eq!(running.output().status.signal(), Some(9), "{file}");
        place.wait_free("x");
    }
    place.wait_free("y");
}

#[test]
fn what_the_command_leaves_in_the_background_goes_on_and_no_other_process_is_left() {
    let place = Place::new();
    let line = "sleep 1000 < /dev/null > /dev/null 2>&1 & echo $! $PPID";
    let output = place.output(&["run", "x", "-c", line]);
    let out = text(&output.stdout);
    let pids: Vec<u32> = out.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(output.status.success() && is_alive(pids[0]), "{output:?}");
    common::signal(pids[0], "KILL");
    // the guard has the environment of the process that made it
    let mine = place.path("no such command");
    let status = place.onelock(&["run", "x", "--", &mine]).env("PLACE", place.path("")).output().unwrap().status;
    assert_eq!(status.code(), Some(127));
    let left = fs::read_dir("/proc").unwrap().flatten().find(|process| {
        fs::read_to_string(process.path().join("environ")).is_ok_and(|all| all.contains(&place.path("")))
    });
    assert!(left.is_none(), "{left:?}");
}

#[test]
fn who_runs_too_long_is_ended_and_keeps_the_lock_until_then() {
    let place = Place::new();
    let line = format!("trap 'echo > {}; read go; exit 0' TERM; while :; do sleep 0.02; done", place.path("term"));
    let mut running = place.start(&["run", "x", "--ttl", "1500ms", "--max-hold", "400ms", "-c", &line]);
    place.wait_written("term");
    let token = place.server.text(&["GET", "x"]);
    let first: i64 = place.server.int(&["PTTL", "x"]);
    // renewed: what is left of it grows again, and it is the same hold
    let mut before = first;
    wait_until(SOON, "a renewal after the limit", || {
        let now = place.server.int(&["PTTL", "x"]);
        std::mem::replace(&mut before, now) < now
    });
    assert_eq!(place.server.text(&["GET", "x"]), token);
    assert_eq!(place.status(&["run", "x", "-w0", "--", "true"]), 75);
    running.child().stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = running.output();
    assert_eq!(output.status.code(), Some(80), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("x: it ran for longer than --max-hold (400ms)") && !told.contains("lost"), "{told}");
    assert!(!place.exists("x"));

    // one that does not listen: free only when all of it is gone
    let line = format!("trap '' TERM; sleep 1000 & echo $! $$ > {}; wait; sleep 1000", place.path("deaf"));
    let begun = Instant::now();
    let running = place.start(&["run", "x", "--max-hold", "200ms", "--grace", "200ms", "-c", &line]);
    let pids = place.wait_written("deaf");
    place.wait_free("x");
    assert!(pids.split_whitespace().all(|pid| !is_alive(pid.parse().unwrap())) && begun.elapsed().as_millis() >= 400);
    assert_eq!(running.code(), 80);
    assert_eq!(place.status(&["run", "x", "--max-hold", "0", "--", "true"]), 64);
}

#[test]
fn who_entered_ends_when_the_hold_around_it_has_ended() {
    let place = Place::new();
    for how in ["lost", "ended", "killed"] {
        let [ready, term] = ["ready", "term"].map(|file| format!("{file}-{how}"));
        let line = format!(
            "trap \"echo > {}; exit 0\" TERM; echo $$ > {}; while :; do sleep 0.02; done",
            place.path(&term),
            place.path(&ready)
        );
        // not below the outer one, which would end it itself
        let handed_down = format!("echo $ONELOCK_OWNER > {}; read go", place.path(how));
        let mut outer = place.start(&["run", "x", "--owner", "--ttl", "1500ms", "-c", &handed_down]);
        let mut command = place.onelock(&["run", "x", "--ttl", "600ms", "-c", &line]);
        command.env("ONELOCK_OWNER", place.wait_written(how).trim());
        let inner = Running::of(command);
        let pid: u32 = place.wait_written(&ready).trim().parse().unwrap();
        match how {
            "lost" => drop(place.server.cmd(&["SET", "x", "another", "PX", "1000"])),
            "ended" => drop(outer.child().stdin.take()),
            _ => outer.child().kill().unwrap(),
        }
        place.wait_written(&term);
        wait_until(SOON, "it has ended", || !is_alive(pid));
        let told = text(&inner.output().stderr);
        assert!(told.contains("x: the lock was lost: the hold that this one entered has ended"), "{how} {told}");
        drop(outer);
        place.wait_free("x");
    }
}

#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stderr, reason = "who runs the tests is to know that this one was not tried")]
fn as_the_first_process_of_a_container_it_runs_and_waits_for_orphans() {
    let place = Place::new();
    // a new PID namespace, as a user of its own where one has to be root for that; its group is of outside, and has no number there
    let mut container = std::process::Command::new("unshare");
    // the orphan is waited for by us as soon as it ends: no entry of it is left in the table of processes
    let line =
        "(sleep 0 & echo $! > $FILE); while [ -e /proc/$(cat $FILE) ]; do :; done; echo $(cat /proc/1/comm) gone";
    container.args([
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        env!("CARGO_BIN_EXE_onelock"),
        "run",
        "x",
        "-c",
        line,
    ]);
    container.env("ONELOCK_URL", place.server.url()).env("FILE", place.path("orphan")).env_remove("ONELOCK_OWNER");
    let mut running = Running::of(container);
    wait_until(SOON, "an end", || running.child().try_wait().unwrap().is_some());
    let output = running.output();
    if text(&output.stderr).starts_with("unshare: ") {
        eprintln!("not tried: this machine makes no PID namespaces: {output:?}");
        return;
    }
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "onelock gone\n"), "{output:?}");
}

/// A line that leaves the process group in several ways, and writes the numbers of what it has started into a file.
fn leaves_the_group(place: &Place, file: &str) -> String {
    let all = place.path(&format!("{file}.all"));
    let put = format!("echo $$ >> {all}; exec sleep 1000");
    [
        // as `timeout` does it in a script
        format!("timeout 1000 sh -c '{put}' &"),
        format!("setsid sh -c '{put}' &"),
        // nobody waits for this one, and its parent has ended
        format!("setsid sh -c 'sh -c \"$0\" &' '{put}' &"),
        format!("trap '' TERM; setsid sh -c \"trap '' TERM; sleep 1000 & echo \\$! \\$\\$ >> {all}; wait\" &"),
        format!("until [ $(cat {all} | wc -w) = 5 ]; do sleep 0.02; done; cp {all} {}; sleep 1000", place.path(file)),
    ]
    .join(" ")
}

#[test]
#[cfg(target_os = "linux")]
fn what_has_left_the_group_is_ended_and_waited_for_too() {
    let place = Place::new();
    for how in ["limit", "lost", "killed"] {
        let line = leaves_the_group(&place, how);
        let mut arguments = vec!["run", "x", "--ttl", "900ms", "--grace", "200ms", "-c", &line];
        if how == "limit" {
            arguments.extend(["--max-hold", "2s"]);
        }
        let mut running = place.start(&arguments);
        let pids = place.wait_written(how);
        let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), 5, "{how}");
        match how {
            "killed" => running.child().kill().unwrap(),
            "lost" => drop(place.server.cmd(&["DEL", "x"])),
            _ => {
                // the lock outlives all of it
                place.wait_free("x");
                assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
            }
        }
        let output = running.output();
        if how == "killed" {
            assert_eq!(output.status.signal(), Some(9));
            wait_until(SOON, "all have ended", || pids.iter().all(|pid| !is_alive(*pid)));
            place.wait_free("x");
        } else {
            assert_eq!(output.status.code(), Some(80), "{how} {output:?}");
            assert!(pids.iter().all(|pid| !is_alive(*pid)), "{how} {pids:?}");
            assert!(!text(&output.stderr).contains("has not ended"), "{how} {output:?}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_has_left_the_group_is_asked_to_end_first() {
    let place = Place::new();
    let away = format!(
        "trap \"echo > {}; exit\" TERM; echo > {}; while :; do sleep 0.02; done",
        place.path("term"),
        place.path("ready")
    );
    let line = format!("setsid sh -c '{away}' & wait; sleep 1000");
    let running = place.start(&["run", "x", "--ttl", "600ms", "-c", &line]);
    place.wait_written("ready");
    place.server.cmd(&["DEL", "x"]);
    assert_eq!(running.code(), 80);
    place.wait_written("term");
}

#[test]
fn what_the_command_leaves_in_another_session_goes_on() {
    let place = Place::new();
    let line = "setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo $!";
    let output = place.output(&["run", "x", "-c", line]);
    let pid: u32 = text(&output.stdout).trim().parse().unwrap();
    assert!(output.status.success() && !place.exists("x"), "{output:?}");
    let its = || fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    wait_until(SOON, "it is what it is to be", || its().starts_with(b"sleep"));
    assert!(is_alive(pid));
    common::signal(pid, "KILL");
}

#[test]
#[cfg(target_os = "linux")]
#[allow(clippy::print_stderr, reason = "who runs the tests is to know that this one was not tried")]
fn under_a_first_process_that_waits_for_nobody_all_have_ended_when_they_have() {
    let place = Place::new();
    let line = format!("trap '' TERM; sleep 1000 & setsid sleep 1000 & echo > {}; sleep 1000", place.path("started"));
    let run =
        format!("\"$ONELOCK\" run x --max-hold 500ms --grace 100ms -c \"$LINE\"; echo $? > {}", place.path("status"));
    for (how, script) in [
        ("beside", format!("({run}) & exec sleep 1000")),
        ("first", "exec \"$ONELOCK\" run x --max-hold 500ms --grace 100ms -c \"$LINE\"".to_owned()),
    ] {
        let mut container = std::process::Command::new("unshare");
        container.args(["--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
        container.env("ONELOCK", env!("CARGO_BIN_EXE_onelock")).env("LINE", &line);
        container.env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
        let mut running = Running::of(container);
        wait_until(SOON, "an end", || place.file("status").exists() || running.child().try_wait().unwrap().is_some());
        let status = if how == "beside" {
            let is_tried = running.child().try_wait().unwrap().is_none();
            let status = is_tried.then(|| place.wait_written("status").trim().parse().unwrap());
            fs::remove_file(place.file("status")).ok();
            running.child().kill().unwrap();
            status
        } else {
            None
        };
        let output = running.output();
        let told = text(&output.stderr);
        if told.starts_with("unshare: ") {
            eprintln!("not tried: this machine makes no PID namespaces: {output:?}");
            return;
        }
        assert_eq!(status.or(output.status.code()), Some(80), "{how} {output:?}");
        assert!(told.contains("--max-hold") && !told.contains("has not ended"), "{how} {output:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_its_guard_the_command_ends_and_the_lock_is_released() {
    let place = Place::new();
    let line = format!("echo $PPID $$ > {}; sleep 1000; true", place.path("pids"));
    let running = place.start(&["run", "x", "-c", &line]);
    let pids = place.wait_written("pids");
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    common::signal(pids[0], "KILL");
    let output = running.output();
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    assert!(text(&output.stderr).contains("guards the command was killed"), "{output:?}");
    assert!(!is_alive(pids[1]) && !place.exists("x"));
}
