//! Redlock on three servers in other languages: our packages for Node.js and Python, node-redlock and pottery, in turn with
//! the C program on hiredis and with the library itself.

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;

use onelock_tests::servers::Flavor;
use onelock_tests::topology::Several;

use crate::Effort;
use crate::floor::{Floor, comma_separated};
use crate::raw::Requests;
use crate::redlock::{LOCKS, blocking, check, pin, ports, rounds, row};
use crate::report::{Row, Target};

/// A program of `bench/` in another language, which knows the sides named there.
fn program(interpreter: &str, path: &str, ports: &[u16], locks: &[&str]) -> Floor {
    let mut command = Command::new(interpreter);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).arg(comma_separated(ports)).args(locks);
    Floor::run(command)
}

/// First where the system puts them, then all on one processor.
///
/// # Panics
/// When the packages were not built and `$ONELOCK_BENCH_PYTHON` is not set; `bench/redlock.sh` does both.
pub(crate) fn measure(flavor: Flavor, effort: Effort) -> Vec<Row> {
    let interpreter = std::env::var("ONELOCK_BENCH_PYTHON").expect("bench/redlock.sh measures this part");
    let several = Several::start(flavor, 3);
    let ports = ports(&several);
    let floor = RefCell::new(Floor::start(&ports, &Requests::new(LOCKS[0])));
    let client = onelock::blocking::Client::connect(&several.url("quarantine_ms=0")).expect("the servers are up");
    let node = RefCell::new(program("node", "node/several.mjs", &ports, &LOCKS[2..4]));
    let python = RefCell::new(program(&interpreter, "python/several.py", &ports, &LOCKS[4..7]));
    check(
        &several,
        &mut [
            ("hiredis", LOCKS[0], &mut |cycles| floor.borrow_mut().block("scripts", cycles)),
            ("onelock::blocking", LOCKS[1], &mut |cycles| blocking(&client, LOCKS[1], cycles)),
            ("the Node package", LOCKS[2], &mut |cycles| node.borrow_mut().block("onelock", cycles)),
            ("the Python package", LOCKS[4], &mut |cycles| python.borrow_mut().block("onelock", cycles)),
            ("the Python package, asyncio", LOCKS[5], &mut |cycles| python.borrow_mut().block("asyncio", cycles)),
        ],
    );
    let mut rows = Vec::new();
    for one_processor in [false, true] {
        if one_processor {
            pin(&several, &[&floor.borrow(), &node.borrow(), &python.borrow()]);
        }
        let took = rounds(
            &mut [
                &mut |cycles| floor.borrow_mut().block("scripts", cycles),
                &mut |cycles| blocking(&client, LOCKS[1], cycles),
                &mut |cycles| node.borrow_mut().block("onelock", cycles),
                &mut |cycles| node.borrow_mut().block("redlock", cycles / 2),
                &mut |cycles| python.borrow_mut().block("onelock", cycles),
                &mut |cycles| python.borrow_mut().block("asyncio", cycles),
                &mut |cycles| python.borrow_mut().block("pottery", cycles / 10),
            ],
            effort,
        );
        let [floor, library, node, redlock, python, asyncio, pottery] =
            <[Vec<f64>; 7]>::try_from(took).expect("as many as there are sides");
        let place = if one_processor { "one processor" } else { "not pinned" };
        let pairs = [
            ("Node package / redlock 5 on ioredis", &node, &redlock),
            ("Python package / pottery on redis-py", &python, &pottery),
            ("Python package, asyncio / pottery on redis-py", &asyncio, &pottery),
            ("onelock::blocking / hiredis", &library, &floor),
            ("Node package / hiredis", &node, &floor),
            ("Python package / hiredis", &python, &floor),
            ("Python package, asyncio / hiredis", &asyncio, &floor),
            ("redlock 5 on ioredis / hiredis", &redlock, &floor),
            ("pottery on redis-py / hiredis", &pottery, &floor),
        ];
        rows.extend(pairs.map(|(what, ours, theirs)| row(&format!("{what}, {place}"), Target::None, ours, theirs)));
    }
    rows
}
