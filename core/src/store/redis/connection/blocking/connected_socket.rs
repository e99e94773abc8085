//! A socket that the calling thread drives: it moves bytes between the network and an exchange, within deadlines.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustls::ClientConfig;

use super::stream::BlockingStream;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};
use crate::store::redis::connection::deadline::{Deadline, POLL_INTERVAL};
use crate::store::redis::connection::socket::{
    NO_REPLY, NO_RESP, broken, no_connection_in_time, no_thread, not_connected, reason,
};
use crate::store::redis::connection::tls;
use crate::store::redis::resp::decoder::ReplyDecoder;
use crate::store::redis::resp::exchange::{Exchange, ExchangeError, Received};
use crate::store::redis::resp::request_queue::RequestQueue;

/// A connection that was idle for longer is checked before it is used.
const CHECK_AFTER_IDLE: Duration = Duration::from_secs(1);

/// Multiplexed connections are numbered from 1.
const FIRST_NUMBER: u64 = 1 << 48;
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A connected socket.
pub(crate) struct ConnectedSocket {
    pub(crate) endpoint: Arc<Endpoint>,
    /// Unique in the process, and apart from the numbers of multiplexed connections.
    pub(crate) number: u64,
    /// The epoch in which it was made; see [`NodeContext::epoch`](crate::store::redis::connection::context::NodeContext::epoch).
    pub(crate) epoch: u64,
    pub(crate) stream: BlockingStream,
    /// Whether reads and writes block.
    blocking: bool,
    /// The time limit of one system call, as set on the socket.
    io_timeout: Duration,
    idle_since: Time,
    /// Whether everything written has left this process.
    flushed: bool,
}

/// Why bytes could not be exchanged.
pub(crate) enum IoFailure {
    Io(io::Error),
    Stopped(&'static str),
    Protocol(ExchangeError),
}

impl IoFailure {
    pub(crate) fn failure(&self, endpoint: &Endpoint) -> Failure {
        match self {
            IoFailure::Io(error) => broken(endpoint, &reason(error)),
            IoFailure::Stopped(why) => broken(endpoint, why),
            IoFailure::Protocol(ExchangeError::Malformed) => broken(endpoint, NO_RESP),
            IoFailure::Protocol(ExchangeError::Unsolicited) => broken(endpoint, "there was a reply too many"),
        }
    }
}

impl From<ExchangeError> for IoFailure {
    fn from(error: ExchangeError) -> IoFailure {
        IoFailure::Protocol(error)
    }
}

impl ConnectedSocket {
    /// Connects, and encrypts if there is a `config`, before the deadline.
    pub(crate) fn open(
        endpoint: Arc<Endpoint>,
        epoch: u64,
        config: Option<Arc<ClientConfig>>,
        deadline: Deadline<'_>,
    ) -> Result<ConnectedSocket, Failure> {
        let mut stream = connect(&endpoint, deadline)?;
        stream.set_io_timeout(POLL_INTERVAL).map_err(|error| not_connected(&endpoint, &error))?;
        if let (Some(config), ConnectionAddr::Tcp { host, .. }) = (config, &endpoint.addr) {
            stream = stream
                .encrypt(config, tls::server_name(host)?)
                .map_err(|error| tls::handshake_failure(&endpoint, &error))?;
            tls_handshake(&mut stream, &endpoint, deadline)?;
        }
        let number = FIRST_NUMBER + OPENED.fetch_add(1, Ordering::Relaxed);
        Ok(ConnectedSocket {
            endpoint,
            number,
            epoch,
            stream,
            blocking: true,
            io_timeout: POLL_INTERVAL,
            idle_since: Time::ZERO,
            flushed: true,
        })
    }

    /// Sends all that is queued.
    pub(crate) fn send<T>(&mut self, requests: &mut RequestQueue<T>, deadline: Deadline<'_>) -> Result<(), IoFailure> {
        self.stream.begin_calls();
        while !requests.unsent().is_empty() {
            // a peer that takes a few bytes at a time is waited for, too
            match self.stream.write(requests.unsent()) {
                Ok(0) => return Err(IoFailure::Io(io::ErrorKind::WriteZero.into())),
                Ok(written) => requests.sent(written),
                Err(error) => self.wait_or_fail(error, deadline)?,
            }
        }
        while let Err(error) = self.stream.flush() {
            self.wait_or_fail(error, deadline)?;
        }
        Ok(())
    }

    /// Sends what the socket takes without waiting. False when it takes nothing any more.
    pub(crate) fn try_send<T>(&mut self, requests: &mut RequestQueue<T>) -> bool {
        self.stream.begin_calls();
        let mut begun = false;
        while !requests.unsent().is_empty() {
            match self.stream.write(requests.unsent()) {
                Ok(written) if written > 0 => {
                    requests.sent(written);
                    begun = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_retryable(&error) => break,
                // the reader finds out what became of the bytes written before
                _ if begun => break,
                _ => return false,
            }
        }
        // a failure here is found by the reader
        self.flushed = self.stream.flush().is_ok();
        true
    }

    /// Whether no written byte is held back in this process.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// What arrives next, waited for until the deadline.
    pub(crate) fn receive<T>(
        &mut self,
        exchange: &mut Exchange<T>,
        deadline: Deadline<'_>,
    ) -> Result<Received<T>, IoFailure> {
        self.stream.begin_calls();
        loop {
            if let Some(received) = exchange.next()? {
                return Ok(received);
            }
            if let Err(error) = self.read(&mut exchange.decoder) {
                self.wait_or_fail(error, deadline)?;
            }
        }
    }

    /// What has arrived, or arrives within the time limit of a system call or little more.
    pub(crate) fn try_receive<T>(&mut self, exchange: &mut Exchange<T>) -> Result<Option<Received<T>>, IoFailure> {
        self.stream.begin_calls();
        loop {
            let received = exchange.next()?;
            if received.is_some() || !self.try_read(&mut exchange.decoder)? {
                return Ok(received);
            }
        }
    }

    /// The same without regard to requests.
    pub(crate) fn try_receive_reply(&mut self, decoder: &mut ReplyDecoder) -> Result<Option<redis::Value>, IoFailure> {
        self.stream.begin_calls();
        loop {
            let reply = decoder.next_reply().map_err(ExchangeError::from)?;
            if reply.is_some() || !self.try_read(decoder)? {
                return Ok(reply);
            }
        }
    }

    fn try_read(&mut self, decoder: &mut ReplyDecoder) -> Result<bool, IoFailure> {
        match self.read(decoder) {
            Ok(()) => Ok(true),
            Err(error) if is_retryable(&error) => Ok(false),
            Err(error) => Err(IoFailure::Io(error)),
        }
    }

    fn read(&mut self, decoder: &mut ReplyDecoder) -> io::Result<()> {
        match self.stream.read(decoder.space())? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                decoder.received(count);
                Ok(())
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
    pub(crate) fn set_io_timeout(&mut self, left: Duration) {
        // whole milliseconds, so that a shrinking rest does not cost a system call each time
        let io_timeout = Duration::from_millis((left.as_millis() as u64).clamp(1, POLL_INTERVAL.as_millis() as u64));
        if io_timeout != self.io_timeout && self.stream.set_io_timeout(io_timeout).is_ok() {
            self.io_timeout = io_timeout;
        }
    }

    /// Makes reads and writes non-blocking: the socket is polled by its descriptor, which is returned.
    pub(crate) fn set_nonblocking(&mut self) -> io::Result<i32> {
        self.blocking = false;
        self.stream.set_nonblocking()
    }

    /// Marks the start of an idle period.
    pub(crate) fn mark_idle(&mut self, now: Time) {
        self.idle_since = now;
    }

    /// Whether the server keeps it open and has sent nothing unsolicited. Checked only after it was idle for a while.
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        !self.was_idle_long(now) || !self.stream.is_stale(self.blocking)
    }

    fn was_idle_long(&self, now: Time) -> bool {
        now.since(self.idle_since) > CHECK_AFTER_IDLE
    }

    /// Whether it can carry another request.
    pub(crate) fn is_usable<T>(&self, exchange: &mut Exchange<T>, now: Time) -> bool {
        // a reply to be dropped looks like an unsolicited one
        exchange.is_reusable()
            && if exchange.requests.is_unanswered() { !self.was_idle_long(now) } else { self.is_fresh(now) }
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
