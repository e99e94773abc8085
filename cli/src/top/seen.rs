//! What was seen of each lock since this began.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use onelock::LockEntry;

use crate::show;

/// Of so many locks it is remembered what was seen.
const SEEN_MAX: usize = 100_000;

/// What was seen of all locks.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<Vec<u8>, Seen>);

/// What was seen of a lock over time.
#[derive(Debug, Default)]
struct Seen {
    token: Option<u64>,
    /// How many holders came after the first one that was seen. Those between two looks count as one.
    grants: u64,
    /// Since when somebody waited at every look.
    waited_since: Option<Instant>,
}

impl History {
    /// What is there now, in the order of names.
    pub(super) fn look(&mut self, entries: &[LockEntry]) {
        let now = Instant::now();
        if self.0.len() > SEEN_MAX {
            self.0.clear();
        }
        for (name, seen) in &mut self.0 {
            // nobody waits for a lock that nobody holds
            if entries.binary_search_by(|entry| entry.name.cmp(name)).is_err() {
                seen.waited_since = None;
            }
        }
        for entry in entries {
            self.0.entry(entry.name.clone()).or_default().look(entry, now);
        }
    }

    /// How many holders followed each other.
    pub(super) fn grants(&self, entry: &LockEntry) -> u64 {
        self.0.get(&entry.name).map_or(0, |seen| seen.grants)
    }

    /// For how long somebody has waited: since the first one asked who waits now, where the server tells, and otherwise since it
    /// was first seen that somebody waits, if that is longer.
    pub(super) fn waited(&self, entry: &LockEntry) -> Option<Duration> {
        let seen = self.0.get(&entry.name)?.waited_since?.elapsed();
        let told = entry.inspection.waiters.iter().filter_map(|waiter| show::since(waiter.since_ms)).max();
        Some(told.unwrap_or_default().max(seen))
    }
}

impl Seen {
    fn look(&mut self, entry: &LockEntry, now: Instant) {
        let token = entry.inspection.fencing_token;
        if token.is_some() && self.token.is_some() && token != self.token {
            self.grants += 1;
        }
        self.token = token.or(self.token);
        let waited_for = entry.waiting.is_some_and(|number| number > 0);
        self.waited_since = waited_for.then(|| self.waited_since.unwrap_or(now));
    }
}
