//! A process that the machine gives no more threads, or no more file descriptors, and that gets them again later:
//! `onelock-limited threads|descriptors URL`. Says what is wrong and ends with a failure. `onelock-limited many URL` counts
//! the threads of a process in which many wait for servers that say nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]
#![allow(clippy::print_stdout)] // that is how it answers
#![allow(unsafe_code)] // the limits of the system

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use onelock::blocking::Client;
use onelock::{Error, ErrorKind, LossReason, Release};

/// Long enough on a machine that has other things to do.
const SOON: Duration = Duration::from_secs(30);

/// Which of the system's limits.
#[derive(Clone, Copy)]
struct Limit(libc::__rlimit_resource_t);

impl Limit {
    fn set(self, soft: impl FnOnce(libc::rlimit) -> u64) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls get a pointer to a value that lives until they return.
        unsafe {
            assert_eq!(libc::getrlimit(self.0, &raw mut limit), 0);
            limit.rlim_cur = soft(limit);
            assert_eq!(libc::setrlimit(self.0, &raw const limit), 0);
        }
    }

    /// Nothing more from now on; what there is stays.
    fn exhaust(self) {
        self.set(|_| 1);
    }

    fn lift(self) {
        self.set(|limit| limit.rlim_max);
    }
}

/// The superuser has no limit of threads.
fn become_somebody() {
    // SAFETY: plain system calls.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgid(64_123), 0);
            assert_eq!(libc::setuid(64_123), 0);
        }
    }
}

fn is_limit(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::SystemLimit, "{error}");
    assert!(error.is_retryable());
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (what, url) = (arguments[1].as_str(), arguments[2].as_str());
    let limit = Limit(if what == "threads" { libc::RLIMIT_NPROC } else { libc::RLIMIT_NOFILE });
    if what == "many" {
        return many(url);
    }
    become_somebody();

    first_use(limit, url);
    new_connections(limit, url);
    in_a_runtime_of_its_own(limit, url);
    if what == "threads" {
        callbacks_come_later(limit, url);
    }
    println!("well");
}

const CROWD: usize = 60;

/// How many threads this process has.
fn threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    line.trim().parse().unwrap()
}

/// What the threads are called, and how many have each name.
fn thread_names() -> std::collections::BTreeMap<String, usize> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.fold(std::collections::BTreeMap::new(), |mut counts, name| {
        *counts.entry(name.trim().to_owned()).or_default() += 1;
        counts
    })
}

/// Threads that wait are no reason for more threads, and each is answered in time.
fn many(url: &str) {
    let wait = Duration::from_millis(1500);
    let builder = Client::builder().connect_timeout(Duration::from_secs(1)).node_timeout(Duration::from_millis(500));
    let client = builder.build_blocking(url).unwrap();
    let begun = Instant::now();
    let callers = (0..CROWD).map(|number| {
        let lock = client.lock(format!("many {number}"));
        std::thread::spawn(move || (lock.acquire_within(wait).unwrap_err().kind(), begun.elapsed()))
    });
    let callers = callers.collect::<Vec<_>>();
    // this one, those that wait, the runtime, and a few for each server
    let limit = CROWD + 2 + 3 * 8;
    while callers.iter().any(|caller| !caller.is_finished()) {
        let now = threads();
        assert!(now <= limit, "{now} threads: {:?}", thread_names());
        std::thread::sleep(Duration::from_millis(1));
    }
    for caller in callers {
        let (kind, took) = caller.join().unwrap();
        assert_eq!(kind, ErrorKind::NoQuorum);
        assert!(took < wait + Duration::from_secs(6), "{took:?}");
    }
    println!("well");
}

/// Not even the background runtime can be had.
fn first_use(limit: Limit, url: &str) {
    let client = Client::new(url).unwrap();
    limit.exhaust();
    for _ in 0..3 {
        is_limit(&client.lock("first").try_acquire().unwrap_err());
    }
    is_limit(&client.lock("first").acquire_within(Duration::from_millis(50)).unwrap_err());
    is_limit(&client.check().unwrap_err());
    limit.lift();
    client.lock("first").acquire_within(SOON).unwrap().release().unwrap();
    client.close();
}

/// There is a runtime, but nothing to make a connection with.
fn new_connections(limit: Limit, url: &str) {
    let client = Client::new(url).unwrap();
    limit.exhaust();
    // an address that needs no resolver may be connected to without a thread
    match client.lock("later").acquire_within(Duration::from_millis(50)) {
        // what cannot be released now is released later
        Ok(lease) => assert_ne!(lease.release().unwrap(), Release::AlreadyReleased),
        Err(error) => {
            is_limit(&error);
            assert!(error.to_string().contains("127.0.0.1") || error.to_string().contains("localhost"), "{error}");
        }
    }
    limit.lift();
    let lease = client.lock("later").acquire_within(SOON).unwrap();
    // what there is goes on
    limit.exhaust();
    lease.extend(Duration::from_secs(20)).unwrap();
    lease.release().unwrap();
    limit.lift();
    client.close();
}

/// The caller's runtime has one thread and no pool yet.
fn in_a_runtime_of_its_own(limit: Limit, url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = onelock::Client::new(url).unwrap();
        limit.exhaust();
        let refused = client.lock("async").try_acquire().await;
        limit.lift();
        match refused {
            Ok(lease) => assert_eq!(lease.unwrap().release().await.unwrap(), Release::Released),
            Err(error) => is_limit(&error),
        }
        let lease = client.lock("async").acquire_within(SOON).await.unwrap();
        lease.release().await.unwrap();
        client.close().await;
    });
}

/// A loss is told, only later.
fn callbacks_come_later(limit: Limit, url: &str) {
    let client = Client::connect(url).unwrap();
    let (sender, told) = channel();
    let lock = client.lock("lost").max_hold(Duration::from_millis(1)).on_lost(move |reason| {
        let _ = sender.send(reason);
    });
    // a connection that is there needs nothing more
    client.lock("warm").acquire_within(SOON).unwrap().release().unwrap();
    limit.exhaust();
    let lease = lock.try_acquire().unwrap().unwrap();
    while lease.loss().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(told.recv_timeout(Duration::from_millis(200)).is_err(), "told without a thread");
    limit.lift();
    assert_eq!(told.recv_timeout(SOON).unwrap(), LossReason::MaxHold);
    drop(lease);
    client.close();
}
