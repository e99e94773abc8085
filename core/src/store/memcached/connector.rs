//! Connecting: TCP, TLS, who logs in, and whether the server has what is needed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::ServerAddress;
use super::connection::{CacheConnection, Greeting, ask, numbers_nothing};
use super::protocol::CacheReply;
use crate::config::credentials::CredentialsSource;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::login::{self, Login};
use crate::store::net::Stream;
use crate::store::tls_configs::TlsConfigs;
use crate::store::{net, tls};
use crate::sys::clock;
use crate::sys::fork::ProcessStamp;

/// The oldest version with the commands in their present form.
const VERSION_MIN: [u32; 3] = [1, 6, 12];

/// Where and how connections are made.
pub(super) struct CacheConnector {
    pub(super) server: ServerAddress,
    pub(super) place: String,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
    /// Asked for each connection, where there is one.
    pub(super) credentials: Option<Arc<CredentialsSource>>,
    pub(super) tls_configs: TlsConfigs,
    pub(super) stamp: ProcessStamp,
}

impl CacheConnector {
    /// Connects by `until`.
    pub(super) async fn connect(&self, number: u64, until: Time) -> Result<CacheConnection, Failure> {
        let limit = until.since(clock::now()).min(self.connect_timeout);
        let until = clock::now() + limit;
        let made = timeout(limit, async {
            let (stream, greeting) = self.welcomed(until).await?;
            Ok(CacheConnection::start(stream, (number, greeting), self.request_timeout, self.stamp))
        });
        made.await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")))
    }

    fn unavailable(&self, why: &str) -> Failure {
        Failure::transient(ErrorKind::Unavailable, format!("{}: {why}", self.place))
    }

    /// A provider is asked once more when its answer is refused: it may have been replaced meanwhile.
    async fn welcomed(&self, until: Time) -> Result<(Box<dyn Stream>, Greeting), Failure> {
        let mut used = None;
        match self.greeted(until, &mut used).await {
            Err(refused) if refused.kind == ErrorKind::AuthFailed && self.credentials.is_some() => {
                let now = self.login(until).await.ok();
                if now.is_none() || now == used {
                    return Err(refused);
                }
                self.greeted(until, &mut { now }).await
            }
            other => other,
        }
    }

    async fn login(&self, until: Time) -> Result<Login, Failure> {
        let known = (self.server.user.as_str(), self.server.password.as_ref());
        login::login(known, self.credentials.as_ref(), until, &self.place).await
    }

    async fn greeted(&self, until: Time, login: &mut Option<Login>) -> Result<(Box<dyn Stream>, Greeting), Failure> {
        let mut stream = self.stream(until).await?;
        let talk = |why: String| self.unavailable(&why);
        let mut first = ask(&mut *stream, b"mn\r\n", 1).await.map_err(talk)?;
        let logs_in = matches!(first.first(), Some(CacheReply::Refused(words)) if words.contains("unauthenticated"));
        if logs_in {
            if login.is_none() {
                *login = Some(self.login(until).await?);
            }
            self.log_in(&mut *stream, login.as_ref()).await?;
            first = ask(&mut *stream, b"mn\r\n", 1).await.map_err(talk)?;
        }
        if !matches!(first.first(), Some(CacheReply::Line(word)) if word == "MN") {
            let detail = format!("{}: it has no meta commands; memcached 1.6.12 or newer is needed", self.place);
            return Err(Failure::lasting(ErrorKind::Unsupported, detail));
        }
        let told = ask(&mut *stream, b"version\r\nstats settings\r\n", 2).await.map_err(talk)?;
        let mut greeting = Greeting { logged_in: logs_in, ..Greeting::default() };
        for reply in told {
            match reply {
                CacheReply::Line(line) => {
                    if let Some(version) = line.strip_prefix("VERSION ") {
                        version.clone_into(&mut greeting.version);
                    }
                }
                CacheReply::Setting(name, value) if name == "evictions" => greeting.evicts = Some(value == "on"),
                CacheReply::Setting(name, value) if name == "cas_enabled" && value == "no" => {
                    return Err(numbers_nothing(&self.place));
                }
                _ => {}
            }
        }
        if is_too_old(&greeting.version) {
            let detail =
                format!("{}: memcached {} is too old; 1.6.12 or newer is needed", self.place, greeting.version);
            return Err(Failure::lasting(ErrorKind::Unsupported, detail));
        }
        Ok((stream, greeting))
    }

    /// In the words of the text protocol: a "set" of any key, whose value is the user and the password. It is sent to nobody
    /// who did not ask for it, who would keep it.
    async fn log_in(&self, stream: &mut dyn Stream, login: Option<&Login>) -> Result<(), Failure> {
        let failed = |why: &str| Failure::lasting(ErrorKind::AuthFailed, format!("{}: {why}", self.place));
        let Some(Login { user, password: Some(password) }) = login else {
            return Err(failed("it wants a user and a password, and the address names none"));
        };
        let words = format!("{user} {password}");
        if words.contains(['\r', '\n']) {
            return Err(failed("a user name or password with a line break cannot be sent"));
        }
        let question = format!("set auth 0 0 {}\r\n{words}\r\n", words.len());
        match ask(stream, question.as_bytes(), 1).await.map_err(|why| self.unavailable(&why))?.first() {
            Some(CacheReply::Line(word)) if word == "STORED" => Ok(()),
            _ => Err(failed("it refused this user and password")),
        }
    }

    async fn stream(&self, until: Time) -> Result<Box<dyn Stream>, Failure> {
        let ServerAddress { host, port, tls: files, .. } = &self.server;
        let stream =
            net::tcp(host, *port, until.since(clock::now())).await.map_err(|error| self.unreachable(&error))?;
        let Some(files) = files else { return Ok(Box::new(stream)) };
        let config = self.tls_configs.config(files)?;
        let stream = TlsConnector::from(config).connect(tls::server_name(host)?, stream).await;
        match stream {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                let detail = format!("{}: TLS failed: {error}", self.place);
                // what rustls rejects stays as it is; a broken connection may come back
                if error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some() {
                    let detail = format!("{detail}{}", tls::advice(&detail));
                    return Err(Failure::lasting(ErrorKind::Unavailable, detail));
                }
                Err(Failure::transient(ErrorKind::Unavailable, detail))
            }
        }
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let kind = if net::is_limit(error) { ErrorKind::SystemLimit } else { ErrorKind::Unavailable };
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
            io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            _ => error.to_string(),
        };
        Failure::transient(kind, format!("{}: {why}", self.place))
    }
}

/// What is no number, as some other server may say, is not too old.
fn is_too_old(version: &str) -> bool {
    let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    numbers.len() == 3 && numbers.as_slice() < VERSION_MIN.as_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for version in ["1.4.15", "1.5.22", "1.6.9", "1.6.11", "0.0.1"] {
            assert!(is_too_old(version), "{version}");
        }
        for version in ["1.6.12", "1.6.18", "1.6.38", "1.7.0", "2.0.0", "", "unknown", "1.6"] {
            assert!(!is_too_old(version), "{version}");
        }
    }
}
