//! Routing: what to do with an operation after a node's answer. Decides; sends nothing.

use std::time::Duration;

use super::redirect::Redirect;
use crate::error::ErrorKind;
use crate::machine::{Answer, Outcome, Time};
use crate::store::redis::node::RoutedAnswer;
use crate::store::redis::topology::failover::FailoverRetry;

/// An operation is redirected this often at most.
const MAX_REDIRECTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(4);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RouteStep {
    /// The operation is answered.
    Done,
    /// It is answered, and the map may be wrong.
    DoneAndRefresh,
    /// The slot is served there: update the map, and send it there.
    Moved { slot: u16, host: String, port: u16 },
    /// Send it there, this once.
    Ask { host: String, port: u16 },
    /// Send it again, after a pause.
    Retry(Duration),
    /// Send it key by key.
    Split,
    /// Send it again if a new map names another node.
    RefreshThenRetry,
    /// The node has become a replica: after a pause, send it to the node that a new map names.
    RetryAfterFailover(Duration),
}

/// Routes one operation from node to node.
pub(crate) struct Router {
    until: Time,
    redirects: u32,
    pauses: u32,
    refreshed: bool,
    failover: FailoverRetry,
}

impl Router {
    /// The operation ends by `until`.
    pub(crate) fn new(until: Time) -> Router {
        Router { until, redirects: 0, pauses: 0, refreshed: false, failover: FailoverRetry::new(until) }
    }

    /// The next step after this answer; `several`: the operation can be sent key by key.
    pub(crate) fn next(&mut self, routed: &RoutedAnswer, now: Time, several: bool) -> RouteStep {
        if now >= self.until {
            return RouteStep::DoneAndRefresh;
        }
        match &routed.redirect {
            None => self.without_redirect(&routed.answer.outcome, now),
            Some(Redirect::TryAgain | Redirect::CrossSlot) if several => RouteStep::Split,
            Some(Redirect::TryAgain) => {
                let pause = PAUSE.saturating_mul(1 << self.pauses.min(8)).min(PAUSE_MAX);
                self.pauses += 1;
                if now + pause < self.until { RouteStep::Retry(pause) } else { RouteStep::Done }
            }
            Some(Redirect::Moved { .. } | Redirect::Ask { .. }) if self.redirects >= MAX_REDIRECTS => {
                RouteStep::DoneAndRefresh
            }
            Some(Redirect::Moved { slot, host, port }) => {
                self.redirects += 1;
                RouteStep::Moved { slot: *slot, host: host.clone(), port: *port }
            }
            Some(Redirect::Ask { host, port }) => {
                self.redirects += 1;
                RouteStep::Ask { host: host.clone(), port: *port }
            }
            Some(Redirect::Down | Redirect::CrossSlot) => RouteStep::DoneAndRefresh,
        }
    }

    /// The answer that the caller gets in the end.
    pub(crate) fn final_answer(&self, routed: RoutedAnswer) -> Answer {
        let RoutedAnswer { answer, redirect } = routed;
        let mut answer = self.failover.final_answer(answer);
        // a redirection is no lasting refusal: the map will be right again
        if redirect.is_some()
            && let Outcome::NotApplied(failure) = &mut answer.outcome
        {
            failure.transient = true;
        }
        answer
    }

    fn without_redirect<T>(&mut self, outcome: &Outcome<T>, now: Time) -> RouteStep {
        if let Some(pause) = self.failover.pause_after(outcome, now) {
            return RouteStep::RetryAfterFailover(pause);
        }
        match outcome {
            Outcome::Indeterminate(_) => RouteStep::DoneAndRefresh,
            // not reached: nothing was done, so another node may do it
            Outcome::NotApplied(failure) if matches!(failure.kind, ErrorKind::Unavailable | ErrorKind::ReadOnly) => {
                if std::mem::replace(&mut self.refreshed, true) {
                    RouteStep::DoneAndRefresh
                } else {
                    RouteStep::RefreshThenRetry
                }
            }
            Outcome::Applied(_) | Outcome::NotApplied(_) => RouteStep::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Failure, Reply};

    fn routed(redirect: Option<Redirect>, outcome: Outcome<Reply>) -> RoutedAnswer {
        let at = Time::ZERO;
        let answer = Answer { sent_at: at, received_at: at, connection: 0, server_time_us: None, outcome };
        RoutedAnswer { answer, redirect }
    }

    fn refused(redirect: Redirect) -> RoutedAnswer {
        routed(Some(redirect), Outcome::NotApplied(Failure::lasting(ErrorKind::ServerRefused, "no")))
    }

    #[test]
    fn redirections_are_followed_but_not_for_ever() {
        let (mut router, now) = (Router::new(Time::from_millis(100)), Time::ZERO);
        let moved = || refused(Redirect::Moved { slot: 7, host: "h".into(), port: 1 });
        for _ in 0..MAX_REDIRECTS {
            assert_eq!(router.next(&moved(), now, false), RouteStep::Moved { slot: 7, host: "h".into(), port: 1 });
        }
        assert_eq!(router.next(&moved(), now, false), RouteStep::DoneAndRefresh);
        let ask = refused(Redirect::Ask { host: "h".into(), port: 1 });
        let mut router = Router::new(Time::from_millis(100));
        assert_eq!(router.next(&ask, now, true), RouteStep::Ask { host: "h".into(), port: 1 });
        assert_eq!(router.next(&ask, Time::from_millis(100), true), RouteStep::DoneAndRefresh);
    }

    #[test]
    fn a_slot_on_its_way_is_waited_for_or_asked_key_by_key() {
        let mut router = Router::new(Time::from_millis(100));
        let mut now = Time::ZERO;
        assert_eq!(router.next(&refused(Redirect::TryAgain), now, true), RouteStep::Split);
        let mut pauses = 0;
        while let RouteStep::Retry(pause) = router.next(&refused(Redirect::TryAgain), now, false) {
            now = now + pause;
            pauses += 1;
        }
        assert!((3..8).contains(&pauses) && now < Time::from_millis(100), "{pauses} {now:?}");
        assert_eq!(router.next(&refused(Redirect::CrossSlot), Time::ZERO, true), RouteStep::Split);
    }

    #[test]
    fn a_master_that_became_a_replica_is_looked_past_until_the_time_is_up() {
        let mut router = Router::new(Time::from_millis(1000));
        let replica = || routed(None, Outcome::NotApplied(Failure::transient(ErrorKind::ReadOnly, "a replica")));
        let mut now = Time::ZERO;
        while let RouteStep::RetryAfterFailover(pause) = router.next(&replica(), now, false) {
            now = now + pause;
        }
        assert!(now > Time::from_millis(800) && now < Time::from_millis(1000), "{now:?}");
    }

    #[test]
    fn a_node_that_is_gone_is_looked_past_once() {
        let mut router = Router::new(Time::from_millis(100));
        let gone = || routed(None, Outcome::NotApplied(Failure::transient(ErrorKind::Unavailable, "gone")));
        assert_eq!(router.next(&gone(), Time::ZERO, false), RouteStep::RefreshThenRetry);
        assert_eq!(router.next(&gone(), Time::ZERO, false), RouteStep::DoneAndRefresh);
        let unknown = routed(None, Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "silent")));
        assert_eq!(router.next(&unknown, Time::ZERO, false), RouteStep::DoneAndRefresh, "never sent on by itself");
        assert_eq!(router.next(&refused(Redirect::Down), Time::ZERO, false), RouteStep::DoneAndRefresh);
        let full = routed(None, Outcome::NotApplied(Failure::lasting(ErrorKind::ServerRefused, "OOM")));
        assert_eq!(router.next(&full, Time::ZERO, false), RouteStep::Done);
    }
}
