//! `onelock bench`: how fast locks are on a server.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use onelock::ErrorKind;
use onelock::blocking::{Client, Interrupt, Lock};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::Bench;
use crate::server::{address, builder};
use crate::span::show;
use crate::status::{Failure, Status};
use crate::{print, say, server};

/// Locks that nobody releases, since the process was killed, end soon.
const TTL: Duration = Duration::from_secs(5);
/// How long a lock is held before it is handed over: the other one waits for it by then.
const HELD: Duration = Duration::from_millis(2);
/// Of the time given, so much is for each of the three parts.
const PARTS: u32 = 3;

/// Says whether the user has had enough.
#[derive(Clone)]
struct Stop(Arc<AtomicBool>);

impl Interrupt for Stop {
    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Times of one thing, and for how long it was done.
#[derive(Default)]
struct Times {
    each: Vec<Duration>,
    within: Duration,
}

pub(crate) fn bench(mut options: Bench) -> Result<Status, Failure> {
    options.server.url = options.address.take().or(options.server.url);
    if options.time.is_zero() {
        return Err(Failure::usage("--time is 0; it takes some time to measure"));
    }
    let stop = Stop(Arc::default());
    let mut signals = Vec::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let seen = Arc::new(AtomicBool::new(false));
        // the second flag first: whoever sees the stop finds the signal
        let watched = signal_hook::flag::register(signal, seen.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.0.clone()));
        watched.map_err(|error| Failure::new(Status::Software, format!("signals: {error}")))?;
        signals.push((signal, seen));
    }
    let facts = server::client(&options.server)?.check()?;
    let part = options.time / PARTS;
    let cycle = cycles(&options, 1, part, &stop)?;
    let throughput = cycles(&options, usize::from(options.threads), part, &stop)?;
    let handover = hand_over(&options, part, &stop)?;
    if let Some((signal, _)) = signals.iter().find(|(_, seen)| seen.load(Ordering::Relaxed)) {
        say("interrupted; nothing is held any more");
        return Ok(Status::Other(128 + *signal as u8));
    }
    let shown = if options.json {
        format!("{}\n", json(&options, &facts.server, &cycle, &throughput, &handover))
    } else {
        sheet(&options, &facts.server, &cycle, &throughput, &handover)
    };
    print(&shown)?;
    Ok(Status::Done)
}

fn client(options: &Bench) -> Result<Client, Failure> {
    Ok(builder(&options.server).ttl(TTL).build_blocking(address(&options.server))?)
}

fn lock(options: &Bench, client: &Client, what: &str, stop: &Stop) -> Lock {
    let name = [options.name.as_encoded_bytes(), what.as_bytes()].concat();
    client.lock(name).interrupt(stop.clone())
}

/// An end that was asked for is none that is told.
fn unless_stopped(result: Result<(), onelock::Error>) -> Result<(), Failure> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Timeout) => Ok(()),
        other => Ok(other?),
    }
}

/// Threads of one client, each of which takes a lock of its own and releases it.
fn cycles(options: &Bench, threads: usize, within: Duration, stop: &Stop) -> Result<Times, Failure> {
    let client = client(options)?;
    let begun = Instant::now();
    let until = begun + within;
    let work = |number: usize| {
        let lock = lock(options, &client, &number.to_string(), stop);
        let mut each = Vec::new();
        let done = (|| {
            while Instant::now() < until && !stop.interrupted() {
                let begun = Instant::now();
                lock.acquire_within(until.saturating_duration_since(begun).max(HELD))?.release()?;
                each.push(begun.elapsed());
            }
            Ok(())
        })();
        unless_stopped(done).map(|()| each)
    };
    let ended: Vec<Result<Vec<Duration>, Failure>> = thread::scope(|scope| {
        let start = |number| thread::Builder::new().spawn_scoped(scope, move || work(number));
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().map(joined).collect()
    });
    let within = begun.elapsed();
    client.close();
    let mut times = Times { within, ..Times::default() };
    for each in ended {
        times.each.extend(each?);
    }
    times.each.sort_unstable();
    Ok(times)
}

/// What a thread has found, or why there was none.
fn joined<T>(started: io::Result<ScopedJoinHandle<'_, Result<T, Failure>>>) -> Result<T, Failure> {
    let failed = |text: String| Failure::new(Status::Software, text);
    let thread = started.map_err(|error| failed(format!("no thread can be made: {error}")))?;
    thread.join().unwrap_or_else(|_| Err(failed("a thread ended without a result".to_owned())))
}

/// Two clients that hand one lock to each other: from before the release to the other one's grant.
fn hand_over(options: &Bench, within: Duration, stop: &Stop) -> Result<Times, Failure> {
    let clients = [client(options)?, client(options)?];
    let released_at = Mutex::new(None::<Instant>);
    let begun = Instant::now();
    let until = begun + within;
    let take_turns = |client: &Client, granted: SyncSender<()>, other_granted: Receiver<()>, first: bool| {
        let lock = lock(options, client, "turns", stop);
        let mut each = Vec::new();
        let done = (|| {
            if !first && other_granted.recv().is_err() {
                return Ok(());
            }
            while Instant::now() < until && !stop.interrupted() {
                let lease = lock.acquire_within(until.saturating_duration_since(Instant::now()).max(HELD))?;
                let now = Instant::now();
                let released = released_at.lock().unwrap_or_else(PoisonError::into_inner).take();
                each.extend(released.map(|released| now.saturating_duration_since(released)));
                let _ = granted.try_send(());
                thread::sleep(HELD);
                *released_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                lease.release()?;
                // the other one's turn; it goes away when it has ended
                if other_granted.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                    break;
                }
            }
            Ok(())
        })();
        unless_stopped(done).map(|()| each)
    };
    let [(one, of_one), (two, of_two)] = [sync_channel(1), sync_channel(1)];
    let ended = thread::scope(|scope| {
        let thread = thread::Builder::new;
        let first = thread().spawn_scoped(scope, || take_turns(&clients[0], one, of_two, true));
        // without this one the channels are closed, and the first one ends
        let second = thread().spawn_scoped(scope, || take_turns(&clients[1], two, of_one, false));
        [first, second].map(joined)
    });
    let mut times = Times { within: begun.elapsed(), ..Times::default() };
    clients.iter().for_each(Client::close);
    for each in ended {
        times.each.extend(each?);
    }
    times.each.sort_unstable();
    Ok(times)
}

impl Times {
    /// In microseconds; 0 where nothing was done.
    fn part(&self, hundredths: usize) -> f64 {
        let last = self.each.len().saturating_sub(1);
        self.each.get(last * hundredths / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    }

    fn per_second(&self) -> f64 {
        self.each.len() as f64 / self.within.as_secs_f64().max(1e-9)
    }

    fn json(&self) -> Value {
        json!({
            "number": self.each.len(),
            "per_second": self.per_second(),
            "least_us": self.part(0),
            "median_us": self.part(50),
            "p99_us": self.part(99),
            "worst_us": self.part(100),
        })
    }

    fn line(&self, title: &str) -> String {
        if self.each.is_empty() {
            return format!("{title:32}  not once within {}\n", show(self.within));
        }
        format!(
            "{title:32}  {:9.0} us  {:9.0} us  {:9.0} us  {:9.0} /s\n",
            self.part(50),
            self.part(99),
            self.part(100),
            self.per_second()
        )
    }
}

fn json(options: &Bench, server: &str, cycle: &Times, throughput: &Times, handover: &Times) -> Value {
    json!({
        "server": server,
        "threads": options.threads,
        "cycle": cycle.json(),
        "throughput": throughput.json(),
        "handover": handover.json(),
    })
}

fn sheet(options: &Bench, server: &str, cycle: &Times, throughput: &Times, handover: &Times) -> String {
    let titles = format!("{server:32}  {:>12}  {:>12}  {:>12}\n", "median", "p99", "worst");
    [
        titles,
        cycle.line("take and release, one thread"),
        throughput.line(&format!("the same, {} threads", options.threads)),
        handover.line("hand-over between two clients"),
    ]
    .concat()
}
