//! Ten thousand leases held at once, by a process of its own: what they cost, and whether any is lost.

use std::collections::HashMap;
use std::process::Command;

use onelock_tests::servers::Server;

use crate::Effort;
use crate::report::{Row, Target};

/// Lets the holding process run and reads what it found.
///
/// # Panics
/// When that process fails.
pub(crate) fn measure(server: &Server, effort: Effort) -> Vec<Row> {
    let (leases, seconds) = effort.choose((10_000, 25), (10_000, 12));
    let program = std::env::current_exe().expect("a program has a path").with_file_name("onelock-bench-leases");
    let mut command = Command::new(program);
    command.args([server.url(), leases.to_string(), seconds.to_string()]);
    let output = command.stderr(std::process::Stdio::inherit()).output().expect("the program starts");
    assert!(output.status.success(), "the holding process failed");
    let text = String::from_utf8_lossy(&output.stdout);
    let found: HashMap<&str, f64> =
        text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k, v.parse().unwrap_or(f64::NAN))).collect();
    let get = |name: &str| *found.get(name).unwrap_or(&f64::NAN);
    let row = |what: &str, target, name: &str, detail: String| {
        let value = get(name);
        let shown = if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.1}") };
        Row::new(&format!("{leases} leases: {what}"), target, value, &shown, &detail)
    };
    vec![
        row("lost", Target::AtMost(0.0), "lost", format!("in {seconds} s with a ttl of 10 s")),
        row("extra threads", Target::AtMost(2.0), "threads", String::new()),
        row(
            "server calls a second",
            Target::AtMost(200.0),
            "calls",
            format!("{:.0} renewals a second", get("renewals")),
        ),
        row("bytes a lease, resident", Target::AtMost(1024.0), "resident", String::new()),
        row(
            "bytes a lease, allocated",
            Target::AtMost(1024.0),
            "allocated",
            format!("{:.1} allocations a lease", get("allocations")),
        ),
    ]
}
