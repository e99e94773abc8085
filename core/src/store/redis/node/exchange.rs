//! One request to a node: how it is sent, how it ended, and the answer made of it.

use redis::Value;

use super::replicas::{self, Confirmations};
use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Outcome, Time};
use crate::store::redis::command::call::Announce;
use crate::store::redis::command::form::Exchanged;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::topology::cluster::redirect::Redirect;
use crate::sys::clock;

/// How an operation is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendOptions {
    /// On which channels a release is announced.
    pub(crate) announce: Announce,
    /// Preceded by `ASKING`, for a node that is importing the slot.
    pub(crate) asking: bool,
}

/// An answer, and the redirection of a cluster's node, if it sent one.
pub(crate) struct RoutedAnswer {
    pub(crate) answer: Answer,
    pub(crate) redirect: Option<Redirect>,
}

/// One request and how it ended.
pub(crate) struct RawExchange {
    pub(crate) sent_at: Time,
    pub(crate) connection: u64,
    pub(crate) outcome: Outcome<Value>,
    pub(crate) confirmations: Option<Confirmations>,
}

impl RawExchange {
    /// Takes the reply to `WAIT` into account: without one, the grant is indeterminate.
    pub(crate) fn confirm(&mut self, context: &NodeContext, answer: Outcome<Value>) {
        match answer {
            Outcome::Applied(value) => self.confirmations = replicas::read(context, &value),
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => {
                self.outcome = Outcome::Indeterminate(failure);
            }
        }
    }
}

impl Exchanged for RawExchange {
    fn outcome(&self) -> Option<&Outcome<Value>> {
        Some(&self.outcome)
    }
}

/// The answer to a request for which there was no connection.
pub(crate) fn not_sent(begun: Time, failure: Failure) -> RoutedAnswer {
    let answer = Answer {
        sent_at: begun,
        received_at: clock::now(),
        connection: 0,
        server_time_us: None,
        outcome: Outcome::NotApplied(failure),
    };
    RoutedAnswer { answer, redirect: None }
}

/// Whether the server must be located and logged in to again: it has become a replica, or does not know the user any
/// more.
pub(crate) fn is_refused_for_good<T>(outcome: &Outcome<T>) -> bool {
    matches!(outcome, Outcome::NotApplied(failure) if matches!(failure.kind, ErrorKind::ReadOnly | ErrorKind::AuthFailed))
}

pub(crate) fn is_worth_keeping<T>(outcome: &Outcome<T>) -> bool {
    !is_refused_for_good(outcome) && !matches!(outcome, Outcome::Indeterminate(_))
}
