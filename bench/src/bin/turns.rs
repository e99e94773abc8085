//! `turns KIND PORT NAME NOTES INDEX MODE HOLD_US`: one of several processes that have a lock in turn.
//!
//! What they have to say to each other is in the file NOTES; its format, and what the words mean, is at the beginning of
//! `bench/handover/main.py`.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement that cannot be made should stop with its message"
)]

use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const HOLDER: u64 = 0;
const RELEASED: u64 = 1;
const COUNT: u64 = 2;
const CAPACITY: u64 = 3;
const PORTS: u64 = 8;
const FIRST: u64 = 64;

/// The clock that all processes see.
fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

struct Notes {
    file: File,
    me: i64,
    news: UdpSocket,
}

impl Notes {
    fn open(path: &str, me: i64) -> Notes {
        let file = File::options().read(true).write(true).open(path).expect("the notes exist");
        let news = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
        let notes = Notes { file, me, news };
        let port = notes.news.local_addr().expect("it is bound").port();
        notes.set(PORTS + me.unsigned_abs(), i64::from(port));
        notes
    }

    fn get(&self, word: u64) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, word * 8).expect("the notes have this word");
        i64::from_le_bytes(bytes)
    }

    fn set(&self, word: u64, value: i64) {
        self.file.write_all_at(&value.to_le_bytes(), word * 8).expect("the notes can be written");
    }

    /// The lock was got. False when enough has been measured.
    fn granted(&self, who: i64) -> bool {
        let at = now_ns();
        let (before, released, count) = (self.get(HOLDER), self.get(RELEASED), self.get(COUNT).unsigned_abs());
        let goes_on = count < self.get(CAPACITY).unsigned_abs();
        if goes_on {
            for (word, value) in [at - released, who, at].into_iter().enumerate() {
                self.set(FIRST + count * 3 + word as u64, value);
            }
            self.set(COUNT, 1 + count.cast_signed());
        }
        self.set(HOLDER, who);
        if before >= 0 && before != who {
            let port = self.get(PORTS + before.unsigned_abs());
            let _ = self.news.send_to(b"!", ("127.0.0.1", port as u16));
        }
        goes_on
    }

    fn releasing(&self) {
        self.set(RELEASED, now_ns());
    }

    /// Returns when another process has got the lock.
    fn another(&self) {
        self.news.recv(&mut [0; 8]).expect("the socket stays open");
    }
}

/// Whether the lock is a fair one.
fn is_fair() -> bool {
    std::env::var("BENCH_LOCK").is_ok_and(|lock| lock == "fair")
}

fn ready() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("the parent says when");
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, port, name, notes, index, mode, hold] = &words[..] else { panic!("wrong arguments") };
    let url = format!("redis://127.0.0.1:{port}/");
    let hold = Duration::from_micros(hold.parse().expect("a number"));
    let me: i64 = index.parse().expect("a number");
    let notes = Notes::open(notes, me);
    match (kind.as_str(), mode.as_str()) {
        ("async", "inside") => tasks(&url, name, hold, notes),
        ("blocking", "inside") => threads(&url, name, hold, &notes),
        ("async", _) => turns_of_tasks(&url, name, hold, &notes, mode == "turns"),
        ("blocking", _) => {
            let client = onelock::blocking::Client::connect(&url).expect("the server is up");
            let lock = if is_fair() { client.fair_lock(name) } else { client.lock(name) };
            ready();
            loop {
                let lease = lock.acquire().expect("the lock becomes free");
                let goes_on = notes.granted(me);
                std::thread::sleep(hold);
                notes.releasing();
                lease.release().expect("it is held");
                if !goes_on {
                    break;
                }
                if mode == "turns" {
                    notes.another();
                }
            }
        }
        ("blpop", _) => {
            let redis = redis::Client::open(url).expect("an address");
            let [mut waits, mut gives] = [(); 2].map(|()| redis.get_connection().expect("the server is up"));
            if me == 0 {
                let _: u64 = redis::cmd("LPUSH").arg(name).arg("x").query(&mut gives).expect("the server is up");
            }
            ready();
            loop {
                let _: (String, String) =
                    redis::cmd("BLPOP").arg(name).arg(0).query(&mut waits).expect("something is pushed");
                let goes_on = notes.granted(me);
                std::thread::sleep(hold);
                notes.releasing();
                let _: u64 = redis::cmd("LPUSH").arg(name).arg("x").query(&mut gives).expect("the server is up");
                if !goes_on {
                    break;
                }
                if mode == "turns" {
                    notes.another();
                }
            }
        }
        other => panic!("there is no {other:?}"),
    }
    // until it is killed
    std::thread::sleep(Duration::from_secs(600));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn turns_of_tasks(url: &str, name: &str, hold: Duration, notes: &Notes, polite: bool) {
    runtime().block_on(async {
        let client = onelock::Client::connect(url).await.expect("the server is up");
        let lock = if is_fair() { client.fair_lock(name) } else { client.lock(name) };
        ready();
        notes.news.set_nonblocking(true).expect("a socket");
        let news = tokio::net::UdpSocket::from_std(notes.news.try_clone().expect("a socket")).expect("a socket");
        loop {
            let lease = lock.acquire().await.expect("the lock becomes free");
            let goes_on = notes.granted(notes.me);
            tokio::time::sleep(hold).await;
            notes.releasing();
            lease.release().await.expect("it is held");
            if !goes_on {
                break;
            }
            if polite {
                news.recv(&mut [0; 8]).await.expect("the socket stays open");
            }
        }
    });
}

/// How many in one process.
const MANY: i64 = 500;

fn tasks(url: &str, name: &str, hold: Duration, notes: Notes) {
    let notes = std::sync::Arc::new(notes);
    runtime().block_on(async {
        let client = onelock::Client::connect(url).await.expect("the server is up");
        ready();
        let all: Vec<_> = (0..MANY)
            .map(|number| {
                let (lock, notes) = (client.lock(name), notes.clone());
                tokio::spawn(async move {
                    loop {
                        let lease = lock.acquire().await.expect("the lock becomes free");
                        let goes_on = notes.granted(-1 - number);
                        if !hold.is_zero() {
                            tokio::time::sleep(hold).await;
                        }
                        notes.releasing();
                        lease.release().await.expect("it is held");
                        if !goes_on {
                            break;
                        }
                    }
                })
            })
            .collect();
        for task in all {
            task.await.expect("no task panics");
        }
    });
}

fn threads(url: &str, name: &str, hold: Duration, notes: &Notes) {
    let client = onelock::blocking::Client::connect(url).expect("the server is up");
    ready();
    std::thread::scope(|scope| {
        for number in 0..MANY {
            let lock = client.lock(name);
            scope.spawn(move || {
                loop {
                    let lease = lock.acquire().expect("the lock becomes free");
                    let goes_on = notes.granted(-1 - number);
                    if !hold.is_zero() {
                        std::thread::sleep(hold);
                    }
                    notes.releasing();
                    lease.release().expect("it is held");
                    if !goes_on {
                        break;
                    }
                }
            });
        }
    });
}
