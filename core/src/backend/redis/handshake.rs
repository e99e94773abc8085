//! The first words on a new connection: protocol, user, database, name, role. No I/O; both ways to the socket use it.

use redis::Value;

use super::endpoint::{Endpoint, Place, Protocol};
use super::refusal;
use super::scripts::SCRIPTS;
use super::socket::HANG_UPS;
use super::value::{entry, text, words};
use crate::backend::Credentials;
use crate::error::ErrorKind;
use crate::machine::Failure;

/// As it calls itself, in either protocol.
const SENTINEL: &[u8] = b"sentinel";

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
    /// Which run of the server this is, and whether it keeps its data.
    Life,
    /// Nice to have: the name and library shown by `CLIENT LIST`, and scripts that are known before they are called.
    Nicety,
}

/// One handshake. Everything is sent at once; only a server that refuses `HELLO` costs a second round trip.
pub(crate) struct Handshake<'a> {
    endpoint: &'a Endpoint,
    client_name: Option<&'a str>,
    /// Instead of those in the address.
    credentials: Option<&'a Credentials>,
    resp3: bool,
    asked: Vec<Asked>,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, client_name: Option<&'a str>) -> Handshake<'a> {
        let resp3 = endpoint.protocol != Protocol::Resp2;
        Handshake { endpoint, client_name, credentials: None, resp3, asked: Vec::new() }
    }

    /// Logs in with what the credentials provider gave, if it was asked.
    pub(crate) fn logging_in(self, credentials: Option<&'a Credentials>) -> Handshake<'a> {
        Handshake { credentials, ..self }
    }

    fn login(&self) -> (Option<&'a str>, Option<&'a str>) {
        match self.credentials.map(Credentials::reveal) {
            Some((username, password)) => (username, Some(password)),
            None => (self.endpoint.username.as_deref(), self.endpoint.password.as_deref()),
        }
    }

    /// The first step.
    pub(crate) fn begin(&mut self) -> Step {
        let ((username, password), db) = (self.login(), self.endpoint.db);
        self.asked.clear();
        let mut bytes = Vec::with_capacity(256);
        let mut ask = |asked: Asked, words: &[&str]| {
            redis::Cmd::new().arg(words).write_packed_command(&mut bytes);
            self.asked.push(asked);
        };
        let secret = password.unwrap_or_default();
        match (self.resp3, username, password) {
            (true, None, None) => ask(Asked::Hello, &["HELLO", "3"]),
            (true, user, _) => {
                ask(Asked::Hello, &["HELLO", "3", "AUTH", user.unwrap_or("default"), secret]);
            }
            (false, None, None) => {}
            (false, Some(user), _) => ask(Asked::Auth, &["AUTH", user, secret]),
            // the form that servers before 6.0 know too
            (false, None, Some(_)) => ask(Asked::Auth, &["AUTH", secret]),
        }
        if db != 0 {
            ask(Asked::Select, &["SELECT", &db.to_string()]);
        }
        if !self.resp3 {
            // HELLO tells the role along the way
            ask(Asked::Role, &["ROLE"]);
        }
        if self.endpoint.witness.is_some() {
            ask(Asked::Life, &["INFO", "server"]);
            ask(Asked::Life, &["INFO", "persistence"]);
            // one server of several is not waited for, so it must not need a second request
            for script in SCRIPTS.all() {
                ask(Asked::Nicety, &["SCRIPT", "LOAD", script.text]);
            }
        }
        if let Some(name) = self.client_name {
            ask(Asked::Nicety, &["CLIENT", "SETNAME", name]);
        }
        ask(Asked::Nicety, &["CLIENT", "SETINFO", "LIB-NAME", env!("CARGO_PKG_NAME")]);
        ask(Asked::Nicety, &["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]);
        Step::Send(bytes, self.asked.len())
    }

    /// Takes the replies of the last step.
    pub(crate) fn replies(&mut self, replies: &[Value]) -> Result<Step, Failure> {
        let asked = std::mem::take(&mut self.asked);
        let mut said = String::new();
        for (asked, reply) in asked.iter().zip(replies) {
            let refused = match reply {
                Value::ServerError(error) => Some(words(error)),
                _ => None,
            };
            match (asked, refused) {
                (Asked::Hello, Some(text)) => return self.without_hello(&text),
                (Asked::Hello, None) => {
                    self.check_role(entry(reply, b"mode").filter(|mode| text(mode) == Some(SENTINEL)))?;
                    self.check_role(entry(reply, b"role"))?;
                }
                (Asked::Auth, Some(text)) => return Err(refusal::classify(&text)),
                (Asked::Select, Some(text)) => return Err(self.not_selected(&text)),
                // a user who may not ask is believed to have been sent to a master
                (Asked::Role, Some(text)) if is_passing(&text) => return Err(refusal::classify(&text)),
                (Asked::Role, None) => self.check_role(first(reply))?,
                (Asked::Life, None) => said.push_str(&String::from_utf8_lossy(text(reply).unwrap_or_default())),
                _ => {}
            }
        }
        if let Some(witness) = &self.endpoint.witness {
            witness.tell(&said);
        }
        Ok(Step::Done(Terms { resp3: self.resp3 }))
    }

    /// What the server said before it hung up, having answered less than it owed; as in
    /// `max number of clients reached`.
    pub(crate) fn last_words(replies: &[Value]) -> Option<Failure> {
        let said = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(words(error)),
            _ => None,
        })?;
        Some(refusal::classify(&said))
    }

    /// `HELLO` was refused: go on in RESP2, if that is what it was about and the address allows it.
    fn without_hello(&mut self, text: &str) -> Result<Step, Failure> {
        let failure = refusal::classify(text);
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

    /// Whether a refused `HELLO` says something about `HELLO`, not about the user or the server's state. Some servers tell
    /// a stranger nothing about unknown commands, not even that they are: they ask for a login that was in the very command.
    fn is_about_hello(&self, text: &str, failure: &Failure) -> bool {
        match failure.kind {
            ErrorKind::NotPermitted | ErrorKind::ServerRefused => !failure.transient,
            ErrorKind::AuthFailed => text.starts_with("NOAUTH") && self.login() != (None, None),
            _ => false,
        }
    }

    /// What is to be told when the peer says nothing to the first words, but hangs up.
    pub(crate) fn unanswered(&self, replies: &[Value], failure: Failure) -> Failure {
        let hung_up = HANG_UPS.iter().any(|words| failure.detail.ends_with(words));
        if !replies.is_empty() || !hung_up {
            return failure;
        }
        let tls = match (&self.endpoint.tls, &self.endpoint.place) {
            (None, Place::Tcp { .. }) => "if the port speaks TLS, write rediss://; ",
            _ => "",
        };
        let detail = format!(
            "{} at the first command; {tls}a proxy must pass on HELLO (or ROLE, with protocol=resp2), EVALSHA and SUBSCRIBE, \
             and some, such as Twemproxy, don't: connect to the server itself",
            failure.detail
        );
        Failure { detail, ..failure }
    }

    /// A replica answers "somebody else holds it" without complaint, so it must be recognised before it is asked.
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

fn first(reply: &Value) -> Option<&Value> {
    match reply {
        Value::Array(items) => items.first(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::RedisOptions;
    use super::*;

    fn endpoint(address: &str) -> Endpoint {
        Endpoint::parse(address, &RedisOptions::default()).unwrap()
    }

    /// The commands of a step, each as its words joined by spaces.
    fn commands(step: Step) -> Vec<String> {
        let Step::Send(bytes, count) = step else { panic!("{step:?}") };
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
            let role = Value::Array(vec![Value::BulkString(b"master".to_vec())]);
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
        let role = Value::Array(vec![Value::BulkString(b"slave".to_vec())]);
        assert_eq!(handshake.replies(&[role, ok(), ok()]).unwrap_err().kind, ErrorKind::ReadOnly);
        handshake.begin();
        let unknown = handshake.replies(&[error("NOPERM can't run 'role'"), ok(), ok()]);
        assert!(matches!(unknown, Ok(Step::Done(_))));
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
            let asked = place.for_questions();
            let mut handshake = Handshake::new(&asked, None);
            handshake.begin();
            assert!(handshake.replies(&[first, ok(), ok()]).is_ok(), "whoever asks it who the master is");
        }
    }

    #[test]
    fn who_hangs_up_at_once_may_speak_something_else() {
        let gone = || crate::backend::redis::socket::broken("h", HANG_UPS[0]);
        for (address, tls) in [("redis://h", true), ("rediss://h", false), ("unix:///s", false)] {
            let place = endpoint(address);
            let told = Handshake::new(&place, None).unanswered(&[], gone());
            assert_eq!(told.detail.contains("rediss://"), tls, "{told:?}");
            assert!(told.detail.contains("Twemproxy") && told.transient);
        }
        let place = endpoint("redis://h");
        assert_eq!(Handshake::new(&place, None).unanswered(&[ok()], gone()), gone(), "it has said something");
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
