//! Sends an operation once on a connection of tasks.

use redis::{Cmd, Value};

use super::exchange::{RawExchange, SendOptions};
use crate::machine::{Op, Outcome, Time};
use crate::store::redis::command::call::CommandForm;
use crate::store::redis::command::form::FormSender;
use crate::store::redis::command::request;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::multiplexed::connection::AsyncConnection;
use crate::sys::clock;

/// Sends on a connection that tasks share.
pub(super) struct MultiplexedSender<'a> {
    pub(super) context: &'a NodeContext,
    pub(super) connection: &'a AsyncConnection,
    pub(super) options: SendOptions,
    pub(super) until: Time,
}

impl FormSender for MultiplexedSender<'_> {
    type Exchanged = RawExchange;

    async fn send(&self, op: &Op, form: CommandForm) -> RawExchange {
        let request = request::command(op, form, self.options.announce);
        let (sent_at, outcome) = exchange(self.context, self.connection, &request, self.options, self.until).await;
        RawExchange { sent_at, connection: self.connection.number, outcome, confirmations: None }
    }
}

/// Sends one request; returns when it was submitted and how it ended.
pub(super) async fn exchange(
    context: &NodeContext,
    connection: &AsyncConnection,
    command: &Cmd,
    options: SendOptions,
    until: Time,
) -> (Time, Outcome<Value>) {
    context.store_state.count_command();
    let asking = options.asking.then(|| redis::cmd("ASKING"));
    let sent_at = clock::now();
    let limit = until.since(sent_at).min(context.options.request_timeout);
    (sent_at, connection.request(asking.as_ref(), command, sent_at, limit).await)
}
