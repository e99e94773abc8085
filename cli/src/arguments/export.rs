//! `onelock export`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueHint};

use super::Server;
use crate::span::span;

/// Tell Prometheus what is locked
///
/// Metrics of the locks whose names match a pattern, in the text form of Prometheus: over HTTP, on loopback unless told
/// otherwise, or into a file for the node exporter's textfile collector. What a scrape asks of the server is what `onelock
/// list` asks; choose patterns, since each name is a time series.
#[derive(Debug, Parser)]
#[command(after_help = EXPORT_HELP)]
pub(crate) struct Export {
    /// Which names: `*`, `?`, `[abc]` and `\` before what stands for itself
    #[arg(value_name = "PATTERN", required = true)]
    pub(crate) patterns: Vec<OsString>,
    /// Answer GET /metrics on this address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9469", value_parser = host_and_port, conflicts_with = "file")]
    pub(crate) listen: String,
    /// Write into this file instead; it is replaced whole, so that nobody reads a part of it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// How often the file is written, and for how long an answer over HTTP may be told again
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = span)]
    pub(crate) every: Duration,
    /// Write the file once, and end
    #[arg(long, requires = "file")]
    pub(crate) once: bool,
    /// Also strings of clients that are neither onelock nor Redisson, which may be cached values
    #[arg(long)]
    pub(crate) others: bool,
    /// Leave out further locks when there are so many
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// An address to listen on, as far as can be told without looking the host up.
fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is no address to listen on; write HOST:PORT, as 127.0.0.1:9469")),
    }
}

const EXPORT_HELP: &str = "\
Examples:
  onelock export 'deploy:*' 'nightly'
  onelock export '*' --file /var/lib/node_exporter/onelock.prom --every 30s
  onelock export '*' --file /var/lib/node_exporter/onelock.prom --once

Times:
  500ms, 30s, 5m, 2h, 1d; a number alone is seconds.";
