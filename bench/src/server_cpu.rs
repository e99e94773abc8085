//! What a cycle costs the server: the processor time of its process over cycles that are sent together, beside what a plain
//! lock's cost. Hardly moved by how busy the machine is.

use onelock_tests::servers::Server;
use redis::{Cmd, Connection, Pipeline};

use crate::Effort;
use crate::raw::{self, Requests, ask};
use crate::report::{Row, Target};
use crate::statistics::{Ratio, quantile};

/// So many locks take turns.
const LOCKS: usize = 64;
/// So many cycles are sent together.
const DEPTH: usize = 64;

/// Whose cycles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The library's, with a fencing token.
    Fenced,
    /// The same without one.
    Unfenced,
    /// `SET NX PX`, and compare-and-delete.
    Plain,
}

/// Processor time that the server's process has used, in microseconds.
fn used(connection: &mut Connection) -> f64 {
    let info: String = ask(connection, &["INFO", "cpu"]);
    let value = |key: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse::<f64>().ok()).expect("every server tells")
    };
    (value("used_cpu_user") + value("used_cpu_sys")) * 1e6
}

fn set(requests: &Requests, token: &str) -> Cmd {
    let mut set = redis::cmd("SET");
    set.arg(&requests.lock).arg(token).arg("NX").arg("PX").arg(requests.ttl_ms);
    set
}

fn cycle(side: Side, requests: &mut Requests, delete: &str, into: &mut Pipeline) {
    let token = requests.next_token();
    let (acquire, release) = match side {
        Side::Fenced => requests.cycle_of(&token),
        Side::Unfenced => (set(requests, &token), requests.cycle_of(&token).1),
        Side::Plain => {
            let mut release = redis::cmd("EVALSHA");
            release.arg(delete).arg(1).arg(&requests.lock).arg(&token);
            (set(requests, &token), release)
        }
    };
    into.add_command(acquire).ignore().add_command(release);
}

/// Microseconds of the server for one cycle, over `cycles` of them.
fn block(side: Side, connection: &mut Connection, locks: &mut [Requests], delete: &str, cycles: usize) -> f64 {
    let before = used(connection);
    for from in (0..cycles).step_by(DEPTH) {
        let mut pipeline = redis::pipe();
        for number in from..from + DEPTH {
            cycle(side, &mut locks[number % LOCKS], delete, &mut pipeline);
        }
        let released: Vec<u8> = pipeline.query(connection).expect("the server carries it out");
        assert!(released.len() == DEPTH && released.iter().all(|it| *it == 1), "somebody else uses these locks");
    }
    (used(connection) - before) / cycles.next_multiple_of(DEPTH) as f64
}

/// Measures all in turn.
pub(crate) fn measure(server: &Server, effort: Effort) -> Vec<Row> {
    let (rounds, cycles) = effort.choose((40, 4096), (4, 512));
    let client = redis::Client::open(server.url()).expect("the server's address is one");
    let mut connection = client.get_connection().expect("the server is up");
    let mut locks: Vec<Requests> = (0..LOCKS).map(|number| Requests::new(&format!("bench:cpu:{number}"))).collect();
    let delete = raw::sha(raw::DELETE);
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..=rounds {
        for (place, side) in [Side::Plain, Side::Fenced, Side::Unfenced].into_iter().enumerate() {
            let took = block(side, &mut connection, &mut locks, &delete, cycles);
            if round > 0 {
                times[place].push(took);
            }
        }
    }
    let [plain, fenced, unfenced] = times;
    let row = |what: &str, ours: &[f64], target| {
        let ratio = Ratio::of(ours, &plain);
        let [ours, theirs] = [ours, &plain].map(|times| quantile(&mut times.to_vec(), 0.5));
        let detail = format!("{ours:.1} us a cycle; SET NX PX and compare-and-delete {theirs:.1} us");
        Row::new(&format!("server's processor, {what}"), target, ratio.median, &ratio, &detail)
    };
    vec![row("with fencing", &fenced, Target::AtMost(2.3)), row("without fencing", &unfenced, Target::AtMost(1.8))]
}
