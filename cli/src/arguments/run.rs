//! `onelock run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Parser, ValueHint};

use super::Server;
use crate::span::{Wait, span, wait};

/// Run a command while the lock is held
///
/// Waits until the lock NAME is free, takes it, runs the command, and releases the lock when the command has ended. The
/// lock is renewed as long as the command runs. The command finds ONELOCK_NAME and ONELOCK_FENCING_TOKEN (but for --limit) in its environment.
///
/// Signals are passed on to the command, which runs in a process group of its own and has the terminal. If the lock is lost
/// (the server forgot it, somebody took it away, the network was away for too long), the command and all that it has started
/// get SIGTERM, and SIGKILL after --grace. If onelock itself is killed, so is all of that, at once. On Linux this reaches what
/// has left the process group, too (setsid, timeout, set -m). What is left when the command ends by itself goes on.
#[derive(Debug, Parser)]
#[command(after_help = RUN_HELP, override_usage = RUN_USAGE)]
pub(crate) struct Run {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "shell",
        conflicts_with = "shell",
        last = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
    /// Run LINE by /bin/sh instead of a command
    #[arg(short = 'c', long, value_name = "LINE", value_hint = ValueHint::CommandString)]
    pub(crate) shell: Option<OsString>,
    /// How long to wait for the lock: a duration, 0 for one try, or forever
    #[arg(short, long, value_name = "TIME", default_value = "forever", value_parser = wait)]
    pub(crate) wait: Wait,
    /// How long others wait after this machine has died
    ///
    /// The lock is renewed every third of it while the command runs, however long that takes. 30s, or --min-hold if that
    /// is longer.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) ttl: Option<Duration>,
    /// Keep the lock for at least so long, however early the command ends
    ///
    /// For a job that many machines start at the same time: one whose clock is late finds the lock still taken, and does
    /// not run the job a second time. onelock itself ends with the command.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "0")]
    pub(crate) min_hold: Duration,
    /// End the command when it has run for so long
    ///
    /// SIGTERM, and SIGKILL after --grace. The lock is kept until all that the command has started has ended. The status is
    /// 80.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) max_hold: Option<Duration>,
    /// After SIGTERM, how long until SIGKILL
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "10s")]
    pub(crate) grace: Duration,
    /// Exit with this status when the lock is held by somebody else
    #[arg(short = 'E', long, value_name = "NUMBER")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Let the command enter again: an `onelock run` of the same lock inside it does not wait for itself
    ///
    /// The one inside need not repeat --owner, nor --reentrant, --fair, --shared or --exclusive. It names the server by the same
    /// address. It looks every 2s whether the lock is still held, and ends its command when it is not. It is told by the
    /// variable ONELOCK_OWNER: what drops that (sudo, ssh, env -i) makes it wait for itself. Write sudo
    /// --preserve-env=ONELOCK_OWNER.
    #[arg(long)]
    pub(crate) owner: bool,
    /// Take the lock as a reentrant one, which Redisson's RLock shares
    #[arg(long, group = "kind")]
    pub(crate) reentrant: bool,
    /// Take it as a fair lock: whoever asked first is served first
    ///
    /// Everybody who takes the lock has to say so.
    #[arg(long, group = "kind")]
    pub(crate) fair: bool,
    /// Take it as one of many readers: it runs beside other --shared commands, never beside an --exclusive one
    ///
    /// The read side of a read/write lock, which Redisson's RReadWriteLock shares.
    #[arg(long, group = "kind")]
    pub(crate) shared: bool,
    /// Take it as the writer of a read/write lock: nobody else runs, --shared or --exclusive
    #[arg(long, group = "kind")]
    pub(crate) exclusive: bool,
    /// At most NUMBER commands run at the same time: a semaphore with so many permits
    ///
    /// Everybody names the same number; another one is an error that names both.
    #[arg(long, value_name = "NUMBER", group = "kind", conflicts_with = "owner", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) limit: Option<u32>,
    /// How many of the permits of --limit this command takes: all or none
    #[arg(long, value_name = "NUMBER", requires = "limit", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) permits: u32,
    /// Say on standard error what happens to the lock
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

const RUN_USAGE: &str = "\
onelock run [OPTIONS] <NAME> -- <COMMAND> [ARGUMENT]...
       onelock run [OPTIONS] <NAME> -c <LINE>";

const RUN_HELP: &str = "\
Examples:
  One of many machines does the nightly job; the others do not wait:
      onelock run nightly --wait 0 -E 0 --min-hold 30s -- /usr/local/bin/report

  Wait at most a minute for a deployment that is under way:
      onelock run deploy:shop --wait 1m -- ./deploy.sh

  At most three downloads at a time, on all machines together:
      onelock run downloads --limit 3 -- wget https://example.org/large

  Many backups read at a time, and the one that cleans up waits until none does:
      onelock run archive --shared -- ./backup.sh
      onelock run archive --exclusive -- ./prune.sh

  A line for the shell; the resource is told the fencing token, so that it can
  refuse a late writer:
      onelock run import -c 'psql -v token=$ONELOCK_FENCING_TOKEN -f import.sql'

Times:
  500ms, 30s, 5m, 2h, 1d; a number alone is seconds. One number and one unit:
  90m, not 1h30m.

The status is that of the command; see `onelock --help` for the others.";
