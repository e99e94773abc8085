//! Forks while it holds a lock, and checks what both processes see: `onelock-forker blocking|async|storm|exit|end|outlive|metrics URL`.
//!
//! Ends with status 0 when everything was as it must be. After the child of `blocking` and `async` has done its part, a
//! line `look` is printed and a line on standard input waited for, so that the test can look at the server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "test code that talks over its standard output"
)]
#![allow(unsafe_code, reason = "fork, and what only a forked child may do with what it inherited")]

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Owner, Release};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, HistogramBuilder, InstrumentProvider, Meter, SyncInstrument};

const LIMIT: Duration = Duration::from_secs(15);
const TTL: Duration = Duration::from_secs(3);

fn builder() -> onelock::ClientBuilder {
    onelock::Client::builder().request_timeout(Duration::from_secs(5))
}

/// Runs `work` in a forked child and waits for it.
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child runs on the thread that forked, takes no lock that another thread may hold (that the library
    // takes none either is what is tested), and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let good = catch_unwind(AssertUnwindSafe(work)).is_ok();
        // SAFETY: ends the process; nothing of the parent's is run or freed.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let start = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a local that lives through the call.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child ended with {status:x}");
            return;
        }
        if start.elapsed() > LIMIT {
            // SAFETY: two numbers; the child is ours and has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Drops the child's copy of something that the parent goes on using.
fn drop_copy<T>(inherited: &T) {
    // SAFETY: called in a child that neither uses nor drops the original again: it leaves by _exit.
    drop(unsafe { std::ptr::read(inherited) });
}

/// Lets the test look at the server.
fn look() {
    println!("look");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "nobody is there");
}

fn forked<T>(result: Result<T, onelock::Error>) {
    match result {
        Ok(_) => panic!("it worked in the child"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Forked, "{error}"),
    }
}

fn blocking(url: &str) {
    let told: &'static AtomicU64 = Box::leak(Box::default());
    let client = builder().connect_blocking(url).unwrap();
    let lock = client.lock("a").ttl(TTL).renew_every(Duration::from_millis(5)).on_lost(|_| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    let lease = lock.acquire().unwrap();
    let owner = Owner::named("me");
    let reentrant = client.reentrant_lock("r").owner(&owner);
    let outer = reentrant.acquire().unwrap();
    in_child(|| {
        // what was inherited holds nothing, and says so without asking anybody
        for inherited in [&lease, &outer] {
            assert!(!inherited.is_held() && inherited.remaining().is_zero());
            assert_eq!((inherited.hold_count(), inherited.loss()), (0, None));
            assert_eq!(inherited.wait_lost(Duration::from_millis(20)).unwrap(), None);
            inherited.on_lost(|_| panic!("told"));
            forked(inherited.release());
            forked(inherited.extend(TTL));
            forked(inherited.detach());
        }
        drop_copy(&lease);
        drop_copy(&outer);
        // the same client is a new one here
        assert_eq!(client.stats().acquired, 0);
        assert!(client.lock("a").try_acquire().unwrap().is_none(), "the parent has it");
        assert!(reentrant.try_acquire().unwrap().is_none(), "the owner of this name is another one here");
        let mine = client.lock("b").ttl(TTL).acquire().unwrap();
        let again = client.reentrant_lock("r2").owner(&owner).acquire().unwrap();
        assert!(mine.is_held() && again.is_held());
        look();
        in_child(|| {
            assert!(!mine.is_held() && !lease.is_held());
            forked(mine.release());
            assert!(client.lock("c").try_acquire().unwrap().is_some());
        });
        assert_eq!(mine.release().unwrap(), Release::Released);
        assert_eq!(again.release().unwrap(), Release::Released);
        client.close();
        assert_eq!(client.lock("b").acquire().unwrap_err().kind(), ErrorKind::Closed);
        drop_copy(&lock);
        drop_copy(&client);
    });
    // the parent is as it was: not closed, renewing, holding
    assert!(lease.is_held() && outer.is_held());
    let renewals = client.stats().renewals;
    let start = Instant::now();
    while client.stats().renewals < renewals + 20 {
        assert!(start.elapsed() < LIMIT, "nothing is renewed any more");
        std::thread::sleep(Duration::from_millis(1));
    }
    look();
    assert_eq!(outer.release().unwrap(), Release::Released);
    assert_eq!(lease.release().unwrap(), Release::Released);
    assert_eq!(told.load(Ordering::Relaxed), 0);
    client.close();
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(work)
}

/// The async client, whose parent has a runtime with threads of its own, and whose child makes another.
fn asynchronous(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = runtime.block_on(builder().connect(url)).unwrap();
    let lock = client.lock("a").ttl(TTL).renew_every(Duration::from_millis(5));
    let lease = runtime.block_on(lock.acquire()).unwrap();
    in_child(|| {
        assert!(!lease.is_held());
        let new = ManuallyDrop::new(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
        new.block_on(async {
            forked(lease.release().await);
            forked(lease.extend(TTL).await);
            drop_copy(&lease);
            assert!(client.lock("a").try_acquire().await.unwrap().is_none());
            let mine = client.lock("b").acquire().await.unwrap();
            let again = client.reentrant_lock("r2").acquire().await.unwrap();
            look();
            assert_eq!(mine.release().await.unwrap(), Release::Released);
            assert_eq!(again.release().await.unwrap(), Release::Released);
            client.close().await;
        });
        drop_copy(&client);
    });
    assert!(lease.is_held());
    let renewals = client.stats().renewals;
    runtime.block_on(async {
        let enough = async {
            while client.stats().renewals < renewals + 20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LIMIT, enough).await.expect("nothing is renewed any more");
    });
    look();
    assert_eq!(runtime.block_on(lease.release()).unwrap(), Release::Released);
    runtime.block_on(client.close());
}

/// Forks again and again while other threads are in the middle of everything.
fn storm(url: &str) {
    let client = builder().connect_blocking(url).unwrap();
    let lease = client.lock("a").ttl(TTL).renew_every(Duration::from_millis(1)).acquire().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (client, done) = (&client, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let lease = client.lock(format!("worker:{}", worker / 2)).ttl(TTL).acquire().unwrap();
                    assert!(lease.is_held());
                    lease.release().unwrap();
                }
            });
        }
        for round in 0..40 {
            in_child(|| {
                assert!(!lease.is_held());
                forked(lease.release());
                let mine = client.lock(format!("child:{round}")).acquire().unwrap();
                assert!(mine.is_held());
                assert_eq!(mine.release().unwrap(), Release::Released);
                drop_copy(&lease);
            });
            assert!(lease.is_held());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(lease.release().unwrap(), Release::Released);
    assert_eq!(client.stats().lost, 0);
    // a future runtime is still to be had
    on_runtime(async { assert!(onelock::Client::connect("memory://").await.is_ok()) });
}

/// Leaves while it holds, while it waits, and without closing anything.
fn exit(url: &str) {
    let client = builder().connect_blocking(url).unwrap();
    let lease = client.lock("a").ttl(TTL).acquire().unwrap();
    let waiter = client.clone();
    std::thread::spawn(move || waiter.lock("a").acquire());
    while client.stats().waiting == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(lease.is_held());
    look();
    std::process::exit(0);
}

/// A guard goes at the end of `main`, and so does the program.
fn end(url: &str) {
    let client = builder().connect_blocking(url).unwrap();
    let _lease = client.lock("a").ttl(TTL).acquire().unwrap();
}

/// Leaves a child behind that lives until its input ends, when this process is killed.
fn outlive(url: &str) {
    let client = builder().connect_blocking(url).unwrap();
    let _lease = client.lock("a").ttl(Duration::from_secs(3600)).acquire().unwrap();
    // SAFETY: as in `in_child`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child > 0 {
        println!("look");
        loop {
            std::thread::park();
        }
    }
    let mut rest = String::new();
    let ended = std::io::stdin().read_line(&mut rest);
    println!("the child ends");
    // SAFETY: ends the process; nothing of the parent's is run or freed.
    unsafe { libc::_exit(i32::from(ended.is_err())) };
}

/// Reads the number in the file that `$COUNTER` names, and writes the next one.
fn count_on() {
    let file = std::env::var_os("COUNTER").unwrap();
    let number: u64 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    std::fs::write(&file, (number + 1).to_string()).unwrap();
}

/// Counts a hundred times with the lock; other processes do the same.
fn count_blocking(url: &str) {
    let client = builder().connect_blocking(url).unwrap();
    for _ in 0..100 {
        let lease = client.lock("count").acquire().unwrap();
        count_on();
        assert_eq!(lease.release().unwrap(), Release::Released);
    }
    client.close();
}

fn count_async(url: &str) {
    on_runtime(async {
        let client = builder().connect(url).await.unwrap();
        for _ in 0..100 {
            let lease = client.lock("count").acquire().await.unwrap();
            count_on();
            assert_eq!(lease.release().await.unwrap(), Release::Released);
        }
        client.close().await;
    });
}

/// How often a histogram got a measurement, in this process.
static MEASURED: AtomicU64 = AtomicU64::new(0);

struct Measuring;

impl SyncInstrument<f64> for Measuring {
    fn measure(&self, _: f64, _: &[KeyValue]) {
        MEASURED.fetch_add(1, Ordering::Relaxed);
    }
}

impl InstrumentProvider for Measuring {
    fn f64_histogram(&self, _: HistogramBuilder<'_, Histogram<f64>>) -> Histogram<f64> {
        Histogram::new(Arc::new(Measuring))
    }
}

/// A child does not touch what its parent registered, where a lock may be held for ever, until it registers its own.
fn metrics(url: &str) {
    let measured = || MEASURED.load(Ordering::Relaxed);
    let client = builder().connect_blocking(url).unwrap();
    let meter = Meter::new(Arc::new(Measuring));
    client.register_metrics(&meter, []).unwrap();
    let lease = client.lock("a").acquire().unwrap();
    assert_eq!(measured(), 1, "it waited");
    in_child(|| {
        client.lock("b").acquire().unwrap().release().unwrap();
        assert_eq!(measured(), 1);
        client.register_metrics(&meter, []).unwrap();
        assert_eq!(client.register_metrics(&meter, []).unwrap_err().kind(), ErrorKind::InvalidArgument);
        client.lock("b").acquire().unwrap().release().unwrap();
        assert_eq!(measured(), 3, "it waited, and was held");
        client.close();
    });
    lease.release().unwrap();
    assert_eq!(measured(), 2);
    client.close();
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (what, url) = (args.next().unwrap(), args.next().unwrap());
    match what.as_str() {
        "blocking" => blocking(&url),
        "async" => asynchronous(&url),
        "storm" => storm(&url),
        "exit" => exit(&url),
        "end" => end(&url),
        "outlive" => outlive(&url),
        "metrics" => metrics(&url),
        "count-blocking" => count_blocking(&url),
        "count-async" => count_async(&url),
        other => panic!("{other}"),
    }
}
