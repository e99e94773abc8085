//! The first words on a new connection: protocol, user, database, name, role. No I/O; both ways to the socket use it.

use super::endpoint::{Endpoint, Protocol};
use super::refusal;
use super::resp::{Packer, Value};
use crate::error::ErrorKind;
use crate::machine::Failure;

/// What a finished handshake found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Whether pushes may arrive between replies.
    pub(crate) resp3: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send these bytes, then hand in this many replies.
    Send(Vec<u8>, usize),
    /// The connection is ready.
    Done(Terms),
}

/// What a sent command was for; decides what its reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Hello,
    Auth,
    Select,
    Role,
    /// Nice to have: the name and library shown by `CLIENT LIST`.
    Nicety,
}

/// One handshake. Everything is sent at once; only a server that refuses `HELLO` costs a second round trip.
pub(crate) struct Handshake<'a> {
    endpoint: &'a Endpoint,
    client_name: Option<&'a str>,
    resp3: bool,
    asked: Vec<Asked>,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, client_name: Option<&'a str>) -> Handshake<'a> {
        let resp3 = endpoint.protocol != Protocol::Resp2;
        Handshake { endpoint, client_name, resp3, asked: Vec::new() }
    }

    /// The first step.
    pub(crate) fn begin(&mut self) -> Step {
        self.asked.clear();
        let mut packer = Packer::with_capacity(256);
        let credentials = self.credentials();
        if self.resp3 {
            match credentials {
                Some((user, password)) => packer.command(&[b"HELLO", b"3", b"AUTH", user, password]),
                None => packer.command(&[b"HELLO", b"3"]),
            };
            self.asked.push(Asked::Hello);
        } else if let Some((user, password)) = credentials {
            if self.endpoint.username.is_some() {
                packer.command(&[b"AUTH", user, password]);
            } else {
                packer.command(&[b"AUTH", password]); // the form that servers before 6.0 know too
            }
            self.asked.push(Asked::Auth);
        }
        if self.endpoint.db != 0 {
            packer.begin(2).word("SELECT").number(u64::from(self.endpoint.db));
            self.asked.push(Asked::Select);
        }
        if !self.resp3 {
            // HELLO tells the role along the way
            packer.command(&[b"ROLE"]);
            self.asked.push(Asked::Role);
        }
        if let Some(name) = self.client_name {
            packer.command(&[b"CLIENT", b"SETNAME", name.as_bytes()]);
            self.asked.push(Asked::Nicety);
        }
        packer.command(&[b"CLIENT", b"SETINFO", b"LIB-NAME", env!("CARGO_PKG_NAME").as_bytes()]);
        packer.command(&[b"CLIENT", b"SETINFO", b"LIB-VER", env!("CARGO_PKG_VERSION").as_bytes()]);
        self.asked.extend([Asked::Nicety; 2]);
        Step::Send(packer.finish(), self.asked.len())
    }

    /// Takes the replies of the last step.
    pub(crate) fn replies(&mut self, replies: &[Value]) -> Result<Step, Failure> {
        let asked = std::mem::take(&mut self.asked);
        for (asked, reply) in asked.iter().zip(replies) {
            match (asked, reply) {
                (Asked::Hello, Value::Error(text)) => {
                    let failure = refusal::classify(text);
                    if self.endpoint.protocol == Protocol::Auto && self.is_about_hello(text, &failure) {
                        self.resp3 = false;
                        return Ok(self.begin());
                    }
                    return Err(failure);
                }
                (Asked::Select, Value::Error(text)) => return Err(self.not_selected(text)),
                // a user who may not ask is believed to have been sent to a master
                (Asked::Role, Value::Error(text)) if is_passing(text) => return Err(refusal::classify(text)),
                (Asked::Auth, Value::Error(text)) => return Err(refusal::classify(text)),
                (Asked::Hello, reply) => check_role(entry(reply, b"role"))?,
                (Asked::Role, Value::Array(items)) => check_role(items.first())?,
                _ => {}
            }
        }
        Ok(Step::Done(Terms { resp3: self.resp3 }))
    }

    /// What the server said before it hung up, having answered less than it owed; as in
    /// `max number of clients reached`.
    pub(crate) fn last_words(replies: &[Value]) -> Option<Failure> {
        let refusal = replies.iter().find_map(|reply| match reply {
            Value::Error(text) => Some(text),
            _ => None,
        })?;
        Some(refusal::classify(refusal))
    }

    fn credentials(&self) -> Option<(&'a [u8], &'a [u8])> {
        let Endpoint { username, password, .. } = self.endpoint;
        match (username, password) {
            (None, None) => None,
            (username, password) => Some((
                username.as_deref().unwrap_or("default").as_bytes(),
                password.as_deref().unwrap_or("").as_bytes(),
            )),
        }
    }

    /// Whether a refused `HELLO` says something about `HELLO`, not about the user or the server's state. Some servers tell
    /// a stranger nothing about unknown commands, not even that they are: they ask for a login that was in the very command.
    fn is_about_hello(&self, text: &str, failure: &Failure) -> bool {
        match failure.kind {
            ErrorKind::NotPermitted | ErrorKind::ServerRefused => !failure.transient,
            ErrorKind::AuthFailed => text.starts_with("NOAUTH") && self.credentials().is_some(),
            _ => false,
        }
    }

    /// A database that isn't there is the caller's mistake; all else is what the server says it is.
    fn not_selected(&self, text: &str) -> Failure {
        let failure = refusal::classify(text);
        if failure.kind == ErrorKind::ServerRefused && !failure.transient {
            let detail = format!("database {} can't be selected; {}", self.endpoint.db, failure.detail);
            return Failure::lasting(ErrorKind::InvalidArgument, detail);
        }
        failure
    }
}

fn is_passing(text: &str) -> bool {
    let failure = refusal::classify(text);
    failure.transient || failure.kind == ErrorKind::AuthFailed
}

/// The value behind a key of a map.
fn entry<'v>(map: &'v Value, key: &[u8]) -> Option<&'v Value> {
    let Value::Array(items) = map else { return None };
    items.chunks_exact(2).find(|pair| pair[0].text() == Some(key)).map(|pair| &pair[1])
}

/// A replica answers "somebody else holds it" without complaint, so it must be recognised before it is asked.
fn check_role(role: Option<&Value>) -> Result<(), Failure> {
    match role.and_then(Value::text) {
        Some(b"slave" | b"replica") => {
            Err(Failure::transient(ErrorKind::ReadOnly, "the server is a replica; locks are taken on its master"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::RedisOptions;
    use super::super::resp::decode;
    use super::*;

    fn endpoint(address: &str) -> Endpoint {
        Endpoint::parse(address, &RedisOptions::default()).unwrap()
    }

    /// The commands of a step, each as its words joined by spaces.
    fn commands(step: Step) -> Vec<String> {
        let Step::Send(bytes, count) = step else { panic!("{step:?}") };
        let (mut rest, mut commands) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let (Value::Array(words), length) = decode(rest).unwrap().unwrap() else { panic!("no command") };
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word.text().unwrap())).collect();
            commands.push(words.join(" "));
            rest = &rest[length..];
        }
        assert_eq!(commands.len(), count);
        commands.retain(|command| !command.starts_with("CLIENT SETINFO"));
        commands
    }

    fn ok() -> Value {
        Value::Text(b"OK".to_vec())
    }

    fn error(text: &str) -> Value {
        Value::Error(text.to_owned())
    }

    fn hello(role: &str) -> Value {
        let word = |text: &str| Value::Text(text.into());
        Value::Array(vec![word("server"), word("redis"), word("role"), word(role)])
    }

    #[test]
    fn all_in_one_round_trip() {
        let endpoint = endpoint("redis://u:p@h/3");
        let mut handshake = Handshake::new(&endpoint, Some("me"));
        assert_eq!(commands(handshake.begin()), ["HELLO 3 AUTH u p", "SELECT 3", "CLIENT SETNAME me"]);
        let done = handshake.replies(&[hello("master"), ok(), error("NOPERM no"), error("ERR no"), ok()]);
        assert!(matches!(done, Ok(Step::Done(Terms { resp3: true }))));
    }

    #[test]
    fn a_server_without_hello_is_spoken_to_in_resp2() {
        for text in [
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'p'",
            "NOPROTO unsupported",
            "NOAUTH Authentication required.",
        ] {
            let endpoint = endpoint("redis://:p@h");
            let mut handshake = Handshake::new(&endpoint, None);
            assert_eq!(commands(handshake.begin()), ["HELLO 3 AUTH default p"]);
            let step = handshake.replies(&[error(text), ok(), ok()]).unwrap();
            assert_eq!(commands(step), ["AUTH p", "ROLE"]);
            let role = Value::Array(vec![Value::Text(b"master".to_vec())]);
            let done = handshake.replies(&[ok(), role, ok(), ok()]);
            assert!(matches!(done, Ok(Step::Done(Terms { resp3: false }))));
        }
    }

    #[test]
    fn replicas_are_turned_away() {
        let three = endpoint("redis://h");
        let mut handshake = Handshake::new(&three, None);
        handshake.begin();
        assert_eq!(handshake.replies(&[hello("replica"), ok(), ok()]).unwrap_err().kind, ErrorKind::ReadOnly);
        let two = endpoint("redis://h?protocol=resp2");
        let mut handshake = Handshake::new(&two, None);
        assert_eq!(commands(handshake.begin()), ["ROLE"]);
        let role = Value::Array(vec![Value::Text(b"slave".to_vec())]);
        assert_eq!(handshake.replies(&[role, ok(), ok()]).unwrap_err().kind, ErrorKind::ReadOnly);
        handshake.begin();
        let unknown = handshake.replies(&[error("NOPERM can't run 'role'"), ok(), ok()]);
        assert!(matches!(unknown, Ok(Step::Done(_))));
    }

    #[test]
    fn refusals_keep_their_meaning() {
        let endpoint = endpoint("redis://:p@h/9");
        let refusals = [
            (error("WRONGPASS invalid"), ok(), ErrorKind::AuthFailed),
            (error("ERR max number of clients reached"), ok(), ErrorKind::Unavailable),
            (hello("master"), error("ERR DB index is out of range"), ErrorKind::InvalidArgument),
            (hello("master"), error("LOADING dataset"), ErrorKind::ServerRefused),
            (hello("master"), error("NOPERM select"), ErrorKind::NotPermitted),
        ];
        for (hello, select, kind) in refusals {
            let mut handshake = Handshake::new(&endpoint, None);
            handshake.begin();
            assert_eq!(handshake.replies(&[hello, select, ok(), ok()]).unwrap_err().kind, kind);
        }
    }
}
