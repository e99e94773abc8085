//! Whether a node may vote. A server that was restarted without its data has forgotten its locks; until every lease
//! that it may have known has ended, its vote could help to give a lock to a second holder. The same is true of one
//! whose clock jumped forward, which lets its keys expire early.

use std::time::Duration;

use crate::machine::{Anomaly, Answer, ClockWatch, Time};

/// What a server says about itself when a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerRun {
    /// Names this run of the server process.
    pub run_id: [u8; 40],
    /// How long it has been running, rounded down.
    pub uptime: Duration,
    /// Whether it keeps an append-only file, and so its data over a restart.
    pub keeps_data: bool,
}

/// What is known of one node.
#[derive(Clone, Debug)]
pub(crate) struct Eligibility {
    run_id: Option<[u8; 40]>,
    /// When it was found to have been started without its data, and how long it had been running then.
    restarted: Option<(Time, Duration)>,
    /// When its clock was seen to have jumped, and how far.
    jumped: Option<(Time, Duration)>,
    clock: ClockWatch,
}

impl Eligibility {
    pub(crate) fn new(drift_factor: f64) -> Eligibility {
        Eligibility { run_id: None, restarted: None, jumped: None, clock: ClockWatch::new(drift_factor) }
    }

    /// A connection was made. A node that does not report its run stays eligible.
    pub(crate) fn on_connected(&mut self, now: Time, life: Option<&ServerRun>) {
        let Some(life) = life else { return self.clock.forget() };
        if self.run_id == Some(life.run_id) {
            return;
        }
        // its clock may be that of another machine
        self.clock.forget();
        // another server may have this address now: its uptime tells nothing then
        let uptime = if self.run_id.is_none() { life.uptime } else { Duration::ZERO };
        self.run_id = Some(life.run_id);
        self.restarted = (!life.keeps_data).then_some((now, uptime));
    }

    /// Compares the node's clock with ours. After a jump forward by more than drift explains it is not eligible for as
    /// long as its keys may be gone early, `longest` at most.
    pub(crate) fn observe(&mut self, now: Time, answer: &Answer, longest: Duration) {
        if let Some(Anomaly::Forward(by)) = self.clock.observe_same(answer) {
            self.jumped = Some((now, by.min(longest)));
        }
    }

    /// For how much longer it is not eligible.
    pub(crate) fn ineligible_for(&self, now: Time, quarantine: Duration) -> Option<Duration> {
        let restarted = self.restarted.map(|(noticed, uptime)| (noticed, quarantine.saturating_sub(uptime)));
        [restarted, self.jumped]
            .into_iter()
            .flatten()
            .map(|(since, length)| length.saturating_sub(now.since(since)))
            .filter(|left| !left.is_zero())
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(run: u8, uptime_s: u64, keeps_data: bool) -> ServerRun {
        ServerRun { run_id: [run; 40], uptime: Duration::from_secs(uptime_s), keeps_data }
    }

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    const QUARANTINE: Duration = Duration::from_secs(60);

    fn barred(standing: &Eligibility, now: u64) -> Option<u64> {
        standing.ineligible_for(at(now), QUARANTINE).map(|left| left.as_secs())
    }

    #[test]
    fn a_young_server_without_a_file_does_not_vote_yet() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(5), Some(&life(1, 20, false)));
        assert_eq!((barred(&standing, 5), barred(&standing, 44), barred(&standing, 45)), (Some(40), Some(1), None));
        // a second connection to the same run changes nothing
        standing.on_connected(at(30), Some(&life(1, 45, false)));
        assert_eq!(barred(&standing, 45), None);
    }

    #[test]
    fn an_old_server_and_one_with_a_file_vote_at_once() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(1), Some(&life(1, 3600, false)));
        assert_eq!(barred(&standing, 1), None);
        standing.on_connected(at(2), Some(&life(2, 0, true)));
        assert_eq!(barred(&standing, 2), None);
        let mut unknown = Eligibility::new(0.01);
        unknown.on_connected(at(1), None);
        assert_eq!(barred(&unknown, 1), None);
    }

    #[test]
    fn another_run_counts_from_when_it_is_noticed() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(1), Some(&life(1, 3600, false)));
        standing.on_connected(at(100), Some(&life(2, 3000, false)));
        assert_eq!((barred(&standing, 100), barred(&standing, 160)), (Some(60), None));
        assert_eq!(standing.ineligible_for(at(100), Duration::ZERO), None, "switched off");
    }
}
