//! 64 tasks, each with a lock of its own, on one connection.

use std::time::Instant;

use onelock_tests::servers::Server;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Effort;
use crate::raw::Requests;
use crate::report::{Row, Target};
use crate::sequential::runtime;
use crate::statistics::{Ratio, quantile};

const TASKS: usize = 64;

/// Cycles a second of `TASKS` tasks that do `cycles` each.
async fn ours(client: &onelock::Client, cycles: usize) -> f64 {
    rate(cycles, |task| {
        let lock = client.lock(name(task));
        async move {
            for _ in 0..cycles {
                let lease = lock.acquire().await.expect("the lock is free");
                lease.release().await.expect("it is held");
            }
        }
    })
    .await
}

async fn theirs(connection: &MultiplexedConnection, cycles: usize) -> f64 {
    rate(cycles, |task| {
        let (mut connection, mut requests) = (connection.clone(), Requests::new(&name(task)));
        async move {
            for _ in 0..cycles {
                requests.run_async(&mut connection).await;
            }
        }
    })
    .await
}

fn name(task: usize) -> String {
    format!("bench:throughput:{task}")
}

async fn rate<F: Future<Output = ()> + Send + 'static>(cycles: usize, work: impl Fn(usize) -> F) -> f64 {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for task in 0..TASKS {
        tasks.spawn(work(task));
    }
    tasks.join_all().await;
    (TASKS * cycles) as f64 / start.elapsed().as_secs_f64()
}

fn compare(what: &str, server: &Server, target: Target, runtime: &Runtime, effort: Effort) -> Row {
    let (rounds, cycles) = effort.choose((80, 50), (10, 50));
    runtime.block_on(async {
        let url = server.url();
        let client = onelock::Client::connect(&url).await.expect("the server is up");
        let redis = redis::Client::open(url).expect("the server's address is one");
        let connection = redis.get_multiplexed_async_connection().await.expect("the server is up");
        let (mut own, mut bare) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let (mine, other) = if round % 2 == 0 {
                let mine = ours(&client, cycles).await;
                (mine, theirs(&connection, cycles).await)
            } else {
                let other = theirs(&connection, cycles).await;
                (ours(&client, cycles).await, other)
            };
            if round > 0 {
                own.push(mine);
                bare.push(other);
            }
        }
        client.close().await;
        let ratio = Ratio::of(&own, &bare);
        let [own, bare] = [own, bare].map(|mut rates| quantile(&mut rates, 0.5) / 1000.0);
        let detail = format!("{own:.1}k cycles/s; redis-rs {bare:.1}k");
        Row::new(&format!("throughput: {TASKS} tasks, {what}"), target, ratio.median, &ratio, &detail)
    })
}

/// Measures both in turn.
pub(crate) fn measure(server: &Server, effort: Effort) -> Vec<Row> {
    let multi = Builder::new_multi_thread().enable_all().build().expect("a runtime can be made");
    vec![
        compare("runtime of one thread", server, Target::AtLeast(0.85), &runtime(), effort),
        compare("runtime of all threads", server, Target::AtLeast(0.85), &multi, effort),
    ]
}
