//! The table of options and addresses, `tests/spec/options.toml`, holds in the core, and every language and document has it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use onelock::{Client, ClientBuilder, ErrorKind};
use toml::{Table, Value};

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).to_owned()
}

fn table() -> Table {
    std::fs::read_to_string(root().join("tests/spec/options.toml")).unwrap().parse().unwrap()
}

fn options() -> Vec<Table> {
    table()["option"].as_array().unwrap().iter().map(|option| option.as_table().unwrap().clone()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).unwrap()
}

/// Every option that has limits, set to a number in the unit of the table: milliseconds, bytes, or the number itself.
fn with(option: &str, value: f64) -> ClientBuilder {
    let builder = Client::builder();
    let span = Duration::from_secs_f64(value.max(0.0) / 1e3);
    let text = || "a".repeat(value as usize);
    match option {
        "ttl" => builder.ttl(span),
        "max_hold" => builder.max_hold(span),
        "lock_delay" => builder.lock_delay(span),
        "drift_factor" => builder.drift_factor(value),
        "prefix" => builder.prefix(text()),
        "label" => builder.label(text()),
        "connect_timeout" => builder.connect_timeout(span),
        "request_timeout" => builder.request_timeout(span),
        "close_timeout" => builder.close_timeout(span),
        "unreachable_limit" => builder.unreachable_limit(span),
        "replica_timeout" => builder.replica_timeout(span),
        "node_timeout" => builder.node_timeout(span),
        "quarantine" => builder.quarantine(span),
        other => panic!("{other} has limits in the table; add it here"),
    }
}

#[test]
fn every_place_is_what_the_table_says() {
    let output = Command::new("python3").args(["tools/options.py", "--check"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_core_enforces_the_limits() {
    let mut limits = 0;
    for option in options() {
        let name = option["name"].as_str().unwrap();
        // the smallest step of the unit
        let step = if option["type"].as_str() == Some("share") { 0.001 } else { 1.0 };
        for (limit, outward) in [("min", -step), ("max", step)] {
            let Some(value) = option.get(limit).map(number) else { continue };
            with(name, value).build("memory://").unwrap_or_else(|error| panic!("{limit} of {name}: {error}"));
            limits += 1;
            if value + outward >= 0.0 || name == "drift_factor" {
                let error = with(name, value + outward).build("memory://").expect_err(name);
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{limit} of {name}");
                assert!(error.to_string().contains(name), "{limit} of {name}: {error}");
            }
        }
    }
    assert!(limits > 15, "{limits}");
}

#[test]
fn the_addresses_are_read() {
    let table = table();
    let mut read = 0;
    for address in table["address"].as_array().unwrap() {
        for example in address["examples"].as_array().unwrap() {
            let example = example.as_str().unwrap();
            Client::new(example).unwrap_or_else(|error| panic!("{example}: {error}"));
            read += 1;
        }
    }
    assert!(read > 10, "{read}");
    // the message of a wrong scheme names those of the table, no more and no fewer
    let message = Client::new("nonsense://host").unwrap_err().to_string();
    let mut named = schemes(&message);
    assert!(named.remove("nonsense"), "{message}");
    assert_eq!(named, schemes(&table["address"].to_string()));
}

/// The words before `://` in a text.
fn schemes(text: &str) -> BTreeSet<&str> {
    let is_inside = |c: char| c.is_ascii_lowercase() || c == '+';
    text.match_indices("://").map(|(at, _)| &text[text[..at].trim_end_matches(is_inside).len()..at]).collect()
}

/// A constant of the decisions, in milliseconds or as a plain number, as its file writes it.
fn constant(name: &str) -> i64 {
    let mut folders = vec![root().join("core/src/machine")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let Some((_, rest)) = text.split_once(&format!("const {name}: ")) else { continue };
            let value = rest.split_once(" = ").unwrap().1.split_once(';').unwrap().0;
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            return digits.parse::<i64>().unwrap() * if value.contains("from_secs") { 1000 } else { 1 };
        }
    }
    panic!("there is no constant {name}")
}

#[test]
fn the_fixed_numbers_are_those_of_the_code() {
    let constants = table()["constants"].as_table().unwrap().clone();
    for (key, name) in [
        ("drift_floor_ms", "DRIFT_FLOOR"),
        ("safety_poll_min_ms", "SAFETY_POLL_MIN"),
        ("safety_poll_max_ms", "SAFETY_POLL_MAX"),
        ("foreign_poll_min_ms", "FOREIGN_POLL_MIN"),
        ("foreign_poll_max_ms", "FOREIGN_POLL_MAX"),
        ("attempt_spacing_ms", "ATTEMPT_SPACING"),
        ("renewal_batch", "BATCH_MAX"),
    ] {
        assert_eq!(constants[key].as_integer(), Some(constant(name)), "{key}");
    }
    // the longest name is compared beside the code
    assert_eq!(constants.len(), 8, "{constants:?}");
}
