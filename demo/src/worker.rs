//! One worker process: takes the lock, adds one to the counter, releases the lock, and so on until it is told to end.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use onelock::ErrorKind;
use onelock::blocking::{Cancel, Client, Lease};

use crate::clock::now_us;
use crate::event::Event;
use crate::ledger::Ledger;

/// The length of the leases: short, so that the demo shows what happens when one runs out.
pub(crate) const TTL: Duration = Duration::from_secs(1);

/// What a worker is started with: its command line.
#[derive(Clone)]
pub(crate) struct Job {
    /// The lock's name; empty to work without a lock.
    pub(crate) lock: String,
    pub(crate) ledger: PathBuf,
}

/// Runs until standard input ends. The address of the server is in `$ONELOCK_URL`.
pub(crate) fn run(number: usize, job: &Job) -> Result<(), Box<dyn Error>> {
    let boss = Boss::listen();
    let ledger = Ledger::open(&job.ledger)?;
    if job.lock.is_empty() {
        return work_without_a_lock(&boss, &ledger);
    }
    let client =
        Client::builder().ttl(TTL).label(format!("demo worker {number}")).inspectable(true).connect_blocking("")?;
    let lock = client.lock(&job.lock).interrupt(boss.cancel.clone());
    while !boss.has_ended() {
        let since = now_us();
        let lease = match lock.acquire() {
            Ok(lease) => lease,
            Err(error) if error.kind() == ErrorKind::Cancelled => break,
            Err(error) => return Err(error.into()),
        };
        // The time is read first: if the lease is held after that, it was held at that time.
        let at = now_us();
        if lease.is_held() {
            say(&Event::Entered { at, since, token: token(&lease)? });
            increment(&boss, &ledger, &lease)?;
        }
        say(&Event::Left { at: now_us() });
        lease.release()?;
        rest(2000);
    }
    client.close();
    Ok(())
}

/// The guarded work: read, think, write.
fn increment(boss: &Boss, ledger: &Ledger, lease: &Lease) -> Result<(), Box<dyn Error>> {
    let token = token(lease)?;
    let counter = match ledger.read(token)? {
        Ok(counter) => counter,
        Err(stale) => {
            say(&Event::Refused { highest: stale.highest });
            return Ok(());
        }
    };
    rest(1000);
    let stalled = boss.stall_if_asked();

    let at = now_us();
    let held = lease.is_held();
    if stalled {
        say(&Event::Woke { at, held });
    } else if !held {
        say(&Event::Lost);
        return Ok(());
    }
    // A worker that was stopped writes although it knows better, to show that its token gives it away.
    match ledger.write(token, counter + 1)? {
        Ok(()) => say(&Event::Wrote { at }),
        Err(stale) => say(&Event::Refused { highest: stale.highest }),
    }
    Ok(())
}

/// The same work with nothing that keeps others out.
fn work_without_a_lock(boss: &Boss, ledger: &Ledger) -> Result<(), Box<dyn Error>> {
    while !boss.has_ended() {
        let counter = ledger.read(0)??;
        rest(1000);
        ledger.write(0, counter + 1)??;
        say(&Event::Wrote { at: now_us() });
        rest(2000);
    }
    Ok(())
}

fn token(lease: &Lease) -> Result<u64, Box<dyn Error>> {
    lease.fencing_token().ok_or_else(|| "this server gives no fencing tokens".into())
}

/// Passes a short time that is different every time, up to `limit_us`.
fn rest(limit_us: u64) {
    let mixed = now_us().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    std::thread::sleep(Duration::from_micros(mixed % limit_us));
}

/// Tells the boss. When nobody listens any more this process has no reason to go on, and its next look says so.
pub(crate) fn say(event: &Event) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{event}\n").as_bytes()).and_then(|()| out.flush());
}

/// The process that started this one: its orders come in over standard input, and its end is the end of that.
struct Boss {
    stall: Arc<AtomicBool>,
    cancel: Cancel,
    ended: Arc<AtomicBool>,
    go_on: Receiver<()>,
}

impl Boss {
    fn listen() -> Boss {
        let (sender, go_on) = channel();
        let boss = Boss { stall: Arc::default(), cancel: Cancel::new(), ended: Arc::default(), go_on };
        let (stall, cancel, ended) = (boss.stall.clone(), boss.cancel.clone(), boss.ended.clone());
        std::thread::spawn(move || {
            obey(&stall, &sender);
            ended.store(true, Ordering::Release);
            cancel.cancel();
            drop(sender); // ends a stall
        });
        boss
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// If the boss has asked for it: stays here until told to go on. Renewal runs meanwhile.
    fn stall_if_asked(&self) -> bool {
        let asked = self.stall.swap(false, Ordering::AcqRel);
        if asked {
            say(&Event::Stalled);
            // an error means that the boss has gone, which is as good as being told
            let _ = self.go_on.recv();
        }
        asked
    }
}

/// Follows orders until there are no more.
fn obey(stall: &AtomicBool, go_on: &Sender<()>) {
    for line in std::io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("stall") => stall.store(true, Ordering::Release),
            Ok("go on") => {
                // fails when the worker has ended already
                let _ = go_on.send(());
            }
            _ => return,
        }
    }
}
