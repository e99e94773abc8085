//! A blocking connection, driven by the calling thread: it writes requests and reads replies.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use redis::{Cmd, Value};
use rustls::ClientConfig;

use super::stream::BlockingStream;
use crate::config::credentials::Credentials;
use crate::error::ErrorKind;
use crate::machine::{Failure, Outcome, Time};
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};
use crate::store::redis::connection::deadline::{Deadline, POLL_INTERVAL};
use crate::store::redis::connection::handshake::{Handshake, HandshakeStep};
use crate::store::redis::connection::socket::{
    NO_REPLY, NO_RESP, broken, no_connection_in_time, no_thread, not_connected, reason,
};
use crate::store::redis::connection::{login, tls};
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::decoder::{DecodeError, ReplyDecoder};

/// How long one read blocks when the socket is known to be readable.
const READY_READ_TIMEOUT: Duration = Duration::from_millis(2);
/// A server that owes more skipped replies than this is not just slow.
const MAX_REPLIES_TO_SKIP: usize = 4;
/// A connection that was idle for longer is checked before it is used.
const CHECK_AFTER_IDLE: Duration = Duration::from_secs(1);

/// Multiplexed connections are numbered from 1.
const FIRST_NUMBER: u64 = 1 << 48;
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A connection after its handshake.
pub(crate) struct BlockingConnection {
    endpoint: Arc<Endpoint>,
    /// Unique in the process, and apart from the numbers of multiplexed connections.
    pub(crate) number: u64,
    /// The epoch in which it was made; see [`NodeContext::epoch`](crate::store::redis::connection::context::NodeContext::epoch).
    pub(crate) epoch: u64,
    stream: BlockingStream,
    decoder: ReplyDecoder,
    /// Whether reads and writes block.
    blocking: bool,
    /// The time limit of one system call, as set on the socket.
    io_timeout: Duration,
    idle_since: Time,
    /// A reply is missing or left over: not to be used again.
    poisoned: bool,
    /// Replies still to come that no caller waits for.
    replies_to_skip: usize,
    /// Whether everything written has left this process.
    flushed: bool,
}

/// Why bytes could not be exchanged.
enum IoFailure {
    Io(io::Error),
    Stopped(&'static str),
    Malformed,
}

impl IoFailure {
    fn failure(&self, endpoint: &Endpoint) -> Failure {
        match self {
            IoFailure::Io(error) => broken(endpoint, &reason(error)),
            IoFailure::Stopped(why) => broken(endpoint, why),
            IoFailure::Malformed => broken(endpoint, NO_RESP),
        }
    }
}

impl BlockingConnection {
    /// Connects and shakes hands before the deadline. On failure nothing of the caller's was sent.
    pub(crate) fn open(
        place: Arc<Endpoint>,
        epoch: u64,
        config: Option<Arc<ClientConfig>>,
        options: &RedisOptions,
        deadline: Deadline<'_>,
    ) -> Result<BlockingConnection, Failure> {
        let endpoint = &*place;
        let mut stream = connect(endpoint, deadline)?;
        stream.set_io_timeout(POLL_INTERVAL).map_err(|error| not_connected(endpoint, &error))?;
        if let (Some(config), ConnectionAddr::Tcp { host, .. }) = (config, &endpoint.addr) {
            stream = stream
                .encrypt(config, tls::server_name(host)?)
                .map_err(|error| tls::handshake_failure(endpoint, &error))?;
            tls_handshake(&mut stream, endpoint, deadline)?;
        }
        let (decoder, io_timeout) = (ReplyDecoder::new(), POLL_INTERVAL);
        let number = FIRST_NUMBER + OPENED.fetch_add(1, Ordering::Relaxed);
        let mut connection = BlockingConnection {
            endpoint: place,
            number,
            epoch,
            stream,
            decoder,
            blocking: true,
            io_timeout,
            idle_since: Time::ZERO,
            poisoned: false,
            replies_to_skip: 0,
            flushed: true,
        };
        connection.handshake(options, deadline)?;
        Ok(connection)
    }

    fn handshake(&mut self, options: &RedisOptions, deadline: Deadline<'_>) -> Result<(), Failure> {
        let endpoint = self.endpoint.clone();
        let credentials = login::credentials_blocking(options, &endpoint, deadline)?;
        let name = options.client_name.as_deref();
        match self.greet(&endpoint, name, credentials.as_ref(), deadline) {
            Err(refused) if login::may_have_changed(&refused, credentials.as_ref()) => {
                match login::credentials_blocking(options, &endpoint, deadline) {
                    Ok(now) if now != credentials => self.greet(&endpoint, name, now.as_ref(), deadline),
                    _ => Err(refused),
                }
            }
            done => done,
        }
    }

    fn greet(
        &mut self,
        endpoint: &Endpoint,
        client_name: Option<&str>,
        credentials: Option<&Credentials>,
        deadline: Deadline<'_>,
    ) -> Result<(), Failure> {
        let mut handshake = Handshake::new(endpoint, client_name).with_credentials(credentials);
        let mut step = handshake.begin();
        while let HandshakeStep::Send(bytes, expected) = step {
            // a peer that closes at once may have said why; so a readable reply counts before a failed write
            let unsent = self.write_all(&bytes, deadline).err().map(|(_, failure)| failure);
            let mut replies = Vec::with_capacity(expected);
            while replies.len() < expected {
                match self.read_reply(deadline) {
                    Ok(reply) => replies.push(reply),
                    Err(failure) => {
                        let said = Handshake::refusal_before_close(&replies);
                        let told = || handshake.explain_hang_up(&replies, unsent.unwrap_or(failure).failure(endpoint));
                        return Err(said.unwrap_or_else(told));
                    }
                }
            }
            step = handshake.replies(&replies)?;
        }
        Ok(())
    }

    /// Sends one command, after `before` if there is one, and waits for its reply; `now` is the time of sending.
    pub(crate) fn exchange(
        &mut self,
        before: Option<&Cmd>,
        request: &Cmd,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Outcome<Value> {
        // cleared when the reply has arrived in full
        self.poisoned = true;
        self.set_io_timeout(deadline.until.since(now));
        let mut bytes = before.map(Cmd::get_packed_command).unwrap_or_default();
        if bytes.is_empty() {
            bytes = request.get_packed_command();
        } else {
            request.write_packed_command(&mut bytes);
        }
        match self.write_all(&bytes, deadline) {
            Ok(()) => {}
            Err((0, failure)) => return Outcome::NotApplied(failure.failure(&self.endpoint)),
            Err((_, failure)) => return Outcome::Indeterminate(failure.failure(&self.endpoint)),
        }
        let received = before.map_or(Ok(Value::Okay), |_| self.read_reply(deadline));
        match received.and_then(|_| self.read_reply(deadline)) {
            Ok(value) => {
                // a surplus reply would be taken for the next request's
                self.poisoned = !self.decoder.is_empty();
                Outcome::Applied(value)
            }
            Err(failure) => Outcome::Indeterminate(failure.failure(&self.endpoint)),
        }
    }

    /// Sends a request without waiting for its reply, as for a round on several servers.
    pub(crate) fn send(&mut self, bytes: &[u8], deadline: Deadline<'_>) -> Result<(), Outcome<Value>> {
        self.poisoned = true;
        self.set_io_timeout(READY_READ_TIMEOUT);
        self.write_all(bytes, deadline).map_err(|(left, failure)| {
            let failure = failure.failure(&self.endpoint);
            if left == 0 { Outcome::NotApplied(failure) } else { Outcome::Indeterminate(failure) }
        })
    }

    /// The reply to what was sent, once the socket is readable; `None` if it is not complete yet.
    pub(crate) fn try_recv(&mut self) -> Option<Outcome<Value>> {
        loop {
            match self.poll_reply()? {
                Outcome::Applied(_) if self.replies_to_skip > 0 => self.replies_to_skip -= 1,
                Outcome::Applied(value) => {
                    self.poisoned = !self.decoder.is_empty();
                    return Some(Outcome::Applied(value));
                }
                broken => return Some(broken),
            }
        }
    }

    /// The next of several replies, if it is complete. Only replies are "applied".
    pub(crate) fn poll_reply(&mut self) -> Option<Outcome<Value>> {
        self.stream.begin_calls();
        let next = self.decoder.next(&mut self.stream);
        self.outcome(next)
    }

    /// The next of several replies, if it is in the buffer already: the socket is not read.
    pub(crate) fn buffered_reply(&mut self) -> Option<Outcome<Value>> {
        let next = self.decoder.next_buffered();
        self.outcome(next)
    }

    fn outcome(&self, next: Result<Value, DecodeError>) -> Option<Outcome<Value>> {
        match next {
            Ok(value) => Some(Outcome::Applied(value)),
            Err(DecodeError::Io(error)) if is_retryable(&error) => None,
            Err(DecodeError::Io(error)) => Some(Outcome::Indeterminate(broken(&self.endpoint, &reason(&error)))),
            Err(DecodeError::Malformed) => Some(Outcome::Indeterminate(broken(&self.endpoint, NO_RESP))),
        }
    }

    /// The next of several replies, if it is complete within `left`; may return earlier.
    pub(crate) fn recv_within(&mut self, left: Duration) -> Option<Outcome<Value>> {
        self.set_io_timeout(left);
        self.poll_reply()
    }

    /// The next reply or push within `left`; may return earlier. Pushes are delivered from now on.
    pub(crate) fn recv_message_within(&mut self, left: Duration) -> Option<Outcome<Value>> {
        self.decoder.deliver_pushes();
        self.set_io_timeout(left);
        self.poll_reply()
    }

    /// Whether nothing is left in the buffer; for callers of [`BlockingConnection::poll_reply`].
    pub(crate) fn is_drained(&mut self) -> bool {
        self.decoder.is_empty()
    }

    /// Writes without waiting: how many bytes were taken, or `None` when the connection takes none any more.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        self.stream.begin_calls();
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(more) if more > 0 => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_retryable(&error) => break,
                // the reader finds out what became of the bytes written before
                _ if written > 0 => break,
                _ => return None,
            }
        }
        // a failure here is found by the reader
        self.flushed = self.stream.flush().is_ok();
        Some(written)
    }

    /// Whether no written byte is held back in this process.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// No caller waits for the reply to the last request: it is skipped when the next one is read.
    pub(crate) fn skip_next_reply(&mut self) {
        self.replies_to_skip += 1;
        self.poisoned = self.replies_to_skip > MAX_REPLIES_TO_SKIP;
    }

    /// The failure of a request whose reply did not arrive in time.
    pub(crate) fn no_reply_failure(&self) -> Failure {
        broken(&self.endpoint, NO_REPLY)
    }

    /// The failure of a request whose connection was given up.
    pub(crate) fn connection_lost_failure(&self) -> Failure {
        broken(&self.endpoint, "the connection is gone")
    }

    /// Makes reads and writes non-blocking: the socket is polled by its descriptor, which is returned.
    pub(crate) fn set_nonblocking(&mut self) -> io::Result<i32> {
        self.blocking = false;
        self.stream.set_nonblocking()
    }

    /// The server at the other end.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// The stream, to poll it for readability.
    pub(crate) fn stream(&self) -> &BlockingStream {
        &self.stream
    }

    /// Marks the start of an idle period.
    pub(crate) fn mark_idle(&mut self, now: Time) {
        self.idle_since = now;
    }

    /// Whether it can carry another request. The socket is checked only after the connection was idle for a while.
    pub(crate) fn is_usable(&self, now: Time) -> bool {
        let fresh = now.since(self.idle_since) <= CHECK_AFTER_IDLE;
        // a reply to be skipped looks like an unsolicited one
        !self.poisoned && (fresh || (self.replies_to_skip == 0 && !self.stream.is_stale(self.blocking)))
    }

    /// Whether the last request left it out of step.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// On failure, how many bytes may have been sent.
    fn write_all(&mut self, mut bytes: &[u8], deadline: Deadline<'_>) -> Result<(), (usize, IoFailure)> {
        let total = bytes.len();
        self.stream.begin_calls();
        while !bytes.is_empty() {
            // a peer that takes a few bytes at a time is waited for, too
            match self.stream.write(bytes) {
                Ok(0) => return Err((total - bytes.len(), IoFailure::Io(io::ErrorKind::WriteZero.into()))),
                Ok(written) => bytes = &bytes[written..],
                Err(error) => self.wait_or_fail(error, deadline).map_err(|failure| (total - bytes.len(), failure))?,
            }
        }
        loop {
            match self.stream.flush() {
                Ok(()) => return Ok(()),
                Err(error) => self.wait_or_fail(error, deadline).map_err(|failure| (total, failure))?,
            }
        }
    }

    fn read_reply(&mut self, deadline: Deadline<'_>) -> Result<Value, IoFailure> {
        self.stream.begin_calls();
        loop {
            match self.decoder.next(&mut self.stream) {
                // the reply to an abandoned request
                Ok(_) if self.replies_to_skip > 0 => self.replies_to_skip -= 1,
                Ok(value) => return Ok(value),
                Err(DecodeError::Malformed) => return Err(IoFailure::Malformed),
                Err(DecodeError::Io(error)) => self.wait_or_fail(error, deadline)?,
            }
        }
    }

    /// A system call returned without data: goes on unless the deadline has passed or the caller was interrupted.
    fn wait_or_fail(&mut self, error: io::Error, deadline: Deadline<'_>) -> Result<(), IoFailure> {
        if !is_retryable(&error) {
            return Err(IoFailure::Io(error));
        }
        let left = deadline.check().map_err(IoFailure::Stopped)?;
        self.set_io_timeout(left);
        self.stream.begin_calls();
        Ok(())
    }

    /// Limits a system call to the time left. Touches the socket only when the value changes.
    fn set_io_timeout(&mut self, left: Duration) {
        // whole milliseconds, so that a shrinking rest does not cost a system call each time
        let io_timeout = Duration::from_millis((left.as_millis() as u64).clamp(1, POLL_INTERVAL.as_millis() as u64));
        if io_timeout != self.io_timeout && self.stream.set_io_timeout(io_timeout).is_ok() {
            self.io_timeout = io_timeout;
        }
    }
}

/// Whether the call timed out or was interrupted by a signal, and can be repeated.
fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Name resolution and connecting cannot be interrupted, so a separate thread does both; the caller watches the
/// deadline. A thread whose caller has gone ends by itself.
fn connect(endpoint: &Endpoint, deadline: Deadline<'_>) -> Result<BlockingStream, Failure> {
    let give_up = |why: &str| match why {
        NO_REPLY => no_connection_in_time(endpoint),
        why => Failure::transient(ErrorKind::Unavailable, format!("{endpoint}: {why}")),
    };
    let left = deadline.check().map_err(give_up)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let place = endpoint.addr.clone();
    let work = move || {
        let _ = sender.send(BlockingStream::connect(&place, left));
    };
    if let Err(error) = thread::Builder::new().name("onelock-connect".to_owned()).spawn(work) {
        return Err(not_connected(endpoint, &no_thread(&error)));
    }
    loop {
        let left = deadline.check().map_err(give_up)?;
        match receiver.recv_timeout(left.min(POLL_INTERVAL)) {
            Ok(connected) => return connected.map_err(|error| not_connected(endpoint, &error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(not_connected(endpoint, &io::Error::other("the connecting thread ended")));
            }
        }
    }
}

fn tls_handshake(stream: &mut BlockingStream, endpoint: &Endpoint, deadline: Deadline<'_>) -> Result<(), Failure> {
    loop {
        match stream.tls_handshake() {
            Ok(()) => return Ok(()),
            Err(error) if is_retryable(&error) => {
                if deadline.check().is_err() {
                    return Err(tls::no_handshake_in_time(endpoint));
                }
            }
            Err(error) => return Err(tls::handshake_failure(endpoint, &error)),
        }
    }
}
