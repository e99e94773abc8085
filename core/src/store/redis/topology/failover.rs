//! Repeating a call while a master is being replaced. A server that has become a replica refuses before it changes
//! anything, so the same operation is sent to the new master a moment later. Decides; sends nothing.

#[cfg(not(target_family = "wasm"))]
use std::thread;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Jitter, Outcome, Time};
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::connection::deadline::{Deadline, POLL_INTERVAL};
use crate::sys::clock;

/// The pause before the first repetition; each further one doubles it …
const PAUSE: Duration = Duration::from_millis(8);
/// … up to this. Pauses are drawn between half and the whole.
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// Failures that a failover explains, once a replica has answered.
const EXPLAINED_BY_FAILOVER: [ErrorKind; 2] = [ErrorKind::ReadOnly, ErrorKind::Unavailable];

/// One call that looks for the new master.
pub(crate) struct FailoverRetry {
    until: Time,
    /// The answer of a replica: a later failure to reach the new master belongs to the same failover.
    replica_failure: Option<Failure>,
    retries: u32,
    jitter: Jitter,
}

impl FailoverRetry {
    /// The call ends by `until`.
    pub(crate) fn new(until: Time) -> FailoverRetry {
        FailoverRetry { until, replica_failure: None, retries: 0, jitter: Jitter::new(clock::now().as_nanos()) }
    }

    /// How long to wait before the operation is repeated; `None` when it is not.
    pub(crate) fn pause_after<T>(&mut self, outcome: &Outcome<T>, now: Time) -> Option<Duration> {
        match outcome {
            Outcome::NotApplied(failure) => self.pause_after_failure(failure, now),
            // the machine decides about an operation that may have been applied
            Outcome::Applied(_) | Outcome::Indeterminate(_) => None,
        }
    }

    /// The same after a failure that surely changed nothing.
    pub(crate) fn pause_after_failure(&mut self, failure: &Failure, now: Time) -> Option<Duration> {
        match failure.kind {
            ErrorKind::ReadOnly => self.replica_failure = Some(failure.clone()),
            ErrorKind::Unavailable if self.replica_failure.is_some() && failure.transient => {}
            _ => return None,
        }
        let most = PAUSE.saturating_mul(1 << self.retries.min(8)).min(LONGEST_PAUSE);
        let pause = self.jitter.between(most / 2, most);
        self.retries += 1;
        (now + pause < self.until).then_some(pause)
    }

    /// The failure that the caller gets in the end: that the master is being replaced, not that the server is
    /// read-only.
    pub(crate) fn final_failure(&self, failure: Failure) -> Failure {
        match &self.replica_failure {
            Some(replica) if failure.transient && EXPLAINED_BY_FAILOVER.contains(&failure.kind) => {
                let detail =
                    format!("the master is being replaced, and no new one was found in time; {}", replica.detail);
                Failure::transient(ErrorKind::Unavailable, detail)
            }
            _ => failure,
        }
    }

    /// The same for an answer.
    pub(crate) fn final_answer(&self, mut answer: Answer) -> Answer {
        answer.outcome = match answer.outcome {
            Outcome::NotApplied(failure) => Outcome::NotApplied(self.final_failure(failure)),
            outcome => outcome,
        };
        answer
    }
}

/// Pauses a thread, until the deadline at most.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn pause_blocking(pause: Duration, deadline: Deadline<'_>) {
    let deadline = Deadline { until: deadline.until.min(clock::now() + pause), ..deadline };
    while let Ok(left) = deadline.check() {
        thread::park_timeout(left.min(POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: ErrorKind) -> Outcome<()> {
        Outcome::NotApplied(Failure::transient(kind, "no"))
    }

    #[test]
    fn a_replica_is_asked_past_until_the_time_is_up() {
        let mut retry = FailoverRetry::new(Time::from_millis(1000));
        let mut now = Time::ZERO;
        let mut pauses = 0;
        while let Some(pause) = retry.pause_after(&refused(ErrorKind::ReadOnly), now) {
            assert!((PAUSE / 2..=LONGEST_PAUSE).contains(&pause), "{pause:?}");
            now = now + pause;
            pauses += 1;
        }
        assert!(now < Time::from_millis(1000) && now > Time::from_millis(800), "{now:?}");
        assert!((8..30).contains(&pauses), "{pauses}");
    }

    #[test]
    fn what_a_hand_over_does_not_explain_is_told_at_once() {
        let mut retry = FailoverRetry::new(Time::from_millis(1000));
        assert_eq!(
            retry.pause_after(&refused(ErrorKind::Unavailable), Time::ZERO),
            None,
            "it is not there, whoever it is"
        );
        assert_eq!(retry.pause_after(&Outcome::Applied(()), Time::ZERO), None);
        assert!(retry.pause_after(&refused(ErrorKind::ReadOnly), Time::ZERO).is_some());
        // between the old master and the new one there may be none
        assert!(retry.pause_after(&refused(ErrorKind::Unavailable), Time::ZERO).is_some());
        let unknown = Outcome::<()>::Indeterminate(Failure::transient(ErrorKind::Unavailable, "silent"));
        assert_eq!(retry.pause_after(&unknown, Time::ZERO), None, "never sent on by itself");
        assert_eq!(retry.pause_after(&refused(ErrorKind::Closed), Time::ZERO), None);
        let lasting = Outcome::<()>::NotApplied(Failure::lasting(ErrorKind::Unavailable, "DENIED"));
        assert_eq!(retry.pause_after(&lasting, Time::ZERO), None);
    }

    #[test]
    fn nobody_is_told_to_connect_to_a_master_that_nobody_knows() {
        let mut retry = FailoverRetry::new(Time::from_millis(1000));
        let other = Failure::transient(ErrorKind::Unavailable, "h:1: no answer in time");
        assert_eq!(retry.final_failure(other.clone()), other);
        let replica = Failure::transient(ErrorKind::ReadOnly, "h:1: the server is a replica");
        retry.pause_after_failure(&replica, Time::ZERO);
        for last in [replica, other] {
            let told = retry.final_failure(last);
            assert_eq!((told.kind, told.transient), (ErrorKind::Unavailable, true));
            assert!(told.detail.ends_with("h:1: the server is a replica"), "{}", told.detail);
        }
        let lasting = Failure::lasting(ErrorKind::NotPermitted, "no");
        assert_eq!(retry.final_failure(lasting.clone()), lasting);
    }
}
