//! The kinds of lock beside a plain one: one caller, one processor, everything free, the time from `acquire` to the end of
//! `release`; and a hand-over of a fair lock with many waiting beside one with one waiting.

use std::time::{Duration, Instant};

use onelock::Error;
use onelock::blocking::{Client, Lease, MultiLock};
use onelock_tests::servers::Server;

use crate::report::{Row, Target};
use crate::statistics::{Ratio, median, quantile};
use crate::{CPU, Effort, host};

type Cycle<'a> = Box<dyn Fn() -> Result<Lease, Error> + 'a>;

/// What is compared with a plain lock, and what it may cost.
fn sides(client: &Client) -> Vec<(&'static str, Target, Cycle<'_>)> {
    let several =
        |count: usize| -> MultiLock { client.multi_lock((0..count).map(|number| format!("bench:several:{number}"))) };
    let (two, eight) = (several(2), several(8));
    vec![
        ("lock", Target::None, Box::new(|| client.lock("bench:kind:lock").acquire())),
        ("fair_lock", Target::AtMost(1.15), Box::new(|| client.fair_lock("bench:kind:fair").acquire())),
        ("rw_lock, read", Target::AtMost(1.35), Box::new(|| client.rw_lock("bench:kind:rw").read().acquire())),
        ("rw_lock, write", Target::AtMost(1.2), Box::new(|| client.rw_lock("bench:kind:rw").write().acquire())),
        ("semaphore of 4", Target::AtMost(1.25), Box::new(|| client.semaphore("bench:kind:permits", 4).acquire())),
        ("multi_lock of 2", Target::AtMost(1.3), Box::new(move || two.acquire())),
        ("multi_lock of 8", Target::AtMost(2.0), Box::new(move || eight.acquire())),
    ]
}

fn block(cycle: &Cycle<'_>, cycles: usize) -> Duration {
    let mut took = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let start = Instant::now();
        let lease = cycle().expect("it is free");
        lease.release().expect("it is held");
        took.push(start.elapsed());
    }
    median(&mut took)
}

/// Measures all kinds in turn, block by block, and compares them with a plain lock.
///
/// From here on this process and the server stay on one processor.
pub(crate) fn measure(server: &Server, effort: Effort) -> Vec<Row> {
    let (rounds, cycles) = effort.choose((20, 1000), (5, 300));
    host::pin(None, CPU);
    host::pin(Some(server.pid()), CPU);
    let client = Client::connect(&server.url()).expect("the server is up");
    let sides = sides(&client);
    let mut medians = vec![Vec::new(); sides.len()];
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            // another one begins each round, so that none always follows the same
            let index = (turn + round) % sides.len();
            let median = block(&sides[index].2, cycles);
            if round > 0 {
                medians[index].push(median.as_secs_f64() * 1e6);
            }
        }
    }
    let lock_us = quantile(&mut medians[0].clone(), 0.5);
    let rows = sides.iter().enumerate().skip(1).map(|(index, (name, target, _))| {
        let ratio = Ratio::of(&medians[index], &medians[0]);
        let us = quantile(&mut medians[index].clone(), 0.5);
        let detail = format!("p50 {us:.1} us; lock {lock_us:.1} us");
        Row::new(&format!("kinds: {name} / lock"), *target, ratio.median, &ratio, &detail)
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.push(waiting(server, effort));
    rows
}

/// From the call of `release` to the next one's grant, with 32 clients in the queue of a fair lock, and with one.
fn waiting(server: &Server, effort: Effort) -> Row {
    let (rounds, grants) = effort.choose((10, 100), (3, 30));
    let mut medians = [Vec::new(), Vec::new()];
    let mut commands = 0.0;
    for round in 0..=rounds {
        for (index, count) in [1, 32].into_iter().enumerate() {
            let (mut took, sent) = hand_overs(server, count, grants);
            if round > 0 {
                medians[index].push(median(&mut took).as_secs_f64() * 1e6);
                commands = sent;
            }
        }
    }
    let ratio = Ratio::of(&medians[1], &medians[0]);
    let [one, many] = medians.map(|mut medians| quantile(&mut medians, 0.5));
    let detail = format!("p50 {many:.0} us; one waiting {one:.0} us; {commands:.1} commands a hand-over with 32");
    Row::new("kinds: fair_lock, 32 waiting / 1 waiting", Target::AtMost(1.15), ratio.median, &ratio, &detail)
}

/// So many clients wait, each with a place of its own; whoever gets the lock tells when, and enters again.
fn hand_overs(server: &Server, waiting: usize, grants: usize) -> (Vec<Duration>, f64) {
    let url = server.url();
    let clients: Vec<Client> = (0..=waiting).map(|_| Client::connect(&url).expect("the server is up")).collect();
    let sent = |clients: &[Client]| clients.iter().map(|client| client.stats().commands_sent).sum::<u64>();
    let (sender, granted) = std::sync::mpsc::channel::<(Instant, Lease)>();
    let mut took = Vec::with_capacity(grants);
    let mut commands = 0;
    std::thread::scope(|scope| {
        let (first, others) = clients.split_first().expect("one holds it");
        let mut held = first.fair_lock("bench:kind:queue").acquire().expect("it is free");
        for client in others {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Ok(lease) = client.fair_lock("bench:kind:queue").acquire() {
                    if sender.send((Instant::now(), lease)).is_err() {
                        return;
                    }
                }
            });
        }
        // all of them stand in the queue
        while others.iter().map(|client| client.stats().waiting).sum::<u64>() < waiting as u64 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = sent(&clients);
        for _ in 0..grants {
            std::thread::sleep(Duration::from_micros(500));
            let released = Instant::now();
            held.release().expect("it is held");
            let (at, lease) = granted.recv().expect("somebody waits");
            took.push(at.saturating_duration_since(released));
            held = lease;
        }
        commands = sent(&clients) - before;
        drop(granted);
        for client in &clients {
            client.close();
        }
    });
    (took, commands as f64 / grants as f64)
}
