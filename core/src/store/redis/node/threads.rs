//! The calls of threads and of event loops of other languages, on connections of their own.

use std::sync::Arc;

use super::exchange::is_refused_for_good;
use super::loop_sender::{LoopSender, ReceivedExchange};
use super::{Node, RawExchange, RoutedAnswer, SendOptions, is_worth_keeping, not_sent, replicas};
use crate::machine::{Op, Outcome, Time};
use crate::store::Interrupt;
use crate::store::redis::command::{reply, request};
use crate::store::redis::connection::blocking::connection::BlockingConnection;
use crate::store::redis::connection::blocking::gauge::ConcurrencyGauge;
use crate::store::redis::connection::blocking::pool::ConnectionPool;
use crate::store::redis::connection::blocking::shared_pool::SharedPool;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::event_loop::connection::EventLoopConnection;
use crate::store::redis::connection::event_loop::pool::EventLoopPool;
use crate::store::redis::pubsub::blocking::BlockingSubscriptions;
use crate::sys::clock;

/// The connections of threads and event loops.
pub(crate) struct ThreadConnections {
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) subscriptions: Arc<BlockingSubscriptions>,
    event_loops: Arc<EventLoopPool>,
    concurrency: ConcurrencyGauge,
    shared_pool: SharedPool,
}

impl ThreadConnections {
    pub(super) fn new(context: &Arc<NodeContext>) -> ThreadConnections {
        let pool = Arc::new(ConnectionPool::new(context.clone()));
        ThreadConnections {
            subscriptions: Arc::new(BlockingSubscriptions::new(context.clone(), pool.clone())),
            event_loops: Arc::default(),
            concurrency: ConcurrencyGauge::new(context.options.share_from),
            shared_pool: SharedPool::new(context.clone(), pool.clone()),
            pool,
        }
    }

    pub(super) fn close(&self) {
        self.drop_idle();
        self.event_loops.close();
    }

    pub(super) fn drop_idle(&self) {
        self.shared_pool.close();
        self.pool.close();
        self.subscriptions.close();
    }
}

impl Node {
    /// The connection of the event loop that runs on this thread, if it accepts another request.
    pub(crate) fn event_loop_connection(&self) -> Option<Arc<EventLoopConnection>> {
        if self.context.options.min_replicas > 0 {
            None
        } else {
            self.threads.event_loops.for_current_loop(&self.context, &self.threads.pool)
        }
    }

    /// One operation from an event loop, on the loop's own connection: without a switch to another thread.
    pub(crate) async fn call_from_loop(&self, op: &Op, options: SendOptions, until: Time) -> RoutedAnswer {
        let Some(connection) = self.event_loop_connection() else { return self.call(op, options, until).await };
        let sender = LoopSender { context: &self.context, connection: &connection, options, until };
        let exchanged = self.command_forms.exchange(op, sender);
        let Some(ReceivedExchange { sent, received_at }) = exchanged.await else {
            return self.call(op, options, until).await;
        };
        let routed = self.read(op, sent, received_at);
        if is_refused_for_good(&routed.answer.outcome) {
            // outstanding replies are still delivered: in another epoch it accepts no more requests
            if !self.can_move() {
                connection.close();
            }
            self.context.mark_stale(connection.epoch);
        }
        routed
    }

    /// One operation from a thread, on a connection that the thread drives.
    pub(crate) fn call_blocking(
        &self,
        op: &Op,
        options: SendOptions,
        until: Time,
        interrupt: &dyn Interrupt,
    ) -> RoutedAnswer {
        let begun = clock::now();
        if let Err(failure) = self.context.store_state.check_open() {
            return not_sent(begun, failure);
        }
        let deadline = Deadline { until, interrupt };
        let caller = self.threads.concurrency.enter();
        if caller.above_threshold
            && !options.asking
            && !self.waits_for_replicas(op)
            && let Some(routed) = self.call_on_shared_pool(op, options, deadline)
        {
            return routed;
        }
        // a shared connection may have been waited for
        if let Err(failure) = self.context.store_state.check_open() {
            return not_sent(begun, failure);
        }
        let mut pooled = self.threads.pool.get_idle(if caller.above_threshold { clock::now() } else { begun });
        loop {
            let reused = pooled.is_some();
            let mut connection = match pooled.take().map_or_else(|| self.threads.pool.open(deadline), Ok) {
                Ok(connection) => connection,
                Err(failure) => return not_sent(begun, failure),
            };
            let sent = self.exchange_blocking(&mut connection, op, options, deadline);
            let received_at = clock::now();
            if reused && matches!(sent.outcome, Outcome::NotApplied(_)) {
                // closed by the server while it was idle: no byte was sent, so a new connection can be used
                self.threads.pool.discard(connection);
                continue;
            }
            let routed = self.read(op, sent, received_at);
            let epoch = connection.socket.epoch;
            if is_worth_keeping(&routed.answer.outcome) {
                self.threads.pool.put(connection, received_at);
            } else {
                self.threads.pool.discard(connection);
            }
            if is_refused_for_good(&routed.answer.outcome) {
                self.context.mark_stale(epoch);
            }
            return routed;
        }
    }

    /// On a connection that threads share. `None` when none accepts it: then no byte was sent.
    fn call_on_shared_pool(&self, op: &Op, options: SendOptions, deadline: Deadline<'_>) -> Option<RoutedAnswer> {
        let begun = clock::now();
        let connection = match self.threads.shared_pool.get(begun, deadline) {
            Ok(connection) => connection?,
            Err(failure) => return Some(not_sent(begun, failure)),
        };
        let sent = self.command_forms.exchange_blocking(op, |form| {
            let bytes = request::command(op, form, options.announce).get_packed_command();
            let sent_at = clock::now();
            let within = Deadline { until: self.context.reply_until(deadline.until, sent_at), ..deadline };
            let outcome = connection.request(&bytes, sent_at, within)?;
            Some(RawExchange { sent_at, connection: connection.number, outcome, confirmations: None })
        })?;
        let routed = self.read(op, sent, clock::now());
        if is_refused_for_good(&routed.answer.outcome) {
            self.threads.shared_pool.close();
            self.context.mark_stale(connection.epoch);
        }
        Some(routed)
    }

    fn exchange_blocking(
        &self,
        connection: &mut BlockingConnection,
        op: &Op,
        options: SendOptions,
        deadline: Deadline<'_>,
    ) -> RawExchange {
        let context = &*self.context;
        let asking = options.asking.then(|| redis::cmd("ASKING"));
        let number = connection.socket.number;
        let mut sent = self.command_forms.exchange_blocking(op, |form| {
            let request = request::command(op, form, options.announce);
            let sent_at = clock::now();
            let within = Deadline { until: context.reply_until(deadline.until, sent_at), ..deadline };
            context.store_state.count_command();
            let outcome = connection.exchange(asking.as_ref(), &request, sent_at, within);
            RawExchange { sent_at, connection: number, outcome, confirmations: None }
        });
        let granted = matches!(&sent.outcome, Outcome::Applied(value) if reply::is_grant(value));
        if granted && self.waits_for_replicas(op) {
            let wait = replicas::wait(context, deadline.until);
            let now = clock::now();
            let within = Deadline { until: now + wait.limit + context.options.request_timeout, ..deadline };
            sent.confirm(context, connection.exchange(None, &wait.command, now, within));
        }
        sent
    }
}
