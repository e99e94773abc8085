//! `list`, `inspect`, `wait`, `release`, `force-release`: what people and scripts see of locks, and can do about them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use common::{Place, SOON, text};
use onelock_tests::proxy::{Match, Proxy};
use onelock_tests::wait::wait_until;
use serde_json::Value;

fn lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn list_tells_what_is_locked_by_whom() {
    let place = Place::new();
    let _holder = place.start(&["run", "job:a", "--label", "night shift", "--", "cat"]);
    place.wait_held("job:a");
    let _waiter = place.start(&["run", "job:a", "--", "true"]);
    wait_until(SOON, "one waits", || place.waiting("job:a") == 1);
    place.server.cmd(&["SET", "job:foreign", "8d4e6b518d4e6b518d4e6b518d4e6b51", "PX", "60000"]);
    place.server.cmd(&["HSET", "job:java", "c7f1e2d3-0000-4000-8000-0123456789ab:47", "1"]);
    place.server.cmd(&["PEXPIRE", "job:java", "60000"]);
    place.server.cmd(&[b"SET".as_slice(), b"job:\xff\x1b[2J", b"v", b"PX", b"60000"]);
    place.server.cmd(&["SADD", "job:none", "x"]);

    let mut found = lines(&place.output(&["list", "job:*", "--json"]).stdout);
    let place_of = |it: &Value| {
        it["name"]
            .as_str()
            .map_or(3, |name| ["job:a", "job:foreign", "job:java"].iter().position(|known| *known == name).unwrap())
    };
    found.sort_by_key(place_of);
    assert_eq!(found.len(), 4, "{found:?}");
    let [ours, foreign, java, odd] = &found[..] else { panic!() };
    assert_eq!((&ours["name"], &ours["client"], &ours["waiting"]), (&"job:a".into(), &"onelock".into(), &1.into()));
    assert_eq!(ours["owner"]["label"], "night shift");
    assert!(ours["fencing_token"].as_u64().unwrap() > 0 && ours["ttl_left_ms"].as_u64().unwrap() > 0);
    assert_eq!((&foreign["client"], &foreign["owner"]), (&"other".into(), &Value::Null));
    assert_eq!((&foreign["foreign_holder"], &ours["foreign_holder"]), (&"8d4e6b51...".into(), &Value::Null));
    assert_eq!((&java["client"], &java["kind"]), (&"redisson".into(), &"reentrant_lock".into()));
    assert_eq!((&odd["name"], &odd["name_hex"]), (&Value::Null, &"6a6f623aff1b5b324a".into()));

    let table = text(&place.output(&["list", "job:*"]).stdout);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("NAME ") && rows.len() == 5, "{table}");
    assert!(rows[1].contains("night shift") && rows[1].ends_with('1'), "{table}");
    assert!(rows[2].contains(" 8d4e6b51... ") && rows[3].contains(" c7f1e2d3...:47 "), "{table}");
    let sheet = text(&place.output(&["inspect", "job:java"]).stdout);
    assert!(sheet.contains("holder      c7f1e2d3...:47\n"), "{sheet}");
    assert!(table.is_ascii() && !table.contains('\x1b'), "{table}");
    let only = lines(&place.output(&["list", "--json", "--client", "redisson"]).stdout);
    assert_eq!((only.len(), &only[0]["name"]), (1, &"job:java".into()));
    assert_eq!(text(&place.output(&["list", "nothing:*", "--json"]).stdout), "");
    assert_eq!(place.status(&["list", ""]), 64);
}

#[test]
fn watching_shows_what_changes_until_nobody_reads() {
    let place = Place::new();
    let mut watching = place.start(&["list", "--watch=50ms"]);
    let mut lines = BufReader::new(watching.child().stdout.take().unwrap()).lines();
    let mut next = |wanted: &str| lines.by_ref().map(Result::unwrap).find(|line| line.starts_with(wanted)).unwrap();
    next("NAME");
    let holder = place.start(&["run", "x", "--", "cat"]);
    next("x ");
    drop(holder);
    drop(lines);
    assert_eq!(watching.code(), 0, "who has seen enough goes");
    // for a program each round has an end
    let mut watching = place.start(&["list", "y", "--watch=50ms", "--json"]);
    let told = BufReader::new(watching.child().stdout.take().unwrap()).lines();
    let _holder = place.start(&["run", "y", "--", "cat"]);
    let mut rows = told.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert!(rows.any(|row| row["name"] == "y"));
    let end = rows.next().unwrap();
    assert!(end["locks"] == 1 && end["round_ended_ms"].as_u64().unwrap() > 1_700_000_000_000, "{end}");
    drop(rows);
    let pattern = place.output(&["list", "--watch", "1s"]);
    assert_eq!(pattern.status.code(), Some(64), "{pattern:?}");
    assert!(text(&pattern.stderr).contains("--watch=1s"), "{pattern:?}");
    for too_often in [&["list", "--watch=0"][..], &["top", "--every", "1ms"]] {
        let output = place.output(too_often);
        assert!(output.status.code() == Some(64) && text(&output.stderr).contains("10ms"), "{output:?}");
    }
}

#[test]
fn many_holders_of_one_lock_are_told() {
    let place = Place::new();
    let _readers = [(); 3].map(|()| place.start(&["run", "read", "--shared", "--label", "me", "--", "cat"]));
    let _permits =
        ["2", "1"].map(|number| place.start(&["run", "many", "--limit", "4", "--permits", number, "--", "cat"]));
    let _writer = place.start(&["run", "written", "--exclusive", "--label", "me", "--", "cat"]);
    let row = |name: &str| {
        let table = text(&place.output(&["list", name]).stdout);
        table.lines().nth(1).unwrap_or_default().to_owned()
    };
    wait_until(SOON, "three read", || row("read").contains(" and 2 more "));
    wait_until(SOON, "three permits are held", || row("many").contains(" 3 permits "));
    wait_until(SOON, "one writes", || row("written").contains("me "));
    assert!(!row("written").contains("more"));
    // a writer waits for the readers, a reader and a writer for the writer
    let _waiting = [("read", "--exclusive"), ("written", "--shared"), ("written", "--exclusive")]
        .map(|(name, side)| place.start(&["run", name, side, "--", "true"]));
    wait_until(SOON, "one waits", || row("read").contains("  1 ("));
    wait_until(SOON, "two wait", || row("written").contains("  2 ("));
}

#[test]
fn who_waits_with_a_place_in_a_queue_is_told() {
    let place = Place::new();
    let _holder = place.start(&["run", "q", "--fair", "--label", "one", "--", "cat"]);
    place.wait_held("q");
    let row = || lines(&place.output(&["list", "q", "--json"]).stdout).remove(0);
    assert_eq!((&row()["waiting"], &row()["waiters"]), (&0.into(), &Value::Array(Vec::new())));
    let first = place.start(&["run", "q", "--fair", "--label", "two", "--", "true"]);
    wait_until(SOON, "one waits", || row()["waiting"] == 1);
    let second = place.start(&["run", "q", "--fair", "--label", "three", "--", "true"]);
    wait_until(SOON, "two wait", || row()["waiting"] == 2);
    let told = row()["waiters"].clone();
    let label = |at: usize| told[at]["client"]["label"].as_str().unwrap_or_default().to_owned();
    assert_eq!((label(0).as_str(), label(1).as_str(), label(2).as_str()), ("two", "three", ""));
    assert_eq!((&told[0]["client"]["pid"], &told[1]["client"]["pid"]), (&first.id().into(), &second.id().into()));
    assert!(told[0]["since_ms"].as_u64().unwrap() <= told[1]["since_ms"].as_u64().unwrap());
    let one = serde_json::from_slice::<Value>(&place.output(&["inspect", "q", "--json"]).stdout).unwrap();
    assert_eq!(one["waiters"], told);
    let table = text(&place.output(&["list", "q"]).stdout);
    let (id, other) = (first.id(), second.id());
    assert!(table.contains(&format!("  2 (two {id}@")) && table.ends_with(" and 1 more)\n"), "{table}");
    let sheet = text(&place.output(&["inspect", "q"]).stdout);
    for part in ["waiting     2\n", &format!("waiter      two {id}@"), &format!("waiter      three {other}@")] {
        assert!(sheet.contains(part), "{part:?}: {sheet}");
    }
    // permits: how many, and who waits for one
    let _permits = place.start(&["run", "many", "--limit", "3", "--permits", "2", "--", "cat"]);
    let sheet = || text(&place.output(&["inspect", "many"]).stdout);
    wait_until(SOON, "two are held", || sheet().contains("permits     3, 1 free\n"));
    let _third = place.start(&["run", "many", "--limit", "3", "--permits", "2", "--label", "loader", "--", "true"]);
    wait_until(SOON, "one waits for permits", || sheet().contains("waiter      loader "));
}

#[test]
fn a_hundred_thousand_locks_are_listed_a_few_at_a_time() {
    let place = Place::new();
    let fill = |number: &str| {
        let fill = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'job:' .. i, 'token', 'PX', 600000) end";
        place.server.cmd(&["EVAL", fill, "0", number]);
    };
    // the server serves nobody else while it does what one client has sent at once
    fill("3000");
    let proxy = Proxy::start(&place.server);
    let listed = place.output(&["list", "--json", "--url", &proxy.url()]);
    assert_eq!(text(&listed.stdout).lines().count(), 3000);
    let mut changes = Vec::new();
    for request in proxy.passed() {
        changes.push((request.at_ns, 1));
        changes.push((request.delivered_ns.expect("each has its answer"), -1));
        let words = |at: usize| request.args.get(at).map_or(String::new(), |word| text(word).to_uppercase());
        assert!(words(0) != "SCAN" || words(5).parse::<u32>().unwrap() <= 100, "{:?}", request.args);
        // a step may give some keys more than it was asked for
        assert!(request.args.len() <= 200, "{} words to {}", request.args.len(), words(0));
    }
    changes.sort_unstable();
    let at_once = |(now, most): (i64, i64), (_, change): &(u64, i64)| (now + change, most.max(now + change));
    let (_, most) = changes.iter().fold((0, 0), at_once);
    // ten; twice as many if the answers to the last ten are written down late
    assert!(most <= 20, "{most} requests stand at the server at once");

    fill("100000");
    let listed = place.output(&["list", "--json"]);
    assert_eq!(text(&listed.stdout).lines().count(), 100_000);

    // the first are told when the others are not asked for yet: the proxy lets no more than some steps pass
    let proxy = Proxy::start(&place.server);
    let held_back = proxy.on(Match::command("SCAN")).after(3).hold();
    let mut listing = place.start(&["list", "--json", "--url", &proxy.url()]);
    let first = BufReader::new(listing.child().stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["client"], "other");
    held_back.release();
}

#[test]
fn inspect_tells_one_lock() {
    let place = Place::new();
    let output = place.output(&["inspect", "x"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), "nobody holds it\n"));
    assert_eq!(text(&place.output(&["inspect", "x", "--json"]).stdout), "null\n");
    let _holder = place.start(&["run", "x", "--label", "me", "--", "cat"]);
    place.wait_held("x");
    let output = place.output(&["inspect", "x"]);
    let sheet = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for part in ["name        x\n", "client      onelock\n", "label       me\n", "hold count  1\n", "token       1"] {
        assert!(sheet.contains(part), "{part:?}: {sheet}");
    }
    place.server.cmd(&["SADD", "set", "x"]);
    assert_eq!(place.status(&["inspect", "set"]), 70);
}

#[test]
fn wait_ends_when_it_is_free() {
    let place = Place::new();
    assert_eq!(place.status(&["wait", "x"]), 0);
    let mut holder = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    let output = place.output(&["wait", "x", "--timeout", "0"]);
    assert_eq!(output.status.code(), Some(75));
    assert!(text(&output.stderr).contains("x: held by somebody"), "{output:?}");
    let begun = Instant::now();
    assert_eq!(place.status(&["wait", "x", "--timeout", "300ms"]), 79);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let mut waiting = place.start(&["wait", "x"]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(waiting.child().try_wait().unwrap(), None, "it is still held");
    drop(holder.child().stdin.take());
    assert_eq!((waiting.code(), holder.code()), (0, 0));
    // one that nobody releases
    place.server.cmd(&["SET", "y", "token", "PX", "300"]);
    assert_eq!(place.status(&["wait", "y"]), 0);
}

#[test]
fn a_proof_gives_back_what_it_is_of_once() {
    let place = Place::new();
    let client = onelock::blocking::Client::connect(&place.server.url()).unwrap();
    for lock in [client.lock("x"), client.reentrant_lock("x"), client.fair_lock("x"), client.semaphore("x", 1)] {
        let proof = lock.acquire().unwrap().detach().unwrap();
        assert_eq!(place.status(&["release", "x", "--proof", "nonsense"]), 64);
        assert!(place.exists("x"));
        let mut running = place.start(&["release", "x", "--proof", "-"]);
        running.child().stdin.take().unwrap().write_all(format!("{proof}\n").as_bytes()).unwrap();
        let output = running.output();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
        assert!(!lock.is_locked().unwrap());
        let again = place.output(&["release", "x", "--proof", &proof]);
        assert_eq!(again.status.code(), Some(1), "{again:?}");
        place.server.cmd(&["DEL", "x"]);
    }
    client.close();
}

#[test]
fn force_release_without_a_terminal_has_to_be_sure() {
    let place = Place::new();
    assert_eq!(place.status(&["force-release", "x", "--yes"]), 1, "nobody holds it");
    let mut holder = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    let output = place.output(&["force-release", "x"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(place.exists("x") && text(&output.stderr).contains("--yes"));
    assert_eq!(place.status(&["force-release", "x", "--yes"]), 0);
    assert!(!place.exists("x"));
    drop(holder.child().stdin.take());
    assert_eq!(holder.code(), 80);
    // what may be a cached value wants to be called by its name, whether it has a ttl or not
    for more in [vec![], vec!["PX", "60000"]] {
        place.server.cmd(&[vec!["SET", "cached", "a"], more].concat());
        let output = place.output(&["force-release", "cached", "--yes"]);
        assert!(output.status.code() == Some(64) && text(&output.stderr).contains("--foreign"), "{output:?}");
        assert!(place.exists("cached"));
        assert_eq!(place.status(&["force-release", "cached", "--yes", "--foreign"]), 0);
        assert!(!place.exists("cached"));
    }
}

#[test]
fn completion_and_man_pages_know_every_option() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = place.output(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains("min-hold") && script.contains("force-release"), "{shell}");
    }
    let script = text(&place.output(&["completions", "bash"]).stdout);
    assert!(std::process::Command::new("bash").args(["-n", "-c", &script]).status().unwrap().success());
    assert_eq!(place.status(&["man", &place.path("man1")]), 0);
    let page = std::fs::read_to_string(place.file("man1/onelock-run.1")).unwrap();
    for part in [
        "min\\-hold",
        "\n.SH \"EXAMPLES\"\n.nf\n",
        "<NAME> \\-\\- <COMMAND>",
        "\nonelock run [OPTIONS] <NAME> \\-c <LINE>\n",
        "grace",
        "ONELOCK_FENCING_TOKEN   set",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for name in
        ["onelock", "onelock-list", "onelock-inspect", "onelock-wait", "onelock-release", "onelock-force-release"]
    {
        assert!(place.file(&format!("man1/{name}.1")).exists(), "{name}");
    }
}

#[test]
fn a_server_that_is_away_for_a_while_is_waited_for() {
    let place = Place::new();
    place.server.cmd(&["SET", "x", "v", "PX", "600000"]);
    let mut waiting = place.start(&["wait", "x", "--timeout", "60s"]);
    // its script has looked, so the answer is on its way
    wait_until(SOON, "it asks", || place.server.info("commandstats").contains_key("cmdstat_type"));
    let mut watching = place.start(&["list", "--watch=50ms", "--json"]);
    let mut told = BufReader::new(watching.child().stdout.take().unwrap()).lines();
    assert!(told.next().unwrap().unwrap().contains("\"x\""));
    assert!(told.any(|line| line.unwrap().contains("round_ended_ms")), "it was told everything");
    place.server.restart();
    place.server.cmd(&["SET", "y", "v", "PX", "60000"]);
    assert!(told.any(|line| line.unwrap().contains("\"y\"")));
    assert_eq!(waiting.child().wait().unwrap().code(), Some(0), "it is free, since nothing was kept");
}
