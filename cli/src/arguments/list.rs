//! `onelock list`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::Server;
use crate::span::every;

/// Show the locks of a server
///
/// Locks of onelock and of Redisson, and strings with a time to live as any SET NX client writes them: then the client is
/// told as `other`, and it may as well be a cached value. A string without a time to live is not shown, since it may be
/// anything, though it may be a lock that a SET NX client took for ever: `onelock inspect NAME` shows it. On several independent
/// servers it is what a majority sees. The server is asked for little at a time, and serves others meanwhile.
///
/// On a terminal names are cut, and columns left out, so that each lock has one line; elsewhere nothing is.
#[derive(Debug, Parser)]
#[command(after_help = LIST_HELP)]
pub(crate) struct List {
    /// Which names: `*`, `?`, `[abc]` and `\` before what stands for itself
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub(crate) pattern: OsString,
    /// One JSON object for each lock, a line each
    ///
    /// As soon as the server has told it, in no order. With --watch an object with round_ended_ms and locks (how many) ends
    /// each round. What the fields mean stands in the README: "JSON".
    #[arg(long)]
    pub(crate) json: bool,
    /// Only those that are told by onelock itself, or only by the named client
    #[arg(long, value_name = "CLIENT", value_parser = ["onelock", "redisson", "other"])]
    pub(crate) client: Option<String>,
    /// Show it again every so often, until interrupted
    #[arg(long, value_name = "TIME", value_parser = every, num_args = 0..=1, default_missing_value = "2s", require_equals = true)]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: Server,
}

const LIST_HELP: &str = "\
Examples:
  onelock list
  onelock list 'deploy:*' --watch
  onelock list --json | jq -r 'select(.waiting > 0) | .name'

Times:
  500ms, 30s, 5m, 2h, 1d; a number alone is seconds.";
