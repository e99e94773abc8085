//! Does the server's clock agree with ours? Keys expire by the server's wall clock, leases by our monotonic one.
//!
//! Two replies bound how much time can have passed here; the server's two readings say how much passed there. Only a
//! disagreement that no slow reply can explain counts.

use std::time::Duration;

use crate::machine::{Answer, Time};

/// What two replies say about the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// It ran ahead by at least this much: keys may expire before the holder's deadline.
    Forward(Duration),
    /// It ran behind by at least this much: keys live longer than meant.
    Backward(Duration),
}

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    server_us: u64,
    sent_at: Time,
    received_at: Time,
    connection: u64,
}

/// Remembers one reading per connection and compares the next with it.
#[derive(Clone, Debug)]
pub struct ClockWatch {
    /// One for each connection that spoke lately: in a cluster there is one to each node. The latest stands last.
    last: Vec<ClockReading>,
    drift_factor: f64,
}

/// Connections beyond this many are forgotten, those first that have been silent for longest.
const CONNECTIONS: usize = 32;

/// Readings closer together than this say too little; the reference stays.
const SPACING: Duration = Duration::from_millis(100);

impl ClockWatch {
    /// A watch with the client's drift allowance.
    pub fn new(drift_factor: f64) -> ClockWatch {
        ClockWatch { last: Vec::new(), drift_factor }
    }

    /// Takes a reply's reading into account. Only replies of ordered connections count; a new connection may mean
    /// another server and starts afresh.
    pub fn observe(&mut self, answer: &Answer) -> Option<Anomaly> {
        if answer.connection == 0 {
            return None;
        }
        self.compare(answer, answer.connection)
    }

    /// The same where it is certain that the server is the one that spoke before, on whatever connection: those of a
    /// thread have no number.
    pub fn observe_same(&mut self, answer: &Answer) -> Option<Anomaly> {
        self.compare(answer, 0)
    }

    /// From now on it may be another server.
    pub fn forget(&mut self) {
        self.last.clear();
    }

    fn compare(&mut self, answer: &Answer, connection: u64) -> Option<Anomaly> {
        let server_us = answer.server_time_us?;
        let next = ClockReading { server_us, sent_at: answer.sent_at, received_at: answer.received_at, connection };
        let known = self.last.iter().rposition(|last| last.connection == next.connection);
        let Some((at, last)) = known.and_then(|at| Some((at, *self.last.get(at)?))) else {
            if self.last.len() >= CONNECTIONS {
                self.last.remove(0);
            }
            self.last.push(next);
            return None;
        };
        if next.sent_at < last.sent_at {
            // its answer was only looked at later: it says nothing about what came after it
            return None;
        }
        let at_least = next.sent_at.since(last.received_at);
        let at_most = next.received_at.since(last.sent_at);
        let allowance = at_most.mul_f64(self.drift_factor) + crate::machine::terms::DRIFT_FLOOR;
        let there = Duration::from_micros(next.server_us.saturating_sub(last.server_us));
        let back = Duration::from_micros(last.server_us.saturating_sub(next.server_us));
        let anomaly = if there > at_most + allowance {
            Some(Anomaly::Forward(there.saturating_sub(at_most)))
        } else if there + allowance < at_least || back > allowance {
            Some(Anomaly::Backward(at_least.saturating_sub(there) + back))
        } else {
            None
        };
        if anomaly.is_some() || next.sent_at.since(last.sent_at) >= SPACING {
            self.last.remove(at);
            self.last.push(next);
        }
        anomaly
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Outcome, Reply};

    #[test]
    fn the_clocks_of_several_servers_are_not_compared_with_each_other() {
        let mut watch = ClockWatch::new(0.01);
        for round in 0..10 {
            let at = round * 1000;
            assert_eq!(watch.observe(&reply(at, at + 1, 50_000 + at, 1)), None);
            assert_eq!(watch.observe(&reply(at, at + 1, 900_000 + at, 2)), None);
        }
        assert!(matches!(watch.observe(&reply(10_000, 10_001, 99_000, 1)), Some(Anomaly::Forward(_))));
        assert_eq!(watch.observe(&reply(10_000, 10_001, 910_000, 2)), None);
        for connection in 3..100 {
            assert_eq!(watch.observe(&reply(10_000, 10_001, connection, connection)), None);
        }
        assert_eq!(watch.last.len(), CONNECTIONS);
    }

    fn reply(sent: u64, received: u64, server_ms: u64, connection: u64) -> Answer {
        Answer {
            sent_at: Time::from_millis(sent),
            received_at: Time::from_millis(received),
            connection,
            server_time_us: Some(server_ms * 1000),
            outcome: Outcome::Applied(Reply::Released(true)),
        }
    }

    #[test]
    fn a_slow_reply_is_no_anomaly() {
        let mut watch = ClockWatch::new(0.01);
        assert_eq!(watch.observe(&reply(0, 900, 50_000, 1)), None);
        assert_eq!(watch.observe(&reply(1000, 3000, 52_500, 1)), None);
    }

    #[test]
    fn replies_that_are_looked_at_out_of_turn_are_no_anomaly() {
        let mut watch = ClockWatch::new(0.01);
        assert_eq!(watch.observe(&reply(500, 501, 50_500, 1)), None);
        assert_eq!(watch.observe(&reply(400, 401, 50_400, 1)), None);
        assert_eq!(watch.observe(&reply(900, 901, 50_900, 1)), None);
    }

    #[test]
    fn a_server_that_is_known_is_compared_over_all_connections_until_it_may_be_another() {
        let mut watch = ClockWatch::new(0.01);
        assert_eq!(watch.observe_same(&reply(0, 1, 50_000, 0)), None);
        assert!(matches!(watch.observe_same(&reply(1000, 1001, 71_000, 7)), Some(Anomaly::Forward(_))));
        assert!(matches!(watch.observe_same(&reply(2000, 2001, 92_000, 0)), Some(Anomaly::Forward(_))));
        watch.forget();
        assert_eq!(watch.observe_same(&reply(3000, 3001, 200_000, 0)), None);
        assert_eq!(watch.observe(&reply(3000, 3001, 999_000, 0)), None, "no number, no comparison");
    }

    #[test]
    fn jumps_are_seen_and_a_new_connection_starts_afresh() {
        let mut watch = ClockWatch::new(0.01);
        assert_eq!(watch.observe(&reply(0, 1, 50_000, 1)), None);
        assert_eq!(watch.observe(&reply(1000, 1001, 71_000, 1)), Some(Anomaly::Forward(Duration::from_millis(19_999))));
        assert_eq!(watch.observe(&reply(2000, 2001, 72_000, 1)), None, "told once");
        assert!(matches!(watch.observe(&reply(3000, 3001, 10_000, 1)), Some(Anomaly::Backward(_))));
        assert_eq!(watch.observe(&reply(4000, 4001, 99_000, 2)), None);
    }
}
