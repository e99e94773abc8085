//! Which server, by which address, as whom: the options of every subcommand that asks one.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Where the locks are kept
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// Address of the server: redis:// or valkey://, rediss://, unix://, redis+sentinel://, redis+cluster://, redlock://, postgres://, etcd://, memcached://, or file:///FOLDER
    ///
    /// Without it, the environment variable ONELOCK_URL says. A password in the address is seen by whoever sees the
    /// command line: better give it by the variable.
    #[arg(short, long, value_name = "URL", value_hint = ValueHint::Url, global = false)]
    pub(crate) url: Option<String>,
    /// Put before every name, on the server
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Certificate authorities to believe, PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca_file: Option<PathBuf>,
    /// The client's certificate, PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key_file")]
    pub(crate) cert_file: Option<PathBuf>,
    /// The client's private key, PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert_file")]
    pub(crate) key_file: Option<PathBuf>,
    /// Believe any certificate; for experiments only
    #[arg(long)]
    pub(crate) tls_insecure: bool,
    /// Who this is, for those who look at the lock or at the server's CLIENT LIST
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}
