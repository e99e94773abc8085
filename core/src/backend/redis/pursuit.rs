//! Where a master can be replaced: a server that is a replica by now refused before it did anything, so the same question
//! goes to whoever is named as the master a moment later. Decides; sends nothing.

use std::thread;
use std::time::Duration;

use super::line::{Patience, SLICE};
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Jitter, Outcome, Time};

/// The pause before the next question; each further one doubles it …
const PAUSE: Duration = Duration::from_millis(8);
/// … up to this. Pauses are drawn between half and the whole.
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// What a hand-over explains, once a replica was met.
const EXPLAINED: [ErrorKind; 2] = [ErrorKind::ReadOnly, ErrorKind::Unavailable];

/// One call in search of the master.
pub(crate) struct Pursuit {
    until: Time,
    /// The replica that was met: whatever keeps the call from the new master after that is part of the hand-over.
    replica: Option<Failure>,
    pauses: u32,
    jitter: Jitter,
}

impl Pursuit {
    /// Everything ends by `until`.
    pub(crate) fn new(until: Time) -> Pursuit {
        Pursuit { until, replica: None, pauses: 0, jitter: Jitter::new(clock::now().as_nanos()) }
    }

    /// How long to wait before the same question is asked again; `None` when it is not.
    pub(crate) fn pause<T>(&mut self, outcome: &Outcome<T>, now: Time) -> Option<Duration> {
        match outcome {
            Outcome::NotApplied(failure) => self.pause_after(failure, now),
            // what may have been done is for the machine room to decide
            Outcome::Applied(_) | Outcome::Indeterminate(_) => None,
        }
    }

    /// The same after a failure of which it is known that nothing was done.
    pub(crate) fn pause_after(&mut self, failure: &Failure, now: Time) -> Option<Duration> {
        match failure.kind {
            ErrorKind::ReadOnly => self.replica = Some(failure.clone()),
            ErrorKind::Unavailable if self.replica.is_some() && failure.transient => {}
            _ => return None,
        }
        let most = PAUSE.saturating_mul(1 << self.pauses.min(8)).min(LONGEST_PAUSE);
        let pause = self.jitter.between(most / 2, most);
        self.pauses += 1;
        (now + pause < self.until).then_some(pause)
    }

    /// What the caller is told in the end. No user can do anything about a master that is just being replaced, and it is
    /// not the server that is read-only.
    pub(crate) fn settled(&self, failure: Failure) -> Failure {
        match &self.replica {
            Some(replica) if failure.transient && EXPLAINED.contains(&failure.kind) => {
                let detail =
                    format!("the master is being replaced, and no new one was found in time; {}", replica.detail);
                Failure::transient(ErrorKind::Unavailable, detail)
            }
            _ => failure,
        }
    }

    /// The same for an answer.
    pub(crate) fn settled_answer(&self, mut answer: Answer) -> Answer {
        answer.outcome = match answer.outcome {
            Outcome::NotApplied(failure) => Outcome::NotApplied(self.settled(failure)),
            outcome => outcome,
        };
        answer
    }
}

/// Pauses a thread, but no longer than the caller's patience lasts.
pub(crate) fn pause_on_thread(pause: Duration, patience: Patience<'_>) {
    let patience = Patience { until: patience.until.min(clock::now() + pause), ..patience };
    while let Ok(left) = patience.check() {
        thread::park_timeout(left.min(SLICE));
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
        let mut pursuit = Pursuit::new(Time::from_millis(1000));
        let mut now = Time::ZERO;
        let mut pauses = 0;
        while let Some(pause) = pursuit.pause(&refused(ErrorKind::ReadOnly), now) {
            assert!((PAUSE / 2..=LONGEST_PAUSE).contains(&pause), "{pause:?}");
            now = now + pause;
            pauses += 1;
        }
        assert!(now < Time::from_millis(1000) && now > Time::from_millis(800), "{now:?}");
        assert!((8..30).contains(&pauses), "{pauses}");
    }

    #[test]
    fn what_a_hand_over_does_not_explain_is_told_at_once() {
        let mut pursuit = Pursuit::new(Time::from_millis(1000));
        assert_eq!(pursuit.pause(&refused(ErrorKind::Unavailable), Time::ZERO), None, "it is not there, whoever it is");
        assert_eq!(pursuit.pause(&Outcome::Applied(()), Time::ZERO), None);
        assert!(pursuit.pause(&refused(ErrorKind::ReadOnly), Time::ZERO).is_some());
        // between the old and the new one there may be nobody
        assert!(pursuit.pause(&refused(ErrorKind::Unavailable), Time::ZERO).is_some());
        let unknown = Outcome::<()>::Indeterminate(Failure::transient(ErrorKind::Unavailable, "silent"));
        assert_eq!(pursuit.pause(&unknown, Time::ZERO), None, "never sent on by itself");
        assert_eq!(pursuit.pause(&refused(ErrorKind::Closed), Time::ZERO), None);
        let lasting = Outcome::<()>::NotApplied(Failure::lasting(ErrorKind::Unavailable, "DENIED"));
        assert_eq!(pursuit.pause(&lasting, Time::ZERO), None);
    }

    #[test]
    fn nobody_is_told_to_connect_to_a_master_that_nobody_knows() {
        let mut pursuit = Pursuit::new(Time::from_millis(1000));
        let other = Failure::transient(ErrorKind::Unavailable, "h:1: no answer in time");
        assert_eq!(pursuit.settled(other.clone()), other);
        let replica = Failure::transient(ErrorKind::ReadOnly, "h:1: the server is a replica");
        pursuit.pause_after(&replica, Time::ZERO);
        for last in [replica, other] {
            let told = pursuit.settled(last);
            assert_eq!((told.kind, told.transient), (ErrorKind::Unavailable, true));
            assert!(told.detail.ends_with("h:1: the server is a replica"), "{}", told.detail);
        }
        let lasting = Failure::lasting(ErrorKind::NotPermitted, "no");
        assert_eq!(pursuit.settled(lasting.clone()), lasting);
    }
}
