//! Redlock on three servers: one caller, one lock. The floor is the C program on hiredis, which writes the same scripts to
//! three connections and then reads the three replies, and knows nothing of majorities.

use std::time::{Duration, Instant};

use onelock_tests::servers::{Flavor, Server};
use onelock_tests::topology::Several;

use crate::floor::Floor;
use crate::raw::Requests;
use crate::report::{Row, Target};
use crate::sequential::runtime;
use crate::statistics::{Ratio, median, quantile};
use crate::{CPU, Effort, host, same};

/// Each side has a lock of its own, of the same length: who returns with a majority has requests under way while the next
/// one begins.
pub(crate) const LOCKS: [&str; 8] = [
    "bench:redlock:0",
    "bench:redlock:1",
    "bench:redlock:2",
    "bench:redlock:3",
    "bench:redlock:4",
    "bench:redlock:5",
    "bench:redlock:6",
    "bench:redlock:7",
];

/// Carries out so many cycles, and tells their median.
pub(crate) type Block<'a> = &'a mut dyn FnMut(usize) -> Duration;

/// The ports of these servers.
pub(crate) fn ports(several: &Several) -> Vec<u16> {
    several.servers.iter().map(Server::port).collect()
}

/// Keeps these servers, this thread and these processes on one processor.
pub(crate) fn pin(several: &Several, others: &[&Floor]) {
    host::pin(None, CPU);
    let servers = several.servers.iter().map(Server::pid);
    for pid in servers.chain(others.iter().map(|other| other.pid())) {
        host::pin(Some(pid), CPU);
    }
}

/// Every side must send the same requests to every server. Each has its name and its lock.
///
/// # Panics
/// When they differ: the numbers would say nothing.
pub(crate) fn check(several: &Several, sides: &mut [(&str, &str, Block<'_>)]) {
    let monitors: Vec<_> = several.servers.iter().map(Server::monitor).collect();
    let mut first: Option<Vec<Vec<String>>> = None;
    for (name, lock, block) in sides {
        block(20); // a side may send more the first times
        for monitor in &monitors {
            monitor.clear();
        }
        block(1);
        for monitor in &monitors {
            let sent: Vec<_> = monitor.sent().into_iter().map(|seen| anonymous(seen.args, lock)).collect();
            assert_eq!(sent.len(), 2, "{name} sends something besides acquire and release: {sent:#?}");
            let wanted = first.get_or_insert_with(|| sent.clone());
            assert_eq!(&sent, wanted, "{name} does not send what the others send");
        }
    }
}

/// Locks, tokens and proposed fencing tokens differ.
fn anonymous(args: Vec<String>, lock: &str) -> Vec<String> {
    let is_proposed = |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_digit());
    let plain = same::without_token(args).into_iter();
    plain.map(|word| if is_proposed(&word) { "<proposed>".to_owned() } else { word.replace(lock, "<lock>") }).collect()
}

/// Cycles of the blocking client.
pub(crate) fn blocking(client: &onelock::blocking::Client, lock: &str, cycles: usize) -> Duration {
    let mut took = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        let lease = client.lock(lock).acquire().expect("the lock is free");
        lease.release().expect("it is held");
        took.push(start.elapsed());
    }
    median(&mut took)
}

/// Sides in turn, round by round; the medians of each in microseconds.
pub(crate) fn rounds(sides: &mut [Block<'_>], effort: Effort) -> Vec<Vec<f64>> {
    let (rounds, cycles) = effort.choose((20, 1000), (5, 300));
    let mut medians = vec![Vec::new(); sides.len()];
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            let index = (turn + round) % sides.len();
            let median = sides[index](cycles);
            if round > 0 {
                medians[index].push(median.as_secs_f64() * 1e6);
            }
        }
    }
    medians
}

/// One line of the table.
pub(crate) fn row(what: &str, target: Target, ours: &[f64], theirs: &[f64]) -> Row {
    let ratio = Ratio::of(ours, theirs);
    let p50 = |side: &[f64]| quantile(&mut side.to_vec(), 0.5);
    let detail = format!("p50 {:.1} us; the other {:.1} us", p50(ours), p50(theirs));
    Row::new(&format!("redlock: {what}"), target, ratio.median, &ratio, &detail)
}

/// Unpinned against one server; then all on one processor against the floor, and with one of the three servers dead.
pub(crate) fn measure(flavor: Flavor, effort: Effort) -> Vec<Row> {
    let several = Several::start(flavor, 3);
    let single = Server::start(flavor);
    let url = several.url("quarantine_ms=0");
    let client = onelock::blocking::Client::connect(&url).expect("the servers are up");
    let alone = onelock::blocking::Client::connect(&single.url()).expect("the server is up");
    let mut floor = Floor::start(&ports(&several), &Requests::new(LOCKS[0]));
    let [lock, other] = [LOCKS[1], LOCKS[2]];
    let mut rows = Vec::new();
    let unpinned = rounds(
        &mut [&mut |cycles| blocking(&client, lock, cycles), &mut |cycles| blocking(&alone, lock, cycles)],
        effort,
    );
    rows.push(row("three servers / one, not pinned", Target::AtMost(1.6), &unpinned[0], &unpinned[1]));

    pin(&several, &[&floor]);
    let ours = runtime();
    let tasks = ours.block_on(onelock::Client::connect(&url)).expect("the servers are up");
    let mut asynchronous = |cycles: usize| {
        ours.block_on(async {
            let mut took = Vec::with_capacity(cycles);
            for _ in 0..cycles {
                let start = Instant::now();
                let lease = tasks.lock(other).acquire().await.expect("the lock is free");
                lease.release().await.expect("it is held");
                took.push(start.elapsed());
            }
            median(&mut took)
        })
    };
    check(
        &several,
        &mut [
            ("hiredis", LOCKS[0], &mut |cycles| floor.block("scripts", cycles)),
            ("onelock::blocking", lock, &mut |cycles| blocking(&client, lock, cycles)),
            ("onelock", other, &mut asynchronous),
        ],
    );
    let pinned = rounds(
        &mut [
            &mut |cycles| floor.block("scripts", cycles),
            &mut |cycles| blocking(&client, lock, cycles),
            &mut asynchronous,
        ],
        effort,
    );
    rows.push(row("onelock::blocking / three hiredis connections", Target::AtMost(1.3), &pinned[1], &pinned[0]));
    rows.push(row("onelock (async) / three hiredis connections", Target::None, &pinned[2], &pinned[0]));

    several.servers[2].kill();
    // the first calls find out
    blocking(&client, lock, 100);
    let down = rounds(&mut [&mut |cycles| blocking(&client, lock, cycles)], effort);
    rows.push(row("one of three dead / healthy", Target::AtMost(1.5), &down[0], &pinned[1]));
    rows
}
