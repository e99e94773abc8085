//! `onelock release` and `onelock force-release`.

use std::ffi::OsString;

use clap::Parser;

use super::Server;

/// Release a lock that another program has handed over
///
/// The proof is what `detach` of a lease gives, in any language.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  onelock release cart:7 --proof - < proof.txt")]
pub(crate) struct Release {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// The proof; `-` reads it from standard input, where nobody else sees it
    #[arg(long, value_name = "PROOF")]
    pub(crate) proof: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// Take a lock away from whoever holds it
///
/// For an emergency: the holder goes on believing in its lock until its next renewal, and two may be at work until then.
/// On a terminal it shows the holder and asks; elsewhere it needs --yes.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  onelock force-release deploy:shop\n  onelock force-release deploy:shop --yes")]
pub(crate) struct ForceRelease {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Take away what may be no lock, too: a string that is not of onelock, with or without a time to live
    #[arg(long)]
    pub(crate) foreign: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}
