//! A connection that many tasks share. redis-rs multiplexes; this adds what a lock needs to know: whether the
//! connection has ended, whether it is silent, and whether its replies are still in order.

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

use super::assisted_task::AssistedTask;
use super::connect::{AsyncStream, ConnectedStream};
use super::timer_tick::TimerTick;
use crate::machine::{Failure, Outcome, Time};
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::connection::socket::{NO_REPLY, NO_RESP, broken};
use crate::store::redis::resp::decoder::MAX_REPLY_BYTES;
use crate::store::redis::resp::value::text;
use crate::sys::clock;

/// How many requests may be queued before callers wait to submit theirs.
const WRITE_QUEUE: usize = 1024;

/// Receives the messages of subscriptions.
pub(crate) trait PushHandler: Send + Sync + 'static {
    /// This was published on `channel`, and came on the connection of this number. Called on the connection's task: must
    /// not block.
    fn on_message(&self, connection: u64, channel: &[u8], payload: &[u8]);
}

/// What the connection's task and its callers share.
#[derive(Default)]
pub(crate) struct ConnectionHealth {
    /// Bytes received since the last decoded reply or push.
    undecoded_bytes: AtomicU64,
    /// Confirmations of subscriptions that are still to come.
    pub(crate) awaited_confirmations: AtomicU64,
    /// A push was taken for a reply, so later replies may belong to other requests.
    out_of_order: AtomicBool,
    /// When the first request was sent since the last byte arrived; 0 if none was.
    unanswered_since: AtomicU64,
    /// Requests that wait for their reply.
    in_flight: AtomicU64,
    tick: TimerTick,
}

/// Counts a request in flight until dropped.
struct InFlightGuard<'a>(&'a AtomicU64);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionHealth {
    fn note_decoded(&self) {
        self.undecoded_bytes.store(0, Ordering::Relaxed);
    }

    /// The multiplexer takes every (un)subscription push for the confirmation that the oldest request waits for. One
    /// that the server sends unasked would shift all later replies by one: acquires would get each other's answers. So
    /// pushes are counted before the multiplexer handles them.
    fn note_confirmation(&self) {
        let counted = self
            .awaited_confirmations
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |awaited| awaited.checked_sub(1));
        if counted.is_err() {
            self.out_of_order.store(true, Ordering::Release);
        }
    }
}

/// A connection, which ends with this handle.
pub(crate) struct AsyncConnection {
    connection: MultiplexedConnection,
    task: AssistedTask,
    _ticker: AssistedTask,
    health: Arc<ConnectionHealth>,
    endpoint: Arc<Endpoint>,
    request_timeout: Duration,
    /// Whether it accepts no new requests, though replies may still arrive.
    retired: AtomicBool,
    retiring: Notify,
    /// Numbers the connections of a store, from 1.
    pub(crate) number: u64,
    /// Whether subscriptions can share this connection.
    pub(crate) resp3: bool,
}

impl AsyncConnection {
    /// Starts the connection's task.
    pub(crate) async fn start(
        connected: ConnectedStream,
        number: u64,
        request_timeout: Duration,
        push_handler: Arc<dyn PushHandler>,
    ) -> Result<AsyncConnection, Failure> {
        let (resp3, endpoint) = (connected.result.resp3, connected.endpoint);
        let health = Arc::new(ConnectionHealth::default());
        let stream = BoundedStream { stream: connected.stream, health: health.clone() };
        // callers set time limits, and no request is ever repeated
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(WRITE_QUEUE);
        if resp3 {
            let health = health.clone();
            config = config.set_push_sender(move |push: PushInfo| {
                dispatch_push(&push, messages_number(number), &health, &*push_handler);
                Ok::<(), ()>(())
            });
        }
        let (connection, driver) = MultiplexedConnection::new_with_config(&connection_info(resp3), stream, config)
            .await
            .map_err(|error| broken(&*endpoint, &describe(&error)))?;
        let task = AssistedTask::spawn(driver);
        let ticking = health.clone();
        let ticker = AssistedTask::spawn(async move { ticking.tick.run().await });
        let (retired, retiring) = (AtomicBool::new(false), Notify::new());
        Ok(AsyncConnection {
            connection,
            task,
            _ticker: ticker,
            health,
            endpoint,
            request_timeout,
            retired,
            retiring,
            number,
            resp3,
        })
    }

    /// Sends a request at `sent_at`, after `before` if there is one, and waits for its reply for `limit` at most.
    pub(crate) async fn request(
        &self,
        before: Option<&Cmd>,
        command: &Cmd,
        sent_at: Time,
        limit: Duration,
    ) -> Outcome<Value> {
        if let Err(refused) = self.prepare(sent_at) {
            return refused;
        }
        let mut alone = self.health.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        let _under_way = InFlightGuard(&self.health.in_flight);
        let mut connection = self.connection.clone();
        let mut request = pin!(async {
            let Some(before) = before else { return connection.send_packed_command(command).await };
            let mut both = redis::pipe();
            both.add_command(before.clone()).add_command(command.clone());
            let replies = connection.send_packed_commands(&both, 1, 1).await?;
            Ok(replies.into_iter().next().unwrap_or(Value::Nil))
        });
        // the first request is sent on this thread; later ones are sent together while it is in flight
        let sent = poll_fn(|context| {
            if std::mem::take(&mut alone) {
                self.task.poll_inline(|| request.as_mut().poll(context))
            } else {
                request.as_mut().poll(context)
            }
        });
        match timeout(limit, sent).await {
            Ok(replied) => self.on_reply(replied),
            Err(_) => self.on_timeout(sent_at, NO_REPLY),
        }
    }

    /// Checks the connection before a request is sent; `Err` is the outcome of a request that must not be sent.
    fn prepare(&self, sent_at: Time) -> Result<(), Outcome<Value>> {
        if self.is_gone() {
            return Err(Outcome::NotApplied(broken(&*self.endpoint, "the connection is gone")));
        }
        self.health.tick.note_activity();
        let silent = &self.health.unanswered_since;
        let _ = silent.compare_exchange(0, sent_at.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }

    fn on_reply(&self, replied: Result<Value, RedisError>) -> Outcome<Value> {
        let reason = match replied {
            Ok(value) => {
                self.health.note_decoded();
                // checked after the reply was taken: the flag is set before any shifted reply is delivered
                if !self.health.out_of_order.load(Ordering::Acquire) {
                    return Outcome::Applied(value);
                }
                "replies were mixed up".to_owned()
            }
            Err(error) => describe(&error),
        };
        self.stop();
        Outcome::Indeterminate(broken(&*self.endpoint, &reason))
    }

    fn on_timeout(&self, sent_at: Time, reason: &str) -> Outcome<Value> {
        // a short time limit of one caller does not end the connection, but silence for a request timeout does
        let (now, since) = (clock::now(), Time::from_nanos(self.health.unanswered_since.load(Ordering::Relaxed)));
        let silence = if since == Time::ZERO { Duration::ZERO } else { now.since(since) };
        if now.since(sent_at).max(silence) >= self.request_timeout {
            self.stop();
        }
        Outcome::Indeterminate(broken(&*self.endpoint, reason))
    }

    /// The connection for subscriptions, and its health, which counts confirmations.
    pub(crate) fn subscription_parts(&self) -> (MultiplexedConnection, Arc<ConnectionHealth>) {
        (self.connection.clone(), self.health.clone())
    }

    /// The number that its messages carry.
    pub(crate) fn messages_number(&self) -> u64 {
        messages_number(self.number)
    }

    /// Ends the connection. What is in flight may or may not have happened.
    pub(crate) fn stop(&self) {
        self.task.stop();
    }

    /// Accepts no more requests; what is in flight gets its replies. The connection ends with its last handle.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.retiring.notify_waiters();
    }

    /// Whether it accepts no more requests.
    pub(crate) fn is_gone(&self) -> bool {
        self.retired.load(Ordering::Acquire) || self.task.is_gone()
    }

    /// Waits until it accepts no more requests.
    pub(crate) async fn gone(&self) {
        let mut retiring = pin!(self.retiring.notified());
        retiring.as_mut().enable();
        if self.is_gone() {
            return;
        }
        tokio::select! {
            () = self.task.gone() => {}
            () = retiring => {}
        }
    }
}

/// The settings for redis-rs; user, database and the rest were settled by the handshake.
pub(crate) fn connection_info(resp3: bool) -> RedisConnectionInfo {
    let protocol = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    RedisConnectionInfo::default().set_protocol(protocol).set_skip_set_lib_name()
}

/// The number that messages of the connection with this one carry: even, those of dedicated connections are odd.
const fn messages_number(number: u64) -> u64 {
    number * 2
}

fn dispatch_push(push: &PushInfo, connection: u64, health: &ConnectionHealth, push_handler: &dyn PushHandler) {
    health.note_decoded();
    match push.kind {
        PushKind::Message => {
            if let Some(channel) = push.data.first().and_then(text) {
                let payload = push.data.get(1).and_then(text).unwrap_or_default();
                push_handler.on_message(connection, channel, payload);
            }
        }
        PushKind::Subscribe
        | PushKind::Unsubscribe
        | PushKind::PSubscribe
        | PushKind::PUnsubscribe
        | PushKind::SSubscribe
        | PushKind::SUnsubscribe => health.note_confirmation(),
        _ => {}
    }
}

/// Why there was no reply, in words. What the peer sent is never repeated.
pub(crate) fn describe(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::Parse => NO_RESP.to_owned(),
        _ if error.is_connection_dropped() => "the connection was lost".to_owned(),
        kind => format!("the connection broke ({kind:?})"),
    }
}

/// A stream that fails when a peer sends too many bytes before anything is decoded.
struct BoundedStream {
    stream: Box<dyn AsyncStream>,
    health: Arc<ConnectionHealth>,
}

impl AsyncRead for BoundedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let read = (buffer.filled().len() - before) as u64;
        if read > 0 {
            // also when the caller has gone
            this.health.unanswered_since.store(0, Ordering::Relaxed);
        }
        if this.health.undecoded_bytes.fetch_add(read, Ordering::Relaxed) > MAX_REPLY_BYTES as u64 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        result
    }
}

impl AsyncWrite for BoundedStream {
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
