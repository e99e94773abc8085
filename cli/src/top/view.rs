//! What is drawn: lines of a given width, as many as there are rows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use onelock::{Error, LockEntry};

use crate::show;
use crate::width::{fit, padded};

const BOLD: &str = "\x1b[1m";
const INVERSE: &str = "\x1b[7m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";
/// The columns of fixed width: held, ttl, grants, waited, waiting, with two spaces before each.
const FIXED: usize = 5 * 2 + 4 * 6 + 7;
/// The narrowest columns of name and holder.
const NAME_MIN: usize = 12;
const HOLDER_MIN: usize = 8;
/// Of so many locks, the hottest, it is told who waits.
const NAMED_MAX: usize = 5;
/// Of so many locks it is remembered what was seen.
const SEEN_MAX: usize = 100_000;

pub(super) struct View {
    server: String,
    colours: bool,
    entries: Vec<LockEntry>,
    /// Why the last question had no answer.
    failure: Option<String>,
    round_trip: Option<Duration>,
    /// What was seen of each lock since this began.
    seen: HashMap<Vec<u8>, Seen>,
}

/// What was seen of a lock over time.
#[derive(Debug, Default)]
struct Seen {
    token: Option<u64>,
    /// How many holders came after the first one that was seen. Those between two looks count as one.
    grants: u64,
    /// Since when somebody waited at every look.
    waited_since: Option<Instant>,
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

impl View {
    pub(super) fn new(server: String, colours: bool) -> View {
        View { server, colours, entries: Vec::new(), failure: None, round_trip: None, seen: HashMap::new() }
    }

    /// What the server said. If it said nothing, what it said before stays there, and so does the reason.
    pub(super) fn asked(&mut self, found: Result<Vec<LockEntry>, Error>, round_trip: Option<Duration>) {
        self.round_trip = round_trip;
        self.failure = None;
        match found {
            Err(error) => self.failure = Some(show::text(&error.to_string())),
            Ok(mut entries) => {
                entries.sort_by(|one, other| one.name.cmp(&other.name));
                entries.dedup_by(|one, other| one.name == other.name);
                self.look(&entries);
                let held = |entry: &LockEntry| show::held_for(entry.inspection.owner.as_ref()).unwrap_or_default();
                entries.sort_by_key(|entry| std::cmp::Reverse((entry.waiting.unwrap_or_default(), held(entry))));
                self.entries = entries;
            }
        }
    }

    fn look(&mut self, entries: &[LockEntry]) {
        let now = Instant::now();
        if self.seen.len() > SEEN_MAX {
            self.seen.clear();
        }
        for (name, seen) in &mut self.seen {
            // nobody waits for a lock that nobody holds; `entries` are in the order of names
            if entries.binary_search_by(|entry| entry.name.cmp(name)).is_err() {
                seen.waited_since = None;
            }
        }
        for entry in entries {
            self.seen.entry(entry.name.clone()).or_default().look(entry, now);
        }
    }

    /// What fills a screen of this many columns and rows.
    pub(super) fn lines(&self, (columns, rows): (usize, usize)) -> Vec<String> {
        let waiting: u64 = self.entries.iter().filter_map(|entry| entry.waiting).sum();
        let round_trip = self
            .round_trip
            .map_or_else(|| "no answer".to_owned(), |took| format!("round trip {:.1} ms", took.as_secs_f64() * 1e3));
        let number = self.entries.len();
        let title = format!("onelock top  {}  {number} locks  {waiting} waiting  {round_trip}", self.server);
        let mut lines = vec![self.painted(BOLD, &fit(&title, columns))];
        match &self.failure {
            Some(why) => lines.push(self.painted(RED, &fit(why, columns))),
            None => lines.push(String::new()),
        }
        let room = columns.saturating_sub(FIXED + 2);
        let holder = (room * 2 / 5).max(HOLDER_MIN);
        let name = room.saturating_sub(holder).max(NAME_MIN);
        let row = |cells: [&str; 7]| {
            let [first, second, held, ttl, grants, waited, waiting] = cells;
            let (first, second) = (padded(first, name), padded(second, holder));
            fit(&format!("{first}  {second}  {held:>6}  {ttl:>6}  {grants:>6}  {waited:>6}  {waiting:>7}"), columns)
        };
        let titles = row(["NAME", "HOLDER", "HELD", "TTL", "GRANTS", "WAITED", "WAITING"]);
        lines.push(self.painted(INVERSE, &padded(&titles, columns)));
        let mut named = 0;
        for entry in self.entries.iter().take(rows.saturating_sub(lines.len() + 1)) {
            let seen = &entry.inspection;
            let waiting = entry.waiting.map_or_else(|| "-".to_owned(), |number| number.to_string());
            let past = self.seen.get(&entry.name);
            let grants = match seen.fencing_token {
                Some(_) => past.map_or(0, |past| past.grants).to_string(),
                None => "-".to_owned(),
            };
            let line = row([
                &show::name(&entry.name),
                &show::holder(seen),
                &show::optional(show::held_for(seen.owner.as_ref())),
                &show::optional(seen.ttl_left),
                &grants,
                &show::optional(past.and_then(|past| past.waited_since).map(|since| since.elapsed())),
                &waiting,
            ]);
            lines.push(if entry.waiting.unwrap_or_default() > 0 { self.painted(YELLOW, &line) } else { line });
            if named < NAMED_MAX && seen.waiters.iter().any(|waiter| waiter.client.is_some()) {
                named += 1;
                let who: Vec<String> = seen.waiters.iter().map(show::waiter).collect();
                lines.push(fit(&format!("  waiting: {}", who.join(", ")), columns));
            }
        }
        lines.truncate(rows.saturating_sub(1));
        lines.resize(rows.saturating_sub(1), String::new());
        lines.push(fit("q ends, space asks at once", columns));
        lines
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_the_screen_and_no_screen_has_too_many() {
        for size in [(80, 24), (200, 60), (40, 10), (20, 3), (5, 1), (1, 1)] {
            let mut view = View::new("valkey 9.1.0".to_owned(), false);
            let error = onelock::blocking::Client::new("nonsense").err();
            view.asked(Err(error.unwrap_or_else(|| unreachable!())), None);
            let lines = view.lines(size);
            assert_eq!(lines.len(), size.1, "{size:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= size.0), "{size:?} {lines:?}");
            assert!(lines.iter().all(|line| !line.contains('\x1b')), "{lines:?}");
        }
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        let line = |colours| View::new("valkey".to_owned(), colours).lines((80, 24)).concat();
        assert!(line(true).contains(BOLD) && line(true).contains(INVERSE));
        assert!(!line(false).contains('\x1b'));
    }
}
