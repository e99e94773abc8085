//! One caller, one lock, one processor: the time from `acquire` to the end of `release`.

use std::future::Future;
use std::time::{Duration, Instant};

use onelock_tests::servers::Server;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};

use crate::floor::Floor;
use crate::host;
use crate::raw::Requests;
use crate::report::{Row, Target};
use crate::statistics::{Ratio, median, quantile};
use crate::{CPU, Effort};

/// A runtime on the calling thread.
///
/// # Panics
/// When there is no epoll.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

/// Runs a future there.
pub(crate) fn block_on<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(work)
}

/// One of those that are compared.
trait Side {
    fn name(&self) -> &'static str;
    /// The median of `cycles` cycles.
    fn block(&mut self, cycles: usize) -> Duration;
}

struct Hiredis<'a> {
    floor: &'a std::cell::RefCell<Floor>,
    name: &'static str,
    kind: &'static str,
}

impl Side for Hiredis<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn block(&mut self, cycles: usize) -> Duration {
        self.floor.borrow_mut().block(self.kind, cycles)
    }
}

struct Blocking {
    client: onelock::blocking::Client,
    lock: String,
}

impl Side for Blocking {
    fn name(&self) -> &'static str {
        "onelock::blocking"
    }

    fn block(&mut self, cycles: usize) -> Duration {
        timed(cycles, || {
            let lease = self.client.lock(&self.lock).acquire().expect("the lock is free");
            lease.release().expect("it is held");
        })
    }
}

struct Async {
    runtime: Runtime,
    client: onelock::Client,
    lock: String,
}

impl Side for Async {
    fn name(&self) -> &'static str {
        "onelock (async)"
    }

    fn block(&mut self, cycles: usize) -> Duration {
        self.runtime.block_on(timed_async(cycles, async || {
            let lease = self.client.lock(&self.lock).acquire().await.expect("the lock is free");
            lease.release().await.expect("it is held");
        }))
    }
}

struct RedisRs {
    connection: redis::Connection,
    requests: Requests,
}

impl Side for RedisRs {
    fn name(&self) -> &'static str {
        "redis-rs, blocking"
    }

    fn block(&mut self, cycles: usize) -> Duration {
        timed(cycles, || self.requests.run(&mut self.connection))
    }
}

struct RedisRsAsync {
    runtime: Runtime,
    connection: MultiplexedConnection,
    requests: Requests,
}

impl Side for RedisRsAsync {
    fn name(&self) -> &'static str {
        "redis-rs, multiplexed"
    }

    fn block(&mut self, cycles: usize) -> Duration {
        let RedisRsAsync { runtime, connection, requests } = self;
        runtime.block_on(async {
            let mut took = Vec::with_capacity(cycles);
            for _ in 0..cycles {
                let start = Instant::now();
                requests.run_async(connection).await;
                took.push(start.elapsed());
            }
            median(&mut took)
        })
    }
}

fn timed(cycles: usize, mut cycle: impl FnMut()) -> Duration {
    let mut took = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        cycle();
        took.push(start.elapsed());
    }
    median(&mut took)
}

async fn timed_async(cycles: usize, cycle: impl AsyncFn()) -> Duration {
    let mut took = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        cycle().await;
        took.push(start.elapsed());
    }
    median(&mut took)
}

/// Measures all sides in turn, block by block, and compares them with hiredis.
///
/// From here on this process, its children and the server stay on one processor.
pub(crate) fn measure(server: &Server, lock: &str, effort: Effort) -> Vec<Row> {
    let (rounds, cycles) = effort.choose((20, 2000), (5, 500));
    host::pin(None, CPU);
    host::pin(Some(server.pid()), CPU);
    let url = server.url();
    let requests = Requests::new(lock);
    let floor = Floor::start(&[server.port()], &requests);
    host::pin(Some(floor.pid()), CPU);
    let floor = std::cell::RefCell::new(floor);

    let redis = redis::Client::open(url.clone()).expect("the server's address is one");
    let (ours, bare) = (runtime(), runtime());
    let client = ours.block_on(onelock::Client::connect(&url)).expect("the server is up");
    let connection = bare.block_on(redis.get_multiplexed_async_connection()).expect("the server is up");
    let mut sides: Vec<Box<dyn Side + '_>> = vec![
        Box::new(Hiredis { floor: &floor, name: "hiredis, same scripts", kind: "scripts" }),
        Box::new(Blocking {
            client: onelock::blocking::Client::connect(&url).expect("the server is up"),
            lock: lock.to_owned(),
        }),
        Box::new(Async { runtime: ours, client, lock: lock.to_owned() }),
        Box::new(Hiredis { floor: &floor, name: "hiredis, SET NX PX and compare-and-delete", kind: "plain" }),
        Box::new(RedisRs { connection: redis.get_connection().expect("the server is up"), requests: requests.clone() }),
        Box::new(RedisRsAsync { runtime: bare, connection, requests }),
    ];
    let mut medians = vec![Vec::new(); sides.len()];
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            // another one begins each round, so that none always follows the same
            let index = (turn + round) % sides.len();
            let median = sides[index].block(cycles);
            if round > 0 {
                medians[index].push(median.as_secs_f64() * 1e6);
            }
        }
    }
    let floor_us = quantile(&mut medians[0].clone(), 0.5);
    let targets = [Target::None, Target::AtMost(1.15), Target::AtMost(1.6), Target::None, Target::None, Target::None];
    let mut rows = Vec::new();
    for (index, (side, target)) in sides.iter().zip(targets).enumerate() {
        let ratio = Ratio::of(&medians[index], &medians[0]);
        let us = quantile(&mut medians[index].clone(), 0.5);
        let detail =
            if index == 0 { format!("p50 {us:.1} us") } else { format!("p50 {us:.1} us; hiredis {floor_us:.1} us") };
        rows.push(Row::new(&format!("sequential: {}", side.name()), target, ratio.median, &ratio, &detail));
    }
    rows
}
