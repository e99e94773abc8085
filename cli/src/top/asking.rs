//! Asking the server, in a thread of its own: the terminal is looked after meanwhile, however long an answer takes.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use onelock::blocking::Client;
use onelock::{Error, LockEntry, Origin};

use crate::arguments::Top;

/// What the server said.
pub(super) struct Answer {
    pub(super) entries: Result<Vec<LockEntry>, Error>,
    pub(super) round_trip: Option<Duration>,
}

/// A thread that asks when it is told to.
pub(super) struct Asking {
    ask: Sender<()>,
    answers: Receiver<Answer>,
    /// How many locks the answer under way has so far.
    found: Arc<AtomicUsize>,
    /// Since when it asks.
    begun: Option<Instant>,
    /// When to ask again.
    next: Instant,
    /// Not later than when the answer under way is there.
    at_once: bool,
    every: Duration,
}

impl Asking {
    pub(super) fn start(options: &Top, client: Client) -> std::io::Result<Asking> {
        let (ask, asked) = channel();
        let (told, answers) = channel();
        let found = Arc::new(AtomicUsize::new(0));
        let question =
            Question { client, pattern: options.pattern.clone(), others: options.others, found: found.clone() };
        std::thread::Builder::new().name("asking".to_owned()).spawn(move || {
            while asked.recv().is_ok() {
                if told.send(question.answer()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Asking { ask, answers, found, begun: None, next: Instant::now(), at_once: false, every: options.every })
    }

    /// Asks whether it is time or not, as soon as nothing is under way.
    pub(super) fn hurry(&mut self) {
        self.next = Instant::now();
        self.at_once = self.begun.is_some();
    }

    /// Asks if it is time, and says what the server has said since the last look.
    pub(super) fn look(&mut self) -> Option<Answer> {
        let now = Instant::now();
        let answer = self.answers.try_recv().ok();
        if answer.is_some()
            && let Some(begun) = self.begun.take()
        {
            // the server has others to serve for at least as long as this took
            let due = (begun + self.every).max(now + (now - begun));
            self.next = if std::mem::take(&mut self.at_once) { now } else { due };
        }
        if self.begun.is_none() && now >= self.next {
            self.found.store(0, Ordering::Relaxed);
            // there is nobody to tell that the thread has ended; what is shown stays there
            self.begun = self.ask.send(()).is_ok().then_some(now);
            self.next = now + self.every;
        }
        answer
    }

    /// For how long it has been asking, and how many locks the answer has so far.
    pub(super) fn under_way(&self) -> Option<(Duration, usize)> {
        Some((self.begun?.elapsed(), self.found.load(Ordering::Relaxed)))
    }

    /// How long until it is time to ask. While an answer is waited for there is no such time.
    pub(super) fn left(&self) -> Duration {
        if self.begun.is_some() { Duration::MAX } else { self.next.saturating_duration_since(Instant::now()) }
    }
}

struct Question {
    client: Client,
    pattern: OsString,
    others: bool,
    found: Arc<AtomicUsize>,
}

impl Question {
    fn answer(&self) -> Answer {
        let round_trip = self.round_trip();
        Answer { entries: self.entries(), round_trip }
    }

    fn entries(&self) -> Result<Vec<LockEntry>, Error> {
        let wanted = |entry: &LockEntry| self.others || entry.inspection.origin != Origin::Other;
        let listing = self.client.listing(self.pattern.as_encoded_bytes());
        let wanted = listing.filter(|entry| entry.as_ref().map_or(true, wanted));
        let counted = wanted.inspect(|_| {
            self.found.fetch_add(1, Ordering::Relaxed);
        });
        counted.collect()
    }

    /// How long a request takes: one that finds nothing, since no lock has this name.
    fn round_trip(&self) -> Option<Duration> {
        // a user may be limited to names that begin so
        let bytes = self.pattern.as_encoded_bytes();
        let plain: Vec<u8> = bytes.iter().take_while(|byte| !b"*?[\\".contains(byte)).copied().collect();
        let name = [plain.as_slice(), b"onelock-top"].concat();
        let begun = Instant::now();
        self.client.inspect(name).ok().map(|_| begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_while_an_answer_is_waited_for() {
        let (ask, asked) = channel();
        let (told, answers) = channel();
        let (found, every) = (Arc::default(), Duration::ZERO);
        let mut asking = Asking { ask, answers, found, begun: None, next: Instant::now(), at_once: false, every };
        for _ in 0..3 {
            assert!(asking.look().is_none());
            asking.hurry();
            assert!(asking.under_way().is_some());
            assert_eq!(asking.left(), Duration::MAX, "nobody looks at a clock meanwhile");
        }
        assert_eq!(asked.try_iter().count(), 1);
        // wanted at once, while the first answer was waited for
        assert!(told.send(Answer { entries: Ok(Vec::new()), round_trip: None }).is_ok());
        assert!(asking.look().is_some());
        assert_eq!(asked.try_iter().count(), 1);
        assert!(asking.under_way().is_some());
    }
}
