//! Redlock on three servers: one caller, one lock. The floor writes the same scripts to three connections and then reads
//! the three replies, and knows nothing of majorities.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use onelock_tests::servers::{Flavor, Server};
use onelock_tests::topology::Several;

use crate::raw::Requests;
use crate::report::{Row, Target};
use crate::sequential::runtime;
use crate::statistics::{Ratio, median, quantile};
use crate::{CPU, Effort, host};

/// Three connections, and how many bytes a reply has at most.
struct Floor {
    streams: Vec<TcpStream>,
    requests: Requests,
    /// Counts up like the clock that a client proposes.
    token: u64,
}

impl Floor {
    fn start(servers: &[Server], lock: &str) -> Floor {
        let connect = |server: &Server| {
            let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server is up");
            stream.set_nodelay(true).expect("a socket takes options");
            stream
        };
        Floor { streams: servers.iter().map(connect).collect(), requests: Requests::new(lock), token: 1 << 50 }
    }

    /// Writes to all, then reads from all.
    fn ask(&mut self, command: &redis::Cmd) {
        let bytes = command.get_packed_command();
        for stream in &mut self.streams {
            stream.write_all(&bytes).expect("the server reads");
        }
        let mut buffer = [0; 512];
        for stream in &mut self.streams {
            let read = stream.read(&mut buffer).expect("the server answers");
            assert!(buffer[..read].starts_with(b"*3\r\n:"), "{}", buffer[..read].escape_ascii());
        }
    }

    fn block(&mut self, cycles: usize) -> Duration {
        let mut took = Vec::with_capacity(cycles);
        for _ in 0..cycles {
            let start = Instant::now();
            let (mut acquire, release) = self.requests.cycle();
            self.token += 1;
            acquire.arg(self.token);
            self.ask(&acquire);
            self.ask(&release);
            took.push(start.elapsed());
        }
        median(&mut took)
    }
}

fn blocking(client: &onelock::blocking::Client, lock: &str, cycles: usize) -> Duration {
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
fn rounds(sides: &mut [&mut dyn FnMut(usize) -> Duration], effort: Effort) -> Vec<Vec<f64>> {
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

fn row(what: &str, target: Target, ours: &[f64], theirs: &[f64]) -> Row {
    let ratio = Ratio::of(ours, theirs);
    let p50 = |side: &[f64]| quantile(&mut side.to_vec(), 0.5);
    let detail = format!("p50 {:.1} us; the other {:.1} us", p50(ours), p50(theirs));
    Row::new(&format!("redlock: {what}"), target, ratio.median, &ratio, &detail)
}

/// Unpinned against one server; then all on one processor against the floor, and with one of the three servers dead.
pub(crate) fn measure(flavor: Flavor, lock: &str, effort: Effort) -> Vec<Row> {
    let several = Several::start(flavor, 3);
    let single = Server::start(flavor);
    let url = several.url("quarantine_ms=0");
    let client = onelock::blocking::Client::connect(&url).expect("the servers are up");
    let alone = onelock::blocking::Client::connect(&single.url()).expect("the server is up");
    let mut rows = Vec::new();
    let unpinned = rounds(
        &mut [&mut |cycles| blocking(&client, lock, cycles), &mut |cycles| blocking(&alone, lock, cycles)],
        effort,
    );
    rows.push(row("three servers / one, not pinned", Target::AtMost(1.6), &unpinned[0], &unpinned[1]));

    host::pin(None, CPU);
    for server in &several.servers {
        host::pin(Some(server.pid()), CPU);
    }
    let mut floor = Floor::start(&several.servers, lock);
    let ours = runtime();
    let tasks = ours.block_on(onelock::Client::connect(&url)).expect("the servers are up");
    let mut asynchronous = |cycles: usize| {
        ours.block_on(async {
            let mut took = Vec::with_capacity(cycles);
            for _ in 0..cycles {
                let start = Instant::now();
                let lease = tasks.lock(lock).acquire().await.expect("the lock is free");
                lease.release().await.expect("it is held");
                took.push(start.elapsed());
            }
            median(&mut took)
        })
    };
    let pinned = rounds(
        &mut [&mut |cycles| floor.block(cycles), &mut |cycles| blocking(&client, lock, cycles), &mut asynchronous],
        effort,
    );
    rows.push(row("onelock::blocking / three raw connections", Target::AtMost(1.3), &pinned[1], &pinned[0]));
    rows.push(row("onelock (async) / three raw connections", Target::None, &pinned[2], &pinned[0]));

    several.servers[2].kill();
    // the first calls find out
    blocking(&client, lock, 100);
    let down = rounds(&mut [&mut |cycles| blocking(&client, lock, cycles)], effort);
    rows.push(row("one of three dead / healthy", Target::AtMost(1.5), &down[0], &pinned[1]));
    rows
}
