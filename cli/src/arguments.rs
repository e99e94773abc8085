//! Every option, once: the parser, help, completion and man pages are made of it.

#![allow(clippy::doc_markdown, reason = "what is written here is shown on terminals and in man pages")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueHint};

use crate::span::{Wait, every, span, wait};
use crate::status::STATUSES;

/// Run a command under a distributed lock, and see what is locked
///
/// The lock is kept on a Redis or Valkey server, or on several, and shared with every program that uses onelock, and
/// with clients of the same form: redis-py, node-redlock, Redisson.
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

/// Where the locks are kept
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// Address of the server: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, redlock://, postgres://, or file:///FOLDER
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
    /// address. It looks every 2s whether the lock is still held, and ends its command when it is not.
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

The status is that of the command; see `onelock --help` for the others.";

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
  onelock list --json | jq -r 'select(.waiting > 0) | .name'";

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
#[command(after_help = "Examples:\n  onelock top\n  onelock top 'deploy:*' --every 500ms")]
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

/// Wait until nobody holds a lock, without taking it
#[derive(Debug, Parser)]
#[command(name = "wait", after_help = "Examples:\n  onelock wait deploy:shop --timeout 5m && echo free")]
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

/// Measure how fast locks are on a server
///
/// One lock taken and released by one thread; many threads, each with a lock of its own; and a lock that two clients hand
/// to each other. It ends after --time, releases what it holds, also when it is interrupted, and leaves the counters of its
/// fencing tokens, which end by themselves after seven days.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  onelock bench redis://localhost\n  onelock bench --time 3s --json | jq .handover.median_us"
)]
pub(crate) struct Bench {
    /// The address to measure at, instead of --url
    #[arg(value_name = "URL", value_hint = ValueHint::Url, conflicts_with = "url")]
    pub(crate) address: Option<String>,
    /// How long it takes in all
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = span)]
    pub(crate) time: Duration,
    /// How many threads of this process take locks at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// What the names of its locks begin with
    #[arg(long, value_name = "TEXT", default_value = "onelock-bench:")]
    pub(crate) name: OsString,
    /// As a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

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
  onelock export '*' --file /var/lib/node_exporter/onelock.prom --once";

/// Write a completion script for a shell to standard output
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  onelock completions bash > /etc/bash_completion.d/onelock")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Write the man pages into a folder
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  onelock man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The folder
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    /// The words of a line as a shell would split it, up to where it goes on with something else.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for letter in line.chars() {
            match letter {
                '\'' => quoted = !quoted,
                '|' | '>' | '<' | '&' if !quoted => break,
                ' ' if !quoted => words.push(std::mem::take(&mut word)),
                _ => word.push(letter),
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn the_definitions_are_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_letter_stands_for_one_thing_in_all_subcommands() {
        let mut seen: std::collections::HashMap<char, (String, Vec<String>)> = std::collections::HashMap::new();
        let command = Arguments::command();
        for sub in command.get_subcommands() {
            for argument in sub.get_arguments() {
                let mut names: Vec<String> = argument.get_long().map(str::to_owned).into_iter().collect();
                names.extend(argument.get_all_aliases().into_iter().flatten().map(str::to_owned));
                for letter in argument.get_short_and_visible_aliases().into_iter().flatten() {
                    let place = format!("{} -{letter}", sub.get_name());
                    let (before, others) = seen.entry(letter).or_insert_with(|| (place.clone(), names.clone()));
                    assert!(names.iter().any(|name| others.contains(name)), "{place} {names:?}, {before} {others:?}");
                }
            }
        }
        assert!(seen.len() > 4, "{seen:?}");
        for line in ["wait x -w 5m", "wait x --wait 5m", "wait x -t 5m", "wait x --timeout 5m"] {
            let words = std::iter::once("onelock").chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn help_fits_into_eighty_columns() {
        let mut command = Arguments::command().term_width(80);
        command.build();
        let mut texts = Vec::new();
        let mut of = |command: &mut clap::Command| {
            // what stands in columns is not to be broken anywhere else
            texts.extend(
                [command.get_before_help(), command.get_after_help()].into_iter().flatten().map(ToString::to_string),
            );
            texts.extend([command.render_help(), command.render_long_help()].map(|help| help.to_string()));
        };
        command.get_subcommands_mut().for_each(&mut of);
        of(&mut command);
        let is_wide = |line: &&str| unicode_width::UnicodeWidthStr::width(*line) > 80;
        let wide: Vec<&str> = texts.iter().flat_map(|text| text.lines()).filter(is_wide).collect();
        assert!(texts.len() > 30 && wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn every_example_is_a_command_line() {
        let mut command = Arguments::command();
        command.build();
        let texts = command
            .get_subcommands()
            .map(|sub| (sub.get_name().to_owned(), sub.get_after_help().map(ToString::to_string)));
        let mut examples = 0;
        for (name, text) in texts.filter(|(name, _)| name != "help") {
            let text = text.unwrap_or_else(|| panic!("{name} has no examples"));
            let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| line.starts_with("onelock ")).collect();
            assert!(!lines.is_empty(), "{name}");
            for line in lines {
                Arguments::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
                examples += 1;
            }
        }
        let readme = include_str!("../README.md");
        for line in readme.lines().filter(|line| line.starts_with("onelock ")) {
            let line = line.split(" #").next().unwrap().trim();
            Arguments::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
            examples += 1;
        }
        assert!(examples > 15, "{examples}");
    }

    #[test]
    fn the_readme_lists_the_statuses_that_help_lists() {
        let rows = include_str!("../README.md").lines().filter(|line| line.starts_with("| ")).map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            cells.next().unwrap_or_default().to_owned()
        });
        let numbers: Vec<String> =
            rows.filter(|cell| cell.starts_with(|letter: char| letter.is_ascii_digit())).collect();
        let listed: Vec<String> = STATUSES
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter_map(|line| line.get(..16).map(|cell| cell.trim().to_owned()))
            .filter(|cell| cell.starts_with(|letter: char| letter.is_ascii_digit()))
            .collect();
        assert_eq!(numbers, listed);
    }
}
