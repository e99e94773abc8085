//! In a host that is an event loop, its calls use the connection of the tasks.

use super::{Node, RoutedAnswer, SendOptions};
use crate::machine::{Op, Time};

impl Node {
    /// None: the connection of the tasks is read by the host itself.
    #[allow(clippy::unused_self)] // as where there is one
    pub(crate) fn event_loop_connection(&self) -> Option<()> {
        None
    }

    /// One operation.
    pub(crate) async fn call_from_loop(&self, op: &Op, options: SendOptions, until: Time) -> RoutedAnswer {
        self.call(op, options, until).await
    }
}
