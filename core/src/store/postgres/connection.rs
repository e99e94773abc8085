//! Connecting: to the first server of the address that may be written to, and the table made where it is missing.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::{Error as DriverError, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use super::database::{Database, Host};
use super::encryption::{self, RefusedWay, Way};
use super::failure::{self, Refusal};
use super::heard::HeardStream;
use super::statements::Statements;
use crate::config::credentials::CredentialsSource;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::login::{self, Login};
use crate::store::member::RunObserver;
use crate::store::net::{self, Stream};
use crate::store::tls_configs::TlsConfigs;
use crate::sys::clock;
use crate::sys::fork::{LeakAfterFork, ProcessStamp};

/// What the server calls a time limit that is not to be cut short by the type of its setting.
const LIMIT_MAX_MS: u128 = i32::MAX as u128;

/// The oldest version that has the statements, as `server_version_num` counts.
const VERSION_MIN: i32 = 120_000;

/// What a client allows a server.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) request: Duration,
    pub(super) label: Option<String>,
    /// How long one of several stores may take.
    pub(super) member: Option<Duration>,
}

impl Limits {
    /// How long the server may work on a statement.
    fn statement(&self) -> Duration {
        self.member.unwrap_or(self.request)
    }
}

/// A connection that many callers share. Its statements are carried out in the order in which they were sent.
pub(super) struct Connection {
    /// Never used twice in one client.
    pub(super) number: u64,
    /// When its server was started, which tells servers apart.
    pub(super) server: i64,
    /// Which table was there, if the store votes as one of several.
    pub(super) table: Option<i64>,
    inner: LeakAfterFork<Inner>,
    retired: AtomicBool,
    /// When the server has sent something last.
    heard_at: Arc<AtomicU64>,
    /// When the first statement was sent since then; not later where there is none.
    unanswered: AtomicU64,
}

struct Inner {
    client: Client,
    task: AbortHandle,
    /// Dropped with it: the task ends soon, whether or not the server answers.
    _here: oneshot::Sender<()>,
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

    /// A statement goes out.
    pub(super) fn sent(&self, now: Time) {
        let first = self.unanswered.load(Ordering::Relaxed);
        if first <= self.heard_at.load(Ordering::Relaxed) {
            let _ = self.unanswered.compare_exchange(first, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A statement was given up. The connection is, too, when nothing has been heard for as long as a request may take,
    /// however short each of them was.
    pub(super) fn given_up(&self, sent_at: Time, limit: Duration) {
        let now = clock::now();
        let (first, heard) = (self.unanswered.load(Ordering::Relaxed), self.heard_at.load(Ordering::Relaxed));
        // what it has sent since then may have been the answer to a statement that was given up before
        let silent_for = if first <= heard { Duration::ZERO } else { now.since(Time::from_nanos(first)) };
        if now.since(sent_at).max(silent_for) >= limit {
            self.cut();
        }
    }

    /// Ends it at once: it is silent, or to the wrong server.
    pub(super) fn cut(&self) {
        self.retire();
        self.inner.task.abort();
    }
}

/// A connection in the making.
struct ConnectionAttempt<'a> {
    host: &'a Host,
    place: &'a str,
    until: Time,
    number: u64,
    heard: Option<mpsc::UnboundedSender<String>>,
}

/// Where and how connections are made.
pub(super) struct DatabaseConnector {
    pub(super) database: Database,
    pub(super) limits: Limits,
    pub(super) statements: Statements,
    pub(super) stamp: ProcessStamp,
    /// Asked for each connection, where there is one.
    pub(super) credentials: Option<Arc<CredentialsSource>>,
    tls_configs: TlsConfigs,
    /// Who is told of the run of the server on each new connection: a majority of stores.
    pub(super) observer: Option<RunObserver>,
    /// A pooler that knows no settings in the startup packet has been met.
    plain: AtomicBool,
}

impl DatabaseConnector {
    pub(super) fn new(
        database: Database,
        limits: Limits,
        credentials: Option<Arc<CredentialsSource>>,
        observer: Option<RunObserver>,
    ) -> DatabaseConnector {
        let statements = Statements::on(&database.table);
        let (stamp, tls_configs, plain) = (ProcessStamp::here(), TlsConfigs::default(), AtomicBool::new(false));
        DatabaseConnector { database, limits, statements, stamp, credentials, tls_configs, observer, plain }
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
        let mut worst: Option<Failure> = None;
        for (at, host) in hosts.iter().enumerate() {
            let share = if at + 1 == hosts.len() { limit } else { share };
            let made = timeout(share, self.connect_to(host, number, share, heard.clone())).await;
            match made.unwrap_or_else(|_| {
                Err(Failure::transient(ErrorKind::Unavailable, format!("{host}: no answer in time")))
            }) {
                Ok(connection) => return Ok(connection),
                // what does not pass by itself is worth more to tell
                Err(failure) if worst.as_ref().is_none_or(|worst| worst.transient) => worst = Some(failure),
                Err(_) => {}
            }
        }
        let none = || Failure::lasting(ErrorKind::InvalidArgument, "the address names no host");
        Err(worst.unwrap_or_else(none))
    }

    async fn connect_to(
        &self,
        host: &Host,
        number: u64,
        limit: Duration,
        heard: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Connection, Failure> {
        let place = self.place(host);
        let attempt = ConnectionAttempt { host, place: &place, until: clock::now() + limit, number, heard };
        let mut first = None;
        for way in encryption::ways(self.database.ssl, host) {
            match self.connect_by(*way, &attempt).await {
                Ok(connection) => return Ok(connection),
                Err(refused) => {
                    let failure = first.get_or_insert(refused.failure);
                    if !refused.other_way {
                        return Err(failure.clone());
                    }
                }
            }
        }
        Err(first.unwrap_or_else(|| Failure::transient(ErrorKind::Unavailable, format!("{place}: no way to connect"))))
    }

    /// A provider is asked once more when its answer is refused: it may have been replaced meanwhile.
    async fn connect_by(&self, way: Way, attempt: &ConnectionAttempt<'_>) -> Result<Connection, RefusedWay> {
        let mut used = None;
        match self.connect_as(way, attempt, &mut used).await {
            Err(refused) if refused.failure.kind == ErrorKind::AuthFailed && self.credentials.is_some() => {
                let now = self.login(attempt.until, attempt.place).await.ok();
                if now.is_none() || now == used {
                    return Err(refused);
                }
                self.connect_as(way, attempt, &mut { now }).await
            }
            other => other,
        }
    }

    async fn login(&self, until: Time, place: &str) -> Result<Login, Failure> {
        login::login((&self.database.user, self.database.password.as_ref()), self.credentials.as_ref(), until, place)
            .await
    }

    /// `login` is asked for where it is not known yet.
    async fn connect_as(
        &self,
        way: Way,
        attempt: &ConnectionAttempt<'_>,
        login: &mut Option<Login>,
    ) -> Result<Connection, RefusedWay> {
        let ConnectionAttempt { host, place, until, number, heard } = attempt;
        let stays = |failure| RefusedWay { failure, other_way: false };
        loop {
            let plain = self.plain.load(Ordering::Relaxed);
            let stream = stream(host, until.since(clock::now()), place).await.map_err(stays)?;
            let tls = (&self.database.tls, &self.tls_configs);
            let (stream, is_encrypted) = encryption::encrypted(stream, way, host, tls, place).await?;
            if login.is_none() {
                *login = Some(self.login(*until, place).await.map_err(stays)?);
            }
            let Some(known) = &*login else { continue };
            let heard_at = Arc::new(AtomicU64::new(0));
            let stream = HeardStream { inner: stream, heard_at: heard_at.clone() };
            let (client, driven) = match self.config(known, plain).connect_raw(stream, NoTls).await {
                Ok(made) => made,
                Err(error) if !plain && failure::refuses_settings(&error) => {
                    self.plain.store(true, Ordering::Relaxed);
                    continue;
                }
                Err(error) => {
                    // the rules of the server may take this user by the other way only
                    let by_rule = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
                    let other_way = by_rule && (is_encrypted || way == Way::Plain);
                    return Err(RefusedWay { failure: failure::not_connected(&error, place), other_way });
                }
            };
            let (here, gone) = oneshot::channel();
            let task = tokio::spawn(drive(driven, heard.clone(), gone, self.limits.request)).abort_handle();
            // dropped in the middle of the greeting, it ends the task
            let inner = LeakAfterFork::new(Inner { client, task, _here: here }, self.stamp);
            let (server, made_table) = self.greet(&inner.client, place).await.map_err(stays)?;
            let table = self.observe(&inner.client, place, made_table).await.map_err(stays)?;
            let (retired, unanswered) = (AtomicBool::new(false), AtomicU64::new(0));
            return Ok(Connection { number: *number, server, table, inner, retired, heard_at, unanswered });
        }
    }

    pub(super) fn place(&self, host: &Host) -> String {
        format!("postgres://{host}/{}", self.database.name)
    }

    fn config(&self, login: &Login, plain: bool) -> Config {
        let mut config = Config::new();
        config.user(&login.user).dbname(&self.database.name);
        config.application_name(self.limits.label.as_deref().unwrap_or("onelock"));
        if let Some(password) = &login.password {
            config.password(password);
        }
        if !plain {
            let request_ms = self.limits.statement().as_millis().clamp(1, LIMIT_MAX_MS);
            // a row that somebody keeps locked delays what was sent behind it no longer than that
            let row_ms = (request_ms / 4).max(1);
            config.options(format!(
                "-c statement_timeout={request_ms} -c lock_timeout={row_ms} -c synchronous_commit=on \
                 -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off"
            ));
        }
        config
    }

    /// May it be written to, and is the table there? Tells which server it is, and whether the table was made now.
    async fn greet(&self, client: &Client, place: &str) -> Result<(i64, bool), Failure> {
        let row = client
            .query_typed_one(&self.statements.hello, &[(&self.database.table, Type::TEXT)])
            .await
            .map_err(|error| failure::not_connected(&error, place))?;
        let broken = |error: DriverError| failure::not_connected(&error, place);
        let read = |at| row.try_get::<_, bool>(at).map_err(broken);
        if read(0)? {
            let detail = format!("{place}: it is a standby, or its transactions are read-only");
            return Err(Failure::transient(ErrorKind::ReadOnly, detail));
        }
        let version: i32 = row.try_get(2).map_err(broken)?;
        if version < VERSION_MIN {
            let detail = format!("{place}: PostgreSQL {} is too old; 12 or newer is needed", version / 10_000);
            return Err(Failure::lasting(ErrorKind::Unsupported, detail));
        }
        let makes_table = !read(1)?;
        if makes_table {
            self.make_table(client, place).await?;
        }
        Ok((row.try_get(3).map_err(broken)?, makes_table))
    }

    /// Makes the table, or says how.
    async fn make_table(&self, client: &Client, place: &str) -> Result<(), Failure> {
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

/// Sends and receives until the connection ends, or the client is dropped (`gone`): then outstanding statements have as long
/// as one may take, and the driver says goodbye. `heard` ends with it.
async fn drive<S, T>(
    mut driven: tokio_postgres::Connection<S, T>,
    heard: Option<mpsc::UnboundedSender<String>>,
    gone: oneshot::Receiver<()>,
    limit: Duration,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let talk = async {
        while let Some(Ok(message)) = poll_fn(|context| driven.poll_message(context)).await {
            if let (AsyncMessage::Notification(told), Some(heard)) = (message, &heard) {
                let _ = heard.send(told.payload().to_owned());
            }
        }
    };
    let left_alone = async {
        let _ = gone.await;
        sleep(limit).await;
    };
    tokio::select! {
        () = talk => {}
        () = left_alone => {}
    }
}
