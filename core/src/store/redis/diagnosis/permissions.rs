//! Each permission that locks need, tried one by one. The commands of the scripts are read from the scripts themselves.

use std::collections::BTreeSet;

use super::DiagnosisPlan;
use super::acl_line::{AclLine, CONNECTION, Right, connection_words};
use super::probe::{Probe, refusal};
use crate::error::ErrorKind;
use crate::machine::{Failure, Kind, naming};
use crate::store::diagnosis::FindingList;
use crate::store::redis::command::scripts::SCRIPTS;
use crate::store::redis::command::server_error;
use crate::store::redis::resp::value::printable;
use crate::sys::random;

/// What is missed without a permission.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Locks.
    Locks,
    /// Kinds beside `lock` and `reentrant_lock`, which have words of their own in GUARANTEES.md.
    OtherKinds,
    /// Prompt wake-ups: without it waiters try again by themselves.
    WakeUps,
    /// What the client knows about the server.
    Settings,
    /// The list of locks.
    List,
    /// Reentrant locks that change hands while their slot moves.
    MovingSlots,
}

impl Need {
    fn without(self) -> &'static str {
        match self {
            Need::Locks => "locks cannot be taken without it",
            Need::OtherKinds => "only kinds beside lock and reentrant_lock need it, such as semaphore",
            Need::WakeUps => "waiters are not woken without it: they try again after one to five seconds",
            Need::Settings => "without it the client cannot see what endangers locks on this server",
            Need::List => "locks cannot be listed without it, or not how many wait for them",
            Need::MovingSlots => {
                "without it a reentrant lock is lost that is attached, or released before its min_hold, while its slot \
                 moves in a cluster"
            }
        }
    }
}

/// A permission, and a request that needs it and changes nothing.
struct Permission {
    /// As `ACL SETUSER` spells it.
    word: String,
    request: Vec<Vec<u8>>,
    need: Need,
}

fn request(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Tries all of them.
pub(super) async fn all(probe: &mut Probe, plan: &DiagnosisPlan, found: &mut FindingList) -> Result<(), Failure> {
    let unique = random::random().map_err(|error| Failure::transient(error.kind(), error.to_string()))?;
    let unique = unique.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let key = [plan.name.as_slice(), unique.as_bytes()].concat();
    let mut line = AclLine::new(probe.user.clone());
    // told by its own step
    line.add("+role", if probe.may_ask_role { Right::There } else { Right::Missing });
    for permission in keys_and_channels(plan, &key) {
        permission.try_out(probe, &mut line, found).await?;
    }
    for name in script_commands() {
        match harmless(&name, &key) {
            Some(request) => {
                let need = if name == "hdel" { Need::MovingSlots } else { Need::Locks };
                Permission { word: format!("+{name}"), request, need }.try_out(probe, &mut line, found).await?;
            }
            None => ask_server(probe, &name, &key, &mut line, found).await?,
        }
    }
    for permission in commands(plan, &key) {
        permission.try_out(probe, &mut line, found).await?;
    }
    if line.is_wanted {
        let detail = "one line gives everything that is missing, for every kind of lock and for the list";
        found.remark("permission", detail, line.command());
    }
    Ok(())
}

/// The pattern for all names that begin so: a companion's closing brace belongs to the whole name.
fn pattern(companion: &[u8], name: &[u8]) -> String {
    let text = printable(&String::from_utf8_lossy(companion));
    let open = if name.contains(&b'{') { text.as_str() } else { text.strip_suffix('}').unwrap_or(&text) };
    format!("{open}*")
}

fn keys_and_channels(plan: &DiagnosisPlan, key: &[u8]) -> Vec<Permission> {
    let name = &plan.name;
    let mut all = vec![
        Permission {
            word: format!("~{}*", printable(&String::from_utf8_lossy(name))),
            request: request(&[b"GET", key]),
            need: Need::Locks,
        },
        Permission {
            word: format!("~{}", pattern(&naming::fence_key(name), name)),
            request: request(&[b"GET", &naming::fence_key(key)]),
            need: Need::Locks,
        },
    ];
    // what only other kinds need is a sentence of its own in the document
    let companions = [
        (naming::queue_key(name), naming::queue_key(key)),
        (naming::waiters_key(name), naming::waiters_key(key)),
        (naming::readers_key(name), naming::readers_key(key)),
    ];
    for (of_name, companion) in companions {
        let word = format!("~{}", pattern(&of_name, name));
        all.push(Permission { word, request: request(&[b"GET", &companion]), need: Need::OtherKinds });
    }
    // a name with braces of its own has its companions without further ones, so they begin as the name does
    if !name.contains(&b'{') {
        let word = format!("~{{{}*", printable(&String::from_utf8_lossy(name)));
        all.push(Permission { word, request: request(&[b"GET", &naming::permits_key(key)]), need: Need::OtherKinds });
    }
    let mut channels: Vec<_> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let need = if matches!(kind, Kind::Mutex | Kind::Reentrant) { Need::WakeUps } else { Need::OtherKinds };
            (naming::channel(kind, name), naming::channel(kind, key), need)
        })
        .collect();
    channels.push((naming::permits_channel(name), naming::permits_channel(key), Need::OtherKinds));
    for (of_name, channel, need) in channels {
        let word = format!("&{}", pattern(&of_name, name));
        if all.iter().any(|known| known.word == word) {
            continue;
        }
        let request = request(&[b"PUBLISH", &channel, naming::RELEASE_MESSAGE.as_bytes()]);
        all.push(Permission { word, request, need });
    }
    all
}

/// What the scripts call, in small letters.
fn script_commands() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for script in SCRIPTS.all() {
        for (at, call) in script.text.match_indices("call('") {
            let name = script.text[at + call.len()..].split('\'').next().unwrap_or_default();
            names.insert(name.to_ascii_lowercase());
        }
    }
    // with its subcommand it is a line of its own
    names.remove("pubsub");
    names
}

/// A request with this command that changes nothing, whatever stands under `key`.
fn harmless(name: &str, key: &[u8]) -> Option<Vec<Vec<u8>>> {
    let command = name.as_bytes();
    let words: &[&[u8]] = match name {
        "time" => &[command],
        // there is nothing under this name that could be deleted
        "type" | "exists" | "get" | "pttl" | "del" => &[command, key],
        "pexpire" => &[command, key, b"1"],
        "getrange" => &[command, key, b"0", b"0"],
        "set" => &[command, key, b"", b"XX", b"PX", b"1"],
        // refused for its odd number of arguments, after the permission was looked at
        "hset" => &[command, key, b"a", b"b", b"c"],
        "hmget" | "hexists" | "hdel" => &[command, key, b"a"],
        "hscan" => &[command, key, b"0"],
        _ => return None,
    };
    Some(request(words))
}

fn commands(plan: &DiagnosisPlan, key: &[u8]) -> Vec<Permission> {
    let channel = naming::channel(Kind::Mutex, key);
    let mut all = vec![
        (CONNECTION, Need::Locks, request(&[b"PING"])),
        ("+eval", Need::Locks, request(&[b"EVAL", b"return 1", b"1", key])),
        ("+evalsha", Need::Locks, request(&[b"EVALSHA", &[b'0'; 40], b"1", key])),
        ("+info", Need::Settings, request(&[b"INFO", b"server"])),
        ("+config|get", Need::Settings, request(&[b"CONFIG", b"GET", b"appendfsync"])),
        ("+publish", Need::WakeUps, request(&[b"PUBLISH", &channel, naming::RELEASE_MESSAGE.as_bytes()])),
        ("+scan", Need::List, request(&[b"SCAN", b"0", b"COUNT", b"1"])),
        ("+pubsub|numsub", Need::List, request(&[b"PUBSUB", b"NUMSUB", &channel])),
    ];
    if plan.in_cluster {
        all.push(("+asking", Need::Locks, request(&[b"ASKING"])));
        all.push(("+pubsub|shardnumsub", Need::List, request(&[b"PUBSUB", b"SHARDNUMSUB", &channel])));
        let announce = [b"SPUBLISH", channel.as_slice(), naming::RELEASE_MESSAGE.as_bytes()];
        all.push(("+spublish", Need::WakeUps, request(&announce)));
        all.push(("+sunsubscribe", Need::WakeUps, request(&[b"SUNSUBSCRIBE", &channel])));
        all.push(("+ssubscribe", Need::WakeUps, request(&[b"SSUBSCRIBE", &channel])));
        all.push(("+sunsubscribe", Need::WakeUps, request(&[b"SUNSUBSCRIBE", &channel])));
    }
    if plan.options.min_replicas > 0 {
        all.push(("+wait", Need::Locks, request(&[b"WAIT", b"0", b"1"])));
    }
    // in this order: the connection takes other commands again only after the last one
    all.push(("+unsubscribe", Need::WakeUps, request(&[b"UNSUBSCRIBE", &channel])));
    all.push(("+subscribe", Need::WakeUps, request(&[b"SUBSCRIBE", &channel])));
    all.into_iter().map(|(word, need, request)| Permission { word: word.to_owned(), request, need }).collect()
}

/// What is not permitted, in a server's own words.
fn is_about(said: &str) -> &'static str {
    if said.contains("to run the") {
        "+"
    } else if said.contains("channel") {
        "&"
    } else {
        "~"
    }
}

impl Permission {
    async fn try_out(self, probe: &mut Probe, line: &mut AclLine, found: &mut FindingList) -> Result<(), Failure> {
        let reply = probe.ask(&self.request).await?;
        let right = self.right(&refusal(&reply).unwrap_or_default());
        // more than one thing may need the same
        if line.has(&self.word) {
            return Ok(());
        }
        line.add(&self.word, right);
        match right {
            Right::There => found.passed("permission", self.word),
            Right::Missing => self.missing(&line.user, found),
            Right::Unknown => self.unknown(found),
            Right::Untried => {
                found.skipped("permission", format!("{}: to be tried when the commands are permitted", self.word));
            }
        }
        Ok(())
    }

    /// What the server's refusal says about it; empty for none.
    fn right(&self, said: &str) -> Right {
        let small = said.to_ascii_lowercase();
        if small.starts_with("err unknown command") || small.starts_with("err unknown subcommand") {
            return Right::Unknown;
        }
        if said.is_empty() || server_error::classify(said).kind != ErrorKind::NotPermitted {
            return Right::There;
        }
        match is_about(said) {
            sign if self.word.starts_with(sign) => Right::Missing,
            // the command was looked at before its keys and channels
            "+" => Right::Untried,
            // a key or channel that is out of reach is told by its own line
            _ => Right::There,
        }
    }

    fn missing(self, user: &str, found: &mut FindingList) {
        let detail = format!("{} is missing: {}", self.word, self.need.without());
        let words = if self.word == CONNECTION {
            connection_words(std::slice::from_ref(&self.word)).join(" ")
        } else {
            self.word.clone()
        };
        let todo = format!("ACL SETUSER {user} {words}");
        match self.need {
            Need::Locks if self.word.starts_with('~') => {
                found.failed(
                    "permission",
                    ErrorKind::NotPermitted,
                    detail,
                    format!("say which names this user may lock, or: {todo}"),
                );
            }
            Need::Locks => found.failed("permission", ErrorKind::NotPermitted, detail, todo),
            Need::WakeUps | Need::MovingSlots => found.warning("permission", detail, todo),
            Need::Settings if self.word == "+info" => found.warning("permission", detail, todo),
            Need::Settings | Need::List | Need::OtherKinds => found.remark("permission", detail, todo),
        }
    }

    /// The server does not know the command, or something in between hides it.
    fn unknown(self, found: &mut FindingList) {
        let detail = format!("{} is not known there: {}", self.word.trim_start_matches('+'), self.need.without());
        let todo = "connect to the server itself: a proxy or a rename-command takes it away, or the server is too old";
        match self.need {
            Need::Locks => found.failed("permission", ErrorKind::Unsupported, detail, todo),
            // servers before 7.0 have no sharded channels, and need none
            Need::WakeUps | Need::Settings | Need::List | Need::OtherKinds | Need::MovingSlots => {
                found.remark("permission", detail, todo);
            }
        }
    }
}

/// Asks the server whether this user may use a command, for those without a form that changes nothing: those of other kinds.
async fn ask_server(
    probe: &mut Probe,
    name: &str,
    key: &[u8],
    line: &mut AclLine,
    found: &mut FindingList,
) -> Result<(), Failure> {
    // the key is no key of the script: a node of a cluster may not serve its slot. Where no command may have the key, that
    // says nothing about this one; its own line tells it.
    const SCRIPT: &[u8] = b"if redis.acl_check_cmd(ARGV[1], ARGV[2]) then return 1 end \
        return redis.acl_check_cmd('SET', ARGV[2], '') and 0 or 2";
    let permission = Permission { word: format!("+{name}"), request: Vec::new(), need: Need::OtherKinds };
    match probe.ask(&[b"EVAL", SCRIPT, b"0", name.as_bytes(), key]).await? {
        redis::Value::Int(1) => found.passed("permission", permission.word),
        redis::Value::Int(0) => {
            line.add(&permission.word, Right::Missing);
            permission.missing(&line.user, found);
        }
        other => {
            line.add(&permission.word, Right::Untried);
            let why = match other {
                redis::Value::Int(_) => "the names are out of reach",
                _ if refusal(&other).is_some_and(|said| said.starts_with("NOPERM")) => {
                    "to be tried when the commands are permitted"
                }
                _ => "this server does not tell",
            };
            found.skipped("permission", format!("{}: {why}", permission.word));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_scripts_is_found_and_has_a_harmless_form_or_is_asked_for() {
        let names = script_commands();
        for known in ["time", "set", "get", "del", "hset", "hscan", "pexpire", "zrank", "hgetall"] {
            assert!(names.contains(known), "{names:?}");
        }
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())), "{names:?}");
    }

    #[test]
    fn patterns_are_those_of_the_documents() {
        assert_eq!(pattern(&naming::fence_key(b"app:"), b"app:"), "onelock_fence:{app:*");
        assert_eq!(pattern(&naming::fence_key(b"{app}:"), b"{app}:"), "onelock_fence:{app}:*");
    }

    #[test]
    fn servers_say_what_is_refused() {
        for (said, sign) in [
            ("NOPERM this user has no permissions to run the 'get' command or its subcommand", "+"),
            ("NOPERM User app has no permissions to run the 'config|get' command", "+"),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", "~"),
            ("NOPERM No permissions to access a key", "~"),
            ("NOPERM this user has no permissions to access one of the channels used as arguments", "&"),
            ("NOPERM No permissions to access a channel", "&"),
        ] {
            assert_eq!(is_about(said), sign, "{said}");
        }
    }
}
