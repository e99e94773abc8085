//! `export`: what Prometheus reads, over HTTP and from a file.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Place, SOON, text};
use onelock_tests::wait::wait_until;

/// The value of the first series that begins so.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.starts_with(series))?;
    Some(line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

/// Every line is of the form that Prometheus reads, and each metric is introduced once before its series.
fn check_form(metrics: &str) {
    let mut typed = Vec::new();
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.strip_suffix(" gauge").unwrap().to_owned();
            assert!(!typed.contains(&name), "{name} twice");
            typed.push(name);
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(typed.last().map(String::as_str), Some(name), "{line}");
            let value = line.rsplit_once(' ').unwrap().1;
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(metrics.ends_with('\n') && typed.len() >= 2, "{metrics}");
}

fn get(port: u16, path: &str) -> (String, String) {
    ask(port, "GET", path)
}

fn ask(port: u16, verb: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{verb} {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn a_scrape_tells_what_is_locked() {
    let place = Place::new();
    let mut exporter = place.start(&["export", "job:*", "job:a", "--listen", "127.0.0.1:0", "--every", "0"]);
    let mut told = BufReader::new(exporter.child().stderr.take().unwrap()).lines();
    let url = told.next().unwrap().unwrap();
    let port = url.rsplit_once(':').unwrap().1.strip_suffix("/metrics").unwrap().parse().unwrap();

    let (head, metrics) = get(port, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
    check_form(&metrics);
    assert_eq!((value(&metrics, "onelock_up "), value(&metrics, "onelock_locks ")), (Some(1.0), Some(0.0)));

    let _holder = place.start(&["run", "job:a", "--label", "night \"shift\"", "--", "cat"]);
    place.wait_held("job:a");
    let _waiter = place.start(&["run", "job:a", "--", "true"]);
    wait_until(SOON, "one waits", || place.waiting("job:a") == 1);
    place.server.cmd(&["SET", "job:cached", "value", "PX", "60000"]);
    let metrics = get(port, "/metrics?x=1").1;
    check_form(&metrics);
    let labels = "{name=\"job:a\",kind=\"lock\",client=\"onelock\"";
    assert_eq!(value(&metrics, "onelock_locks "), Some(1.0), "{metrics}");
    assert_eq!(
        value(&metrics, &format!("onelock_lock_held{labels},holder=\"night \\\"shift\\\"@")),
        Some(1.0),
        "{metrics}"
    );
    assert_eq!(value(&metrics, &format!("onelock_lock_waiting{labels}}}")), Some(1.0), "{metrics}");
    for metric in ["ttl_seconds", "fencing_token", "held_seconds"] {
        let found = value(&metrics, &format!("onelock_lock_{metric}{labels}}}")).unwrap();
        assert!(found >= 0.0, "{metric} {found}");
    }
    assert!(get(port, "/").0.starts_with("HTTP/1.1 404"));
    // those that say nothing hold nobody up: together they would be listened to for 20 s
    let silent: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let begun = Instant::now();
    assert!(get(port, "/metrics").0.contains("200 OK"));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    drop(silent);
    let (head, body) = ask(port, "HEAD", "/metrics");
    assert!(head.contains("200 OK") && body.is_empty(), "{head} {body}");

    place.server.kill();
    let metrics = get(port, "/metrics").1;
    check_form(&metrics);
    assert_eq!((value(&metrics, "onelock_up "), value(&metrics, "onelock_locks ")), (Some(0.0), None));
    assert!(told.next().unwrap().unwrap().starts_with("onelock: "), "why is told once");
}

#[test]
fn a_file_is_replaced_whole() {
    let place = Place::new();
    for number in 0..7 {
        place.server.cmd(&["SET", &format!("job:{number}"), "value", "PX", "60000"]);
    }
    let file = place.path("locks.prom");
    let arguments = ["export", "job:*", "--file", &file, "--once", "--others", "--limit", "5"];
    let output = place.output(&arguments);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
    let metrics = std::fs::read_to_string(&file).unwrap();
    check_form(&metrics);
    assert_eq!(value(&metrics, "onelock_locks "), Some(7.0));
    assert_eq!(value(&metrics, "onelock_locks_left_out "), Some(2.0));
    assert_eq!(metrics.lines().filter(|line| line.starts_with("onelock_lock_held{")).count(), 5);
    let names = |place: &Place| -> Vec<String> {
        let folder = place.file("locks.prom").parent().unwrap().to_owned();
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names(&place), ["locks.prom"], "nothing is left beside it");

    // while it is written again and again, a reader sees all of it
    let _exporter = place.start(&["export", "job:*", "--file", &file, "--every", "1ms", "--others"]);
    wait_until(SOON, "all are told", || {
        let metrics = std::fs::read_to_string(&file).unwrap();
        check_form(&metrics);
        value(&metrics, "onelock_locks_left_out ") == Some(0.0)
    });
    place.server.kill();
    assert_eq!(place.status(&arguments), 69);
    assert_eq!(value(&std::fs::read_to_string(&file).unwrap(), "onelock_up "), Some(0.0));
    assert_eq!(place.status(&["export", "*", "--file", "/nowhere/at/all", "--once"]), 70);
    assert_eq!(text(&place.output(&["export"]).stdout), "");
    assert_eq!(place.status(&["export"]), 64, "patterns are chosen");
}

#[test]
fn no_two_names_are_one_series() {
    let place = Place::new();
    let names: [&[u8]; 5] = [b"\\xffq", b"\xffq", b"a\n", b"a\\n", b"a\"b"];
    for name in names {
        place.server.cmd(&[b"SET".as_slice(), name, b"v", b"PX", b"60000"]);
    }
    let file = place.path("locks.prom");
    assert_eq!(place.status(&["export", "*", "--file", &file, "--once", "--others"]), 0);
    let metrics = std::fs::read_to_string(&file).unwrap();
    check_form(&metrics);
    let held: Vec<&str> = metrics.lines().filter(|line| line.starts_with("onelock_lock_held{")).collect();
    let series: std::collections::HashSet<&str> = held.iter().copied().collect();
    assert_eq!((held.len(), series.len()), (5, 5), "{metrics}");
    // as it is read back, a backslash of a name's own is two, and one is what a byte is spelt with
    for label in [r"\\\\xffq", r"\\xffq", r"a\n", r"a\\\\n", "a\\\"b"] {
        assert!(metrics.contains(&format!("{{name=\"{label}\",")), "{label} {metrics}");
    }
    let output = place.output(&["export", "*", "--listen", "nowhere"]);
    assert!(output.status.code() == Some(64) && text(&output.stderr).contains("write HOST:PORT"), "{output:?}");
}
