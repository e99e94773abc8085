//! A connection whose replies the event loop of another language reads. The first request is sent at once; those that
//! come while it is in flight are sent together, once the loop has run its ready callbacks.

use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use redis::Value;

use crate::event_loop::{self, InFlightMark, LoopSocket};
use crate::machine::{Failure, Outcome, Time};
use crate::store::redis::connection::blocking::connected_socket::ConnectedSocket;
use crate::store::redis::connection::blocking::connection::BlockingConnection;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::pending_request::{AbandonOnDrop, Completion, PendingRequest, wake_all};
use crate::store::redis::connection::socket::{NO_REPLY, broken};
use crate::store::redis::connection::timer_tick::TimerTick;
use crate::store::redis::resp::exchange::{Exchange, Received};
use crate::store::redis::resp::request_queue::FailedRequest;
use crate::sys::clock;

/// At most so many requests are in flight; others go over the multiplexed connection.
const MAX_IN_FLIGHT: usize = 512;
/// A longer request goes over the multiplexed connection. Every script fits.
const MAX_REQUEST_BYTES: usize = 8192;
/// At most so many requests wait for the loop; then they are sent, so that the server can begin.
const MAX_BATCH: usize = 16;

/// A connection whose replies an event loop reads.
pub(crate) struct EventLoopConnection {
    fd: i32,
    /// The epoch in which it was made; see [`NodeContext::epoch`].
    pub(crate) epoch: u64,
    /// The number of the underlying connection, unique in the process.
    pub(crate) number: u64,
    /// The number of the event loop.
    loop_id: u64,
    state: Mutex<LoopConnectionState>,
    tick: TimerTick,
}

struct LoopConnectionState {
    socket: ConnectedSocket,
    exchange: Exchange<Arc<PendingRequest>>,
    /// Whether the loop watches it.
    watched: bool,
    /// Not to be used again. The socket is closed when the loop has dropped it.
    closed: bool,
    /// How many requests have come since the last flush.
    queued: usize,
}

impl LoopConnectionState {
    fn failure(&self, reason: &str) -> Failure {
        broken(&*self.socket.endpoint, reason)
    }

    /// Closes it: the loop notices, and so do the callers, whose wakers are returned.
    fn close(&mut self) -> Vec<Waker> {
        self.fail(&self.failure("the connection is gone"))
    }

    fn fail(&mut self, failure: &Failure) -> Vec<Waker> {
        self.closed = true;
        let _ = self.socket.stream.socket().shutdown(Shutdown::Both);
        let now = clock::now();
        let complete = |request: FailedRequest<Arc<PendingRequest>>| {
            request.caller.complete(if request.left {
                Completion::Received(Outcome::Indeterminate(failure.clone()), now)
            } else {
                Completion::NotSent
            })
        };
        self.exchange.fail().filter_map(complete).collect()
    }

    /// Sends what is queued, as far as the socket takes it. Returns the wakers of the callers if it takes nothing any
    /// more.
    fn flush(&mut self) -> Vec<Waker> {
        self.queued = 0;
        let Exchange { requests, .. } = &mut self.exchange;
        requests.retain_unsent(|request| request.mark_sent());
        if self.closed || (requests.unsent().is_empty() && self.socket.is_flushed()) {
            return Vec::new();
        }
        if self.socket.try_send(requests) { Vec::new() } else { self.close() }
    }

    /// Reads the replies that have arrived. Returns the wakers of their callers.
    fn read_replies(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        loop {
            let (request, value) = match self.socket.try_receive(&mut self.exchange) {
                Ok(Some(Received::Reply(request, value))) => (request, value),
                Ok(Some(Received::Push(_))) => continue,
                Ok(None) => break,
                Err(failure) => {
                    let failure = failure.failure(&self.socket.endpoint);
                    wakers.extend(self.fail(&failure));
                    break;
                }
            };
            let now = clock::now();
            wakers.extend(request.complete(Completion::Received(Outcome::Applied(value), now)));
            if !self.exchange.requests.is_unanswered() {
                self.socket.mark_idle(now);
                if !self.exchange.decoder.is_drained() {
                    wakers.extend(self.close());
                }
                break;
            }
        }
        wakers
    }
}

impl EventLoopConnection {
    /// For the event loop of this number.
    pub(crate) fn new(connection: BlockingConnection, event_loop: u64) -> std::io::Result<Arc<EventLoopConnection>> {
        let BlockingConnection { mut socket, exchange } = connection;
        let (fd, number, epoch) = (socket.set_nonblocking()?, socket.number, socket.epoch);
        socket.mark_idle(clock::now());
        let exchange = exchange.for_other_callers();
        let state = LoopConnectionState { socket, exchange, watched: false, closed: false, queued: 0 };
        let state = Mutex::new(state);
        Ok(Arc::new(EventLoopConnection { fd, epoch, number, loop_id: event_loop, state, tick: TimerTick::start() }))
    }

    fn state(&self) -> MutexGuard<'_, LoopConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes it for all callers.
    pub(crate) fn close(&self) {
        let wakers = self.state().close();
        wake_all(wakers);
    }

    /// Whether it accepts another request. A connection that has become useless is closed.
    pub(crate) fn accepts(&self, shared: &NodeContext) -> bool {
        let mut state = self.state();
        if !state.watched || state.closed {
            return false;
        }
        let (now, current) = (clock::now(), self.epoch == shared.epoch());
        let LoopConnectionState { socket, exchange, .. } = &mut *state;
        let useless = match exchange.requests.oldest_sent_at() {
            // the server is silent, and the caller of this request has gone
            Some(sent_at) => now.since(sent_at) > shared.options.request_timeout,
            None => exchange.requests.len() == 0 && !(current && socket.is_usable(exchange, now)),
        };
        if useless {
            let wakers = state.close();
            drop(state);
            wake_all(wakers);
            return false;
        }
        current && state.exchange.requests.len() < MAX_IN_FLIGHT
    }

    /// Sends a request and waits for its reply until `until`: the outcome and when it arrived. `None` when it was not
    /// accepted: then no byte was sent.
    pub(crate) async fn request(
        self: &Arc<Self>,
        bytes: &[u8],
        sent_at: Time,
        until: Time,
        request_timeout: Duration,
    ) -> Option<(Outcome<Value>, Time)> {
        let request = self.submit(bytes, sent_at)?;
        let (_waiting, _asking) = (AbandonOnDrop(&request), InFlightMark::begin());
        let completion = match tokio::time::timeout(until.since(clock::now()), request.completed()).await {
            Ok(completion) => completion,
            Err(_) => self.on_timeout(&request, request_timeout),
        };
        match completion {
            Completion::Received(outcome, at) => Some((outcome, at)),
            Completion::NotSent => None,
        }
    }

    /// Timed out: reads the socket once more, since the loop may be behind.
    fn on_timeout(&self, request: &PendingRequest, request_timeout: Duration) -> Completion {
        let wakers = self.state().read_replies();
        wake_all(wakers);
        let now = clock::now();
        let (silence, gone) = {
            let state = self.state();
            (state.failure(NO_REPLY), request.abandon())
        };
        match gone {
            Some(Completion::Received(outcome, _)) => Completion::Received(outcome, now),
            Some(Completion::NotSent) => Completion::Received(Outcome::NotApplied(silence), now),
            None => {
                // a short time limit of one caller does not end the connection
                if now.since(request.submitted_at) >= request_timeout {
                    self.close();
                }
                Completion::Received(Outcome::Indeterminate(silence), now)
            }
        }
    }

    fn submit(self: &Arc<Self>, bytes: &[u8], sent_at: Time) -> Option<Arc<PendingRequest>> {
        if bytes.len() > MAX_REQUEST_BYTES {
            return None;
        }
        let request = Arc::new(PendingRequest::new(sent_at));
        let event_loop = event_loop::current().filter(|event_loop| event_loop.number == self.loop_id);
        let mut state = self.state();
        if state.closed {
            return None;
        }
        self.tick.note_activity();
        let idle = state.exchange.requests.len() == 0;
        state.exchange.push_packed([request.clone()], sent_at, bytes);
        state.queued += 1;
        if event_loop.is_some() && !idle && state.queued < MAX_BATCH {
            if state.queued == 1 {
                event_loop?.request_flush(self.clone());
            }
            return Some(request);
        }
        let wakers = state.flush();
        drop(state);
        wake_all(wakers);
        Some(request)
    }
}

impl LoopSocket for EventLoopConnection {
    fn fd(&self) -> i32 {
        self.fd
    }

    fn watched(&self) {
        self.state().watched = true;
    }

    fn ready(&self) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        let mut wakers = state.read_replies();
        wakers.extend(state.flush());
        let goes_on = !state.closed;
        drop(state);
        wake_all(wakers);
        goes_on
    }

    fn flush(&self) {
        let wakers = self.state().flush();
        wake_all(wakers);
    }

    fn read_available(&self, wanted: &dyn Fn() -> bool) {
        let mut state = self.state();
        let wakers = if state.closed || !wanted() { Vec::new() } else { state.read_replies() };
        drop(state);
        wake_all(wakers);
    }
}
