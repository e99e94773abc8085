//! The command, from start to finish: a process that takes a lock, runs `true` and releases the lock, against one that asks
//! the server for a sign of life, and one that takes a lock on this machine.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use onelock_tests::servers::Server;

use crate::Effort;
use crate::report::{Row, Target};
use crate::statistics::{Ratio, quantile};

/// How many processes a side starts before it is another one's turn.
const BLOCK: u32 = 10;

/// Starts the program as often as a block has it; the mean time from start to finish, in seconds.
fn block(command: &mut Command) -> f64 {
    let begun = Instant::now();
    for _ in 0..BLOCK {
        let status = command.status().expect("bench/setup.sh sees to it that all of them are there");
        assert!(status.success(), "{command:?}: {status}");
    }
    begun.elapsed().as_secs_f64() / f64::from(BLOCK)
}

/// The release build that `tools/cli/build.sh` makes, which is what people get.
pub(crate) fn onelock() -> PathBuf {
    let beside = std::env::current_exe().expect("a program has a path");
    beside.with_file_name("onelock-bench-command")
}

fn side(program: PathBuf, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// All three, in turn, a server in the next room.
pub(crate) fn measure(server: &Server, effort: Effort) -> Vec<Row> {
    let rounds = effort.choose(60, 5);
    let (port, file) = (server.port().to_string(), server.folder().join("flock"));
    let mut run = side(onelock(), &["run", "bench:command", "--", "true"]);
    run.env("ONELOCK_URL", server.url());
    let mut sides = [
        run,
        side("redis-cli".into(), &["-p", &port, "ping"]),
        side("flock".into(), &[&file.to_string_lossy(), "true"]),
    ];
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            // nobody is always the one who comes after a certain other one
            let index = (turn + round) % sides.len();
            let mean = block(&mut sides[index]);
            // the first round only warms up
            if round > 0 {
                took[index].push(mean * 1e3);
            }
        }
    }
    let [run, cli, flock] = &took;
    let (ratio, beside) = (Ratio::of(run, cli), Ratio::of(flock, cli));
    let [run, cli, flock] = took.clone().map(|mut ms| quantile(&mut ms, 0.5));
    let detail = format!("p50 {run:.2} ms; redis-cli ping {cli:.2} ms");
    vec![
        Row::new("`onelock run NAME -- true` / `redis-cli ping`", Target::AtMost(3.0), ratio.median, &ratio, &detail),
        Row::new(
            "`flock file true` / `redis-cli ping`",
            Target::None,
            beside.median,
            &beside,
            &format!("p50 {flock:.2} ms"),
        ),
    ]
}
