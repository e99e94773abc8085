//! The table at the end: what was checked, what was found, and whether that is right.

use crate::screen::{Colour, Screen, number, span};
use crate::tally::{Findings, Spans, Tally};
use crate::worker::TTL;

/// How much longer than the ttl a hand-over after a kill or a stop may take on a machine that is busy.
const PATIENCE_US: u64 = 3_000_000;

struct Row {
    title: &'static str,
    text: String,
    /// Whether it is as it should be; `None` for a mere figure.
    right: Option<bool>,
}

fn row(title: &'static str, text: String, right: impl Into<Option<bool>>) -> Row {
    Row { title, text, right: right.into() }
}

/// Shows the table. `counter` is what the file says. Returns whether everything was right.
pub(crate) fn show(screen: &mut Screen, tally: &Tally, counter: u64, complete: bool) -> bool {
    let found = tally.findings();
    let rows = rows(tally, &found, counter, complete);
    let width = rows.iter().map(|row| row.title.len()).max().unwrap_or(0);
    screen.line("");
    for row in &rows {
        let mark = match row.right {
            None => String::new(),
            Some(true) => screen.paint(Colour::Green, "ok"),
            Some(false) => screen.paint(Colour::Red, "WRONG"),
        };
        screen.line(format!("  {:width$}   {:<54} {mark}", row.title, row.text).trim_end());
    }
    for failure in &tally.failures {
        screen.line(format!("  {} {failure}", screen.paint(Colour::Red, "failed:")));
    }
    screen.line("");
    let wrong = rows.iter().filter(|row| row.right == Some(false)).count() + tally.failures.len();
    if wrong == 0 {
        screen.line(format!("  {}", screen.paint(Colour::Green, "Every check passed.")));
    } else {
        screen.line(format!("  {}", screen.paint(Colour::Red, format!("{wrong} of the checks failed."))));
    }
    wrong == 0
}

fn rows(tally: &Tally, found: &Findings, counter: u64, complete: bool) -> Vec<Row> {
    let all_refused = tally.late_written == 0 && tally.late_refused == tally.stops;
    let slow = TTL.as_micros() as u64 + PATIENCE_US;
    let in_time = |spans: &Spans| spans.percentile_us(1.0) <= slow;
    let mut rows = vec![
        row(
            "increments",
            format!("{} made, {} in the file", number(tally.increments), number(counter)),
            counter == tally.increments && (counter > 0 || !complete),
        ),
        row(
            "two holders at once",
            format!("{} of {} holds", number(found.overlaps as u64), number(found.holds as u64)),
            found.overlaps == 0,
        ),
        row(
            "fencing tokens",
            match found.out_of_order {
                0 => "each higher than the one before".to_owned(),
                wrong => format!("{} not higher than the one before", number(wrong as u64)),
            },
            found.out_of_order == 0,
        ),
        row("is_held() after waking", format!("false {} of {} times", tally.stops - tally.woke_held, tally.stops), {
            tally.woke_held == 0
        }),
        row(
            "writes after waking",
            format!("{} of {} refused by the file: a higher token was seen", tally.late_refused, tally.stops),
            all_refused || !complete,
        ),
        row("leases lost", format!("{} with {} stopped workers", tally.lost, tally.stops), None),
    ];
    if tally.refused > 0 {
        // held at the check, and paused between the check and the write: only the token can catch that
        rows.push(row("other writes refused", format!("{} that were late by themselves", tally.refused), None));
    }
    rows.push(row("hand-over after release", times(&found.after_release), None));
    rows.push(row(
        "hand-over after kill -9",
        format!("{}   (ttl {TTL:?})", times(&found.after_kill)),
        in_time(&found.after_kill) && (tally.kills > 0 || !complete),
    ));
    rows.push(row(
        "hand-over after a stop",
        format!("{}   (ttl {TTL:?})", times(&found.after_stop)),
        in_time(&found.after_stop) && (tally.stops > 0 || !complete),
    ));
    rows
}

fn times(spans: &Spans) -> String {
    match spans.count() {
        0 => "none".to_owned(),
        1..=20 => format!("{} times, at most {}", spans.count(), span(spans.percentile_us(1.0))),
        _ => {
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| span(spans.percentile_us(share)));
            format!("p50 {p50}   p99 {p99}   max {max}")
        }
    }
}
