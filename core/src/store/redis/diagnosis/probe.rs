//! A connection made step by step, each of which says how it went.

use std::net::SocketAddr;
use std::time::Duration;

use redis::{Cmd, Value};

use super::open::open;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::diagnosis::FindingList;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::command::server_error;
use crate::store::redis::connection::handshake::Handshake;
use crate::store::redis::connection::login;
use crate::store::redis::connection::multiplexed::connect::{AsyncStream, receive_reply, send};
use crate::store::redis::connection::socket::{NO_REPLY, broken, reason};
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::exchange::Exchange;
use crate::store::redis::resp::value::{printable, text, words};
use crate::sys::clock;
use crate::sys::task::timeout;

/// A connection on which one request follows the other, in RESP2.
pub(crate) struct Probe {
    endpoint: Endpoint,
    stream: Box<dyn AsyncStream>,
    exchange: Exchange<()>,
    limit: Duration,
    /// Whom the server knows us as; `default` without a name.
    pub(crate) user: String,
    /// Whether it answered when it was asked for its role.
    pub(crate) may_ask_role: bool,
    /// Our end and theirs, as this machine sees them; none for a socket in the file system.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
}

/// A server's refusal.
pub(crate) fn refusal(reply: &Value) -> Option<String> {
    match reply {
        Value::ServerError(error) => Some(words(error)),
        _ => None,
    }
}

impl Probe {
    /// Connects and logs in; `None` where a step has failed.
    pub(crate) async fn connect(endpoint: &Endpoint, options: &RedisOptions, found: &mut FindingList) -> Option<Probe> {
        let (stream, ends) = open(endpoint, options, found).await?;
        let mut probe = Probe {
            endpoint: endpoint.clone(),
            stream,
            exchange: Exchange::new(),
            limit: options.request_timeout,
            user: "default".to_owned(),
            may_ask_role: true,
            ends,
        };
        let greeting = probe.greet(found).await?;
        probe.log_in(options, &greeting, found).await.then_some(())?;
        probe.select(found).await.then_some(probe)
    }

    /// The reply to one command, a refusal included.
    pub(crate) async fn ask<W: AsRef<[u8]>>(&mut self, command: &[W]) -> Result<Value, Failure> {
        let mut request = Cmd::new();
        for word in command {
            request.arg(word.as_ref());
        }
        let exchange = async {
            self.exchange.push((), Time::ZERO, &request);
            let unsent = send(&mut self.stream, &mut self.exchange.requests).await.err();
            // a peer that closes at once may have said why
            self.exchange.requests.assume_sent();
            let reply = receive_reply(&mut self.stream, &mut self.exchange).await;
            reply.map_err(|why| unsent.as_ref().map_or(why, reason))
        };
        match timeout(self.limit, exchange).await {
            Ok(reply) => reply.map_err(|why| broken(&self.endpoint, &why)),
            Err(_) => Err(broken(&self.endpoint, NO_REPLY)),
        }
    }

    /// Whether what answers speaks the protocol: any answer to the first command will do.
    async fn greet(&mut self, found: &mut FindingList) -> Option<Value> {
        match self.ask(&["PING"]).await {
            Ok(reply) => {
                found.passed("protocol", "it speaks the Redis protocol");
                Some(reply)
            }
            Err(failure) => {
                let failure = Handshake::new(&self.endpoint, None).explain_hang_up(&[], failure);
                found.failure("protocol", &failure);
                None
            }
        }
    }

    async fn log_in(&mut self, options: &RedisOptions, greeting: &Value, found: &mut FindingList) -> bool {
        let until = clock::now() + options.connect_timeout;
        let given = match login::credentials(options, &self.endpoint, until).await {
            Ok(given) => given,
            Err(failure) => {
                found.failure("user", &failure);
                return false;
            }
        };
        let (user, secret) = match given.as_ref().map(crate::store::Credentials::reveal) {
            Some((user, secret)) => (user.map(str::to_owned), Some(secret.to_owned())),
            None => (self.endpoint.username.clone(), self.endpoint.password.clone()),
        };
        if user.is_none() && secret.is_none() {
            return match refusal(greeting).map(|said| server_error::classify(&said)) {
                Some(failure) if failure.kind == ErrorKind::AuthFailed => {
                    let todo = "put user and password into the address: redis://USER:PASSWORD@HOST";
                    found.failed("user", failure.kind, "the server asks for a password", todo);
                    false
                }
                Some(failure) if failure.kind != ErrorKind::NotPermitted => {
                    found.failure("user", &failure);
                    false
                }
                _ => {
                    found.passed("user", "none: the server's default user, without a password");
                    true
                }
            };
        }
        let name = user.as_deref().unwrap_or("default");
        let shown = printable(name);
        self.user.clone_from(&shown);
        match self.ask(&["AUTH", name, secret.as_deref().unwrap_or_default()]).await {
            Ok(reply) => match refusal(&reply) {
                None => {
                    found.passed("user", format!("logged in as {shown}"));
                    true
                }
                Some(said) => {
                    let failure = server_error::classify(&said);
                    let detail = format!("user {shown}: {}", failure.detail);
                    found.failed("user", failure.kind, detail, failure.kind.todo());
                    false
                }
            },
            Err(failure) => {
                found.failure("user", &failure);
                false
            }
        }
    }

    async fn select(&mut self, found: &mut FindingList) -> bool {
        let number = self.endpoint.db;
        if number == 0 {
            found.passed("database", "0");
            return true;
        }
        match self.ask(&["SELECT", &number.to_string()]).await {
            Ok(reply) => match refusal(&reply) {
                None => {
                    found.passed("database", number.to_string());
                    true
                }
                Some(said) => {
                    let failure = server_error::classify(&said);
                    let detail = format!("database {number} can't be selected; {}", failure.detail);
                    let (kind, todo) = if failure.kind == ErrorKind::NotPermitted {
                        (failure.kind, "add +select to the user's permissions, or use database 0")
                    } else {
                        (
                            ErrorKind::InvalidArgument,
                            "use another database, such as /0, or raise `databases` on the server",
                        )
                    };
                    found.failed("database", kind, detail, todo);
                    false
                }
            },
            Err(failure) => {
                found.failure("database", &failure);
                false
            }
        }
    }

    /// Whether locks may be kept here, as far as the server tells.
    pub(crate) async fn check_role(&mut self, found: &mut FindingList) -> bool {
        let reply = match self.ask(&["ROLE"]).await {
            Ok(reply) => reply,
            Err(failure) => {
                found.failure("role", &failure);
                return false;
            }
        };
        if let Some(said) = refusal(&reply) {
            self.may_ask_role = false;
            let failure = server_error::classify(&said);
            let detail = format!("unknown; {}", failure.detail);
            let todo = "allow ROLE (add +role): a replica, on which no lock can be taken, is not recognised otherwise";
            found.warning("role", detail, todo);
            return true;
        }
        let Value::Array(items) = &reply else {
            found.warning(
                "role",
                "unknown: the answer to ROLE is none",
                "connect to the server itself, not to a proxy",
            );
            return true;
        };
        let word = |at: usize| items.get(at).and_then(text).map(|word| printable(&String::from_utf8_lossy(word)));
        match word(0).as_deref() {
            Some("slave" | "replica") => {
                let port = match items.get(2) {
                    Some(Value::Int(port)) => port.to_string(),
                    _ => "?".to_owned(),
                };
                let master = format!("{}:{port}", word(1).unwrap_or_default());
                let todo = format!("locks are taken on the master: connect to {master}, or through Sentinels");
                found.failed("role", ErrorKind::ReadOnly, format!("a replica of {master}"), todo);
                false
            }
            Some("sentinel") => {
                let todo = "to find the master of a group through it, write redis+sentinel://HOST:PORT/GROUP";
                found.failed("role", ErrorKind::InvalidArgument, "a Sentinel, which keeps no locks", todo);
                false
            }
            Some("master") => {
                let number = match items.get(2) {
                    Some(Value::Array(replicas)) => replicas.len(),
                    _ => 0,
                };
                let replicas = match number {
                    0 => "without replicas".to_owned(),
                    1 => "with one replica".to_owned(),
                    more => format!("with {more} replicas"),
                };
                found.passed("role", format!("a master {replicas}"));
                true
            }
            other => {
                let detail = format!("unknown: {}", other.unwrap_or("nothing was told"));
                found.warning("role", detail, "connect to the server itself, not to a proxy");
                true
            }
        }
    }
}
