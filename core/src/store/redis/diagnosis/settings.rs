//! What a server is and how it is set up; its clock, the round trip, and what stands in between.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use super::probe::{Probe, refusal};
use crate::config::warning::{EVICTION, PERSISTENCE, REPLICAS, UNKNOWN, is_danger};
use crate::error::ErrorKind;
use crate::machine::Failure;
use crate::store::diagnosis::FindingList;
use crate::store::redis::node::server_info::judge;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::value::{map_entry, printable, text};
use crate::sys::clock;

/// How often the round trip is measured, and for how long at most.
const ROUND_TRIPS: usize = 50;
const ROUND_TRIPS_WITHIN: Duration = Duration::from_secs(2);
/// How often the server's clock is asked: the fastest answer is the most exact.
const CLOCK_READS: usize = 5;
/// The oldest version that locks work on.
const OLDEST: (u32, u32) = (6, 2);

/// Version, persistence, eviction and replicas. Returns what `INFO` said.
pub(super) async fn server(probe: &mut Probe, in_cluster: bool, found: &mut FindingList) -> Result<String, Failure> {
    let info = probe.ask(&["INFO"]).await?;
    let info = text(&info).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let mut settings = [None, None];
    for (value, name) in settings.iter_mut().zip(["appendfsync", "min-replicas-to-write"]) {
        let reply = probe.ask(&["CONFIG", "GET", name]).await?;
        *value = map_entry(&reply, name.as_bytes()).and_then(text).map(<[u8]>::to_vec);
    }
    let [fsync, min_replicas] = settings;
    let facts = judge(info.as_deref().map(str::as_bytes), fsync.as_deref(), min_replicas.as_deref());
    let info = info.unwrap_or_default();
    let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().map(printable).filter(|text| !text.is_empty());

    version(&facts.server, &field, found);
    if !in_cluster && ["redis_mode", "server_mode"].iter().any(|name| field(name).as_deref() == Some("cluster")) {
        let todo = "write redis+cluster:// instead of redis://, and +cluster after rediss";
        found.failed("role", ErrorKind::InvalidArgument, "a node of a cluster, which keeps a part of the names", todo);
    }
    let shown = |setting: Option<&[u8]>| {
        setting.map_or_else(|| "unknown".to_owned(), |value| printable(&String::from_utf8_lossy(value)))
    };
    let passed = [
        (EVICTION, "maxmemory-policy is noeviction".to_owned()),
        (PERSISTENCE, format!("appendonly is on, appendfsync is {}", shown(fsync.as_deref()))),
        (
            REPLICAS,
            match field("connected_slaves").as_deref() {
                None | Some("0") => "none, so no failover can lose a lock".to_owned(),
                Some(number) => format!("{number}; min-replicas-to-write is {}", shown(min_replicas.as_deref())),
            },
        ),
    ];
    if let Some(unknown) = facts.warnings.iter().find(|warning| warning.ends_with(&format!("({UNKNOWN})"))) {
        found.warning("persistence", sentence(unknown, UNKNOWN).0, "add +info to the user's permissions");
        return Ok(info);
    }
    for (step, fine) in passed {
        let Some(warning) = facts.warnings.iter().find(|warning| warning.ends_with(&format!("({step})"))) else {
            found.passed(step, fine);
            continue;
        };
        let (detail, todo) = sentence(warning, step);
        if is_danger(warning) {
            found.warning(step, detail, todo);
        } else {
            found.remark(step, detail, todo);
        }
    }
    Ok(info)
}

fn version(server: &str, field: &dyn Fn(&str) -> Option<String>, found: &mut FindingList) {
    let Some(version) = field("redis_version") else {
        found.skipped("version", "the server does not tell its version");
        return;
    };
    let mode = field("redis_mode").or_else(|| field("server_mode")).unwrap_or_default();
    let uptime = field("uptime_in_seconds")
        .and_then(|text| text.parse().ok())
        .map_or_else(|| "a time unknown".to_owned(), uptime);
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let numbers = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let detail = format!("{server}, {mode}, up for {uptime}");
    if numbers < OLDEST {
        found.warning("version", detail, "locks are tested on 6.2 and newer: update the server");
    } else {
        found.passed("version", detail);
    }
}

/// A time in the largest unit of which it has two.
fn uptime(seconds: u64) -> String {
    let units = [(86_400, "days"), (3600, "hours"), (60, "minutes")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    unit.map_or_else(|| format!("{seconds} seconds"), |(unit, name)| format!("{} {name}", seconds / unit))
}

/// A warning without its name: what is the matter, and what to do.
fn sentence(warning: &str, name: &str) -> (String, String) {
    let text = warning.strip_suffix(&format!(" ({name})")).unwrap_or(warning);
    let (detail, todo) = text.rsplit_once("; ").unwrap_or((text, ""));
    (detail.to_owned(), todo.to_owned())
}

/// How far the server's clock is ahead of ours, in microseconds.
pub(super) async fn clock(probe: &mut Probe, found: &mut FindingList) -> Result<Option<f64>, Failure> {
    let mut best: Option<(Duration, f64)> = None;
    for _ in 0..CLOCK_READS {
        let (sent, wall) = (clock::now(), clock::wall_us());
        let reply = probe.ask(&["TIME"]).await?;
        let took = clock::now().since(sent);
        let Some(theirs) = microseconds(&reply) else {
            found.skipped("clock", "the server does not tell its time");
            return Ok(None);
        };
        let ahead = theirs - (wall as f64 + took.as_secs_f64() * 1e6 / 2.0);
        if best.is_none_or(|(fastest, _)| took < fastest) {
            best = Some((took, ahead));
        }
    }
    let Some((took, ahead)) = best else { return Ok(None) };
    found.clock(ahead, took);
    Ok(Some(ahead))
}

fn microseconds(reply: &Value) -> Option<f64> {
    let Value::Array(items) = reply else { return None };
    let number = |at: usize| str::from_utf8(items.get(at).and_then(text)?).ok()?.parse::<f64>().ok();
    Some(number(0)? * 1e6 + number(1)?)
}

/// How long a request takes, and how much that varies.
pub(super) async fn round_trip(
    probe: &mut Probe,
    options: &RedisOptions,
    found: &mut FindingList,
) -> Result<(), Failure> {
    let (begun, mut took) = (clock::now(), Vec::with_capacity(ROUND_TRIPS));
    while took.len() < ROUND_TRIPS && (took.is_empty() || clock::now().since(begun) < ROUND_TRIPS_WITHIN) {
        let sent = clock::now();
        probe.ask(&["PING"]).await?;
        took.push(clock::now().since(sent));
    }
    found.round_trips(took, options.request_timeout);
    Ok(())
}

/// Whether the connection leads to the server itself: both say the same about its two ends, and it stays the same one.
pub(super) async fn proxy(probe: &mut Probe, found: &mut FindingList) -> Result<(), Failure> {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let reply = probe.ask(&["CLIENT", "INFO"]).await?;
        if let Some(said) = refusal(&reply) {
            let detail = if said.starts_with("NOPERM") {
                "not looked for: this user may not use CLIENT INFO"
            } else {
                "not looked for: the server does not know CLIENT INFO, or something in between does not pass it on"
            };
            found.skipped("proxy", detail);
            return Ok(());
        }
        let line = String::from_utf8_lossy(text(&reply).unwrap_or_default()).into_owned();
        let word = |name: &str| {
            let words = line.split(' ').filter_map(|word| word.split_once('='));
            words.filter(|(word, _)| *word == name).map(|(_, value)| printable(value)).next()
        };
        seen.push([word("id"), word("addr"), word("laddr")]);
    }
    let same = seen.first() == seen.last();
    let Some([_, addr, laddr]) = seen.pop() else { return Ok(()) };
    if !same {
        let todo = "locks need a connection of their own: connect to the server itself";
        found.warning("proxy", "two requests on one connection reached the server on different ones", todo);
        return Ok(());
    }
    let Some((ours, theirs)) = probe.ends else {
        found.passed("proxy", "none: it is a socket of this machine");
        return Ok(());
    };
    // a server that listens on both shows an address of the older kind within one of the newer
    let is = |told: &Option<String>, end: std::net::SocketAddr| {
        told.as_deref().is_none_or(|told| told.replace("[::ffff:", "").replace("]:", ":") == plain(end))
    };
    if is(&addr, ours) && is(&laddr, theirs) {
        found.passed("proxy", "none: server and client agree on both ends of the connection");
    } else {
        let detail = format!(
            "something translates addresses: we connected from {ours} to {theirs}, the server sees {} to {}",
            addr.unwrap_or_default(),
            laddr.unwrap_or_default()
        );
        let todo = "a NAT or a forwarded port does no harm; a proxy must keep connections apart and pass on every command, \
                    as far as was tried below";
        found.remark("proxy", detail, todo);
    }
    Ok(())
}

fn plain(end: std::net::SocketAddr) -> String {
    end.to_string().replace("[::ffff:", "").replace("]:", ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_units_that_say_something() {
        for (seconds, shown) in
            [(0, "0 seconds"), (119, "119 seconds"), (120, "2 minutes"), (7200, "2 hours"), (200_000, "2 days")]
        {
            assert_eq!(uptime(seconds), shown);
        }
    }
}
