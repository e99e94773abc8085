//! Locks in PostgreSQL without durability: a cycle against the same two statements by the driver alone, and a hand-over to
//! another process against a bare notification.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use onelock_tests::postgres::Postgres;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use crate::Effort;
use crate::handover::{Waiter, now_ns, order_blocking, println_flushed};
use crate::report::{Row, Target};
use crate::statistics::{Ratio, quantile};

const LOCK: &str = "bench";
const ACQUIRE: &str = include_str!("../../core/src/store/postgres/sql/acquire.sql");
const RELEASE: &str = include_str!("../../core/src/store/postgres/sql/release.sql");

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The library's own statements without their remarks, sent by the driver.
struct Raw {
    client: Client,
    acquire: String,
    release: String,
    number: u64,
}

async fn stream(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server is up");
    stream.set_nodelay(true).expect("a socket");
    stream
}

fn config() -> Config {
    let mut config = Config::new();
    config.user("postgres").dbname("postgres");
    config
}

impl Raw {
    async fn connect(port: u16) -> Raw {
        let (client, connection) = config().connect_raw(stream(port).await, NoTls).await.expect("the server is up");
        tokio::spawn(connection);
        let text = |file: &str| {
            let lines = file.lines().filter(|line| !line.starts_with("--")).map(str::trim);
            lines.collect::<Vec<_>>().join(" ").replace("{table}", "\"onelock_locks\"")
        };
        Raw { client, acquire: text(ACQUIRE), release: text(RELEASE), number: 0 }
    }

    async fn cycle(&mut self) {
        self.number += 1;
        let (name, token, none) = (&b"bench-raw"[..], format!("onelock1:{:032x}", self.number), None::<String>);
        let parameters: [(&(dyn ToSql + Sync), Type); 6] = [
            (&name, Type::BYTEA),
            (&token, Type::TEXT),
            (&1_i16, Type::INT2),
            (&30_000_000_i64, Type::INT8),
            (&none, Type::TEXT),
            (&true, Type::BOOL),
        ];
        let row = self.client.query_typed_one(&self.acquire, &parameters).await.expect("a reply");
        assert!(row.get::<_, Option<i64>>(1).is_some(), "it is free");
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&name, Type::BYTEA), (&token, Type::TEXT), (&true, Type::BOOL)];
        let row = self.client.query_typed_one(&self.release, &parameters).await.expect("a reply");
        assert!(row.get::<_, bool>(1), "it is held");
    }
}

/// What a side does in turn, and how long each of `each` cycles took at the median, in microseconds.
fn p50(each: usize, mut cycle: impl FnMut()) -> f64 {
    let mut took: Vec<f64> = (0..each)
        .map(|_| {
            let begun = Instant::now();
            cycle();
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    quantile(&mut took, 0.5)
}

/// Ours from an async caller and from a thread, in turn with the driver's own.
fn sequential(server: &Postgres, effort: Effort) -> Vec<Row> {
    let (rounds, each) = effort.choose((40, 500), (4, 50));
    let runtime = runtime();
    let client = runtime.block_on(onelock::Client::connect(&server.url(""))).expect("the server is up");
    let blocking = onelock::blocking::Client::connect(&server.url("")).expect("the server is up");
    let mut raw = runtime.block_on(Raw::connect(server.port()));
    let (lock, blocking_lock) = (client.lock(LOCK), blocking.lock(LOCK));
    let mut medians = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=rounds {
        let took = [
            p50(each, || {
                runtime.block_on(async {
                    lock.acquire().await.expect("it is free").release().await.expect("it is held");
                });
            }),
            p50(each, || {
                blocking_lock.acquire().expect("it is free").release().expect("it is held");
            }),
            p50(each, || runtime.block_on(raw.cycle())),
        ];
        if round > 0 {
            for (all, took) in medians.iter_mut().zip(took) {
                all.push(took);
            }
        }
    }
    runtime.block_on(client.close());
    blocking.close();
    let ratios = [0, 1].map(|side| Ratio::of(&medians[side], &medians[2]));
    let [own, from_thread, bare] = [0, 1, 2].map(|side| quantile(&mut medians[side], 0.5));
    let row = |what: &str, target: f64, ratio: Ratio, own: f64| {
        let detail = format!("p50 {own:.0} us; the same two statements by tokio-postgres {bare:.0} us");
        Row::new(what, Target::AtMost(target), ratio.median, &ratio, &detail)
    };
    vec![
        row("postgres: one async caller", 1.15, ratios[0], own),
        row("postgres: one blocking caller", 1.25, ratios[1], from_thread),
    ]
}

/// The waiting process: see `handover::wait`.
///
/// # Panics
/// When the server is gone.
pub(crate) fn wait(kind: &str, place: &str) {
    if kind == "postgres" {
        let client = onelock::blocking::Client::connect(place).expect("the server is up");
        while order_blocking() {
            let lease = client.lock(LOCK).acquire().expect("the lock becomes free");
            let woken = now_ns();
            lease.release().expect("it is held");
            println_flushed(woken);
        }
        client.close();
        return;
    }
    let port = place.parse().expect("a port");
    runtime().block_on(async {
        let (client, mut connection) = config().connect_raw(stream(port).await, NoTls).await.expect("the server is up");
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    let _ = sender.send(());
                }
            }
        });
        client.batch_execute("LISTEN bench").await.expect("a reply");
        while tokio::task::spawn_blocking(order_blocking).await.unwrap_or(false) {
            told.recv().await.expect("a notification");
            println_flushed(now_ns());
        }
    });
}

fn hand_over(server: &Postgres, effort: Effort) -> Row {
    let (rounds, each) = effort.choose((20, 20), (4, 10));
    let client = onelock::blocking::Client::connect(&server.url("")).expect("the server is up");
    let session = server.session();
    let mut waiters = [Waiter::start("postgres", &server.url("")), Waiter::start("listen", &server.port().to_string())];
    // it has marked the row by then, and is asleep
    let settle = || std::thread::sleep(Duration::from_millis(30));
    let mut medians = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for side in [round % 2, 1 - round % 2] {
            let waiter = &mut waiters[side];
            let mut once = || {
                let lease = (side == 0).then(|| client.lock(LOCK).acquire().expect("the lock is free"));
                waiter.order();
                settle();
                let released = now_ns();
                match lease {
                    Some(lease) => drop(lease.release().expect("it is held")),
                    None => session.run("NOTIFY bench"),
                }
                waiter.woken_at().saturating_sub(released) as f64 / 1e3
            };
            let mut took: Vec<f64> = (0..each).map(|_| once()).collect();
            if round > 0 {
                medians[side].push(quantile(&mut took, 0.5));
            }
        }
    }
    client.close();
    let ratio = Ratio::of(&medians[0], &medians[1]);
    let [own, bare] = [0, 1].map(|side| quantile(&mut medians[side], 0.5));
    let detail = format!("p50 {own:.0} us; a bare NOTIFY {bare:.0} us");
    Row::new("postgres: hand-over", Target::AtMost(3.0), ratio.median, &ratio, &detail)
}

/// All of them.
pub(crate) fn measure(effort: Effort) -> Vec<Row> {
    let server = Postgres::start();
    let mut rows = sequential(&server, effort);
    rows.push(hand_over(&server, effort));
    rows
}
