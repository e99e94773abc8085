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
    /// Whether it keeps its data over a restart.
    pub keeps_data: bool,
    /// The data that it keeps, where it can tell one from another.
    pub data: Option<ServerData>,
}

/// The data of a server, as told from other data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerData {
    /// Names it: a server at the same address with another number does not know what this one knew.
    pub id: u64,
    /// How long ago it was begun, empty. Zero if that is not known to be longer.
    pub age: Duration,
}

/// What is known of one node.
#[derive(Clone, Debug)]
pub(crate) struct Eligibility {
    run_id: Option<[u8; 40]>,
    data_id: Option<u64>,
    /// Whether the known run keeps its data, as far as it last told: if not, the next run has lost it.
    keeps_data: bool,
    /// When it was found to be without its data, and for how long it had been so then.
    restarted: Option<(Time, Duration)>,
    /// When its clock was seen to have jumped, and how far.
    jumped: Option<(Time, Duration)>,
    clock: ClockWatch,
}

impl Eligibility {
    pub(crate) fn new(drift_factor: f64) -> Eligibility {
        let clock = ClockWatch::new(drift_factor);
        Eligibility { run_id: None, data_id: None, keeps_data: true, restarted: None, jumped: None, clock }
    }

    /// A connection was made. A node that does not report its run stays eligible.
    pub(crate) fn on_connected(&mut self, now: Time, life: Option<&ServerRun>) {
        let Some(life) = life else { return self.clock.forget() };
        let replaced = matches!((self.data_id, life.data), (Some(known), Some(data)) if known != data.id);
        let kept_data = std::mem::replace(&mut self.keeps_data, life.keeps_data);
        if self.run_id == Some(life.run_id) && !replaced {
            return;
        }
        // its clock may be that of another machine
        self.clock.forget();
        let first = self.run_id.is_none();
        self.run_id = Some(life.run_id);
        self.data_id = life.data.map(|data| data.id).or(self.data_id);
        let lost_for = match life.data {
            _ if replaced => Some(Duration::ZERO),
            // another server may have this address now: its uptime tells nothing then
            _ if !life.keeps_data || !kept_data => Some(if first { life.uptime } else { Duration::ZERO }),
            // whoever meets it for the first time cannot know whether other data stood there before
            Some(data) if first => Some(data.age),
            _ => None,
        };
        // a restart with what is left of its data ends no quarantine
        if let Some(lost_for) = lost_for {
            self.restarted = Some((now, lost_for));
        }
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
        ServerRun { run_id: [run; 40], uptime: Duration::from_secs(uptime_s), keeps_data, data: None }
    }

    fn with_data(run: u8, id: u64, age_s: u64) -> ServerRun {
        let data = Some(ServerData { id, age: Duration::from_secs(age_s) });
        ServerRun { data, ..life(run, 3600, true) }
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
        let mut kept = Eligibility::new(0.01);
        kept.on_connected(at(1), Some(&life(1, 0, true)));
        kept.on_connected(at(2), Some(&life(2, 0, true)));
        assert_eq!(barred(&kept, 2), None);
        let mut unknown = Eligibility::new(0.01);
        unknown.on_connected(at(1), None);
        assert_eq!(barred(&unknown, 1), None);
    }

    #[test]
    fn who_did_not_keep_its_data_has_lost_it_though_it_keeps_it_from_now_on() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(1), Some(&life(1, 3600, false)));
        standing.on_connected(at(100), Some(&life(2, 0, true)));
        assert_eq!((barred(&standing, 100), barred(&standing, 160)), (Some(60), None));
        // the run that follows has what that one kept
        standing.on_connected(at(200), Some(&life(3, 0, true)));
        assert_eq!(barred(&standing, 200), None);
        // what it last told counts
        standing.on_connected(at(210), Some(&life(3, 10, false)));
        standing.on_connected(at(300), Some(&life(4, 0, true)));
        assert_eq!(barred(&standing, 300), Some(60));
    }

    #[test]
    fn another_run_counts_from_when_it_is_noticed() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(1), Some(&life(1, 3600, false)));
        standing.on_connected(at(100), Some(&life(2, 3000, false)));
        assert_eq!((barred(&standing, 100), barred(&standing, 160)), (Some(60), None));
        assert_eq!(standing.ineligible_for(at(100), Duration::ZERO), None, "switched off");
    }

    #[test]
    fn a_server_with_other_data_has_lost_what_it_had_whatever_it_keeps() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(1), Some(&with_data(1, 7, 9000)));
        assert_eq!(barred(&standing, 1), None);
        standing.on_connected(at(2), Some(&with_data(2, 7, 9001)));
        assert_eq!(barred(&standing, 2), None, "started anew with its data");
        standing.on_connected(at(100), Some(&with_data(3, 8, 9000)));
        assert_eq!((barred(&standing, 100), barred(&standing, 160)), (Some(60), None));
        // in the same run, such as a table that was made anew
        standing.on_connected(at(200), Some(&with_data(3, 9, 9000)));
        assert_eq!((barred(&standing, 200), barred(&standing, 260)), (Some(60), None));
    }

    #[test]
    fn data_that_was_begun_a_moment_ago_may_stand_where_other_data_stood() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(5), Some(&with_data(1, 7, 20)));
        assert_eq!((barred(&standing, 5), barred(&standing, 45)), (Some(40), None));
    }

    #[test]
    fn a_restart_with_its_data_ends_no_quarantine() {
        let mut standing = Eligibility::new(0.01);
        standing.on_connected(at(1), Some(&with_data(1, 7, 9000)));
        standing.on_connected(at(100), Some(&with_data(2, 8, 9000)));
        standing.on_connected(at(110), Some(&with_data(3, 8, 9000)));
        assert_eq!((barred(&standing, 110), barred(&standing, 160)), (Some(50), None));
    }
}
