//! Every option, once: the parser, help, completion and man pages are made of it.

#![allow(clippy::doc_markdown, reason = "what is written here is shown on terminals and in man pages")]

mod bench;
mod doctor;
mod export;
mod free;
mod generate;
mod inspect;
mod list;
mod release;
mod run;
mod server;
#[cfg(test)]
mod tests;
mod top;

use clap::Parser;

pub(crate) use self::bench::Bench;
pub(crate) use self::doctor::Doctor;
pub(crate) use self::export::Export;
pub(crate) use self::free::WaitFree;
pub(crate) use self::generate::{Completions, Man};
pub(crate) use self::inspect::Inspect;
pub(crate) use self::list::List;
pub(crate) use self::release::{ForceRelease, Release};
pub(crate) use self::run::Run;
pub(crate) use self::server::Server;
pub(crate) use self::top::Top;
use crate::status::STATUSES;

/// Run a command under a distributed lock, and see what is locked
///
/// The lock is kept on a Redis or Valkey server, on several of them, in PostgreSQL, etcd or memcached, or in files of this
/// machine, and shared with every program that uses onelock. On Redis it is shared with clients of the same form, too:
/// redis-py, node-redlock, Redisson.
#[derive(Debug, Parser)]
#[command(name = "onelock", version, after_help = STATUSES, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    Run(Run),
    List(List),
    Top(Top),
    Inspect(Inspect),
    Wait(WaitFree),
    Release(Release),
    ForceRelease(ForceRelease),
    Doctor(Doctor),
    Bench(Bench),
    Export(Export),
    Completions(Completions),
    Man(Man),
}
