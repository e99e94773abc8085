//! The troublemaker: decides whom to kill or to freeze, and when. It only decides; `main` carries it out.

use crate::event::Event;

/// How much quiet work there is between two disturbances.
const QUIET_US: u64 = 1_000_000;

/// What is to be done to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Let it stop in the middle of its next hold, so that the disturbance meets a holder.
    Stall(usize),
    Kill(usize),
    Replace(usize),
    Stop(usize),
    Wake(usize),
}

/// What happened, for the audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    Killed {
        worker: usize,
    },
    Stopped {
        worker: usize,
    },
    /// Another worker holds the lock `after_us` after `worker` was killed or stopped.
    TakenOver {
        worker: usize,
        by: usize,
        after_us: u64,
    },
    /// A frozen worker woke; `held` is what it thought, `refused` whether its late write was turned away.
    Woke {
        worker: usize,
        held: bool,
        refused: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kill,
    Stop,
}

#[derive(Clone, Copy)]
enum Act {
    Quiet {
        until: u64,
    },
    Asked {
        worker: usize,
    },
    Killed {
        worker: usize,
        at: u64,
    },
    /// `heir` is the worker that took over; it is given time to write.
    Stopped {
        worker: usize,
        at: u64,
        heir: Option<usize>,
    },
    Waking {
        worker: usize,
        held: Option<bool>,
    },
}

pub(crate) struct Troublemaker {
    workers: usize,
    act: Act,
    next: Kind,
    victim: usize,
    /// No new disturbance begins after this time, except that there is one of each kind.
    last_call: u64,
    /// How many came to their end.
    finished: u64,
}

impl Troublemaker {
    pub(crate) fn new(workers: usize, now: u64, last_call: u64) -> Troublemaker {
        let act = Act::Quiet { until: now + QUIET_US };
        Troublemaker { workers, act, next: Kind::Kill, victim: 1, last_call, finished: 0 }
    }

    /// Whether everything that was begun came to its end, and there was something of each kind.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.act, Act::Quiet { .. }) && self.has_shown_all()
    }

    fn has_shown_all(&self) -> bool {
        self.finished >= 2
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: u64) -> Option<Deed> {
        let Act::Quiet { until } = self.act else { return None };
        if now < until || (now > self.last_call && self.has_shown_all()) {
            return None;
        }
        self.victim = (self.victim + 1) % self.workers;
        self.act = Act::Asked { worker: self.victim };
        Some(Deed::Stall(self.victim))
    }

    /// `from` reported something at about `now`.
    pub(crate) fn hear(&mut self, from: usize, event: &Event, now: u64) -> (Option<Deed>, Option<Scene>) {
        match (self.act, event) {
            (Act::Asked { worker }, Event::Stalled) if from == worker => match self.next {
                Kind::Kill => {
                    self.act = Act::Killed { worker, at: now };
                    (Some(Deed::Kill(worker)), Some(Scene::Killed { worker }))
                }
                Kind::Stop => {
                    self.act = Act::Stopped { worker, at: now, heir: None };
                    (Some(Deed::Stop(worker)), Some(Scene::Stopped { worker }))
                }
            },
            (Act::Killed { worker, at: killed }, Event::Entered { at, .. }) if from != worker && *at > killed => {
                self.rest(now);
                let scene = Scene::TakenOver { worker, by: from, after_us: at - killed };
                (Some(Deed::Replace(worker)), Some(scene))
            }
            (Act::Stopped { worker, at: stopped, heir }, Event::Entered { at, .. })
                if from != worker && *at > stopped =>
            {
                // an heir can lose the lock as well, on a machine that is busy; then the next one is
                self.act = Act::Stopped { worker, at: stopped, heir: Some(from) };
                let scene = Scene::TakenOver { worker, by: from, after_us: at - stopped };
                (None, heir.is_none().then_some(scene))
            }
            (Act::Stopped { worker, heir: Some(heir), .. }, Event::Wrote { .. }) if from == heir => {
                self.act = Act::Waking { worker, held: None };
                (Some(Deed::Wake(worker)), None)
            }
            (Act::Waking { worker, held: None }, Event::Woke { held, .. }) if from == worker => {
                self.act = Act::Waking { worker, held: Some(*held) };
                (None, None)
            }
            (Act::Waking { worker, held: Some(held) }, Event::Refused { .. } | Event::Wrote { .. })
                if from == worker =>
            {
                self.rest(now);
                let refused = matches!(event, Event::Refused { .. });
                (None, Some(Scene::Woke { worker, held, refused }))
            }
            _ => (None, None),
        }
    }

    /// Quiet for a while, then the other kind of trouble.
    fn rest(&mut self, now: u64) {
        self.act = Act::Quiet { until: now + QUIET_US };
        self.finished += 1;
        self.next = match self.next {
            Kind::Kill => Kind::Stop,
            Kind::Stop => Kind::Kill,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(at: u64) -> Event {
        Event::Entered { at, since: 0, token: 1 }
    }

    #[test]
    fn a_holder_is_killed_and_replaced_once_somebody_else_holds() {
        let mut trouble = Troublemaker::new(3, 0, u64::MAX);
        assert_eq!(trouble.tick(QUIET_US - 1), None);
        assert_eq!(trouble.tick(QUIET_US), Some(Deed::Stall(2)));
        assert_eq!(trouble.hear(1, &Event::Stalled, 1), (None, None), "only the one that was asked");
        let (deed, _) = trouble.hear(2, &Event::Stalled, 2_000_000);
        assert_eq!(deed, Some(Deed::Kill(2)));
        let (deed, scene) = trouble.hear(0, &entered(2_900_000), 2_900_001);
        assert_eq!(deed, Some(Deed::Replace(2)));
        assert_eq!(scene, Some(Scene::TakenOver { worker: 2, by: 0, after_us: 900_000 }));
        assert!(!trouble.is_done(), "nobody was stopped yet");
    }

    #[test]
    fn a_holder_is_woken_after_its_heir_has_written() {
        let mut trouble = Troublemaker::new(3, 0, u64::MAX);
        trouble.next = Kind::Stop;
        trouble.tick(QUIET_US);
        assert_eq!(trouble.hear(2, &Event::Stalled, 0).0, Some(Deed::Stop(2)));
        assert_eq!(trouble.hear(0, &entered(5), 5).0, None);
        assert_eq!(trouble.hear(1, &Event::Wrote { at: 6 }, 6).0, None, "an older report of somebody else");
        assert_eq!(trouble.hear(0, &Event::Wrote { at: 7 }, 7).0, Some(Deed::Wake(2)));
        assert_eq!(trouble.hear(2, &Event::Woke { at: 8, held: false }, 8), (None, None));
        let (_, scene) = trouble.hear(2, &Event::Refused { highest: 2 }, 9);
        assert_eq!(scene, Some(Scene::Woke { worker: 2, held: false, refused: true }));
        assert_eq!(trouble.tick(9 + QUIET_US), Some(Deed::Stall(0)), "the next in turn");
    }

    #[test]
    fn nothing_begins_after_the_last_call_once_all_was_shown() {
        let mut trouble = Troublemaker::new(3, 0, 10);
        trouble.finished = 1;
        trouble.rest(0);
        assert!(trouble.is_done());
        assert_eq!(trouble.tick(QUIET_US), None);
    }
}
