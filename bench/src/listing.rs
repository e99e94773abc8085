//! What others notice while `onelock list` walks 100,000 keys: how long the server takes to answer one who asks it a thousand
//! times a second, with a listing and without, in turn.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onelock_tests::resp::Connection;
use onelock_tests::servers::Server;

use crate::Effort;
use crate::report::{Row, Target};
use crate::statistics::{Ratio, quantile};

const KEYS: &str = "100000";
const NAMES: &str = "bench:listing:";
/// How often the other user asks.
const EVERY: Duration = Duration::from_millis(1);
/// How long it asks while nobody lists.
const CALM: Duration = Duration::from_secs(3);

/// The times of the other user's requests, in ms, as long as `goes_on` says.
fn ask(user: &mut Connection, mut goes_on: impl FnMut() -> bool) -> Vec<f64> {
    let mut took = Vec::new();
    while goes_on() {
        let asked = Instant::now();
        user.cmd(&["GET", NAMES]).expect("the server answers");
        took.push(asked.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(EVERY.saturating_sub(asked.elapsed()));
    }
    took
}

/// The listing, on the same processors as the server and its user: elsewhere it would disturb them less.
fn list(server: &Server) -> Child {
    let mut command = Command::new(crate::command::onelock());
    command.args(["list", &format!("{NAMES}*"), "--json"]).env("ONELOCK_URL", server.url());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("bench/setup.sh sees to it that it is there")
}

/// With a listing and without, in turn.
pub(crate) fn measure(server: &Server, effort: Effort) -> Vec<Row> {
    let fill = "for i = 1, tonumber(ARGV[2]) do redis.call('SET', ARGV[1] .. i, 'token', 'PX', 3600000) end";
    server.cmd(&["EVAL", fill, "0", NAMES, KEYS]);
    let mut user = server.connect();
    let mut parts = [(0.5, Vec::new(), Vec::new()), (0.99, Vec::new(), Vec::new())];
    let mut lasted = Vec::new();
    for _ in 0..effort.choose(7, 1) {
        let until = Instant::now() + CALM;
        let mut calm = ask(&mut user, || Instant::now() < until);
        let begun = Instant::now();
        let mut listing = list(server);
        let mut busy = ask(&mut user, || listing.try_wait().expect("it is our child").is_none());
        assert!(listing.wait().expect("it is our child").success(), "the listing failed");
        lasted.push(begun.elapsed().as_secs_f64());
        for (share, of_busy, of_calm) in &mut parts {
            of_busy.push(quantile(&mut busy, *share));
            of_calm.push(quantile(&mut calm, *share));
        }
    }
    server.cmd(&["FLUSHALL"]);
    let lasted = quantile(&mut lasted, 0.5);
    let row = |title: &str, target, busy: &[f64], calm: &[f64]| {
        let ratio = Ratio::of(busy, calm);
        let [busy, calm] = [busy, calm].map(|ms| quantile(&mut ms.to_vec(), 0.5));
        let detail = format!("{busy:.3} ms; without {calm:.3} ms; the listing took {lasted:.1} s");
        Row::new(title, target, ratio.median, &ratio, &detail)
    };
    let [(_, busy50, calm50), (_, busy99, calm99)] = &parts;
    vec![
        row("p99 of another user during `onelock list` of 100,000 / without", Target::AtMost(1.5), busy99, calm99),
        row("p50 of the same", Target::None, busy50, calm50),
    ]
}
