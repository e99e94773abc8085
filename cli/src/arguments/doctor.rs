//! `onelock doctor`.

use std::ffi::OsString;

use clap::{Parser, ValueHint};

use super::Server;

/// Look at the servers step by step: what works, what does not, and what to do
///
/// Name, TCP, TLS, user, database, role; then how the server is set up, its clock, the round trip, and each permission that
/// locks need, one by one. Of several servers each is looked at. Nothing is changed on them.
///
/// The status is 0 if locks work and nothing endangers them, 1 if something does (what is marked with !), and that of the
/// first step that fails otherwise.
#[derive(Debug, Parser)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct Doctor {
    /// The address to look at, instead of --url
    #[arg(value_name = "URL", value_hint = ValueHint::Url, conflicts_with = "url")]
    pub(crate) address: Option<String>,
    /// What the names of locks begin with that this user may lock: permissions are tried on such a name
    #[arg(long, value_name = "TEXT", default_value = "onelock-doctor:")]
    pub(crate) name: OsString,
    /// As a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show every permission, also those that are there
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

const DOCTOR_HELP: &str = "\
Examples:
  onelock doctor redis://localhost
  onelock doctor --name app: rediss://app@redis.example.com
  onelock doctor --json | jq '.findings[] | select(.severity == \"failed\")'";
