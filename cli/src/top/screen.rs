//! The terminal: raw, on its second screen, without a cursor; and as it was afterwards, whatever ends this.

#![allow(unsafe_code, reason = "calls of the system for which the safe wrappers would be one more dependency")]

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::keys::{self, Key};

/// The second screen, no cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Where a terminal does not tell its size.
const SIZE: (usize, usize) = (80, 24);

/// For how long the rest of a key is waited for.
const REST_OF_A_KEY: Duration = Duration::from_millis(50);
/// No key has so many bytes.
const PRESSED_MAX: usize = 1024;

/// How the terminal was set before, while it is ours.
static BEFORE: Mutex<Option<libc::termios>> = Mutex::new(None);

/// Columns and rows of this terminal.
pub(crate) fn terminal_size(terminal: &impl AsRawFd) -> (usize, usize) {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: a descriptor and a place for its size, which is valid as zeros, too.
    let size = unsafe {
        libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr());
        size.assume_init()
    };
    if size.ws_col == 0 || size.ws_row == 0 { SIZE } else { (size.ws_col.into(), size.ws_row.into()) }
}

/// The terminal while it is ours.
pub(super) struct Screen(());

#[allow(clippy::unused_self, reason = "the terminal may be used as long as there is one of these")]
impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        enter()?;
        // what a panic says is to be read on the first screen
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            told(info);
        }));
        Ok(Screen(()))
    }

    /// Stops, on a terminal that is as it was, until the shell brings it back.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        restore();
        // SAFETY: a number. It goes on here when it is brought back, or at once where nobody could do that.
        unsafe { libc::raise(libc::SIGTSTP) };
        enter()
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        terminal_size(&io::stdout())
    }

    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        // not behind the last line: that would scroll
        let lines = lines.join(&format!("{CLEAR_LINE}\r\n"));
        let mut out = io::stdout().lock();
        write!(out, "{HOME}{lines}{CLEAR_LINE}{CLEAR_BELOW}")?;
        out.flush()
    }

    /// What is pressed within this time. A terminal that is gone is the end.
    pub(super) fn keys(&mut self, within: Duration) -> io::Result<Vec<Key>> {
        if !self.is_readable(within)? {
            return Ok(Vec::new());
        }
        let mut pressed = self.read();
        // a terminal that is gone can be read, and says nothing
        if pressed.is_empty() {
            return Ok(vec![Key::Quit]);
        }
        // a network may deliver the bytes of one key one by one; Escape is a key, too, so there is an end to that
        while keys::is_unfinished(&pressed) && self.is_readable(REST_OF_A_KEY)? {
            let more = self.read();
            if more.is_empty() || pressed.len() > PRESSED_MAX {
                break;
            }
            pressed.extend(more);
        }
        Ok(keys::keys(&pressed))
    }

    /// Whether something is pressed within this time.
    fn is_readable(&self, within: Duration) -> io::Result<bool> {
        let mut watched = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
        // rounded up: a wait for less than a millisecond is none, and would be done again and again
        let within = within.as_micros().div_ceil(1000) as libc::c_int;
        // SAFETY: one descriptor, and the number of them.
        let found = unsafe { libc::poll(&raw mut watched, 1, within) };
        if found < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
        }
        Ok(found > 0)
    }

    /// What can be read, of a terminal on which there is something to read.
    fn read(&self) -> Vec<u8> {
        let mut pressed = [0_u8; 64];
        // SAFETY: a descriptor that can be read, and room for as many bytes as are named.
        let count = unsafe { libc::read(libc::STDIN_FILENO, pressed.as_mut_ptr().cast(), pressed.len()) };
        usize::try_from(count).map_or_else(|_| Vec::new(), |count| pressed[..count].to_vec())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Makes the terminal ours.
fn enter() -> io::Result<()> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: a descriptor and a place for what it is set to.
    if unsafe { libc::tcgetattr(libc::STDIN_FILENO, before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was filled just now.
    let before: libc::termios = unsafe { before.assume_init() };
    let mut raw = before;
    // SAFETY: changes the structure and nothing else.
    unsafe { libc::cfmakeraw(&raw mut raw) };
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    set(&raw)?;
    let mut out = io::stdout().lock();
    out.write_all(ENTER)?;
    out.flush()
}

fn set(to: &libc::termios) -> io::Result<()> {
    // SAFETY: a descriptor, and what it is set to.
    if unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, to) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets the terminal as it was, once. One that is gone needs nothing.
fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE).and_then(|()| out.flush());
        let _ = set(&before);
    }
}
