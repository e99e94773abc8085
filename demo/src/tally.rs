//! Puts the reports of all workers together and checks them: who held when, with which token, and what was written.

use crate::event::Event;

/// How a hold ended that was not released in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upset {
    None,
    Killed { at: u64 },
    Stopped { at: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    worker: usize,
    token: u64,
    since: u64,
    entered: u64,
    /// The last time at which the holder knew that it held: `is_held()` was true then.
    believed: u64,
    left: Option<u64>,
    upset: Upset,
}

/// Everything that was reported so far.
pub(crate) struct Tally {
    holds: Vec<Hold>,
    /// Per worker, the hold that its next reports belong to.
    present: Vec<Option<usize>>,
    /// The worker that woke and has not said yet what became of its write.
    waking: Vec<bool>,
    pub(crate) increments: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) woke_held: u64,
    pub(crate) late_refused: u64,
    pub(crate) late_written: u64,
    pub(crate) refused: u64,
    pub(crate) lost: u64,
    pub(crate) failures: Vec<String>,
    pub(crate) holder: Option<usize>,
}

/// What the checks found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) holds: usize,
    pub(crate) overlaps: usize,
    pub(crate) out_of_order: usize,
    pub(crate) after_release: Spans,
    pub(crate) after_kill: Spans,
    pub(crate) after_stop: Spans,
}

impl Tally {
    pub(crate) fn new(workers: usize) -> Tally {
        Tally {
            holds: Vec::new(),
            present: vec![None; workers],
            waking: vec![false; workers],
            increments: 0,
            kills: 0,
            stops: 0,
            woke_held: 0,
            late_refused: 0,
            late_written: 0,
            refused: 0,
            lost: 0,
            failures: Vec::new(),
            holder: None,
        }
    }

    pub(crate) fn hear(&mut self, worker: usize, event: Event) {
        match event {
            Event::Entered { at, since, token } => {
                self.present[worker] = Some(self.holds.len());
                self.holder = Some(worker);
                self.holds.push(Hold {
                    worker,
                    token,
                    since,
                    entered: at,
                    believed: at,
                    left: None,
                    upset: Upset::None,
                });
            }
            Event::Woke { at, held } => {
                self.waking[worker] = true;
                if held {
                    self.woke_held += 1;
                    self.believe(worker, at);
                } else {
                    self.lost += 1;
                }
            }
            Event::Wrote { at } => {
                self.increments += 1;
                let woke = std::mem::take(&mut self.waking[worker]);
                self.late_written += u64::from(woke);
                if !woke {
                    self.believe(worker, at);
                }
            }
            Event::Refused { .. } if std::mem::take(&mut self.waking[worker]) => self.late_refused += 1,
            Event::Refused { .. } => self.refused += 1,
            Event::Lost => self.lost += 1,
            Event::Left { at } => {
                if let Some(hold) = self.present[worker].take() {
                    self.holds[hold].left = Some(at);
                }
                if self.holder == Some(worker) {
                    self.holder = None;
                }
            }
            Event::Failed(why) => self.failures.push(format!("worker {worker}: {why}")),
            Event::Stalled | Event::Gone => {}
        }
    }

    pub(crate) fn killed(&mut self, worker: usize, at: u64) {
        self.kills += 1;
        if let Some(hold) = self.present[worker].take() {
            self.holds[hold].upset = Upset::Killed { at };
        }
    }

    pub(crate) fn stopped(&mut self, worker: usize, at: u64) {
        self.stops += 1;
        if let Some(hold) = self.present[worker] {
            self.holds[hold].upset = Upset::Stopped { at };
        }
    }

    pub(crate) fn holds(&self) -> usize {
        self.holds.len()
    }

    fn believe(&mut self, worker: usize, at: u64) {
        if let Some(hold) = self.present[worker] {
            self.holds[hold].believed = at;
        }
    }

    /// Checks all holds against each other, in the order of time.
    pub(crate) fn findings(&self) -> Findings {
        let mut holds = self.holds.clone();
        holds.sort_by_key(|hold| hold.entered);
        let mut found = Findings { holds: holds.len(), ..Findings::default() };
        let mut believed_until = 0;
        for hold in &holds {
            found.overlaps += usize::from(hold.entered <= believed_until);
            believed_until = believed_until.max(hold.believed);
        }
        for pair in holds.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            found.out_of_order += usize::from(after.token <= before.token);
            if before.worker == after.worker && before.upset == Upset::None {
                continue;
            }
            match (before.upset, before.left) {
                (Upset::Killed { at }, _) => found.after_kill.add(after.entered.saturating_sub(at)),
                (Upset::Stopped { at }, _) => found.after_stop.add(after.entered.saturating_sub(at)),
                // only somebody who waited already can show how long a hand-over takes
                (Upset::None, Some(left)) if after.since < left => {
                    found.after_release.add(after.entered.saturating_sub(left));
                }
                (Upset::None, _) => {}
            }
        }
        found
    }
}

/// Times, for percentiles.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<u64>);

impl Spans {
    fn add(&mut self, span_us: u64) {
        let place = self.0.partition_point(|&other| other < span_us);
        self.0.insert(place, span_us);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that `share` (0 to 1) of them do not exceed.
    pub(crate) fn percentile_us(&self, share: f64) -> u64 {
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(tally: &mut Tally, worker: usize, at: u64, token: u64) {
        tally.hear(worker, Event::Entered { at, since: at.saturating_sub(5), token });
    }

    #[test]
    fn holds_one_after_the_other_are_fine() {
        let mut tally = Tally::new(2);
        entered(&mut tally, 0, 10, 1);
        tally.hear(0, Event::Wrote { at: 12 });
        tally.hear(0, Event::Left { at: 13 });
        entered(&mut tally, 1, 15, 2);
        let found = tally.findings();
        assert_eq!((found.overlaps, found.out_of_order, tally.increments), (0, 0, 1));
        assert_eq!((found.after_release.count(), found.after_release.percentile_us(0.5)), (1, 2));
    }

    #[test]
    fn two_that_believe_at_once_are_an_overlap_whatever_the_order_of_the_reports() {
        let mut tally = Tally::new(2);
        entered(&mut tally, 1, 15, 2);
        entered(&mut tally, 0, 10, 1);
        tally.hear(0, Event::Wrote { at: 16 });
        assert_eq!(tally.findings().overlaps, 1);
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        let mut tally = Tally::new(2);
        entered(&mut tally, 0, 10, 7);
        entered(&mut tally, 1, 20, 7);
        assert_eq!(tally.findings().out_of_order, 1);
    }

    #[test]
    fn a_stopped_worker_that_knows_better_is_no_overlap_and_one_that_does_not_is() {
        for (held, overlaps) in [(false, 0), (true, 1)] {
            let mut tally = Tally::new(2);
            entered(&mut tally, 0, 10, 1);
            tally.stopped(0, 11);
            entered(&mut tally, 1, 30, 2);
            tally.hear(1, Event::Wrote { at: 31 });
            tally.hear(0, Event::Woke { at: 40, held });
            tally.hear(0, Event::Refused { highest: 2 });
            assert_eq!((tally.findings().overlaps, tally.late_refused, tally.refused), (overlaps, 1, 0));
            assert_eq!(tally.findings().after_stop.percentile_us(1.0), 19);
        }
    }

    #[test]
    fn percentiles_are_times_that_occurred() {
        let mut spans = Spans::default();
        (1..=100).rev().for_each(|span| spans.add(span));
        assert_eq!([0.5, 0.99, 1.0].map(|share| spans.percentile_us(share)), [50, 99, 100]);
        assert_eq!(Spans::default().percentile_us(0.5), 0);
    }
}
