//! Sends an operation once on a connection of an event loop.

use std::sync::Arc;

use redis::Value;

use super::exchange::{RawExchange, SendOptions};
use crate::machine::{Op, Outcome, Time};
use crate::store::redis::command::call::CommandForm;
use crate::store::redis::command::form::{Exchanged, FormSender};
use crate::store::redis::command::request;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::event_loop::connection::EventLoopConnection;
use crate::sys::clock;

/// Sends on the connection of the event loop that runs on this thread.
pub(super) struct LoopSender<'a> {
    pub(super) context: &'a NodeContext,
    pub(super) connection: &'a Arc<EventLoopConnection>,
    pub(super) options: SendOptions,
    pub(super) until: Time,
}

impl FormSender for LoopSender<'_> {
    /// With the time at which the reply was received. `None` if the connection takes no more requests.
    type Exchanged = Option<ReceivedExchange>;

    async fn send(&self, op: &Op, form: CommandForm) -> Option<ReceivedExchange> {
        let bytes = request::command(op, form, self.options.announce).get_packed_command();
        let sent_at = clock::now();
        let limit = self.context.reply_until(self.until, sent_at);
        let exchange = self.connection.request(&bytes, sent_at, limit, self.context.options.request_timeout);
        self.context.store_state.count_command();
        let (outcome, received_at) = exchange.await?;
        let sent = RawExchange { sent_at, connection: self.connection.number, outcome, confirmations: None };
        Some(ReceivedExchange { sent, received_at })
    }
}

/// One request, how it ended, and when.
pub(super) struct ReceivedExchange {
    pub(super) sent: RawExchange,
    pub(super) received_at: Time,
}

impl Exchanged for ReceivedExchange {
    fn outcome(&self) -> Option<&Outcome<Value>> {
        self.sent.outcome()
    }
}
