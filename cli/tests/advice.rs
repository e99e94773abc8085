//! What `doctor` advises, followed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{SOON, onelock, text};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::topology::{Cluster, Several};
use onelock_tests::wait::wait_until;
use serde_json::Value;

fn findings(arguments: &[&str]) -> (i32, Vec<Value>) {
    let output = onelock(&[&["doctor", "--json"], arguments].concat()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().unwrap(), report["findings"].as_array().unwrap().clone())
}

/// What is said to be typed.
fn command(finding: &Value) -> Option<Vec<String>> {
    let todo = finding["todo"].as_str().unwrap();
    let at = todo.find("ACL SETUSER ")?;
    Some(todo[at..].split_whitespace().map(str::to_owned).collect())
}

/// Those that are about rights and not as they should be.
fn lacking(findings: &[Value]) -> Vec<&Value> {
    let steps = ["permission", "role", "persistence", "proxy"];
    let is_lacking = |it: &&Value| steps.contains(&it["step"].as_str().unwrap()) && it["severity"] != "passed";
    // what the server is set up for is no right
    findings.iter().filter(is_lacking).filter(|it| !it["detail"].as_str().unwrap().contains("appendonly")).collect()
}

#[test]
fn one_line_gives_every_right_that_is_missing() {
    for flavor in [Flavor::Valkey91, Flavor::Redis70] {
        let server = Server::builder(flavor).start();
        let url = server.url_with("app:secret", "/");
        for few in [&["+info", "+config|get", "+role"][..], &[], &["+@connection", "+eval", "+set", "~app:*"]] {
            server.cmd(&[&["ACL", "SETUSER", "app", "reset", "on", ">secret"], few].concat());
            let (status, before) = findings(&["--name", "app:", &url]);
            assert_eq!(status, 77, "{before:#?}");
            let last = before.iter().rfind(|it| it["step"] == "permission").unwrap();
            let line = command(last).unwrap();
            assert_eq!(line[..3], ["ACL", "SETUSER", "app"], "{line:?}");
            server.cmd(&line);
            let (_, after) = findings(&["--name", "app:", &url]);
            assert!(lacking(&after).is_empty(), "{few:?} and {line:?}: {:#?}", lacking(&after));
        }
    }
}

#[test]
fn no_advice_takes_a_right_away() {
    let server = Server::valkey();
    let url = server.url_with("app:secret", "/");
    server.cmd(&["ACL", "SETUSER", "app", "reset", "on", ">secret", "+info", "+config|get", "+role"]);
    let (_, before) = findings(&["--name", "app:", &url]);
    let advice: Vec<Vec<String>> = before.iter().filter_map(command).collect();
    let (_, one_by_one) = advice.split_last().unwrap();
    assert!(one_by_one.len() > 10, "{before:#?}");
    for line in one_by_one {
        server.cmd(line);
    }
    let (_, after) = findings(&["--name", "app:", &url]);
    let words: Vec<&str> = lacking(&after).iter().map(|it| it["detail"].as_str().unwrap()).collect();
    // those that could not be tried before, and no others
    for gone in ["+info", "+config|get", "+role", "+@connection", "INFO is not permitted"] {
        assert!(!words.iter().any(|word| word.contains(gone)), "{gone}: {words:#?}");
    }
}

#[test]
fn permissions_that_are_there_are_one_line() {
    let server = Server::valkey();
    server.cmd(&["ACL", "SETUSER", "app", "reset", "on", ">secret", "+info", "+get", "~app:*", "+scan"]);
    let output = onelock(&["doctor", "--name", "app:", &server.url_with("app:secret", "/")]).output().unwrap();
    let sheet = text(&output.stdout);
    let there: Vec<&str> = sheet.lines().filter(|line| line.contains("  permissions  ")).collect();
    assert!(there.len() == 1 && there[0].ends_with(" are there"), "{sheet}");
    assert!(!sheet.contains("0.0 days") && !sheet.contains("-0.0 ms"), "{sheet}");
}

#[test]
fn a_cluster_that_is_down_is_told_so() {
    let cluster = Cluster::with(Flavor::Valkey91, 0, |node| node.config("cluster-node-timeout", "1500"));
    cluster.nodes[2].kill();
    wait_until(SOON, "the cluster is down", || {
        format!("{:?}", cluster.nodes[0].cmd(&["CLUSTER", "INFO"])).contains("cluster_state:fail")
    });
    let (status, found) = findings(&[&format!("redis+cluster://127.0.0.1:{}", cluster.nodes[0].port())]);
    assert_eq!(status, 69, "{found:#?}");
    let slots = found.iter().find(|it| it["step"] == "slots").unwrap();
    assert_eq!(slots["severity"], "failed", "{found:#?}");
    assert!(slots["detail"].as_str().unwrap().contains("CLUSTERDOWN"), "{slots}");
    assert!(slots["todo"].as_str().unwrap().contains("bring the missing masters back"), "{slots}");
}

#[test]
fn why_tokens_are_no_better_is_said_for_a_cluster_and_a_seed_is_looked_at_once() {
    let cluster = Cluster::patient(Flavor::Valkey91);
    let (_, found) = findings(&[&cluster.url()]);
    let fencing = found.iter().find(|it| it["step"] == "fencing").unwrap();
    let why = fencing["detail"].as_str().unwrap();
    assert!(why.contains("BestEffort") && why.contains("failover") && !why.contains("evict"), "{why}");
    let looks = found.iter().filter(|it| it["step"] == "tcp").count();
    assert_eq!(looks, 3, "each master once: {found:#?}");
}

#[test]
fn a_majority_in_quarantine_is_to_be_waited_for() {
    let servers = Several::start(Flavor::Valkey91, 3);
    let (status, found) = findings(&[&servers.url("")]);
    assert_eq!(status, 69, "{found:#?}");
    let quorum = found.iter().find(|it| it["step"] == "quorum").unwrap();
    let todo = quorum["todo"].as_str().unwrap();
    assert!(quorum["severity"] == "failed" && todo.starts_with("wait ") && !todo.contains("bring"), "{quorum}");
    // and one that is missing, beside it, is not
    servers.servers[0].kill();
    servers.servers[1].kill();
    let (_, found) = findings(&[&servers.url("")]);
    let quorum = found.iter().find(|it| it["step"] == "quorum").unwrap();
    assert!(quorum["todo"].as_str().unwrap().contains("bring the servers back"), "{quorum}");
}
