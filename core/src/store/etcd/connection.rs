//! Connecting: to the first member of the address that answers, with TLS and the user logged in.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::cluster::{Cluster, MemberHost};
use super::failure;
use super::grpc::{CallError, GrpcChannel, Metadata, code};
use super::messages::{self, Authenticated, path};
use crate::config::credentials::CredentialsSource;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::login::{self, Login};
use crate::store::net::{self, Stream};
use crate::store::tls::{self, TlsFiles};
use crate::store::tls_configs::TlsConfigs;
use crate::sys::clock;
use crate::sys::fork::{LeakAfterFork, ProcessStamp};

/// How much a server may send before it is told to go on: one answer of etcd's at most.
const WINDOW: u32 = 2 * 1024 * 1024;

/// What a client allows a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterLimits {
    pub(super) connect: Duration,
    pub(super) request: Duration,
}

/// A connection that many callers share.
pub(super) struct ClusterConnection {
    inner: LeakAfterFork<ConnectionParts>,
    /// Where it goes, for messages.
    pub(super) place: String,
    /// What the server gave for user and password.
    pub(super) token: Option<String>,
    retired: watch::Sender<bool>,
    /// When the oldest request was sent since the last answer; 0 when there is none.
    unanswered: AtomicU64,
}

struct ConnectionParts {
    channel: GrpcChannel,
    task: AbortHandle,
}

impl Drop for ConnectionParts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ClusterConnection {
    pub(super) fn channel(&self) -> &GrpcChannel {
        &self.inner.channel
    }

    pub(super) fn is_usable(&self) -> bool {
        !*self.retired.borrow() && !self.inner.task.is_finished()
    }

    /// No further request goes out on it; outstanding answers are still delivered.
    pub(super) fn retire(&self) {
        self.retired.send_replace(true);
    }

    /// Waits until no further request goes out on it.
    pub(super) async fn until_retired(&self) {
        // it cannot end before: the sender is in `self`
        let _ = self.retired.subscribe().wait_for(|retired| *retired).await;
    }

    /// A request goes out.
    pub(super) fn sent(&self, now: Time) {
        let _ = self.unanswered.compare_exchange(0, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// What became of a request that was sent then. A server that says that the time was over has not answered it either.
    pub(super) fn heard<T>(&self, done: &Result<Result<T, CallError>, Elapsed>, sent_at: Time, limit: Duration) {
        let gave_up = |error: &CallError| error.code == code::DEADLINE_EXCEEDED;
        match done {
            Err(_) => self.given_up(sent_at, limit),
            Ok(Err(error)) if gave_up(error) => self.given_up(sent_at, limit),
            Ok(_) => self.unanswered.store(0, Ordering::Relaxed),
        }
    }

    /// A request was given up. The connection is, too, when nothing has been heard for as long as a request may take, however
    /// short each of them was: the next one goes to another member.
    fn given_up(&self, sent_at: Time, limit: Duration) {
        let now = clock::now();
        let oldest = self.unanswered.load(Ordering::Relaxed);
        let silent_for = if oldest == 0 { Duration::ZERO } else { now.since(Time::from_nanos(oldest)) };
        if now.since(sent_at).max(silent_for) >= limit {
            self.retire();
        }
    }
}

/// Where and how connections are made.
pub(super) struct ClusterConnector {
    pub(super) cluster: Cluster,
    pub(super) limits: ClusterLimits,
    pub(super) stamp: ProcessStamp,
    credentials: Option<Arc<CredentialsSource>>,
    tls_configs: TlsConfigs,
}

impl ClusterConnector {
    pub(super) fn new(
        cluster: Cluster,
        limits: ClusterLimits,
        credentials: Option<Arc<CredentialsSource>>,
    ) -> ClusterConnector {
        let stamp = ProcessStamp::here();
        ClusterConnector { cluster, limits, stamp, credentials, tls_configs: TlsConfigs::default() }
    }

    /// Tries the members one after the other, beginning with the one at `first`; each has its share of what is left.
    /// Tells which one it was.
    pub(super) async fn connect(&self, first: usize, until: Time) -> Result<(ClusterConnection, usize), Failure> {
        let hosts = &self.cluster.hosts;
        let mut failures: Vec<Failure> = Vec::new();
        for at in 0..hosts.len() {
            let number = (first + at) % hosts.len();
            let share = until.since(clock::now()) / u32::try_from(hosts.len() - at).unwrap_or(u32::MAX);
            let host = &hosts[number];
            let made = timeout(share, self.connect_to(host, clock::now() + share)).await;
            let silent =
                || Failure::transient(ErrorKind::Unavailable, format!("{}: no answer in time", self.place(host)));
            match made.unwrap_or_else(|_| Err(silent())) {
                Ok(connection) => return Ok((connection, number)),
                Err(failure) => failures.push(failure),
            }
        }
        // what stays as it is says more than what may pass
        let told = failures.iter().find(|failure| !failure.transient).or(failures.first()).cloned();
        let Some(mut told) = told else {
            return Err(Failure::lasting(ErrorKind::InvalidArgument, "the address names no host"));
        };
        told.transient = failures.iter().any(|failure| failure.transient);
        if failures.len() > 1 && told.transient {
            let all: Vec<&str> = failures.iter().map(|failure| failure.detail.as_str()).collect();
            told.detail = all.join("; ");
        }
        Err(told)
    }

    fn place(&self, host: &MemberHost) -> String {
        format!("{}://{host}", self.cluster.scheme())
    }

    async fn connect_to(&self, host: &MemberHost, until: Time) -> Result<ClusterConnection, Failure> {
        let place = self.place(host);
        let stream = self.stream(host, until, &place).await?;
        let broken = |error: h2::Error| Failure::transient(ErrorKind::Unavailable, format!("{place}: {error}"));
        let mut builder = client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (requests, driven) = builder.handshake::<_, Bytes>(stream).await.map_err(broken)?;
        let task = tokio::spawn(async move { drop(driven.await) }).abort_handle();
        let scheme = if self.cluster.tls.is_some() { "https" } else { "http" };
        let channel = GrpcChannel { requests, origin: format!("{scheme}://{host}") };
        let inner = LeakAfterFork::new(ConnectionParts { channel, task }, self.stamp);
        let token = self.log_in(&inner.channel, until, &place).await?;
        let (retired, unanswered) = (watch::Sender::new(false), AtomicU64::new(0));
        Ok(ClusterConnection { inner, place, token, retired, unanswered })
    }

    async fn stream(&self, host: &MemberHost, until: Time, place: &str) -> Result<Box<dyn Stream>, Failure> {
        let stream = net::tcp(&host.name, host.port, until.since(clock::now())).await.map_err(|error| {
            let kind = if net::is_limit(&error) { ErrorKind::SystemLimit } else { ErrorKind::Unavailable };
            let why = match error.kind() {
                io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
                io::ErrorKind::TimedOut => "no answer in time".to_owned(),
                _ => error.to_string(),
            };
            Failure::transient(kind, format!("{place}: {why}"))
        })?;
        let Some(files) = &self.cluster.tls else { return Ok(Box::new(stream)) };
        let connector = self.tls(files)?;
        match connector.connect(tls::server_name(&host.name)?, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(handshake_failure(place, &error)),
        }
    }

    fn tls(&self, files: &TlsFiles) -> Result<TlsConnector, Failure> {
        let mut config = (*self.tls_configs.config(files)?).clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// Logs the user in, if there is one. A server that asks for nobody's password is content with it.
    ///
    /// A provider is asked once more when its answer is refused: it may have been replaced meanwhile.
    async fn log_in(&self, channel: &GrpcChannel, until: Time, place: &str) -> Result<Option<String>, Failure> {
        if self.cluster.user.is_empty() && self.credentials.is_none() {
            return Ok(None);
        }
        let mut refused: Option<(Login, Failure)> = None;
        loop {
            let known = (self.cluster.user.as_str(), self.cluster.password.as_ref());
            let login = login::login(known, self.credentials.as_ref(), until, place).await?;
            if let Some((_, failure)) = refused.as_ref().filter(|(used, _)| *used == login) {
                return Err(failure.clone());
            }
            let metadata = Metadata { token: None, limit: Some(until.since(clock::now())) };
            let asked = messages::authenticate(&login.user, login.password.as_deref().unwrap_or_default());
            match channel.ask::<Authenticated>(path::AUTHENTICATE, asked, metadata).await {
                Ok(answer) => return Ok(Some(answer.token)),
                Err(CallError { code: code::FAILED_PRECONDITION, words, .. }) if words.contains("not enabled") => {
                    return Ok(None);
                }
                Err(error) => {
                    let failure = failure::not_connected(&error, place);
                    if failure.kind != ErrorKind::AuthFailed || self.credentials.is_none() || refused.is_some() {
                        return Err(failure);
                    }
                    refused = Some((login, failure));
                }
            }
        }
    }
}

/// What rustls rejects is lasting; a broken connection is transient.
fn handshake_failure(place: &str, error: &io::Error) -> Failure {
    let detail = format!("{place}: TLS failed: {error}");
    if error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some() {
        return Failure::lasting(ErrorKind::Unavailable, format!("{detail}{}", tls::advice(&detail)));
    }
    Failure::transient(ErrorKind::Unavailable, detail)
}
