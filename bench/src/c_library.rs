//! The C library against hiredis: one caller on one processor, sixteen threads, and its size.

use onelock_tests::servers::Server;

use crate::Effort;
use crate::floor::Floor;
use crate::host;
use crate::raw::Requests;
use crate::report::{Row, Target};
use crate::statistics::{Ratio, quantile};

/// The digits are replaced by the number of the thread.
const LOCK: &str = "bench:c:00";

fn compare(
    (ours, our_order): (&mut Floor, &str),
    (theirs, their_order): (&mut Floor, &str),
    rounds: usize,
    cycles: usize,
) -> [Vec<f64>; 2] {
    let (mut own, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut both = [0.0; 2];
        for turn in 0..2 {
            let index = (turn + round) % 2;
            let took = if index == 0 { ours.block(our_order, cycles) } else { theirs.block(their_order, cycles) };
            both[index] = took.as_secs_f64() * 1e6;
        }
        // the first round only warms up
        if round > 0 {
            own.push(both[0]);
            floor.push(both[1]);
        }
    }
    [own, floor]
}

/// Sixteen threads with a lock each, against sixteen threads with a connection each; and the size of the library.
pub(crate) fn threads(server: &Server, effort: Effort) -> Vec<Row> {
    let (rounds, cycles) = effort.choose((30, 200), (5, 50));
    let mut ours = Floor::start_c(server.port(), LOCK);
    let mut theirs = Floor::start(&[server.port()], &Requests::new(LOCK));
    let [own, floor] = compare((&mut ours, "threads"), (&mut theirs, "threads"), rounds, cycles);
    // cycles a second, so the other way round
    let ratio = Ratio::of(&floor, &own);
    let [own, floor] = [own, floor].map(|mut us| 1e3 / quantile(&mut us, 0.5));
    let detail = format!("{own:.1}k cycles/s; hiredis {floor:.1}k");
    let library = std::env::current_exe().expect("a program has a path").with_file_name("libonelock.so.0.bench");
    let mib = std::fs::metadata(library).expect("`make bench` builds it").len() as f64 / f64::from(1 << 20);
    vec![
        Row::new("C: 16 threads with a lock each", Target::AtLeast(0.95), ratio.median, &ratio, &detail),
        Row::new("C: shared library, stripped", Target::AtMost(8.0), mib, &format!("{mib:.1} MiB"), &""),
    ]
}

/// One caller; this process, its children and the server must be on one processor already.
pub(crate) fn sequential(server: &Server, cpu: usize, effort: Effort) -> Row {
    let (rounds, cycles) = effort.choose((20, 2000), (5, 500));
    let mut ours = Floor::start_c(server.port(), LOCK);
    let mut theirs = Floor::start(&[server.port()], &Requests::new(LOCK));
    host::pin(Some(ours.pid()), cpu);
    host::pin(Some(theirs.pid()), cpu);
    let [own, floor] = compare((&mut ours, "cycles"), (&mut theirs, "scripts"), rounds, cycles);
    let ratio = Ratio::of(&own, &floor);
    let [own, floor] = [own, floor].map(|mut us| quantile(&mut us, 0.5));
    let detail = format!("p50 {own:.1} us; hiredis {floor:.1} us");
    Row::new("C: one caller", Target::AtMost(1.15), ratio.median, &ratio, &detail)
}
