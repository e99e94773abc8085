//! `onelock top`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::Server;
use crate::span::every;

/// Show the locks of a server on the whole screen, and what changes
///
/// The lock that most wait for comes first, then the one that is held for longest. GRANTS is how many new holders were seen since
/// this began (those between two looks count as one), WAITED for how long somebody has waited without a pause: where the server tells,
/// since the first of those who wait now has asked, otherwise since it was first seen here. The server is left alone for at least as
/// long as its last answer took. With NO_COLOR in the environment there are no colours.
///
/// Keys: q, Escape or Ctrl-C end it, Ctrl-Z stops it until the shell brings it back, the space bar asks the server at once, o changes
/// the order (waiting, held, grants, name), the arrows, Page Up, Page Down, Home and End (or k, j, g, G) scroll.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  onelock top\n  onelock top 'deploy:*' --every 500ms\n\nTimes:\n  500ms, 30s, 5m, 2h, 1d; a number alone is seconds."
)]
pub(crate) struct Top {
    /// Which names: `*`, `?`, `[abc]` and `\` before what stands for itself
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub(crate) pattern: OsString,
    /// How often the server is asked
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = every)]
    pub(crate) every: Duration,
    /// Also strings of clients that are neither onelock nor Redisson, which may be cached values
    #[arg(long)]
    pub(crate) others: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
