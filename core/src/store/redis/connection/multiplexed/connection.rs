//! A connection that many tasks share: their requests and subscriptions, time limits, silence, and the connection's end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use super::connect::ConnectedStream;
use super::transport::{PushHandler, Submitted, Transport};
use crate::machine::{Outcome, Time};
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::connection::pending_request::{Completion, LeaveOnDrop, PendingRequest};
use crate::store::redis::connection::socket::{NO_REPLY, broken};
use crate::store::redis::connection::timer_tick::TimerTick;
use crate::store::redis::resp::exchange::Exchange;
use crate::sys::clock;
use crate::sys::task::timeout;

const GONE: &str = "the connection is gone";

/// A connection, which ends with this handle.
pub(crate) struct AsyncConnection {
    transport: Arc<Transport>,
    tick: TimerTick,
    endpoint: Arc<Endpoint>,
    request_timeout: Duration,
    /// Whether it accepts no new requests, though replies may still arrive.
    retired: AtomicBool,
    /// Numbers the connections of a store, from 1; 0 for one that carries no requests of a store. Answers and messages
    /// have it.
    pub(crate) number: u64,
    /// Whether subscriptions can share this connection.
    pub(crate) resp3: bool,
}

impl AsyncConnection {
    /// Starts the connection's task on this runtime.
    pub(crate) fn start(
        connected: ConnectedStream,
        number: u64,
        request_timeout: Duration,
        push_handler: Arc<dyn PushHandler>,
    ) -> AsyncConnection {
        let (resp3, endpoint) = (connected.result.resp3, connected.endpoint.clone());
        let transport = Transport::start(connected, number, push_handler);
        let (tick, retired) = (TimerTick::start(), AtomicBool::new(false));
        AsyncConnection { transport, tick, endpoint, request_timeout, retired, number, resp3 }
    }

    /// Sends a request at `sent_at`, after `before` if there is one, and waits for its reply for `limit` at most. Cancel
    /// safe: the request is sent all the same, and its reply is dropped.
    pub(crate) async fn request(
        &self,
        before: Option<&Cmd>,
        command: &Cmd,
        sent_at: Time,
        limit: Duration,
    ) -> Outcome<Value> {
        // what follows `before` must be the request that it is meant for
        let new = if before.is_some() { PendingRequest::sent_anyway } else { PendingRequest::new };
        let push = |exchange: &mut Exchange<_>, request, queued_at| {
            if let Some(before) = before {
                exchange.push_unawaited(queued_at, before);
            }
            exchange.push(request, queued_at, command);
        };
        self.exchange(new(sent_at), limit, push).await
    }

    /// Sends the command `word`, which begins or ends the subscriptions to `channels`, and waits for all confirmations:
    /// `Okay`, or the server's error.
    pub(crate) async fn change_subscriptions(
        &self,
        word: (&str, bool),
        channels: &[Vec<u8>],
        limit: Duration,
    ) -> Outcome<Value> {
        let push = |exchange: &mut Exchange<_>, request, queued_at| {
            exchange.push_subscription(Some(request), queued_at, word, channels.to_vec());
        };
        self.exchange(PendingRequest::new(clock::now()), limit, push).await
    }

    async fn exchange(
        &self,
        request: PendingRequest,
        limit: Duration,
        push: impl Fn(&mut Exchange<Arc<PendingRequest>>, Arc<PendingRequest>, Time),
    ) -> Outcome<Value> {
        if self.is_gone() {
            return Outcome::NotApplied(broken(&*self.endpoint, GONE));
        }
        self.tick.note_activity();
        let request = Arc::new(request);
        let _waiting = LeaveOnDrop(&request);
        let replied = timeout(limit, async {
            match self.submit(&request, push).await {
                Submitted::Queued => request.completed().await,
                Submitted::Ended | Submitted::Full => Completion::NotSent,
            }
        });
        match replied.await {
            Ok(Completion::Received(outcome, _)) => outcome,
            Ok(Completion::NotSent) => Outcome::NotApplied(broken(&*self.endpoint, GONE)),
            Err(_) => self.on_timeout(&request),
        }
    }

    /// Queues a request, once there is room for it.
    async fn submit(
        &self,
        request: &Arc<PendingRequest>,
        push: impl Fn(&mut Exchange<Arc<PendingRequest>>, Arc<PendingRequest>, Time),
    ) -> Submitted {
        let submit_at =
            |queued_at| self.transport.submit(request, |exchange, request| push(exchange, request, queued_at));
        let mut submitted = submit_at(request.submitted_at);
        while submitted == Submitted::Full {
            let mut space = pin!(self.transport.space.notified());
            space.as_mut().enable();
            // there may have been room before it listened
            submitted = submit_at(clock::now());
            if submitted == Submitted::Full {
                space.await;
                submitted = submit_at(clock::now());
            }
        }
        submitted
    }

    /// Timed out: reads the socket once more, since the connection's task may be behind. What is not sent yet is not
    /// sent any more.
    fn on_timeout(&self, request: &PendingRequest) -> Outcome<Value> {
        let left = !request.abandon_queued();
        self.transport.read_available();
        if let Some(Completion::Received(outcome, _)) = request.abandon() {
            return outcome;
        }
        // a short time limit of one caller does not end the connection, but silence for a request timeout does
        let silent = |since| clock::now().since(since) >= self.request_timeout;
        if self.transport.unanswered_since().is_some_and(silent) {
            self.stop();
        }
        let failure = broken(&*self.endpoint, NO_REPLY);
        if left { Outcome::Indeterminate(failure) } else { Outcome::NotApplied(failure) }
    }

    /// Ends the connection. What is in flight may or may not have happened.
    pub(crate) fn stop(&self) {
        self.transport.stop(GONE);
    }

    /// Accepts no more requests; what is in flight gets its replies. The connection ends with its last handle.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.transport.end.notify_waiters();
    }

    /// Whether it accepts no more requests.
    pub(crate) fn is_gone(&self) -> bool {
        self.retired.load(Ordering::Acquire) || self.transport.is_ended()
    }

    /// Waits until it accepts no more requests.
    pub(crate) async fn gone(&self) {
        let mut end = pin!(self.transport.end.notified());
        end.as_mut().enable();
        if !self.is_gone() {
            end.await;
        }
    }
}

impl Drop for AsyncConnection {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "timing_tests.rs"]
mod timing_tests;
