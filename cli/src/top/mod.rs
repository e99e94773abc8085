//! `onelock top`: the locks of a server on the whole screen.
//!
//! | file | is |
//! |---|---|
//! | `asking` | the thread that asks the server |
//! | `screen` | the terminal: raw while this runs, and as it was afterwards, whatever ends it |
//! | `keys` | what was pressed, from the bytes that a terminal sends for it |
//! | `view` | what is drawn, as lines of a given width |
//! | `seen` | what was seen of each lock since this began |

mod asking;
mod keys;
mod screen;
mod seen;
mod view;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::asking::Asking;
use self::keys::Key;
use self::screen::Screen;
pub(crate) use self::screen::terminal_size;
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
    let client = server::client(&options.server)?;
    // what makes the server unreachable at the start is told on a terminal that is as it was; signals end this as usual
    let about = client.check()?.server;
    let mut ends = Vec::new();
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let seen = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, seen.clone())
            .map_err(|error| Failure::new(Status::Software, format!("signals: {error}")))?;
        ends.push((signal, seen));
    }
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut view = View::new(about, colours);
    let cannot = |error: std::io::Error| Failure::new(Status::Software, format!("the terminal: {error}"));
    let mut asking = Asking::start(options, client.clone())
        .map_err(|error| Failure::new(Status::Software, format!("a thread: {error}")))?;
    let mut screen = Screen::open().map_err(cannot)?;
    let status = follow(&mut asking, &mut view, &mut screen, &ends).map_err(cannot)?;
    drop(screen);
    // nothing is held, and an answer that is under way is not waited for
    if asking.under_way().is_none() {
        client.close();
    }
    Ok(status)
}

/// Shows what the server says until it is time to end. Nothing here waits for the server.
fn follow(
    asking: &mut Asking,
    view: &mut View,
    screen: &mut Screen,
    ends: &[(i32, Arc<AtomicBool>)],
) -> std::io::Result<Status> {
    let mut drawn_for = None;
    loop {
        if let Some((signal, _)) = ends.iter().find(|(_, seen)| seen.load(Ordering::Relaxed)) {
            return Ok(Status::Other(128 + *signal as u8));
        }
        if let Some(answer) = asking.look() {
            view.asked(answer.entries, answer.round_trip);
            drawn_for = None;
        }
        let now = (screen.size(), view.progress(asking.under_way()));
        if drawn_for.as_ref() != Some(&now) {
            screen.draw(&view.lines(now.0, now.1.as_deref()))?;
            drawn_for = Some(now);
        }
        for key in screen.keys(asking.left().min(LOOK_EVERY))? {
            match key {
                Key::Quit => return Ok(Status::Done),
                Key::Refresh => asking.hurry(),
                Key::Stop => {
                    screen.stop()?;
                    // what was shown is old
                    asking.hurry();
                }
                Key::Order => view.reorder(),
                Key::Scroll(scroll) => view.scroll(scroll),
                Key::Other => continue,
            }
            drawn_for = None;
        }
    }
}
