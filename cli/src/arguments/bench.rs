//! `onelock bench`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Parser, ValueHint};

use super::Server;
use crate::span::span;

/// Measure how fast locks are on a server
///
/// One lock taken and released by one thread; many threads, each with a lock of its own; and a lock that two clients hand
/// to each other, each of which holds it for 2 ms: so many hand-overs in a second there are at most 500. It ends after --time
/// and releases what it holds, also when it is interrupted. What remains are the counters of its fencing tokens: on Redis
/// they end by themselves after seven days, in files and in PostgreSQL they stay, one file or row for each lock
/// (onelock-bench:*).
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  onelock bench redis://localhost\n  onelock bench --time 3s --json | jq .handover.median_us\n\nTimes:\n  500ms, 30s, 5m, 2h, 1d; a number alone is seconds."
)]
pub(crate) struct Bench {
    /// The address to measure at, instead of --url
    #[arg(value_name = "URL", value_hint = ValueHint::Url, conflicts_with = "url")]
    pub(crate) address: Option<String>,
    /// How long it takes in all
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = span)]
    pub(crate) time: Duration,
    /// How many threads of this process take locks at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// What the names of its locks begin with
    #[arg(long, value_name = "TEXT", default_value = "onelock-bench:")]
    pub(crate) name: OsString,
    /// As a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
