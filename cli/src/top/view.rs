//! What is drawn: lines of a given width, as many as there are rows.

use std::cmp::Reverse;
use std::time::Duration;

use onelock::{Error, LockEntry};

use super::keys::Scroll;
use super::seen::History;
use crate::columns::{self, Column};
use crate::show;
use crate::span;
use crate::width::{fit, padded};

const BOLD: &str = "\x1b[1m";
const INVERSE: &str = "\x1b[7m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";
const TITLES: [&str; 7] = ["NAME", "HOLDER", "HELD", "TTL", "GRANTS", "WAITED", "WAITING"];
/// The columns of a fixed width, and the narrowest ones of name and holder.
const WIDTHS: [usize; 7] = [12, 8, 6, 6, 6, 6, 7];
/// What a narrow screen does not show, the first one first.
const OPTIONAL: [usize; 5] = [4, 3, 5, 2, 1];
/// Of so many locks on the screen, the first ones, it is told who waits.
const NAMED_MAX: usize = 5;
/// An answer that takes longer is told to be under way.
const LONG: Duration = Duration::from_secs(1);

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// What most wait for, then what is held for longest.
    Waiting,
    Held,
    Grants,
    Name,
}

pub(super) struct View {
    server: String,
    colours: bool,
    entries: Vec<LockEntry>,
    order: Order,
    /// How many locks are above the screen.
    above: usize,
    /// How many are on it.
    shown: usize,
    /// How many are above it when the last one is on it.
    above_max: usize,
    /// Whether the server has said anything yet.
    answered: bool,
    /// Why the last question had no answer.
    failure: Option<String>,
    round_trip: Option<Duration>,
    history: History,
}

impl View {
    pub(super) fn new(server: String, colours: bool) -> View {
        View {
            server,
            colours,
            entries: Vec::new(),
            order: Order::Waiting,
            above: 0,
            shown: 0,
            above_max: 0,
            answered: false,
            failure: None,
            round_trip: None,
            history: History::default(),
        }
    }

    /// What the server said. If it said nothing, what it said before stays there, and so does the reason.
    pub(super) fn asked(&mut self, found: Result<Vec<LockEntry>, Error>, round_trip: Option<Duration>) {
        self.answered = true;
        self.round_trip = round_trip;
        self.failure = None;
        match found {
            Err(error) => self.failure = Some(show::text(&error.to_string())),
            Ok(mut entries) => {
                entries.sort_by(|one, other| one.name.cmp(&other.name));
                entries.dedup_by(|one, other| one.name == other.name);
                self.history.look(&entries);
                self.entries = entries;
                self.sort();
            }
        }
    }

    /// Another order, from its first lock on.
    pub(super) fn reorder(&mut self) {
        self.order = match self.order {
            Order::Waiting => Order::Held,
            Order::Held => Order::Grants,
            Order::Grants => Order::Name,
            Order::Name => Order::Waiting,
        };
        self.above = 0;
        self.sort();
    }

    fn sort(&mut self) {
        let held = |entry: &LockEntry| show::held_for(entry.inspection.owner.as_ref()).unwrap_or_default();
        let waiting = |entry: &LockEntry| entry.waiting.unwrap_or_default();
        let history = &self.history;
        self.entries.sort_by(|one, other| one.name.cmp(&other.name));
        match self.order {
            Order::Name => {}
            Order::Waiting => self.entries.sort_by_cached_key(|entry| Reverse((waiting(entry), held(entry)))),
            Order::Held => self.entries.sort_by_cached_key(|entry| Reverse(held(entry))),
            Order::Grants => self.entries.sort_by_cached_key(|entry| Reverse((history.grants(entry), waiting(entry)))),
        }
    }

    /// Shows other locks of the list, as far as there are any on a screen as it was drawn last.
    pub(super) fn scroll(&mut self, scroll: Scroll) {
        let page = self.shown.max(1);
        let above = match scroll {
            Scroll::Up => self.above.saturating_sub(1),
            Scroll::Down => self.above + 1,
            Scroll::PageUp => self.above.saturating_sub(page),
            Scroll::PageDown => self.above + page,
            Scroll::First => 0,
            Scroll::Last => self.above_max,
        };
        self.above = above.min(self.above_max);
    }

    /// What is said about an answer that is under way, for so long and with so many locks: of the first one at once.
    pub(super) fn progress(&self, under_way: Option<(Duration, usize)>) -> Option<String> {
        let (time, found) = under_way.filter(|(time, _)| !self.answered || *time >= LONG)?;
        let time = if time >= LONG { format!(" for {}s", time.as_secs()) } else { String::new() };
        Some(if found == 0 { format!("asking{time} ...") } else { format!("asking{time}: {found} locks so far ...") })
    }

    /// What fills a screen of this many columns and rows.
    pub(super) fn lines(&mut self, (columns, rows): (usize, usize), progress: Option<&str>) -> Vec<String> {
        let mut lines = vec![self.painted(BOLD, &fit(&self.title(), columns))];
        lines.push(match (&self.failure, progress) {
            (Some(why), _) => self.painted(RED, &fit(why, columns)),
            (None, progress) => fit(progress.unwrap_or_default(), columns),
        });
        let widths = widths(columns);
        lines.push(self.painted(INVERSE, &padded(&row(TITLES, &widths, columns), columns)));
        let room = rows.saturating_sub(lines.len() + 1);
        let all = self.fitting(0, room) == self.entries.len();
        // one line tells that there are more
        let room = if all { room } else { room.saturating_sub(1) };
        self.above_max = self.last_start(room);
        self.above = self.above.min(self.above_max);
        self.shown = self.fitting(self.above, room);
        let mut named = 0;
        for entry in self.entries.iter().skip(self.above).take(self.shown) {
            let line = row(self.cells(entry).each_ref().map(String::as_str), &widths, columns);
            lines.push(if entry.waiting.unwrap_or_default() > 0 { self.painted(YELLOW, &line) } else { line });
            if named < NAMED_MAX && has_named_waiters(entry) {
                named += 1;
                let who: Vec<String> = entry.inspection.waiters.iter().map(show::waiter).collect();
                lines.push(fit(&format!("  waiting: {}", who.join(", ")), columns));
            }
        }
        let last = rows.saturating_sub(1);
        if !all {
            lines.resize(last.saturating_sub(1), String::new());
            lines.push(fit(&self.more(), columns));
        }
        lines.truncate(last);
        lines.resize(last, String::new());
        lines.push(fit(&self.keys(), columns));
        lines
    }

    fn title(&self) -> String {
        if !self.answered {
            return format!("onelock top  {}", self.server);
        }
        let waiting: u64 = self.entries.iter().filter_map(|entry| entry.waiting).sum();
        let round_trip = self
            .round_trip
            .map_or_else(|| "no answer".to_owned(), |took| format!("round trip {:.1} ms", took.as_secs_f64() * 1e3));
        let number = self.entries.len();
        format!("onelock top  {}  {number} locks  {waiting} waiting  {round_trip}", self.server)
    }

    /// How many locks from this one on fit into so many lines.
    fn fitting(&self, from: usize, room: usize) -> usize {
        let (mut named, mut left, mut count) = (0, room, 0);
        for entry in &self.entries[from..] {
            let tells = named < NAMED_MAX && has_named_waiters(entry);
            named += usize::from(tells);
            match left.checked_sub(1 + usize::from(tells)) {
                Some(rest) => left = rest,
                // who waits is cut off where not even one lock has room with it
                None if count == 0 && left > 0 => return 1,
                None => return count,
            }
            count += 1;
        }
        count
    }

    /// The first lock from which on all the others fit: nothing is gained by going on.
    fn last_start(&self, room: usize) -> usize {
        let number = self.entries.len();
        let enough = number.saturating_sub(room);
        (enough..number).find(|from| self.fitting(*from, room) == number - from).unwrap_or(number.saturating_sub(1))
    }

    fn more(&self) -> String {
        let below = self.entries.len() - self.above - self.shown;
        match (self.above, below) {
            (0, below) => format!("... and {below} more"),
            (above, 0) => format!("... {above} above"),
            (above, below) => format!("... and {below} more, {above} above"),
        }
    }

    fn keys(&self) -> String {
        let order = match self.order {
            Order::Waiting => "waiting",
            Order::Held => "held",
            Order::Grants => "grants",
            Order::Name => "name",
        };
        format!("q ends, space asks at once, o changes the order (now {order}), arrows scroll")
    }

    fn cells(&self, entry: &LockEntry) -> [String; 7] {
        let seen = &entry.inspection;
        [
            show::name(&entry.name),
            show::holder(seen),
            show::optional(show::held_for(seen.owner.as_ref())),
            show::optional(seen.ttl_left),
            seen.fencing_token.map_or_else(|| "-".to_owned(), |_| self.history.grants(entry).to_string()),
            self.history.waited(entry).map_or_else(|| "-".to_owned(), span::show),
            entry.waiting.map_or_else(|| "-".to_owned(), |number| number.to_string()),
        ]
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }
}

fn has_named_waiters(entry: &LockEntry) -> bool {
    entry.inspection.waiters.iter().any(|waiter| waiter.client.is_some())
}

/// How wide each column is on a screen of so many terminal columns: name and holder share what the others leave.
fn widths(line: usize) -> Vec<Option<usize>> {
    let mut widths = columns::share(&WIDTHS.map(|width| Column::new(width, width)), &OPTIONAL, line);
    let room = line.saturating_sub(columns::taken(&widths));
    let for_name = if let Some(holder) = &mut widths[1] {
        // as much as two fifths of what both have
        let more = ((room + WIDTHS[0] + WIDTHS[1]) * 2 / 5).saturating_sub(WIDTHS[1]).min(room);
        *holder += more;
        room - more
    } else {
        room
    };
    widths[0] = widths[0].map(|name| name + for_name);
    widths
}

/// A line of the table: what are numbers stands at the right.
fn row(cells: [&str; 7], widths: &[Option<usize>], line: usize) -> String {
    let [name, holder, numbers @ ..] = cells;
    let numbers: Vec<String> =
        numbers.iter().zip(&WIDTHS[2..]).map(|(cell, width)| format!("{cell:>width$}")).collect();
    fit(&columns::line([name, holder].into_iter().chain(numbers.iter().map(String::as_str)), widths), line)
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
            let lines = view.lines(size, None);
            assert_eq!(lines.len(), size.1, "{size:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= size.0), "{size:?} {lines:?}");
            assert!(lines.iter().all(|line| !line.contains('\x1b')), "{lines:?}");
        }
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        let line = |colours| View::new("valkey".to_owned(), colours).lines((80, 24), None).concat();
        assert!(line(true).contains(BOLD) && line(true).contains(INVERSE));
        assert!(!line(false).contains('\x1b'));
    }

    #[test]
    fn a_narrow_screen_shows_who_waits_rather_than_anything_else() {
        let titles = |columns| row(TITLES, &widths(columns), columns);
        assert_eq!(titles(80).split_whitespace().count(), 7);
        for columns in [25, 40, 60] {
            assert!(titles(columns).ends_with("WAITING"), "{:?}", titles(columns));
            assert_eq!(titles(columns).len(), columns, "the whole line is used");
        }
    }

    #[test]
    fn an_answer_that_takes_long_is_told() {
        let mut view = View::new("valkey".to_owned(), false);
        assert_eq!(view.progress(None), None);
        assert_eq!(view.progress(Some((Duration::ZERO, 0))).as_deref(), Some("asking ..."));
        view.asked(Ok(Vec::new()), None);
        assert_eq!(view.progress(Some((Duration::ZERO, 0))), None);
        let told = view.progress(Some((Duration::from_secs(3), 1200)));
        assert_eq!(told.as_deref(), Some("asking for 3s: 1200 locks so far ..."));
        assert!(view.lines((80, 24), told.as_deref())[1].starts_with("asking for 3s"));
    }
}
