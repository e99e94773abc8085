//! From when a server certainly counts the time of a session that it ends by itself: a lease of etcd.
//!
//! A keepalive is answered by one server, which may have been replaced as the leader without knowing it yet: its word
//! alone proves nothing. It counts once another request, *sent after the keepalive was answered* and answered by a
//! majority, carries the same term. The leader that renewed the session was of that term or a later one, since a
//! keepalive's reply tells the term from before it was passed on; the second answer shows that no later leader was
//! elected before the keepalive was sent; and one that is elected afterwards gives every session its full length.
//!
//! A new session is made by a majority, so it counts from the moment when its request was sent.

use std::time::Duration;

use crate::machine::Time;

/// The answer to a keepalive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptAlive {
    /// Read just before the keepalive was sent.
    pub sent_at: Time,
    /// The term of the leader in its reply.
    pub term: u64,
    /// The length of the session in its reply; 0 when it has ended.
    pub length_ms: u64,
}

/// What is known of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The server counts its whole length from then on, or from a later moment.
    AliveSince(Time),
    /// It has ended: what hung on it goes.
    Over,
    /// There may be another leader: ask both again.
    Unproven,
    /// It is alive and shorter than it has to be.
    TooShort,
}

impl KeptAlive {
    /// What it proves, together with the term of an answer that a majority stands behind, to a request that was sent after
    /// this keepalive was answered.
    pub fn confirmed_in(&self, term: u64, needed_ms: u64) -> SessionState {
        // a former leader does not know of every session; no term is 0, which an answer without one reads as
        if self.term != term || term == 0 {
            return SessionState::Unproven;
        }
        if self.length_ms == 0 {
            return SessionState::Over;
        }
        if self.length_ms < needed_ms {
            return SessionState::TooShort;
        }
        SessionState::AliveSince(self.sent_at)
    }
}

/// How many whole seconds a session has to be asked for, so that the server counts at least so long.
pub fn whole_seconds(ms: u64, least: u64) -> u64 {
    ms.div_ceil(1000).max(least)
}

/// How long a session of at least `ttl` lasts, and what hangs on it is there: servers end it up to a second late.
pub fn session_length(ttl: Duration, least: Duration) -> Duration {
    let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    Duration::from_secs(whole_seconds(ms, least.as_secs()).saturating_add(1))
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
