//! `onelock top`: the locks of a server on the whole screen.
//!
//! | file | is |
//! |---|---|
//! | `screen` | the terminal: raw while this runs, and as it was afterwards, whatever ends it |
//! | `view` | what is drawn, as lines of a given width |

mod screen;
mod view;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onelock::blocking::Client;
use onelock::{LockEntry, Origin};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

pub(crate) use self::screen::terminal_size;
use self::screen::{Key, Screen};
use self::view::View;
use crate::arguments::Top;
use crate::server;
use crate::status::{Failure, Status};

/// How soon a new size, a signal and a key are noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn top(options: &Top) -> Result<Status, Failure> {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::usage("this needs a terminal; `onelock list --watch` writes anywhere"));
    }
    if std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
        return Err(Failure::usage(
            "this terminal shows lines only (TERM=dumb); `onelock list --watch` writes anywhere",
        ));
    }
    let mut ends = Vec::new();
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let seen = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, seen.clone())
            .map_err(|error| Failure::new(Status::Software, format!("signals: {error}")))?;
        ends.push((signal, seen));
    }
    let client = server::client(&options.server)?;
    // what makes the server unreachable at the start is told on a terminal that is as it was
    let about = client.check()?.server;
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut view = View::new(about, colours);
    let mut screen =
        Screen::open().map_err(|error| Failure::new(Status::Software, format!("the terminal: {error}")))?;
    let status = loop {
        if let Some(status) = refresh(options, &client, &mut view, &mut screen, &ends)? {
            break status;
        }
    };
    drop(screen);
    client.close();
    Ok(status)
}

/// Asks the server once, and shows that until it is time to ask again, or to end.
fn refresh(
    options: &Top,
    client: &Client,
    view: &mut View,
    screen: &mut Screen,
    ends: &[(i32, Arc<AtomicBool>)],
) -> Result<Option<Status>, Failure> {
    let cannot = |error: std::io::Error| Failure::new(Status::Software, format!("the terminal: {error}"));
    let asked_at = Instant::now();
    view.asked(entries(options, client), round_trip(client, &options.pattern));
    let mut drawn_for = None;
    loop {
        let size = screen.size();
        if drawn_for != Some(size) {
            screen.draw(&view.lines(size)).map_err(cannot)?;
            drawn_for = Some(size);
        }
        if let Some((signal, _)) = ends.iter().find(|(_, seen)| seen.load(Ordering::Relaxed)) {
            return Ok(Some(Status::Other(128 + *signal as u8)));
        }
        let left = options.every.saturating_sub(asked_at.elapsed());
        match screen.key(left.min(LOOK_EVERY)).map_err(cannot)? {
            Some(Key::End) => return Ok(Some(Status::Done)),
            Some(Key::Refresh) => return Ok(None),
            Some(Key::Stop) => {
                screen.stop().map_err(cannot)?;
                // what was shown is old, and gone
                return Ok(None);
            }
            Some(Key::Other) | None if left.is_zero() => return Ok(None),
            Some(Key::Other) | None => {}
        }
    }
}

fn entries(options: &Top, client: &Client) -> Result<Vec<LockEntry>, onelock::Error> {
    let wanted = |entry: &LockEntry| options.others || entry.inspection.origin != Origin::Other;
    let listing = client.listing(options.pattern.as_encoded_bytes());
    listing.filter(|entry| entry.as_ref().map_or(true, wanted)).collect()
}

/// How long a request takes: one that finds nothing, since no lock has this name.
fn round_trip(client: &Client, pattern: &std::ffi::OsStr) -> Option<Duration> {
    // a user may be limited to names that begin so
    let bytes = pattern.as_encoded_bytes();
    let plain: Vec<u8> = bytes.iter().take_while(|byte| !b"*?[\\".contains(byte)).copied().collect();
    let name = [plain.as_slice(), b"onelock-top"].concat();
    let begun = Instant::now();
    client.inspect(name).ok().map(|_| begun.elapsed())
}
