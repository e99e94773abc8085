//! `onelock inspect`.

use std::ffi::OsString;

use clap::Parser;

use super::Server;

/// Show who holds a lock
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  onelock inspect deploy:shop\n  onelock inspect deploy:shop --json | jq .owner.host"
)]
pub(crate) struct Inspect {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// As a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
