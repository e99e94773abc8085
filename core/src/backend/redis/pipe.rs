//! One connection shared by many tasks. The multiplexing is redis-rs'; what is added here is what a lock must know: when
//! the connection is gone, whether it has fallen silent, and whether its replies can still be believed.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, Value,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::background::Background;
use super::dial::{Dialled, Stream};
use super::endpoint::Endpoint;
use super::pace::Pace;
use super::replies::MAX_REPLY;
use super::socket::{NO_REPLY, NO_RESP, broken};
use super::value::text;
use crate::driver::clock;
use crate::machine::{Failure, Outcome, Time};

/// How many requests may wait to be written before callers wait to hand theirs in.
const QUEUE: usize = 1024;

/// Hears messages that arrive out of turn.
pub(crate) trait Ear: Send + Sync + 'static {
    /// Something was published on `channel`. Called on the connection's task: must not block.
    fn heard(&self, channel: &[u8]);
}

/// What the connection's task and its callers know in common.
#[derive(Default)]
pub(crate) struct Health {
    /// Bytes that have come in since anything was understood.
    unread: AtomicU64,
    /// Confirmations of subscriptions that are still to come.
    pub(crate) awaited: AtomicU64,
    /// A push was taken for a reply, so replies may belong to other requests than they seem to.
    disordered: AtomicBool,
    /// When the first request was sent since anything has come in; 0 if none was.
    silent_since: AtomicU64,
    /// Requests that wait for their reply.
    under_way: AtomicU64,
    pace: Pace,
}

/// A request that waits for its reply, or is given up.
struct UnderWay<'a>(&'a AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Health {
    fn understood(&self) {
        self.unread.store(0, Ordering::Relaxed);
    }

    /// The multiplexer takes every (un)subscription push for the confirmation that the oldest request waits for. One that
    /// the server sends by itself would shift all replies behind it by one: acquires would get each other's answers.
    /// So they are counted, before the multiplexer acts on them.
    fn confirmed(&self) {
        let counted = self.awaited.fetch_update(Ordering::AcqRel, Ordering::Acquire, |awaited| awaited.checked_sub(1));
        if counted.is_err() {
            self.disordered.store(true, Ordering::Release);
        }
    }
}

/// The handle of a connection. The connection ends with it.
pub(crate) struct Pipe {
    connection: MultiplexedConnection,
    background: Background,
    _pacemaker: Background,
    health: Arc<Health>,
    endpoint: Arc<Endpoint>,
    request_timeout: Duration,
    /// Whether it takes nothing new, though replies may still come.
    retired: AtomicBool,
    retiring: Notify,
    /// Counts the store's connections, from 1.
    pub(crate) number: u64,
    /// Whether subscriptions can share this connection.
    pub(crate) resp3: bool,
}

impl Pipe {
    /// Starts the connection's task.
    pub(crate) async fn start(
        dialled: Dialled,
        number: u64,
        request_timeout: Duration,
        ear: Arc<dyn Ear>,
    ) -> Result<Pipe, Failure> {
        let (resp3, endpoint) = (dialled.terms.resp3, dialled.endpoint);
        let health = Arc::new(Health::default());
        let stream = Bounded { stream: dialled.stream, health: health.clone() };
        // time limits are the callers', and nothing is ever sent twice
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
        if resp3 {
            let health = health.clone();
            config = config.set_push_sender(move |push: PushInfo| {
                pushed(&push, &health, &*ear);
                Ok::<(), ()>(())
            });
        }
        let (connection, driver) = MultiplexedConnection::new_with_config(&introduced(resp3), stream, config)
            .await
            .map_err(|error| broken(&*endpoint, &why(&error)))?;
        let background = Background::spawn(driver);
        let pacing = health.clone();
        let pacemaker = Background::spawn(async move { pacing.pace.keep().await });
        let (retired, retiring) = (AtomicBool::new(false), Notify::new());
        Ok(Pipe {
            connection,
            background,
            _pacemaker: pacemaker,
            health,
            endpoint,
            request_timeout,
            retired,
            retiring,
            number,
            resp3,
        })
    }

    /// Sends a request at `sent_at`, behind `before` if there is one, and waits for its reply for `limit` at most.
    pub(crate) async fn request(
        &self,
        before: Option<&Cmd>,
        command: &Cmd,
        sent_at: Time,
        limit: Duration,
    ) -> Outcome<Value> {
        if let Err(refused) = self.begin(sent_at) {
            return refused;
        }
        let mut alone = self.health.under_way.fetch_add(1, Ordering::Relaxed) == 0;
        let _under_way = UnderWay(&self.health.under_way);
        let mut connection = self.connection.clone();
        let mut request = pin!(async {
            let Some(before) = before else { return connection.send_packed_command(command).await };
            let mut both = redis::pipe();
            both.add_command(before.clone()).add_command(command.clone());
            let replies = connection.send_packed_commands(&both, 1, 1).await?;
            Ok(replies.into_iter().next().unwrap_or(Value::Nil))
        });
        // the first of several leaves from here; those that come while it is under way leave together
        let sent = poll_fn(|context| {
            if std::mem::take(&mut alone) {
                self.background.assisted(|| request.as_mut().poll(context))
            } else {
                request.as_mut().poll(context)
            }
        });
        match timeout(limit, sent).await {
            Ok(replied) => self.replied(replied),
            Err(_) => self.unanswered(sent_at, NO_REPLY),
        }
    }

    /// Before a request is sent; `Err` with what is to be said of it if it must not be.
    fn begin(&self, sent_at: Time) -> Result<(), Outcome<Value>> {
        if self.is_gone() {
            return Err(Outcome::NotApplied(broken(&*self.endpoint, "the connection is gone")));
        }
        self.health.pace.quicken();
        let silent = &self.health.silent_since;
        let _ = silent.compare_exchange(0, sent_at.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }

    fn replied(&self, replied: Result<Value, RedisError>) -> Outcome<Value> {
        let reason = match replied {
            Ok(value) => {
                self.health.understood();
                // asked after the reply was taken: whatever was shifted came after the flag was set
                if !self.health.disordered.load(Ordering::Acquire) {
                    return Outcome::Applied(value);
                }
                "replies were mixed up".to_owned()
            }
            Err(error) => why(&error),
        };
        self.stop();
        Outcome::Indeterminate(broken(&*self.endpoint, &reason))
    }

    fn unanswered(&self, sent_at: Time, reason: &str) -> Outcome<Value> {
        // a caller in a hurry doesn't end it for the others, but all of them together notice silence
        let (now, since) = (clock::now(), Time::from_nanos(self.health.silent_since.load(Ordering::Relaxed)));
        let silence = if since == Time::ZERO { Duration::ZERO } else { now.since(since) };
        if now.since(sent_at).max(silence) >= self.request_timeout {
            self.stop();
        }
        Outcome::Indeterminate(broken(&*self.endpoint, reason))
    }

    /// The connection for subscriptions, and how many confirmations it waits for.
    pub(crate) fn subscriptions(&self) -> (MultiplexedConnection, Arc<Health>) {
        (self.connection.clone(), self.health.clone())
    }

    /// Ends the connection. What is in flight may or may not have happened.
    pub(crate) fn stop(&self) {
        self.background.stop();
    }

    /// Takes no more requests; what is in flight gets its replies. The connection ends when nobody has it any more.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.retiring.notify_waiters();
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_gone(&self) -> bool {
        self.retired.load(Ordering::Acquire) || self.background.is_gone()
    }

    /// Waits until it takes no more requests.
    pub(crate) async fn gone(&self) {
        let mut retiring = pin!(self.retiring.notified());
        retiring.as_mut().enable();
        if self.is_gone() {
            return;
        }
        tokio::select! {
            () = self.background.gone() => {}
            () = retiring => {}
        }
    }
}

/// How the connection is to be used; user, database and the rest were settled by the handshake.
pub(crate) fn introduced(resp3: bool) -> RedisConnectionInfo {
    let protocol = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    RedisConnectionInfo::default().set_protocol(protocol).set_skip_set_lib_name()
}

fn pushed(push: &PushInfo, health: &Health, ear: &dyn Ear) {
    health.understood();
    match push.kind {
        PushKind::Message => {
            if let Some(channel) = push.data.first().and_then(text) {
                ear.heard(channel);
            }
        }
        PushKind::Subscribe
        | PushKind::Unsubscribe
        | PushKind::PSubscribe
        | PushKind::PUnsubscribe
        | PushKind::SSubscribe
        | PushKind::SUnsubscribe => health.confirmed(),
        _ => {}
    }
}

/// Why there was no reply, in words. What the peer sent is never repeated.
pub(crate) fn why(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::Parse => NO_RESP.to_owned(),
        _ if error.is_connection_dropped() => "the connection was lost".to_owned(),
        kind => format!("the connection broke ({kind:?})"),
    }
}

/// A stream whose peer may not send without end before anything of it is understood.
struct Bounded {
    stream: Box<dyn Stream>,
    health: Arc<Health>,
}

impl AsyncRead for Bounded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let read = (buffer.filled().len() - before) as u64;
        if read > 0 {
            // also when whoever asked has gone
            this.health.silent_since.store(0, Ordering::Relaxed);
        }
        if this.health.unread.fetch_add(read, Ordering::Relaxed) > MAX_REPLY as u64 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        result
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
