//! `onelock wait`.

use std::ffi::OsString;

use clap::Parser;

use super::Server;
use crate::span::{Wait, wait};

/// Wait until nobody holds a lock, without taking it
#[derive(Debug, Parser)]
#[command(
    name = "wait",
    after_help = "Examples:\n  onelock wait deploy:shop --timeout 5m && echo free\n\nTimes:\n  500ms, 30s, 5m, 2h, 1d; a number alone is seconds."
)]
pub(crate) struct WaitFree {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// How long to wait: a duration, 0 for one look, or forever
    #[arg(short, long, visible_alias = "wait", visible_short_alias = 'w', value_name = "TIME", default_value = "forever", value_parser = wait)]
    pub(crate) timeout: Wait,
    #[command(flatten)]
    pub(crate) server: Server,
}
