//! Measures the library against its peers: all in one run, in turn, against the same server, told as ratios.
//!
//! `onelock-bench [--quick] [--server NAME] [sequential] [server-cpu] [throughput] [handover] [leases] [c] [command]
//! [redlock] [redlock-peers] [files] [kinds] [postgres]`; see `bench/README.md`.
//!
//! | file | is |
//! |---|---|
//! | `sequential`, `server_cpu`, `throughput`, `handover`, `leases`, `c_library`, `command`, `listing`, `redlock`, `redlock_peers`, `files`, `kinds`, `postgres` | one measurement each |
//! | `raw`, `floor` | the peers: redis-rs in this process, hiredis (and the C library) in a child |
//! | `same` | proves that all sides send the same commands |
//! | `statistics`, `report`, `host` | medians, the table, the machine |

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement that cannot be made should stop with its message, and the table goes to standard output"
)]

mod c_library;
mod command;
mod files;
mod floor;
mod handover;
mod host;
mod kinds;
mod leases;
mod listing;
mod postgres;
mod raw;
mod redlock;
mod redlock_peers;
mod report;
mod same;
mod sequential;
mod server_cpu;
mod statistics;
mod throughput;

use onelock_tests::servers::{Flavor, Server};

/// How much time the measurement may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effort {
    /// Enough for numbers that repeat.
    Full,
    /// Enough to see that everything works.
    Quick,
}

impl Effort {
    /// The one or the other.
    pub(crate) fn choose<T>(self, full: T, quick: T) -> T {
        match self {
            Effort::Full => full,
            Effort::Quick => quick,
        }
    }
}

const LOCK: &str = "bench:sequential";
/// Where the sequential measurements run.
const CPU: usize = 0;
const PARTS: [&str; 12] = [
    "server-cpu",
    "throughput",
    "handover",
    "leases",
    "command",
    "sequential",
    "c",
    "redlock",
    "redlock-peers",
    "files",
    "kinds",
    "postgres",
];

fn main() {
    let mut words = std::env::args().skip(1);
    let mut effort = Effort::Full;
    let mut flavor = Flavor::Redis70;
    let mut parts = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "waiter" => {
                let (kind, url) = (words.next(), words.next());
                return handover::wait(&kind.expect("a kind of waiter"), &url.expect("an address"));
            }
            "--quick" => effort = Effort::Quick,
            "--server" => {
                let name = words.next().unwrap_or_default();
                let found = Flavor::ALL.into_iter().find(|flavor| flavor.program() == name);
                flavor = found.unwrap_or_else(|| {
                    panic!("there is no server {name:?}; there are {:?}", Flavor::ALL.map(Flavor::program))
                });
            }
            part if PARTS.contains(&part) => parts.push(word),
            other => panic!("what is {other}? the parts are {PARTS:?}"),
        }
    }
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|word| word == part);

    let server = Server::start(flavor);
    for script in [raw::ACQUIRE, raw::RELEASE, raw::DELETE] {
        server.cmd(&["SCRIPT", "LOAD", script]);
    }
    // before any of it is bound to one processor
    let (machine, before) = (host::describe(), host::load());
    same::check(&server, LOCK);
    let mut rows = Vec::new();
    // the sequential part comes last: it leaves this process and the server on one processor
    if wanted("server-cpu") {
        rows.extend(server_cpu::measure(&server, effort));
    }
    if wanted("throughput") {
        rows.extend(throughput::measure(&server, effort));
    }
    if wanted("handover") {
        rows.extend(handover::measure(&server, effort));
    }
    if wanted("files") {
        rows.extend(files::measure(effort));
    }
    if wanted("postgres") {
        rows.extend(postgres::measure(effort));
    }
    if wanted("leases") {
        rows.extend(leases::measure(&server, effort));
    }
    if wanted("command") {
        rows.extend(command::measure(&server, effort));
        rows.extend(listing::measure(&server, effort));
    }
    if wanted("c") {
        rows.extend(c_library::threads(&server, effort));
    }
    if wanted("c") {
        host::pin(None, CPU);
        host::pin(Some(server.pid()), CPU);
        rows.push(c_library::sequential(&server, CPU, effort));
    }
    if wanted("kinds") {
        rows.extend(kinds::measure(&server, effort));
    }
    if wanted("sequential") {
        let later = std::mem::replace(&mut rows, sequential::measure(&server, LOCK, effort));
        rows.extend(later);
    }
    if wanted("redlock") {
        rows.extend(redlock::measure(flavor, effort));
    }
    // it needs other languages: only when it is named
    if parts.iter().any(|part| part == "redlock-peers") {
        rows.extend(redlock_peers::measure(flavor, effort));
    }
    println!("{}, {}, {machine}", host::today(), flavor.program());
    println!("load {before} before, {} after; in parentheses the quartiles over the rounds\n", host::load());
    println!("{}", report::table(&rows));
}
