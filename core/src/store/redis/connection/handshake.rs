//! The first commands on a connection: protocol, user, database, name, role. No I/O; every kind of connection uses it.

use redis::Value;

use super::socket::HANG_UP_WORDS;
use crate::config::credentials::Credentials;
use crate::error::ErrorKind;
use crate::machine::Failure;
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint, Protocol};
use crate::store::redis::command::scripts::SCRIPTS;
use crate::store::redis::command::server_error;
use crate::store::redis::node::run_id::parse_run;
use crate::store::redis::resp::value::{map_entry, text, words};

/// The role of a Sentinel, in either protocol.
const SENTINEL: &[u8] = b"sentinel";

/// What a finished handshake found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandshakeResult {
    /// Whether the connection speaks RESP3, so that pushes may arrive between replies.
    pub(crate) resp3: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum HandshakeStep {
    /// Send these bytes, then pass in this many replies.
    Send(Vec<u8>, usize),
    /// The connection is ready.
    Done(HandshakeResult),
}

/// The purpose of a command, which decides what its reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeCommand {
    Hello,
    Auth,
    Select,
    Role,
    /// The run of the server, and whether it keeps its data.
    RunInfo,
    /// Without effect on the result: the name and library shown by `CLIENT LIST`, and scripts that are loaded before
    /// they are called.
    Optional,
}

/// One handshake. All commands are sent at once; only a server that refuses `HELLO` costs a second round trip.
pub(crate) struct Handshake<'a> {
    endpoint: &'a Endpoint,
    client_name: Option<&'a str>,
    /// In place of those in the address.
    credentials: Option<&'a Credentials>,
    resp3: bool,
    sent: Vec<HandshakeCommand>,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, client_name: Option<&'a str>) -> Handshake<'a> {
        let resp3 = endpoint.protocol != Protocol::Resp2;
        Handshake { endpoint, client_name, credentials: None, resp3, sent: Vec::new() }
    }

    /// Uses the credentials of the provider, if it was asked.
    pub(crate) fn with_credentials(self, credentials: Option<&'a Credentials>) -> Handshake<'a> {
        Handshake { credentials, ..self }
    }

    fn login(&self) -> (Option<&'a str>, Option<&'a str>) {
        match self.credentials.map(Credentials::reveal) {
            Some((username, password)) => (username, Some(password)),
            None => (self.endpoint.username.as_deref(), self.endpoint.password.as_deref()),
        }
    }

    /// The first step.
    pub(crate) fn begin(&mut self) -> HandshakeStep {
        let ((username, password), db) = (self.login(), self.endpoint.db);
        self.sent.clear();
        let mut bytes = Vec::with_capacity(256);
        let mut ask = |asked: HandshakeCommand, words: &[&str]| {
            redis::Cmd::new().arg(words).write_packed_command(&mut bytes);
            self.sent.push(asked);
        };
        let secret = password.unwrap_or_default();
        match (self.resp3, username, password) {
            (true, None, None) => ask(HandshakeCommand::Hello, &["HELLO", "3"]),
            (true, user, _) => {
                ask(HandshakeCommand::Hello, &["HELLO", "3", "AUTH", user.unwrap_or("default"), secret]);
            }
            (false, None, None) => {}
            (false, Some(user), _) => ask(HandshakeCommand::Auth, &["AUTH", user, secret]),
            // the form that servers before 6.0 know too
            (false, None, Some(_)) => ask(HandshakeCommand::Auth, &["AUTH", secret]),
        }
        if db != 0 {
            ask(HandshakeCommand::Select, &["SELECT", &db.to_string()]);
        }
        if !self.resp3 {
            // HELLO returns the role
            ask(HandshakeCommand::Role, &["ROLE"]);
        }
        if self.endpoint.run_observer.is_some() {
            ask(HandshakeCommand::RunInfo, &["INFO", "server"]);
            ask(HandshakeCommand::RunInfo, &["INFO", "persistence"]);
            // a member of a majority is not waited for, so it must not need a second request
            for script in SCRIPTS.all() {
                ask(HandshakeCommand::Optional, &["SCRIPT", "LOAD", script.text]);
            }
        }
        if let Some(name) = self.client_name {
            ask(HandshakeCommand::Optional, &["CLIENT", "SETNAME", name]);
        }
        ask(HandshakeCommand::Optional, &["CLIENT", "SETINFO", "LIB-NAME", env!("CARGO_PKG_NAME")]);
        ask(HandshakeCommand::Optional, &["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]);
        HandshakeStep::Send(bytes, self.sent.len())
    }

    /// Takes the replies of the last step.
    pub(crate) fn replies(&mut self, replies: &[Value]) -> Result<HandshakeStep, Failure> {
        let asked = std::mem::take(&mut self.sent);
        let mut said = String::new();
        for (asked, reply) in asked.iter().zip(replies) {
            let refused = match reply {
                Value::ServerError(error) => Some(words(error)),
                _ => None,
            };
            match (asked, refused) {
                (HandshakeCommand::Hello, Some(text)) => return self.fall_back_to_resp2(&text),
                (HandshakeCommand::Hello, None) => {
                    self.check_role(map_entry(reply, b"mode").filter(|mode| text(mode) == Some(SENTINEL)))?;
                    self.check_role(map_entry(reply, b"role"))?;
                }
                (HandshakeCommand::Auth, Some(text)) => return Err(server_error::classify(&text)),
                (HandshakeCommand::Select, Some(text)) => return Err(self.not_selected(&text)),
                // a user without permission for ROLE is assumed to be connected to a master
                (HandshakeCommand::Role, Some(text)) if is_transient(&text) => {
                    return Err(server_error::classify(&text));
                }
                (HandshakeCommand::Role, None) => self.check_role(first(reply))?,
                (HandshakeCommand::RunInfo, None) => {
                    said.push_str(&String::from_utf8_lossy(text(reply).unwrap_or_default()));
                }
                _ => {}
            }
        }
        if let Some(witness) = &self.endpoint.run_observer {
            witness.observe(parse_run(&said).as_ref());
        }
        Ok(HandshakeStep::Done(HandshakeResult { resp3: self.resp3 }))
    }

    /// The error that the server sent before it closed the connection, as in `max number of clients reached`.
    pub(crate) fn refusal_before_close(replies: &[Value]) -> Option<Failure> {
        let said = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(words(error)),
            _ => None,
        })?;
        Some(server_error::classify(&said))
    }

    /// `HELLO` was refused: continue in RESP2, if the server does not know it and the address allows that.
    fn fall_back_to_resp2(&mut self, text: &str) -> Result<HandshakeStep, Failure> {
        let failure = server_error::classify(text);
        if !self.is_about_hello(text, &failure) {
            return Err(failure);
        }
        if self.endpoint.protocol == Protocol::Auto {
            self.resp3 = false;
            return Ok(self.begin());
        }
        let detail = format!("the server doesn't know HELLO, so it can't speak resp3; {}", failure.detail);
        Err(Failure::lasting(ErrorKind::Unsupported, detail))
    }

    /// Whether a refused `HELLO` is about `HELLO`, not about the user or the server's state. Some servers answer a
    /// client that has not logged in with NOAUTH to every command, although the login is in this very command.
    fn is_about_hello(&self, text: &str, failure: &Failure) -> bool {
        match failure.kind {
            ErrorKind::NotPermitted | ErrorKind::ServerRefused => !failure.transient,
            ErrorKind::AuthFailed => text.starts_with("NOAUTH") && self.login() != (None, None),
            _ => false,
        }
    }

    /// Explains why a peer closed the connection at the first command.
    pub(crate) fn explain_hang_up(&self, replies: &[Value], failure: Failure) -> Failure {
        let hung_up = HANG_UP_WORDS.iter().any(|words| failure.detail.ends_with(words));
        if !replies.is_empty() || !hung_up {
            return failure;
        }
        let tls = match (&self.endpoint.tls, &self.endpoint.addr) {
            (None, ConnectionAddr::Tcp { .. }) => "if the port speaks TLS, write rediss://; ",
            _ => "",
        };
        let detail = format!(
            "{} at the first command; {tls}a proxy must pass on HELLO (or ROLE, with protocol=resp2), EVALSHA and SUBSCRIBE, \
             and some, such as Twemproxy, don't: connect to the server itself",
            failure.detail
        );
        Failure { detail, ..failure }
    }

    /// A replica answers an acquire with "taken" without an error, so its role is checked first.
    fn check_role(&self, role: Option<&Value>) -> Result<(), Failure> {
        match role.and_then(text) {
            Some(SENTINEL) if !self.endpoint.any_role => Err(Failure::lasting(
                ErrorKind::InvalidArgument,
                format!(
                    "{}: this is a Sentinel, which keeps no locks; to find the master of a group through it, write \
                     redis+sentinel://HOST:PORT/GROUP",
                    self.endpoint
                ),
            )),
            Some(b"slave" | b"replica") if !self.endpoint.any_role => {
                Err(Failure::transient(ErrorKind::ReadOnly, "the server is a replica; locks are taken on its master"))
            }
            _ => Ok(()),
        }
    }

    /// A database that does not exist is the caller's mistake; other refusals keep their meaning.
    fn not_selected(&self, text: &str) -> Failure {
        let failure = server_error::classify(text);
        if failure.kind == ErrorKind::ServerRefused && !failure.transient {
            let detail = format!("database {} can't be selected; {}", self.endpoint.db, failure.detail);
            return Failure::lasting(ErrorKind::InvalidArgument, detail);
        }
        failure
    }
}

fn is_transient(text: &str) -> bool {
    let failure = server_error::classify(text);
    failure.transient || failure.kind == ErrorKind::AuthFailed
}

fn first(reply: &Value) -> Option<&Value> {
    match reply {
        Value::Array(items) => items.first(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::redis::options::RedisOptions;

    fn endpoint(address: &str) -> Endpoint {
        Endpoint::parse(address, &RedisOptions::default()).unwrap()
    }

    /// The commands of a step, each as its words joined by spaces.
    fn commands(step: HandshakeStep) -> Vec<String> {
        let HandshakeStep::Send(bytes, count) = step else { panic!("{step:?}") };
        let (mut parser, mut rest) = (redis::Parser::new(), &bytes[..]);
        let mut commands: Vec<String> = (0..count)
            .map(|_| match parser.parse_value(&mut rest).unwrap() {
                Value::Array(words) => {
                    let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(text(word).unwrap())).collect();
                    words.join(" ")
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(parser.parse_value(&mut rest).is_err(), "no more than announced");
        commands.retain(|command| !command.starts_with("CLIENT SETINFO"));
        commands
    }

    /// What the server would have sent as this line.
    fn line(line: &str) -> Value {
        redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap()
    }

    fn ok() -> Value {
        Value::Okay
    }

    fn error(text: &str) -> Value {
        line(&format!("-{text}"))
    }

    fn hello(role: &str) -> Value {
        let word = |text: &str| Value::BulkString(text.into());
        Value::Map(vec![(word("server"), word("redis")), (word("role"), word(role))])
    }

    #[test]
    fn all_in_one_round_trip() {
        let endpoint = endpoint("redis://u:p@h/3");
        let mut handshake = Handshake::new(&endpoint, Some("me"));
        assert_eq!(commands(handshake.begin()), ["HELLO 3 AUTH u p", "SELECT 3", "CLIENT SETNAME me"]);
        let done = handshake.replies(&[hello("master"), ok(), error("NOPERM no"), error("ERR no"), ok()]);
        assert!(matches!(done, Ok(HandshakeStep::Done(HandshakeResult { resp3: true }))));
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
            let role = Value::Array(vec![Value::BulkString(b"master".to_vec())]);
            let done = handshake.replies(&[ok(), role, ok(), ok()]);
            assert!(matches!(done, Ok(HandshakeStep::Done(HandshakeResult { resp3: false }))));
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
        let role = Value::Array(vec![Value::BulkString(b"slave".to_vec())]);
        assert_eq!(handshake.replies(&[role, ok(), ok()]).unwrap_err().kind, ErrorKind::ReadOnly);
        handshake.begin();
        let unknown = handshake.replies(&[error("NOPERM can't run 'role'"), ok(), ok()]);
        assert!(matches!(unknown, Ok(HandshakeStep::Done(_))));
    }

    #[test]
    fn a_sentinel_is_no_server() {
        let word = |text: &str| Value::BulkString(text.into());
        let hello = Value::Map(vec![(word("mode"), word("sentinel")), (word("role"), word("master"))]);
        let role = Value::Array(vec![word("sentinel"), Value::Array(vec![word("g")])]);
        for (address, first) in [("redis://h", hello), ("redis://h?protocol=resp2", role)] {
            let place = endpoint(address);
            let mut handshake = Handshake::new(&place, None);
            handshake.begin();
            let failure = handshake.replies(&[first.clone(), ok(), ok()]).unwrap_err();
            assert_eq!((failure.kind, failure.transient), (ErrorKind::InvalidArgument, false));
            assert!(failure.detail.contains("redis+sentinel://"), "{failure:?}");
            let asked = place.for_queries();
            let mut handshake = Handshake::new(&asked, None);
            handshake.begin();
            assert!(handshake.replies(&[first, ok(), ok()]).is_ok(), "whoever asks it who the master is");
        }
    }

    #[test]
    fn who_hangs_up_at_once_may_speak_something_else() {
        let gone = || super::super::socket::broken("h", HANG_UP_WORDS[0]);
        for (address, tls) in [("redis://h", true), ("rediss://h", false), ("unix:///s", false)] {
            let place = endpoint(address);
            let told = Handshake::new(&place, None).explain_hang_up(&[], gone());
            assert_eq!(told.detail.contains("rediss://"), tls, "{told:?}");
            assert!(told.detail.contains("Twemproxy") && told.transient);
        }
        let place = endpoint("redis://h");
        assert_eq!(Handshake::new(&place, None).explain_hang_up(&[ok()], gone()), gone(), "it has said something");
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
