//! The failure that a server's error text means.

use redis::{ServerErrorKind, Value};

use crate::error::ErrorKind;
use crate::machine::Failure;
use crate::store::redis::resp::value::{printable, words};

/// The codes in front of a server's error texts, and their meaning.
///
/// A script is refused before its first write, so a listed error has changed nothing.
const CODES: &[(&str, ErrorKind, bool)] = &[
    ("NOAUTH", ErrorKind::AuthFailed, false),
    ("WRONGPASS", ErrorKind::AuthFailed, false),
    ("NOPERM", ErrorKind::NotPermitted, false),
    ("READONLY", ErrorKind::ReadOnly, true),
    ("MASTERDOWN", ErrorKind::ReadOnly, true),
    ("LOADING", ErrorKind::ServerRefused, true),
    ("BUSY", ErrorKind::ServerRefused, true),
    ("TRYAGAIN", ErrorKind::ServerRefused, true),
    ("CLUSTERDOWN", ErrorKind::ServerRefused, true),
    ("OOM", ErrorKind::ServerRefused, false),
    ("MISCONF", ErrorKind::ServerRefused, false),
    ("NOREPLICAS", ErrorKind::ServerRefused, false),
    ("MOVED", ErrorKind::ServerRefused, false),
    ("ASK", ErrorKind::ServerRefused, false),
    ("CROSSSLOT", ErrorKind::ServerRefused, false),
    ("WRONGTYPE", ErrorKind::WrongKind, false),
    ("DENIED", ErrorKind::Unavailable, false),
];

/// Servers before 7.0 send these without a code.
const PHRASES: &[(&str, ErrorKind, bool)] = &[
    ("max number of clients", ErrorKind::Unavailable, true),
    ("The user executing the script can't", ErrorKind::NotPermitted, false),
    ("ACL failure in script", ErrorKind::NotPermitted, false),
    ("invalid password", ErrorKind::AuthFailed, false),
    ("without any password configured", ErrorKind::AuthFailed, false),
];

/// What the error text means, and whether it may pass by itself.
///
/// The code need not stand in front: a 6.2 server wraps what happened inside a script, as in
/// `ERR Error running script (call to f_…): @user_script:9: @user_script: 9: -OOM command not allowed …`.
pub(crate) fn classify(text: &str) -> Failure {
    let words = strip_wrapping(text);
    let (kind, transient) = meaning(words);
    let hint = if is_about_scripts(words) { SCRIPTS_HINT } else { "" };
    Failure { kind, transient, detail: format!("the server said: {}{hint}", printable(words)), nodes: Vec::new() }
}

/// Added when the server does not know a command that scripts need.
const SCRIPTS_HINT: &str = "; locks are taken by scripts: the server must offer EVAL, and better EVALSHA too (a rename-command \
     in its configuration, or a proxy that does not pass them on, takes them away)";

/// Whether a command that scripts need is unknown.
fn is_about_scripts(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.starts_with("err unknown command") && text.contains("eval")
}

fn meaning(text: &str) -> (ErrorKind, bool) {
    if let Some((_, kind, transient)) = PHRASES.iter().find(|(phrase, ..)| text.contains(phrase)) {
        return (*kind, *transient);
    }
    match code(text) {
        Some((_, kind, transient)) => (*kind, *transient),
        None => (ErrorKind::ServerRefused, false),
    }
}

/// The first word that is a code of the table.
fn code(text: &str) -> Option<&'static (&'static str, ErrorKind, bool)> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .find_map(|word| CODES.iter().find(|(code, ..)| *code == word))
}

/// Whether the server does not know the script by its hash: it has not seen it, or EVALSHA was removed from it. Then
/// the script's text is sent.
pub(crate) fn is_unknown_script(reply: &Value) -> bool {
    let Value::ServerError(error) = reply else { return false };
    error.kind() == Some(ServerErrorKind::NoScript) || is_about_scripts(strip_wrapping(&words(error)))
}

/// Strips the wrapping of a script error and everything that echoes our arguments: a server that does not know a
/// command repeats its arguments, which may contain a password.
fn strip_wrapping(text: &str) -> &str {
    let text = text.split(", with args beginning with").next().unwrap_or_default();
    // `… @user_script: 9: -OOM …`: the inner words begin after the last line number
    let text = match text.rfind("@user_script: ") {
        Some(at) => text[at..].splitn(3, ": ").nth(2).unwrap_or(text),
        None => text,
    };
    let text = text.strip_prefix('-').unwrap_or(text);
    // … and newer servers append where it happened
    let text = match text.rfind(" script: ") {
        Some(at) if text[at..].contains("@user_script:") => &text[..at],
        _ => text,
    };
    text.trim_end_matches([',', ' ', '.', '\r', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_real_servers() {
        use ErrorKind::{AuthFailed, NotPermitted, ReadOnly, ServerRefused, Unavailable, WrongKind};
        let cases = [
            ("NOAUTH Authentication required.", AuthFailed, false),
            ("WRONGPASS invalid username-password pair or user is disabled.", AuthFailed, false),
            ("ERR AUTH <password> called without any password configured for the default user.", AuthFailed, false),
            ("NOPERM this user has no permissions to run the 'evalsha' command", NotPermitted, false),
            ("NOPERM No permissions to access a key script: 1f, on @user_script:9.", NotPermitted, false),
            (
                "ERR Error running script (call to f_a9): @user_script:20: @user_script: 20: \
                 The user executing the script can't run this command or subcommand",
                NotPermitted,
                false,
            ),
            ("ERR ACL failure in script: User app has no permissions to run the 'set' command", NotPermitted, false),
            ("READONLY You can't write against a read only replica.", ReadOnly, true),
            (
                "ERR Error running script (call to f_a9): @user_script:20: @user_script: 20: \
                 -READONLY You can't write against a read only replica. ",
                ReadOnly,
                true,
            ),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ReadOnly, true),
            ("LOADING Redis is loading the dataset in memory", ServerRefused, true),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                ServerRefused,
                true,
            ),
            ("TRYAGAIN Multiple keys request during rehashing of slot", ServerRefused, true),
            ("CLUSTERDOWN The cluster is down", ServerRefused, true),
            ("ERR max number of clients reached", Unavailable, true),
            (
                "ERR Error running script (call to f_a9): @user_script:60: @user_script: 60: \
                 -OOM command not allowed when used memory > 'maxmemory'. ",
                ServerRefused,
                false,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 1f, on @user_script:60.",
                ServerRefused,
                false,
            ),
            ("MISCONF Errors writing to the AOF file: No space left on device", ServerRefused, false),
            ("NOREPLICAS Not enough good replicas to write.", ServerRefused, false),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongKind, false),
            ("DENIED Redis is running in protected mode because …", Unavailable, false),
            ("ERR something nobody has seen before", ServerRefused, false),
            ("", ServerRefused, false),
        ];
        for (text, kind, transient) in cases {
            let failure = classify(text);
            assert_eq!((failure.kind, failure.transient), (kind, transient), "{text}");
        }
    }

    #[test]
    fn wrapping_is_left_out_of_the_words() {
        let said = |text| classify(text).detail;
        assert_eq!(
            said(
                "ERR Error running script (call to f_a9): @user_script:60: @user_script: 60: -OOM command not allowed. "
            ),
            "the server said: OOM command not allowed"
        );
        assert_eq!(
            said("ERR Error running script (call to f_a9): @user_script:7: @user_script: 7: The user can't run this"),
            "the server said: The user can't run this"
        );
        assert_eq!(
            said(
                "ERR ACL failure in script: User app has no permissions to run the 'set' command script: 1f, on @user_script:7."
            ),
            "the server said: ERR ACL failure in script: User app has no permissions to run the 'set' command"
        );
        assert_eq!(said("@user_script: 34: -NOREPLICAS Not enough.\r\n"), "the server said: NOREPLICAS Not enough");
        assert_eq!(
            said("OOM command not allowed. script: 1f, on @user_script:60."),
            "the server said: OOM command not allowed"
        );
    }

    #[test]
    fn a_command_that_was_taken_away_is_done_without_or_named() {
        let said = |text: &str| redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
        for text in [
            "NOSCRIPT No matching script. Please use EVAL.",
            "ERR unknown command 'EVALSHA', with args beginning with: 'f00' '2' 'k' ",
            "ERR unknown command `EVALSHA`, with args beginning with: `f00`, `2`, `k`, ",
        ] {
            assert!(said(text).is_ok_and(|reply| is_unknown_script(&reply)), "{text}");
        }
        assert!(said("ERR unknown command 'HELLO'").is_ok_and(|reply| !is_unknown_script(&reply)));
        let failure = classify("ERR unknown command 'EVAL', with args beginning with: 'local hunter2' ");
        assert_eq!((failure.kind, failure.transient), (ErrorKind::ServerRefused, false));
        assert!(failure.detail.contains("must offer EVAL") && !failure.detail.contains("hunter2"), "{failure:?}");
    }

    #[test]
    fn arguments_are_never_repeated() {
        let failure = classify("ERR unknown command 'AUTH', with args beginning with: 'hunter2' ");
        assert_eq!(failure.detail, "the server said: ERR unknown command 'AUTH'");
        // 6.2 and older quote with a grave accent
        let failure = classify("ERR unknown command `AUTH`, with args beginning with: `hunter2`, ");
        assert!(!failure.detail.contains("hunter2"));
    }
}
