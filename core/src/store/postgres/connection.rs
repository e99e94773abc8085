//! Connecting: to the first server of the address that may be written to, and the table made where it is missing.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use super::database::{Database, Host};
use super::failure::{self, Refusal};
use super::statements::Statements;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::net;
use crate::sys::clock;
use crate::sys::fork::{LeakAfterFork, ProcessStamp};

/// What the server calls a time limit that is not to be cut short by the type of its setting.
const LIMIT_MAX_MS: u128 = i32::MAX as u128;

/// Any async byte stream.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What a client allows a server.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) request: Duration,
    pub(super) label: Option<String>,
}

/// A connection that many callers share. Its statements are carried out in the order in which they were sent.
pub(super) struct Connection {
    /// Never used twice in one client.
    pub(super) number: u64,
    inner: LeakAfterFork<Inner>,
    retired: AtomicBool,
}

struct Inner {
    client: Client,
    task: AbortHandle,
}

impl Connection {
    pub(super) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Acquire) && !self.inner.client.is_closed()
    }

    /// No further statement goes out on it; outstanding answers are still delivered.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Ends it at once: it is silent.
    pub(super) fn cut(&self) {
        self.retire();
        self.inner.task.abort();
    }
}

/// Where and how connections are made.
pub(super) struct DatabaseConnector {
    pub(super) database: Database,
    pub(super) limits: Limits,
    pub(super) statements: Statements,
    pub(super) stamp: ProcessStamp,
    /// A pooler that knows no settings in the startup packet has been met.
    plain: AtomicBool,
}

impl DatabaseConnector {
    pub(super) fn new(database: Database, limits: Limits) -> DatabaseConnector {
        let statements = Statements::on(&database.table);
        DatabaseConnector { database, limits, statements, stamp: ProcessStamp::here(), plain: AtomicBool::new(false) }
    }

    /// Connects by `until`. The connection lives on the runtime of the caller; what the server announces goes to
    /// `heard`.
    pub(super) async fn connect(
        &self,
        number: u64,
        until: Time,
        heard: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Connection, Failure> {
        let limit = until.since(clock::now()).min(self.limits.connect);
        let made = timeout(limit, self.first_that_serves(number, limit, heard)).await;
        made.unwrap_or_else(|_| {
            Err(Failure::transient(ErrorKind::Unavailable, format!("{}: no answer in time", self.database)))
        })
    }

    async fn first_that_serves(
        &self,
        number: u64,
        limit: Duration,
        heard: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Connection, Failure> {
        let hosts = &self.database.hosts;
        let share = limit / u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
        let mut last = None;
        for (at, host) in hosts.iter().enumerate() {
            let share = if at + 1 == hosts.len() { limit } else { share };
            let made = timeout(share, self.connect_to(host, number, share, heard.clone())).await;
            match made.unwrap_or_else(|_| {
                Err(Failure::transient(ErrorKind::Unavailable, format!("{host}: no answer in time")))
            }) {
                Ok(connection) => return Ok(connection),
                Err(failure) => last = Some(failure),
            }
        }
        let none = || Failure::lasting(ErrorKind::InvalidArgument, "the address names no host");
        Err(last.unwrap_or_else(none))
    }

    async fn connect_to(
        &self,
        host: &Host,
        number: u64,
        limit: Duration,
        heard: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Connection, Failure> {
        let place = self.place(host);
        loop {
            let plain = self.plain.load(Ordering::Relaxed);
            let stream = stream(host, limit, &place).await?;
            let (client, driven) = match self.config(plain).connect_raw(stream, NoTls).await {
                Ok(made) => made,
                // pgbouncer: "unsupported startup parameter: options"
                Err(error) if !plain && failure::words(&error).contains("startup parameter") => {
                    self.plain.store(true, Ordering::Relaxed);
                    continue;
                }
                Err(error) => return Err(failure::not_connected(&error, &place)),
            };
            let task = tokio::spawn(drive(driven, heard)).abort_handle();
            self.greet(&client, &place).await?;
            let inner = LeakAfterFork::new(Inner { client, task }, self.stamp);
            return Ok(Connection { number, inner, retired: AtomicBool::new(false) });
        }
    }

    pub(super) fn place(&self, host: &Host) -> String {
        format!("postgres://{host}/{}", self.database.name)
    }

    fn config(&self, plain: bool) -> Config {
        let mut config = Config::new();
        config.user(&self.database.user).dbname(&self.database.name);
        config.application_name(self.limits.label.as_deref().unwrap_or("onelock"));
        if let Some(password) = &self.database.password {
            config.password(password.reveal());
        }
        if !plain {
            let request_ms = self.limits.request.as_millis().clamp(1, LIMIT_MAX_MS);
            // a row that somebody keeps locked delays what was sent behind it no longer than that
            let row_ms = (request_ms / 4).max(1);
            config.options(format!(
                "-c statement_timeout={request_ms} -c lock_timeout={row_ms} -c synchronous_commit=on \
                 -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off"
            ));
        }
        config
    }

    /// May it be written to, and is the table there?
    async fn greet(&self, client: &Client, place: &str) -> Result<(), Failure> {
        let row = client
            .query_typed_one(&self.statements.hello, &[(&self.database.table, Type::TEXT)])
            .await
            .map_err(|error| failure::not_connected(&error, place))?;
        let read = |at| row.try_get::<_, bool>(at).map_err(|error| failure::not_connected(&error, place));
        if read(0)? {
            let detail = format!("{place}: it is a standby, or its transactions are read-only");
            return Err(Failure::transient(ErrorKind::ReadOnly, detail));
        }
        if read(1)? {
            return Ok(());
        }
        self.make_table(client, place).await
    }

    /// Makes the table, or says how.
    pub(super) async fn make_table(&self, client: &Client, place: &str) -> Result<(), Failure> {
        let advice = || format!("let somebody who may create it run: {};", self.statements.table);
        let table = &self.database.table;
        if !self.database.makes_table {
            let detail = format!("{place}: there is no table {table}, and the address says ddl=expect; {}", advice());
            return Err(Failure::lasting(ErrorKind::ServerRefused, detail));
        }
        match client.batch_execute(&self.statements.table).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let Refusal { code, failure, .. } = failure::refusal(&error, place);
                match code.as_ref().map(SqlState::code) {
                    // another client made it at the same moment
                    Some("23505" | "42P07" | "42710") => Ok(()),
                    Some("42501" | "3F000") => {
                        let detail = format!("{}; there is no table {table}: {}", failure.detail, advice());
                        Err(Failure::lasting(ErrorKind::NotPermitted, detail))
                    }
                    _ => Err(failure),
                }
            }
        }
    }
}

async fn stream(host: &Host, limit: Duration, place: &str) -> Result<Box<dyn Stream>, Failure> {
    let made: std::io::Result<Box<dyn Stream>> = match host {
        Host::Tcp(name, port) => net::tcp(name, *port, limit).await.map(|stream| Box::new(stream) as Box<dyn Stream>),
        Host::Socket(..) => socket(&host.to_string()).await,
    };
    made.map_err(|error| {
        let kind = if net::is_limit(&error) { ErrorKind::SystemLimit } else { ErrorKind::Unavailable };
        let why = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
            std::io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            _ => error.to_string(),
        };
        Failure::transient(kind, format!("{place}: {why}"))
    })
}

#[cfg(unix)]
async fn socket(path: &str) -> std::io::Result<Box<dyn Stream>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
async fn socket(_: &str) -> std::io::Result<Box<dyn Stream>> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Sends and receives until the client is dropped or the connection ends. `heard` ends with it.
async fn drive<S, T>(mut driven: tokio_postgres::Connection<S, T>, heard: Option<mpsc::UnboundedSender<String>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| driven.poll_message(context)).await {
        if let (AsyncMessage::Notification(told), Some(heard)) = (message, &heard) {
            let _ = heard.send(told.payload().to_owned());
        }
    }
}
