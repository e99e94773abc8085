//! A cluster with elections, stopped leaders and late answers, and a client that keeps one session alive there. What the client
//! believes must end before the session does; each planted bug must be caught.

use super::*;

/// The length of the session, in milliseconds.
const LENGTH: u64 = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A keepalive is believed without another answer.
    NoRead,
    /// The two answers may be of different terms.
    TermsIgnored,
    /// It counts from the answer, not from the request.
    FromTheReply,
    /// A reply that says that the session is over is believed to be one that it lives.
    ZeroBelieved,
    /// The read is sent together with the keepalive.
    ReadTooEarly,
    /// A session that is shorter than it has to be is believed.
    ShorterBelieved,
    /// A former leader is believed that there is no such session.
    ZeroOfAnyTerm,
}

/// A small generator of one's own: the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// Whoever leads, or believes so.
#[derive(Clone, Debug)]
struct Leader {
    term: u64,
    /// It does nothing until then.
    stopped_until: u64,
    /// Then it learns of its successor, if it has one, and passes on what it gets.
    learns_at: u64,
    /// When the session is over as far as it knows.
    ends_at: u64,
}

/// What a request is for, on its way to a leader.
#[derive(Clone, Copy, Debug)]
struct Travelling {
    sent_at: u64,
    arrives_at: u64,
    to: usize,
}

struct SimulatedCluster {
    leaders: Vec<Leader>,
    over_at: Option<u64>,
    length: u64,
}

impl SimulatedCluster {
    fn step(&mut self, now: u64, random: &mut Random) {
        let last = self.leaders.len() - 1;
        if random.one_in(1500) {
            self.leaders[last].stopped_until = now + random.below(3000);
        }
        // an election: the successor gives every session its full length
        let is_silent = self.leaders[last].stopped_until > now + 500;
        if (is_silent && random.one_in(300)) || random.one_in(8000) {
            let former = &mut self.leaders[last];
            former.learns_at = former.stopped_until.max(now) + random.below(400);
            let term = former.term + 1;
            self.leaders.push(Leader { term, stopped_until: 0, learns_at: u64::MAX, ends_at: now + self.length });
        }
        // only a leader that a majority follows can end it
        let leader = &self.leaders[self.leaders.len() - 1];
        if self.over_at.is_none() && leader.stopped_until <= now && leader.ends_at <= now {
            self.over_at = Some(now);
        }
    }

    /// The answer to a keepalive, once there is one.
    fn keep_alive(&mut self, now: u64, asked: Travelling, lags: bool) -> Option<KeptAlive> {
        let last = self.leaders.len() - 1;
        let (over, length) = (self.over_at.is_some(), self.length);
        let leader = &mut self.leaders[asked.to];
        if now < asked.arrives_at || now < leader.stopped_until {
            return None;
        }
        // the term is read before it is passed on
        let term = leader.term;
        let length_ms = if asked.to == last || now >= leader.learns_at {
            if over {
                0
            } else {
                self.leaders[last].ends_at = now + length;
                length
            }
        } else if lags {
            // it has not carried out yet what its successor has
            0
        } else {
            leader.ends_at = now + length;
            length
        };
        Some(KeptAlive { sent_at: Time::from_nanos(asked.sent_at * 1_000_000), term, length_ms })
    }

    /// The term of the answer to a read that a majority stands behind.
    fn read(&self, now: u64, asked: Travelling) -> Option<u64> {
        let leader = self.leaders.last()?;
        (now >= asked.arrives_at && now >= leader.stopped_until).then_some(leader.term)
    }
}

/// What the client believes of the session.
enum Belief {
    /// It lives until then, in milliseconds.
    Until(u64),
    Over,
    Nothing,
}

fn believed(bug: Bug, kept: KeptAlive, term: u64, now: u64, needed_ms: u64) -> Belief {
    let (mut kept, mut term, mut needed) = (kept, term, needed_ms);
    match bug {
        Bug::TermsIgnored | Bug::NoRead => term = kept.term,
        Bug::FromTheReply => kept.sent_at = Time::from_nanos(now * 1_000_000),
        Bug::ZeroBelieved => kept.length_ms = kept.length_ms.max(needed),
        Bug::ShorterBelieved => needed = 0,
        Bug::ZeroOfAnyTerm if kept.length_ms == 0 => term = kept.term,
        Bug::None | Bug::ReadTooEarly | Bug::ZeroOfAnyTerm => {}
    }
    match kept.confirmed_in(term, needed) {
        SessionState::AliveSince(since) => Belief::Until(since.as_nanos() / 1_000_000 + needed_ms),
        SessionState::Over => Belief::Over,
        SessionState::Unproven | SessionState::TooShort => Belief::Nothing,
    }
}

/// One life of a session. Whether the client ever believed in it for longer than it lasted, or gave it up while it lived.
fn breaks(bug: Bug, seed: u64) -> bool {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // sometimes the server grants less than is needed
    let length = if random.one_in(8) { LENGTH / 2 } else { LENGTH };
    let first = Leader { term: 1, stopped_until: 0, learns_at: u64::MAX, ends_at: length };
    let mut cluster = SimulatedCluster { leaders: vec![first], over_at: None, length };
    let mut believed_until = 0;
    let (mut asks_at, mut keeping, mut reading): (u64, Option<Travelling>, Option<Travelling>) = (0, None, None);
    let mut answering: Option<(KeptAlive, u64)> = None;
    let mut kept: Option<(KeptAlive, u64)> = None;
    let mut read_term: Option<u64> = None;
    for now in 0..20_000 {
        cluster.step(now, &mut random);
        if keeping.is_none() && answering.is_none() && kept.is_none() && now >= asks_at {
            // to the present leader, or to one that was
            let to = cluster.leaders.len() - 1 - usize::from(cluster.leaders.len() > 1 && random.one_in(2));
            keeping = Some(Travelling { sent_at: now, arrives_at: now + random.below(300), to });
            if bug == Bug::ReadTooEarly {
                reading = Some(Travelling { sent_at: now, arrives_at: now + random.below(50), to });
            }
        }
        if let Some(asked) = keeping
            && let Some(answer) = cluster.keep_alive(now, asked, random.one_in(8))
        {
            keeping = None;
            answering = Some((answer, now + random.below(300)));
        }
        if let Some((answer, _)) = answering.filter(|(_, at)| now >= *at) {
            answering = None;
            kept = Some((answer, now));
            if bug != Bug::ReadTooEarly {
                reading = Some(Travelling { sent_at: now, arrives_at: now + random.below(300), to: 0 });
            }
        }
        if let Some(asked) = reading
            && let Some(term) = cluster.read(now, asked)
        {
            reading = None;
            read_term = Some(term);
        }
        if bug == Bug::NoRead && kept.is_some() {
            read_term = Some(0);
        }
        if let (Some((answer, answered_at)), Some(term)) = (kept, read_term) {
            (kept, read_term, reading) = (None, None, None);
            match believed(bug, answer, term, answered_at, LENGTH) {
                Belief::Until(until) => believed_until = believed_until.max(until),
                Belief::Over if cluster.over_at.is_none() => return true,
                Belief::Over | Belief::Nothing => {}
            }
            asks_at = now + random.below(2 * LENGTH);
        }
        if let Some(over_at) = cluster.over_at {
            if over_at < believed_until {
                return true;
            }
            // what is still under way is waited for
            if now > over_at + 4 * LENGTH {
                return false;
            }
        }
    }
    false
}

#[test]
fn what_a_client_believes_ends_before_the_session_does() {
    for seed in 1..=3000 {
        assert!(!breaks(Bug::None, seed), "seed {seed}");
    }
}

#[test]
fn each_planted_bug_is_caught() {
    for bug in [
        Bug::NoRead,
        Bug::TermsIgnored,
        Bug::FromTheReply,
        Bug::ZeroBelieved,
        Bug::ReadTooEarly,
        Bug::ShorterBelieved,
        Bug::ZeroOfAnyTerm,
    ] {
        assert!((1..=3000).any(|seed| breaks(bug, seed)), "{bug:?} was not caught");
    }
}

#[test]
fn a_session_is_asked_for_in_whole_seconds_and_never_shorter() {
    assert_eq!([1, 1999, 2000, 2001, 30_000].map(|ms| whole_seconds(ms, 2)), [2, 2, 2, 3, 30]);
}

#[test]
fn what_hangs_on_a_session_is_looked_for_until_its_whole_last_second_is_over() {
    let of = |ms: u64| session_length(Duration::from_millis(ms), Duration::from_secs(2)).as_millis();
    assert_eq!([10, 2000, 2001, 30_000].map(of), [3000, 3000, 4000, 31_000]);
}
