//! A connection whose replies the event loop of another language reads. The first request is sent at once; those that
//! come while it is in flight are sent together, once the loop has run its ready callbacks.

use std::collections::VecDeque;
use std::mem;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use redis::Value;

use super::request::{AbandonOnDrop, Completion, PendingRequest};
use crate::event_loop::{self, InFlightMark, LoopSocket};
use crate::machine::{Outcome, Time};
use crate::store::redis::connection::blocking::connection::BlockingConnection;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::multiplexed::assisted_task::AssistedTask;
use crate::store::redis::connection::multiplexed::timer_tick::TimerTick;
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
    tick: Arc<TimerTick>,
    _ticker: AssistedTask,
}

struct LoopConnectionState {
    connection: BlockingConnection,
    /// Whether the loop watches it.
    watched: bool,
    /// Not to be used again. The socket is closed when the loop has dropped it.
    closed: bool,
    /// Requests whose replies are still to come, in order.
    in_flight: VecDeque<Arc<PendingRequest>>,
    /// Bytes of these that the socket has not taken yet.
    unwritten: Vec<u8>,
    /// Requests of which no byte was sent.
    queued: Vec<(Arc<PendingRequest>, Vec<u8>)>,
}

impl LoopConnectionState {
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.queued.is_empty()
    }

    /// Closes it: the loop notices, and so do the callers, whose wakers are returned.
    fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        let _ = self.connection.stream().socket().shutdown(Shutdown::Both);
        let now = clock::now();
        let gone = || Completion::Received(Outcome::Indeterminate(self.connection.connection_lost_failure()), now);
        let mut wakers: Vec<_> = self.in_flight.drain(..).filter_map(|request| request.complete(gone())).collect();
        wakers.extend(self.queued.drain(..).filter_map(|(request, _)| request.complete(Completion::NotSent)));
        wakers
    }

    /// Sends what is queued, as far as the socket takes it. Returns the wakers of the callers if it takes nothing any
    /// more.
    fn flush(&mut self) -> Vec<Waker> {
        let before = self.in_flight.len();
        for (request, bytes) in mem::take(&mut self.queued) {
            if request.mark_sent() {
                self.unwritten.extend_from_slice(&bytes);
                self.in_flight.push_back(request);
            }
        }
        if self.closed || (self.unwritten.is_empty() && self.connection.is_flushed()) {
            return Vec::new();
        }
        let Some(written) = self.connection.try_write(&self.unwritten) else {
            // no byte of these was sent
            let unsent = self.in_flight.split_off(before);
            let mut wakers: Vec<_> =
                unsent.iter().filter_map(|request| request.complete(Completion::NotSent)).collect();
            wakers.extend(self.close());
            return wakers;
        };
        self.unwritten.drain(..written);
        Vec::new()
    }

    /// Reads the replies that have arrived. Returns the wakers of their callers.
    fn read_replies(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(outcome) = self.connection.poll_reply() {
            let in_order = matches!(outcome, Outcome::Applied(_));
            let now = clock::now();
            let request = self.in_flight.pop_front();
            let asked = request.is_some();
            wakers.extend(request.and_then(|request| request.complete(Completion::Received(outcome, now))));
            // closed, or an unsolicited reply
            if !in_order || !asked {
                wakers.extend(self.close());
                break;
            }
            if self.in_flight.is_empty() {
                self.connection.mark_idle(now);
                if !self.connection.is_drained() {
                    wakers.extend(self.close());
                }
                break;
            }
        }
        wakers
    }
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

impl EventLoopConnection {
    /// For the event loop of this number.
    pub(crate) fn new(
        mut connection: BlockingConnection,
        event_loop: u64,
    ) -> std::io::Result<Arc<EventLoopConnection>> {
        let (fd, number, epoch) = (connection.set_nonblocking()?, connection.number, connection.epoch);
        connection.mark_idle(clock::now());
        let (sent, rest, queued) = (VecDeque::new(), Vec::new(), Vec::new());
        let state = Mutex::new(LoopConnectionState {
            connection,
            watched: false,
            closed: false,
            in_flight: sent,
            unwritten: rest,
            queued,
        });
        let tick = Arc::new(TimerTick::default());
        let ticking = tick.clone();
        let ticker = AssistedTask::spawn(async move { ticking.run().await });
        Ok(Arc::new(EventLoopConnection { fd, epoch, number, loop_id: event_loop, state, tick, _ticker: ticker }))
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
        let useless = match state.in_flight.front() {
            // the server is silent, and the caller of this request has gone
            Some(oldest) => now.since(oldest.submitted_at) > shared.options.request_timeout,
            None => state.queued.is_empty() && !(current && state.connection.is_usable(now)),
        };
        if useless {
            let wakers = state.close();
            drop(state);
            wake_all(wakers);
            return false;
        }
        current && state.in_flight.len() + state.queued.len() < MAX_IN_FLIGHT
    }

    /// Sends a request and waits for its reply until `until`: the outcome and when it arrived. `None` when it was not
    /// accepted: then no byte was sent.
    pub(crate) async fn request(
        self: &Arc<Self>,
        bytes: Vec<u8>,
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
            let connection = &self.state().connection;
            (connection.no_reply_failure(), request.abandon())
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

    fn submit(self: &Arc<Self>, bytes: Vec<u8>, sent_at: Time) -> Option<Arc<PendingRequest>> {
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
        let waits = event_loop.is_some() && !state.is_idle() && state.queued.len() + 1 < MAX_BATCH;
        state.queued.push((request.clone(), bytes));
        if waits {
            if state.queued.len() == 1 {
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
