//! What the audience sees: lines that stay, one line that is rewritten (on a terminal), and colours where they are wanted.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Bold,
    Faint,
    Green,
    Red,
}

pub(crate) struct Screen {
    /// Whether a line can be rewritten.
    live: bool,
    colours: bool,
    /// Whether the rewritten line stands there now.
    dirty: bool,
}

impl Screen {
    pub(crate) fn new() -> Screen {
        let live = std::io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let colours = live && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Screen { live, colours, dirty: false }
    }

    /// `text` in a colour, or just `text`.
    pub(crate) fn paint(&self, colour: Colour, text: impl Display) -> String {
        let code = match colour {
            Colour::Bold => "1",
            Colour::Faint => "2",
            Colour::Green => "32",
            Colour::Red => "1;31",
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// A line that stays.
    pub(crate) fn line(&mut self, text: impl Display) {
        let clear = if std::mem::take(&mut self.dirty) { "\r\x1b[2K" } else { "" };
        print(&format!("{clear}{text}\n"));
    }

    /// The line that tells how it goes: rewritten on a terminal, else a line like any other.
    pub(crate) fn status(&mut self, text: impl Display) {
        if self.live {
            self.dirty = true;
            let text = self.paint(Colour::Faint, text);
            print(&format!("\r\x1b[2K{text}"));
        } else {
            print(&format!("{text}\n"));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.dirty {
            print("\n");
        }
    }
}

fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // an audience that has left is no reason to stop the work in the middle
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// A number with a gap between thousands.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A time in the unit that suits it.
pub(crate) fn span(span_us: u64) -> String {
    match span_us {
        0..1000 => format!("{span_us} us"),
        1000..1_000_000 => format!("{:.1} ms", span_us as f64 / 1e3),
        _ => format!("{:.2} s", span_us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_easy_to_read() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([7, 1250, 2_345_678].map(span), ["7 us", "1.2 ms", "2.35 s"]);
    }
}
