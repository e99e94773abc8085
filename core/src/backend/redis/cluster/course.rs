//! What to do with an operation after a node's answer. Decides; sends nothing.

use std::time::Duration;

use super::super::node::Told;
use super::super::pursuit::Pursuit;
use super::super::redirect::Redirect;
use crate::error::ErrorKind;
use crate::machine::{Answer, Outcome, Time};

/// An operation is sent on this often at most.
const HOPS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is answered.
    Done,
    /// It is answered as far as it goes, and the map is doubtful.
    DoneInDoubt,
    /// The slot is served there: to be noted, and sent there.
    Moved { slot: u16, host: String, port: u16 },
    /// To be sent there, for this once.
    Ask { host: String, port: u16 },
    /// To be sent again, after a pause.
    Again(Duration),
    /// To be sent key by key.
    Split,
    /// To be sent again if a new map knows somebody else.
    Look,
    /// The node is a replica by now: to be sent again after a pause, to whoever a new map knows.
    Pursue(Duration),
}

/// The way of one operation from node to node.
pub(super) struct Course {
    until: Time,
    hops: u32,
    pauses: u32,
    looked: bool,
    pursuit: Pursuit,
}

impl Course {
    /// Everything ends by `until`.
    pub(super) fn new(until: Time) -> Course {
        Course { until, hops: 0, pauses: 0, looked: false, pursuit: Pursuit::new(until) }
    }

    /// What to do after this answer; `several`: the operation could be sent key by key.
    pub(super) fn next(&mut self, told: &Told, now: Time, several: bool) -> Turn {
        if now >= self.until {
            return Turn::DoneInDoubt;
        }
        match &told.redirect {
            None => self.unredirected(&told.answer.outcome, now),
            Some(Redirect::TryAgain | Redirect::CrossSlot) if several => Turn::Split,
            Some(Redirect::TryAgain) => {
                let pause = PAUSE.saturating_mul(1 << self.pauses.min(8)).min(LONGEST_PAUSE);
                self.pauses += 1;
                if now + pause < self.until { Turn::Again(pause) } else { Turn::Done }
            }
            Some(Redirect::Moved { .. } | Redirect::Ask { .. }) if self.hops >= HOPS => Turn::DoneInDoubt,
            Some(Redirect::Moved { slot, host, port }) => {
                self.hops += 1;
                Turn::Moved { slot: *slot, host: host.clone(), port: *port }
            }
            Some(Redirect::Ask { host, port }) => {
                self.hops += 1;
                Turn::Ask { host: host.clone(), port: *port }
            }
            Some(Redirect::Down | Redirect::CrossSlot) => Turn::DoneInDoubt,
        }
    }

    /// What the caller is told in the end.
    pub(super) fn settled(&self, told: Told) -> Answer {
        let Told { answer, redirect } = told;
        let mut answer = self.pursuit.settled_answer(answer);
        // a node's "not here" is no lasting refusal: the map will be right again
        if redirect.is_some()
            && let Outcome::NotApplied(failure) = &mut answer.outcome
        {
            failure.transient = true;
        }
        answer
    }

    fn unredirected<T>(&mut self, outcome: &Outcome<T>, now: Time) -> Turn {
        if let Some(pause) = self.pursuit.pause(outcome, now) {
            return Turn::Pursue(pause);
        }
        match outcome {
            Outcome::Indeterminate(_) => Turn::DoneInDoubt,
            // not there: nothing was done, so somebody else may do it
            Outcome::NotApplied(failure) if matches!(failure.kind, ErrorKind::Unavailable | ErrorKind::ReadOnly) => {
                if std::mem::replace(&mut self.looked, true) {
                    Turn::DoneInDoubt
                } else {
                    Turn::Look
                }
            }
            Outcome::Applied(_) | Outcome::NotApplied(_) => Turn::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Failure, Reply};

    fn told(redirect: Option<Redirect>, outcome: Outcome<Reply>) -> Told {
        let at = Time::ZERO;
        let answer = Answer { sent_at: at, received_at: at, connection: 0, server_time_us: None, outcome };
        Told { answer, redirect }
    }

    fn refused(redirect: Redirect) -> Told {
        told(Some(redirect), Outcome::NotApplied(Failure::lasting(ErrorKind::ServerRefused, "no")))
    }

    #[test]
    fn redirections_are_followed_but_not_for_ever() {
        let (mut course, now) = (Course::new(Time::from_millis(100)), Time::ZERO);
        let moved = || refused(Redirect::Moved { slot: 7, host: "h".into(), port: 1 });
        for _ in 0..HOPS {
            assert_eq!(course.next(&moved(), now, false), Turn::Moved { slot: 7, host: "h".into(), port: 1 });
        }
        assert_eq!(course.next(&moved(), now, false), Turn::DoneInDoubt);
        let ask = refused(Redirect::Ask { host: "h".into(), port: 1 });
        let mut course = Course::new(Time::from_millis(100));
        assert_eq!(course.next(&ask, now, true), Turn::Ask { host: "h".into(), port: 1 });
        assert_eq!(course.next(&ask, Time::from_millis(100), true), Turn::DoneInDoubt);
    }

    #[test]
    fn a_slot_on_its_way_is_waited_for_or_asked_key_by_key() {
        let mut course = Course::new(Time::from_millis(100));
        let mut now = Time::ZERO;
        assert_eq!(course.next(&refused(Redirect::TryAgain), now, true), Turn::Split);
        let mut pauses = 0;
        while let Turn::Again(pause) = course.next(&refused(Redirect::TryAgain), now, false) {
            now = now + pause;
            pauses += 1;
        }
        assert!((3..8).contains(&pauses) && now < Time::from_millis(100), "{pauses} {now:?}");
        assert_eq!(course.next(&refused(Redirect::CrossSlot), Time::ZERO, true), Turn::Split);
    }

    #[test]
    fn a_master_that_became_a_replica_is_looked_past_until_the_time_is_up() {
        let mut course = Course::new(Time::from_millis(1000));
        let replica = || told(None, Outcome::NotApplied(Failure::transient(ErrorKind::ReadOnly, "a replica")));
        let mut now = Time::ZERO;
        while let Turn::Pursue(pause) = course.next(&replica(), now, false) {
            now = now + pause;
        }
        assert!(now > Time::from_millis(800) && now < Time::from_millis(1000), "{now:?}");
    }

    #[test]
    fn a_node_that_is_gone_is_looked_past_once() {
        let mut course = Course::new(Time::from_millis(100));
        let gone = || told(None, Outcome::NotApplied(Failure::transient(ErrorKind::Unavailable, "gone")));
        assert_eq!(course.next(&gone(), Time::ZERO, false), Turn::Look);
        assert_eq!(course.next(&gone(), Time::ZERO, false), Turn::DoneInDoubt);
        let unknown = told(None, Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "silent")));
        assert_eq!(course.next(&unknown, Time::ZERO, false), Turn::DoneInDoubt, "never sent on by itself");
        assert_eq!(course.next(&refused(Redirect::Down), Time::ZERO, false), Turn::DoneInDoubt);
        let full = told(None, Outcome::NotApplied(Failure::lasting(ErrorKind::ServerRefused, "OOM")));
        assert_eq!(course.next(&full, Time::ZERO, false), Turn::Done);
    }
}
