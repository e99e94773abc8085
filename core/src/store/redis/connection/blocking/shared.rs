//! A blocking connection that several threads share, by leader and followers. The thread that sends flushes everything
//! that is queued; one of the threads that wait reads replies for all, and passes the reader on after its own reply, or
//! before it asks its caller whether to go on. Requests and replies that are close in time travel together, which saves
//! the server system calls and each thread a switch to another thread.
//!
//! A caller that gives up leaves its request behind: it may still be carried out, as on any connection, and the cleanup
//! queue undoes the result.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use redis::Value;

use super::connected_socket::{ConnectedSocket, IoFailure};
use super::connection::BlockingConnection;
use super::stream::BlockingStream;
use crate::machine::{Failure, Outcome, Time};
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::deadline::{Deadline, POLL_INTERVAL};
use crate::store::redis::connection::socket::broken;
use crate::store::redis::resp::decoder::ReplyDecoder;
use crate::store::redis::resp::exchange::Exchange;
use crate::store::redis::resp::request_queue::{Expected, FailedRequest, RequestQueue};
use crate::sys::clock;

/// With more replies outstanding, the server is away or overloaded.
const MAX_IN_FLIGHT: usize = 64;
/// A longer request might fill the socket buffer, and every other caller would wait for its sender.
const MAX_REQUEST_BYTES: usize = 8192;

/// When yielding to other threads takes longer than this, the machine is busy with other work, and no caller yields for
/// [`YIELD_PAUSE`]. Measured with two busy programs on two processors: 17 instead of 8 thousand cycles a second (14
/// without sharing); on an idle machine 28 instead of 20.
const YIELD_TOO_SLOW: Duration = Duration::from_millis(2);
const YIELD_PAUSE: Duration = Duration::from_millis(200);

/// The shared connection.
pub(crate) struct SharedConnection {
    /// The number of the underlying connection, unique in the process.
    pub(crate) number: u64,
    shared: Arc<NodeContext>,
    endpoint: Arc<Endpoint>,
    /// The epoch in which it was made; see [`NodeContext::epoch`].
    pub(crate) epoch: u64,
    /// Used by senders while another thread reads.
    writer: BlockingStream,
    state: Mutex<SharedState>,
}

struct SharedState {
    /// The flushing thread sends what is unsent. Nothing is when no thread flushes, as long as the connection accepts
    /// requests.
    requests: RequestQueue<Arc<ReplyWaiter>>,
    /// Whether a thread is flushing.
    flushing: bool,
    /// Until then no caller yields: see [`YIELD_TOO_SLOW`].
    no_yield_until: Time,
    /// `None` while a thread reads.
    reader: Option<SharedReader>,
    /// Whether it accepts more requests.
    accepting: bool,
}

/// The half of the connection that one thread at a time has, to read for all.
struct SharedReader {
    socket: ConnectedSocket,
    decoder: ReplyDecoder,
}

/// A caller that waits for its reply.
struct ReplyWaiter {
    state: Mutex<WaiterState>,
    changed: Condvar,
}

enum WaiterState {
    Waiting,
    /// Waits, and is asking whether its caller wants to go on. That may take long (an interpreter lock), so it cannot
    /// read for the others.
    CheckingInterrupt,
    /// Must read for all.
    Reading(SharedReader),
    Done(Outcome<Value>),
    /// The caller gave up: its reply is discarded.
    Abandoned,
}

impl SharedConnection {
    /// Shares `connection`, with a second handle for writing.
    pub(crate) fn new(
        connection: BlockingConnection,
        writer: BlockingStream,
        shared: &Arc<NodeContext>,
    ) -> SharedConnection {
        let BlockingConnection { socket, exchange } = connection;
        let Exchange { decoder, requests, .. } = exchange.for_other_callers();
        let (endpoint, epoch, number) = (socket.endpoint.clone(), socket.epoch, socket.number);
        let state = Mutex::new(SharedState {
            requests,
            flushing: false,
            no_yield_until: Time::ZERO,
            reader: Some(SharedReader { socket, decoder }),
            accepting: true,
        });
        SharedConnection { number, shared: shared.clone(), endpoint, epoch, writer, state }
    }

    /// Whether it accepts more requests. The socket is checked only after the connection was idle for a while.
    pub(crate) fn accepts(&self, now: Time) -> bool {
        let mut state = self.state();
        let idle = state.requests.len() == 0;
        if let Some(SharedReader { socket, decoder }) = &mut state.reader
            && idle
            && !(decoder.is_drained() && socket.is_fresh(now))
        {
            state.accepting = false;
        }
        state.accepting && self.epoch == self.shared.epoch()
    }

    /// Sends a request and waits for its reply. `None` when it is not accepted: then no byte was sent.
    pub(crate) fn request(&self, bytes: &[u8], sent_at: Time, deadline: Deadline<'_>) -> Option<Outcome<Value>> {
        let me = Arc::new(ReplyWaiter { state: Mutex::new(WaiterState::Waiting), changed: Condvar::new() });
        let mut state = self.state();
        if !state.accepting || state.requests.len() >= MAX_IN_FLIGHT || bytes.len() > MAX_REQUEST_BYTES {
            return None;
        }
        self.shared.store_state.count_command();
        state.requests.push(Some(me.clone()), sent_at, Expected::Reply, |queued| queued.extend_from_slice(bytes));
        if !mem::replace(&mut state.flushing, true) {
            state = self.yield_to_others(state, sent_at);
            state = self.flush(state);
        }
        // the reply may have arrived already
        let reader = if me.is_waiting() { state.reader.take() } else { None };
        drop(state);
        match self.wait_for_reply(reader, &me, sent_at, deadline) {
            // the connection was lost before a byte of it was sent, and there is time for another one
            Outcome::NotApplied(_) if deadline.check().is_ok() => None,
            outcome => Some(outcome),
        }
    }

    /// Yields to other threads, which may add requests to this batch.
    fn yield_to_others<'a>(&'a self, state: MutexGuard<'a, SharedState>, now: Time) -> MutexGuard<'a, SharedState> {
        if now < state.no_yield_until {
            return state;
        }
        drop(state);
        thread::yield_now();
        let after = clock::now();
        let mut state = self.state();
        if after.since(now) > YIELD_TOO_SLOW {
            state.no_yield_until = after + YIELD_PAUSE;
        }
        state
    }

    /// Sends what is queued, and what other callers add meanwhile.
    fn flush<'a>(&'a self, mut state: MutexGuard<'a, SharedState>) -> MutexGuard<'a, SharedState> {
        let mut batch = Vec::new();
        while !state.requests.unsent().is_empty() {
            batch.clear();
            state.requests.take_unsent(&mut batch);
            // a reply may be read before the writer is back
            state.requests.written(batch.len());
            drop(state);
            let sent = self.writer.write_all_within(&batch, POLL_INTERVAL);
            state = self.state();
            if sent.is_err() {
                // nothing may follow half a request; the reading thread finds the end of the connection
                state.accepting = false;
                self.writer.shutdown();
                break;
            }
        }
        state.flushing = false;
        state
    }

    /// Waits until the reply has arrived: as the reader for all, or until the reader delivers it.
    fn wait_for_reply(
        &self,
        mut own_reader: Option<SharedReader>,
        me: &Arc<ReplyWaiter>,
        sent_at: Time,
        deadline: Deadline<'_>,
    ) -> Outcome<Value> {
        let mut left = deadline.until.since(sent_at);
        loop {
            if let Some(reader) = own_reader.take() {
                if let Some(outcome) = self.read_for_all(reader, me, deadline) {
                    return outcome;
                }
            } else {
                match me.wait(left.min(POLL_INTERVAL)) {
                    WaiterState::Done(outcome) => return outcome,
                    WaiterState::Reading(reader) => own_reader = Some(reader),
                    WaiterState::Waiting | WaiterState::CheckingInterrupt | WaiterState::Abandoned => {}
                }
                if own_reader.is_some() || !me.transition(&WaiterState::Waiting, WaiterState::CheckingInterrupt) {
                    continue;
                }
            }
            // may take long, so no other caller depends on this thread meanwhile
            left = match deadline.check() {
                Ok(left) => left,
                Err(why) => return self.abandon(me, why),
            };
            let mut state = self.state();
            // a reader that was passed on meanwhile has skipped this waiter
            if me.transition(&WaiterState::CheckingInterrupt, WaiterState::Waiting) {
                own_reader = state.reader.take();
            }
        }
    }

    /// Reads for all until the own reply has arrived. `None` when nothing arrived for a while: the reader was passed
    /// on, and the caller is asked next.
    fn read_for_all(
        &self,
        mut reader: SharedReader,
        me: &Arc<ReplyWaiter>,
        deadline: Deadline<'_>,
    ) -> Option<Outcome<Value>> {
        loop {
            // replies to others do not extend the own time limit
            let left = deadline.until.since(clock::now());
            let mut next = if left.is_zero() { Ok(None) } else { reader.recv_within(left) };
            if matches!(next, Ok(None)) {
                me.transition(&WaiterState::Waiting, WaiterState::CheckingInterrupt);
                self.pass_reader(reader);
                return None;
            }
            let mut replies = Vec::new();
            while let Ok(Some(reply)) = next {
                replies.push(reply);
                next = reader.buffered();
            }
            let own = self.distribute(replies, me);
            if let Err(failure) = next {
                let lost = self.fail_all(failure.failure(&self.endpoint), me);
                return Some(own.map_or(lost, Outcome::Applied));
            }
            if let Some(reply) = own {
                self.pass_reader(reader);
                return Some(Outcome::Applied(reply));
            }
        }
    }

    /// Delivers each reply to its waiter; returns the own one.
    fn distribute(&self, replies: Vec<Value>, me: &Arc<ReplyWaiter>) -> Option<Value> {
        let whose: Vec<_> = {
            let mut state = self.state();
            let whose: Vec<_> = replies.iter().map_while(|_| state.requests.replied().ok()).collect();
            // a surplus reply would be taken for the next request's
            state.accepting &= whose.len() == replies.len();
            whose
        };
        let mut own = None;
        for (waiter, reply) in whose.into_iter().zip(replies) {
            match waiter {
                Some(waiter) if Arc::ptr_eq(&waiter, me) => own = Some(reply),
                Some(waiter) => waiter.complete(Outcome::Applied(reply)),
                None => {}
            }
        }
        own
    }

    /// Passes the reader to the next waiter, or stores it when there is none.
    fn pass_reader(&self, mut reader: SharedReader) {
        let mut state = self.state();
        for waiter in state.requests.callers() {
            match waiter.make_reader(reader) {
                None => return,
                Some(still) => reader = still,
            }
        }
        reader.socket.mark_idle(clock::now());
        state.reader = Some(reader);
    }

    /// Stops waiting; if it had the reader, another waiter gets it.
    fn abandon(&self, me: &Arc<ReplyWaiter>, why: &str) -> Outcome<Value> {
        let state = mem::replace(&mut *me.state(), WaiterState::Abandoned);
        match state {
            WaiterState::Done(outcome) => return outcome,
            WaiterState::Reading(reader) => self.pass_reader(reader),
            WaiterState::Waiting | WaiterState::CheckingInterrupt | WaiterState::Abandoned => {}
        }
        let now = clock::now();
        let mut state = self.state();
        let request_timeout = self.shared.options.request_timeout;
        if state.requests.oldest_sent_at().is_some_and(|sent_at| now.since(sent_at) >= request_timeout) {
            // no later caller may wait behind it
            state.accepting = false;
        }
        Outcome::Indeterminate(self.failure(why))
    }

    /// The connection is lost, with all outstanding replies. Returns the own outcome.
    fn fail_all(&self, failure: Failure, me: &Arc<ReplyWaiter>) -> Outcome<Value> {
        let requests = {
            let mut state = self.state();
            state.accepting = false;
            self.writer.shutdown();
            state.requests.fail()
        };
        let mut own = None;
        for FailedRequest { caller, left } in requests {
            let outcome = if left { Outcome::Indeterminate } else { Outcome::NotApplied }(failure.clone());
            if Arc::ptr_eq(&caller, me) {
                own = Some(outcome);
            } else {
                caller.complete(outcome);
            }
        }
        own.unwrap_or(Outcome::Indeterminate(failure))
    }

    fn failure(&self, why: &str) -> Failure {
        broken(&*self.endpoint, why)
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedReader {
    /// The next reply, if it is complete within `left`; may return earlier.
    fn recv_within(&mut self, left: Duration) -> Result<Option<Value>, IoFailure> {
        self.socket.set_io_timeout(left);
        self.socket.try_receive_reply(&mut self.decoder)
    }

    /// The next reply, if it has been read already.
    fn buffered(&mut self) -> Result<Option<Value>, IoFailure> {
        self.decoder.next_reply().map_err(|malformed| IoFailure::Protocol(malformed.into()))
    }
}

impl ReplyWaiter {
    fn state(&self) -> MutexGuard<'_, WaiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.state(), WaiterState::Waiting)
    }

    /// Changes from one state to another; false if it is in a third one.
    fn transition(&self, from: &WaiterState, to: WaiterState) -> bool {
        let mut state = self.state();
        let right = mem::discriminant(&*state) == mem::discriminant(from);
        if right {
            *state = to;
        }
        right
    }

    /// Waits for a state other than `Waiting`, `limit` at most, and takes it.
    fn wait(&self, limit: Duration) -> WaiterState {
        let mut state = self.state();
        if matches!(*state, WaiterState::Waiting) {
            state = self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
        if matches!(*state, WaiterState::Waiting) {
            WaiterState::Waiting
        } else {
            mem::replace(&mut *state, WaiterState::Waiting)
        }
    }

    fn complete(&self, outcome: Outcome<Value>) {
        self.notify(WaiterState::Done(outcome));
    }

    /// Makes this waiter the reader; returns the reader if it no longer waits.
    fn make_reader(&self, reader: SharedReader) -> Option<SharedReader> {
        match self.notify(WaiterState::Reading(reader)) {
            Some(WaiterState::Reading(reader)) => Some(reader),
            _ => None,
        }
    }

    /// Sets a new state if the waiter can take it; returns the state otherwise.
    fn notify(&self, next: WaiterState) -> Option<WaiterState> {
        let mut state = self.state();
        match (&*state, &next) {
            (WaiterState::Waiting, _) | (WaiterState::CheckingInterrupt, WaiterState::Done(_)) => {}
            _ => return Some(next),
        }
        *state = next;
        drop(state);
        self.changed.notify_one();
        None
    }
}
