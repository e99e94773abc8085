//! `onelock list`: the locks of a server.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::time::{SystemTime, UNIX_EPOCH};

use onelock::blocking::Client;
use onelock::{Error, LockEntry, Origin};
use serde_json::json;

use crate::arguments::List;
use crate::columns::{self, Column};
use crate::span::span;
use crate::status::{Failure, Status};
use crate::top::terminal_size;
use crate::width::{fit, width};
use crate::{print, say, server, show};

/// Moves to the upper left corner; clears from there on.
const HOME: &str = "\x1b[H";
const CLEAR: &str = "\x1b[J";
const CLEAR_LINE: &str = "\x1b[K";

/// How many locks are written at a time.
const PAGE: u32 = 100;

const TITLES: [&str; 8] = ["NAME", "KIND", "CLIENT", "HOLDER", "HELD", "TTL", "TOKEN", "WAITING"];
/// With less a name, a holder and who waits cannot be told from others.
const LEAST: [Option<usize>; 8] = [Some(20), None, None, Some(18), None, None, None, Some(16)];
/// What a terminal without room for all of them does not show, the first one first.
const OPTIONAL: [usize; 6] = [6, 2, 1, 4, 5, 3];

pub(crate) fn list(options: &List) -> Result<Status, Failure> {
    if options.watch.is_some() && options.pattern.to_str().is_some_and(is_a_time) {
        let time = options.pattern.to_string_lossy();
        return Err(Failure::usage(format!("`{time}` would be a pattern here; how often is written --watch={time}")));
    }
    let client = server::client(&options.server)?;
    let redraw = options.watch.is_some() && !options.json && std::io::stdout().is_terminal();
    let mut answered = false;
    if !redraw && server::is_a_majority(&options.server) {
        tell_absent(&client);
    }
    loop {
        if options.json {
            match told_as_json(options, &client)? {
                Ok(number) => {
                    if number == 0 && !answered {
                        tell_left_out(options, &client);
                    }
                    answered = true;
                }
                Err(error) if options.watch.is_some() && answered && error.is_retryable() => say(&error.to_string()),
                Err(error) => return Err(error.into()),
            }
            let Some(every) = options.watch else { return Ok(Status::Done) };
            std::thread::sleep(every);
            continue;
        }
        match entries(options, &client) {
            Ok(entries) => {
                let terminal = std::io::stdout().is_terminal().then(|| terminal_size(&std::io::stdout()).0);
                let shown = table(&entries, terminal);
                if redraw {
                    let clear = if answered { "" } else { CLEAR };
                    print(&format!("{HOME}{clear}{}{CLEAR}", screen(&shown, terminal_size(&std::io::stdout()))))?;
                } else if answered {
                    print(&format!("\n{shown}"))?;
                } else {
                    print(&shown)?;
                }
                if entries.is_empty() && !answered && !redraw {
                    tell_left_out(options, &client);
                }
                answered = true;
            }
            // a server that has answered once is waited for
            Err(error) if options.watch.is_some() && answered && error.is_retryable() => say(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
        let Some(every) = options.watch else { return Ok(Status::Done) };
        std::thread::sleep(every);
    }
}

/// Says which of several servers are away: a lock that too few of the others have is not in the list.
fn tell_absent(client: &Client) {
    let facts = client.check();
    for warning in facts.iter().flat_map(|facts| &facts.warnings).filter(|text| text.ends_with("(absent)")) {
        say(&format!("{warning}; locks that only some of the others have are left out"));
    }
}

/// As much of a table as a terminal of so many columns and rows shows without scrolling.
fn screen(table: &str, (columns, rows): (usize, usize)) -> String {
    let lines: Vec<&str> = table.lines().collect();
    // the cursor stands below the last line
    let room = rows.saturating_sub(1).max(1);
    let mut shown: Vec<String> = lines.iter().take(room).map(|line| fit(line, columns)).collect();
    if lines.len() > room {
        let more = lines.len() + 1 - room;
        shown[room - 1] = fit(&format!("... and {more} more"), columns);
    }
    let end = format!("{CLEAR_LINE}\n");
    shown.join(&end) + &end
}

/// Whether somebody meant how often by it, and not which names.
fn is_a_time(pattern: &str) -> bool {
    pattern.starts_with(|letter: char| letter.is_ascii_digit()) && span(pattern).is_ok()
}

/// All of them, each once, in the order of their names.
fn entries(options: &List, client: &Client) -> Result<Vec<LockEntry>, Error> {
    let listing = client.listing(options.pattern.as_encoded_bytes());
    let is_wanted = |entry: &LockEntry| is_wanted(options, entry);
    let mut entries = listing.filter(|entry| entry.as_ref().map_or(true, is_wanted)).collect::<Result<Vec<_>, _>>()?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries.dedup_by(|one, other| one.name == other.name);
    Ok(entries)
}

fn is_wanted(options: &List, entry: &LockEntry) -> bool {
    options.client.as_deref().is_none_or(|client| client == entry.inspection.origin.as_str())
}

/// One line for each, as soon as the server has told it, each once and in no order; with --watch a line that ends the round.
/// How many there were, unless the server did not tell.
fn told_as_json(options: &List, client: &Client) -> Result<Result<usize, Error>, Failure> {
    let (mut told, mut cursor) = (HashSet::new(), None);
    loop {
        let page = match client.list(options.pattern.as_encoded_bytes(), PAGE, cursor.as_deref()) {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let mut lines = String::new();
        for entry in page.entries.iter().filter(|entry| is_wanted(options, entry)) {
            if told.insert(entry.name.clone()) {
                lines += &show::json_line(&show::json(&entry.name, &entry.inspection));
            }
        }
        print(&lines)?;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if options.watch.is_some() {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        print(&show::json_line(&json!({"round_ended_ms": at, "locks": told.len()})))?;
    }
    Ok(Ok(told.len()))
}

/// Says that the one lock that was asked for stands there all the same, if it is one that no listing shows: a string without a
/// ttl, which may be anything. Nobody asks about it where the pattern may mean many.
fn tell_left_out(options: &List, client: &Client) {
    let name = options.pattern.as_encoded_bytes();
    if name.iter().any(|byte| b"*?[\\".contains(byte)) {
        return;
    }
    // whatever else stands there, or does not, was not asked for
    let Ok(Some(found)) = client.inspect(name) else { return };
    if found.origin == Origin::Other && found.ttl_left.is_none() {
        let name = show::name(name);
        say(&format!("{name}: a string without a ttl stands there, which is not listed; see `onelock inspect {name}`"));
    }
}

/// A table, as wide as its cells or as the terminal.
fn table(entries: &[LockEntry], terminal: Option<usize>) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(entries.iter().map(row));
    let columns: Vec<Column> = (0..TITLES.len())
        .map(|column| {
            let widest = rows.iter().map(|row| width(&row[column])).max().unwrap_or_default();
            Column::new(widest, LEAST[column].unwrap_or(widest))
        })
        .collect();
    let room = terminal.unwrap_or(usize::MAX);
    let widths = columns::share(&columns, &OPTIONAL, room);
    let line = |row: &[String; 8]| {
        let line = columns::line(row.iter().map(String::as_str), &widths);
        format!("{}\n", fit(line.trim_end(), room))
    };
    rows.iter().map(line).collect()
}

fn row(entry: &LockEntry) -> [String; 8] {
    let seen = &entry.inspection;
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    [
        show::name(&entry.name),
        seen.kind.as_str().to_owned(),
        seen.origin.as_str().to_owned(),
        show::holder(seen),
        show::optional(show::held_for(seen.owner.as_ref())),
        show::optional(seen.ttl_left),
        number(seen.fencing_token),
        show::waiting(seen),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_long_or_too_wide_for_the_terminal_is_cut() {
        let table = "NAME  TTL\na     1s\nb     2s\n";
        assert_eq!(screen(table, (80, 4)).replace(CLEAR_LINE, ""), table);
        assert_eq!(screen(table, (80, 3)).replace(CLEAR_LINE, ""), "NAME  TTL\n... and 2 more\n");
        assert_eq!(screen(table, (5, 4)).replace(CLEAR_LINE, ""), "NAME~\na   ~\nb   ~\n");
        assert_eq!(screen(table, (80, 0)).replace(CLEAR_LINE, ""), "... and 3 more\n");
    }
}
