//! What the calls of all scripts share: the form in which they are sent, and where a release is announced.

use redis::Cmd;

use super::scripts::Script;

/// The form of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandForm {
    /// A plain command. If it fails, the script is sent.
    Plain,
    /// The script by its hash; the server may not know it.
    Sha,
    /// The script by its text, which the server caches.
    Text,
}

/// On which channels a release is announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Announce {
    /// On classic channels, which every server has.
    #[default]
    Classic,
    /// On classic channels of a cluster, whose nodes forward messages: none knows how many listen.
    Forwarded,
    /// On sharded channels of a cluster.
    Sharded,
    /// On both.
    Both,
    /// On classic channels, and the reply includes the server's clock, as Redlock needs it.
    Timed,
}

impl Announce {
    /// The command that tells a client of a grant, and the one that counts who listens; `""` where no server can tell.
    pub(super) const fn for_grants(self) -> (&'static str, &'static str) {
        match self {
            Announce::Classic | Announce::Timed => ("PUBLISH", "NUMSUB"),
            Announce::Forwarded => ("PUBLISH", ""),
            Announce::Sharded | Announce::Both => ("SPUBLISH", "SHARDNUMSUB"),
        }
    }

    /// The command that tells all who wait, and a second one, or `""`.
    pub(super) const fn to_all(self) -> (&'static str, &'static str) {
        match self {
            Announce::Classic | Announce::Forwarded | Announce::Timed => ("PUBLISH", ""),
            Announce::Sharded => ("SPUBLISH", ""),
            Announce::Both => ("PUBLISH", "SPUBLISH"),
        }
    }

    /// Adds the arguments for the scripts. Without any they use classic channels.
    pub(super) fn add_to(self, command: &mut Cmd) {
        match self {
            Announce::Classic | Announce::Forwarded | Announce::Timed => {}
            Announce::Sharded => drop(command.arg("SPUBLISH")),
            Announce::Both => drop(command.arg("PUBLISH").arg("SPUBLISH")),
        }
    }
}

/// Begins a script call with `keys` keys and `words` arguments, keys included. `size` is the rough length of the
/// arguments.
pub(super) fn begin(script: &Script, form: CommandForm, keys: usize, words: usize, size: usize) -> Cmd {
    let (name, script) = match form {
        CommandForm::Plain | CommandForm::Sha => ("EVALSHA", script.sha.as_str()),
        CommandForm::Text => ("EVAL", script.text),
    };
    let mut command = Cmd::with_capacity(3 + words, script.len() + size + 8 * words);
    command.arg(name).arg(script).arg(keys);
    command
}
