//! A lock goes from one process to a waiter in another: the time from the call of `release` to the waiter's return from
//! `acquire`. The peer hands over a list element: from `LPUSH` to the return of `BLPOP`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use onelock_tests::servers::{Server, spawn};
use redis::Connection;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use crate::Effort;
use crate::raw::ask;
use crate::report::{Row, Target};
use crate::sequential::runtime;
use crate::statistics::{Ratio, quantile};

const LOCK: &str = "bench:handover";
const LIST: &str = "bench:handover:list";

/// The clock that both processes see.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The waiting process: for every line of input it waits once and answers with the time at which it was woken.
///
/// # Panics
/// When the server goes away.
pub(crate) fn wait(kind: &str, url: &str) {
    let redis = || redis::Client::open(url).expect("the server's address is one");
    match kind {
        "onelock" => runtime().block_on(async {
            let client = onelock::Client::connect(url).await.expect("the server is up");
            while order().await {
                let lease = client.lock(LOCK).acquire().await.expect("the lock becomes free");
                let woken = now_ns();
                lease.release().await.expect("it is held");
                println_flushed(woken);
            }
            client.close().await;
        }),
        "onelock::blocking" => {
            let client = onelock::blocking::Client::connect(url).expect("the server is up");
            while order_blocking() {
                let lease = client.lock(LOCK).acquire().expect("the lock becomes free");
                let woken = now_ns();
                lease.release().expect("it is held");
                println_flushed(woken);
            }
            client.close();
        }
        "blpop" => runtime().block_on(async {
            let mut connection = redis().get_multiplexed_async_connection().await.expect("the server is up");
            connection.set_response_timeout(Duration::from_secs(60));
            while order().await {
                let mut command = redis::cmd("BLPOP");
                let popped: redis::RedisResult<(String, String)> =
                    command.arg(LIST).arg(0).query_async(&mut connection).await;
                let woken = now_ns();
                popped.expect("something is pushed");
                println_flushed(woken);
            }
        }),
        "blpop, blocking" => {
            let mut connection = redis().get_connection().expect("the server is up");
            while order_blocking() {
                let _: (String, String) = ask(&mut connection, &["BLPOP", LIST, "0"]);
                println_flushed(now_ns());
            }
        }
        "file" | "inotify" => crate::files::wait(kind, url),
        "postgres" | "listen" => crate::postgres::wait(kind, url),
        other => panic!("there is no waiter {other}"),
    }
}

pub(crate) fn order_blocking() -> bool {
    std::io::stdin().read_line(&mut String::new()).is_ok_and(|read| read > 0)
}

async fn order() -> bool {
    tokio::task::spawn_blocking(order_blocking).await.unwrap_or(false)
}

pub(crate) fn println_flushed(value: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).expect("the parent listens");
}

/// The waiting process as the parent sees it.
pub(crate) struct Waiter {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    child: Child,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Waiter {
    pub(crate) fn start(kind: &str, url: &str) -> Waiter {
        let mut command = Command::new(std::env::current_exe().expect("a program has a path"));
        command.args(["waiter", kind, url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).expect("the program starts");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Waiter { orders, answers, child }
    }

    pub(crate) fn order(&mut self) {
        writeln!(self.orders, "wait").expect("the waiter runs");
    }

    pub(crate) fn woken_at(&mut self) -> u64 {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the waiter runs");
        line.trim().parse().expect("the waiter has said why it ended")
    }
}

/// Waits until `ready` is true, then for a moment more, so that the waiter sleeps as deeply as it can.
fn settle(mut ready: impl FnMut() -> bool) {
    while !ready() {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(Duration::from_millis(5));
}

fn listeners(control: &mut Connection) -> u64 {
    let channel = onelock::machine::naming::channel(onelock::Kind::Mutex, LOCK.as_bytes());
    let reply: (String, u64) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(control).expect("the server is up");
    reply.1
}

fn blocked(control: &mut Connection) -> bool {
    ask::<String>(control, &["INFO", "clients"]).contains("blocked_clients:1")
}

/// Who holds the lock or pushes.
enum Holder {
    Async(Runtime, onelock::Client),
    Blocking(onelock::blocking::Client),
    Push(Runtime, redis::aio::MultiplexedConnection),
    PushBlocking(Connection),
}

struct Pair {
    holder: Holder,
    waiter: Waiter,
}

impl Pair {
    /// One hand-over.
    fn once(&mut self, control: &mut Connection) -> Duration {
        let waiter = &mut self.waiter;
        let released = match &mut self.holder {
            Holder::Async(runtime, client) => runtime.block_on(async {
                let lease = client.lock(LOCK).acquire().await.expect("the lock is free");
                settle_listener(waiter, control);
                let released = now_ns();
                lease.release().await.expect("it is held");
                released
            }),
            Holder::Blocking(client) => {
                let lease = client.lock(LOCK).acquire().expect("the lock is free");
                settle_listener(waiter, control);
                let released = now_ns();
                lease.release().expect("it is held");
                released
            }
            Holder::Push(runtime, connection) => {
                waiter.order();
                settle(|| blocked(control));
                runtime.block_on(async {
                    let released = now_ns();
                    let pushed: redis::RedisResult<u64> =
                        redis::cmd("LPUSH").arg(LIST).arg("x").query_async(connection).await;
                    pushed.expect("the server is up");
                    released
                })
            }
            Holder::PushBlocking(connection) => {
                waiter.order();
                settle(|| blocked(control));
                let released = now_ns();
                let _: u64 = ask(connection, &["LPUSH", LIST, "x"]);
                released
            }
        };
        Duration::from_nanos(waiter.woken_at().saturating_sub(released))
    }
}

/// Lets the waiter wait for the lock; the one before must have stopped listening.
fn settle_listener(waiter: &mut Waiter, control: &mut Connection) {
    while listeners(control) != 0 {}
    waiter.order();
    settle(|| listeners(control) == 1);
}

/// Measures all pairs in turn.
pub(crate) fn measure(server: &Server, effort: Effort) -> Vec<Row> {
    let (rounds, each) = effort.choose((20, 20), (4, 10));
    let url = server.url();
    let redis = redis::Client::open(url.clone()).expect("the server's address is one");
    let mut control = redis.get_connection().expect("the server is up");
    let (ours, bare) = (runtime(), runtime());
    let client = ours.block_on(onelock::Client::connect(&url)).expect("the server is up");
    let connection = bare.block_on(redis.get_multiplexed_async_connection()).expect("the server is up");
    let pair = |holder, kind| Pair { holder, waiter: Waiter::start(kind, &url) };
    let mut pairs = [
        pair(Holder::Async(ours, client), "onelock"),
        pair(Holder::Push(bare, connection), "blpop"),
        pair(
            Holder::Blocking(onelock::blocking::Client::connect(&url).expect("the server is up")),
            "onelock::blocking",
        ),
        pair(Holder::PushBlocking(redis.get_connection().expect("the server is up")), "blpop, blocking"),
    ];
    let mut medians = vec![Vec::new(); pairs.len()];
    for round in 0..=rounds {
        for turn in 0..pairs.len() {
            let index = (turn + round) % pairs.len();
            let mut took: Vec<f64> = (0..each).map(|_| pairs[index].once(&mut control).as_secs_f64() * 1e6).collect();
            if round > 0 {
                medians[index].push(quantile(&mut took, 0.5));
            }
        }
    }
    let row = |what: &str, index: usize| {
        let ratio = Ratio::of(&medians[index], &medians[index + 1]);
        let [own, bare] = [index, index + 1].map(|index| quantile(&mut medians[index].clone(), 0.5));
        let detail = format!("p50 {own:.0} us; BLPOP {bare:.0} us");
        Row::new(&format!("hand-over: {what}"), Target::AtMost(2.5), ratio.median, &ratio, &detail)
    };
    vec![row("async to async", 0), row("blocking to blocking", 2)]
}
