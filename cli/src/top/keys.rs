//! What was pressed, from the bytes that a terminal sends for it.

/// What was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Refresh,
    /// Ctrl-Z
    Stop,
    /// Another order
    Order,
    Scroll(Scroll),
    Other,
}

/// Where to go in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scroll {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

const ESCAPE: u8 = 0x1b;

/// The keys that were pressed.
pub(super) fn keys(mut pressed: &[u8]) -> Vec<Key> {
    let mut found = Vec::new();
    while let [first, rest @ ..] = pressed {
        pressed = rest;
        found.push(match first {
            // Ctrl-C
            3 | b'q' | b'Q' => Key::Quit,
            0x1a => Key::Stop,
            b' ' | b'r' => Key::Refresh,
            b'o' => Key::Order,
            b'k' => Key::Scroll(Scroll::Up),
            b'j' => Key::Scroll(Scroll::Down),
            b'g' => Key::Scroll(Scroll::First),
            b'G' => Key::Scroll(Scroll::Last),
            &ESCAPE if rest.is_empty() => Key::Quit,
            &ESCAPE => {
                let length = sequence(rest).unwrap_or(rest.len());
                pressed = &rest[length..];
                of_sequence(&rest[..length])
            }
            _ => Key::Other,
        });
    }
    found
}

/// Whether more bytes of the last key are to come: it may be Escape, or the beginning of another one.
pub(super) fn is_unfinished(pressed: &[u8]) -> bool {
    let last = pressed.iter().rposition(|byte| *byte == ESCAPE);
    last.is_some_and(|last| sequence(&pressed[last + 1..]).is_none())
}

/// How many bytes behind an Escape belong to the same key, up to its last letter.
fn sequence(rest: &[u8]) -> Option<usize> {
    let end = rest.iter().skip(1).position(|byte| byte.is_ascii_alphabetic() || *byte == b'~')?;
    Some(end + 2)
}

/// The key of what follows an Escape: `[A`, `OA`, `[5~`, and with Shift and so on pressed as well `[1;5A`.
fn of_sequence(bytes: &[u8]) -> Key {
    let [b'[' | b'O', number @ .., last] = bytes else { return Key::Other };
    let number = number.split(|byte| *byte == b';').next().unwrap_or_default();
    Key::Scroll(match (last, number) {
        (b'A', _) => Scroll::Up,
        (b'B', _) => Scroll::Down,
        (b'H', _) | (b'~', b"1" | b"7") => Scroll::First,
        (b'F', _) | (b'~', b"4" | b"8") => Scroll::Last,
        (b'~', b"5") => Scroll::PageUp,
        (b'~', b"6") => Scroll::PageDown,
        _ => return Key::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let scroll = |scroll| vec![Key::Scroll(scroll)];
        for (pressed, expected) in [
            (b"q".as_slice(), vec![Key::Quit]),
            (b"\x1b", vec![Key::Quit]),
            (b"\x03", vec![Key::Quit]),
            (b"x\x03", vec![Key::Other, Key::Quit]),
            (b" ", vec![Key::Refresh]),
            (b"o", vec![Key::Order]),
            (b"\x1b[A", scroll(Scroll::Up)),
            (b"\x1b[A ", vec![Key::Scroll(Scroll::Up), Key::Refresh]),
            (b"\x1bOB", scroll(Scroll::Down)),
            (b"\x1b[1;5B", scroll(Scroll::Down)),
            (b"\x1b[5~q", vec![Key::Scroll(Scroll::PageUp), Key::Quit]),
            (b"\x1b[6~\x1b[6~", vec![Key::Scroll(Scroll::PageDown); 2]),
            (b"\x1b[H", scroll(Scroll::First)),
            (b"\x1b[4~", scroll(Scroll::Last)),
            (b"\x1b[15~", vec![Key::Other]),
            (b"x", vec![Key::Other]),
            (b"\x1a", vec![Key::Stop]),
        ] {
            assert_eq!(keys(pressed), expected, "{pressed:?}");
        }
    }

    #[test]
    fn a_key_may_come_in_pieces() {
        for pressed in [b"\x1b".as_slice(), b"\x1b[", b"\x1bO", b"\x1b[1;", b"q\x1b[5"] {
            assert!(is_unfinished(pressed), "{pressed:?}");
        }
        for pressed in [b"".as_slice(), b"q", b"\x1b[A", b"\x1b[5~", b"\x1bOA", b"\x1b[Aq"] {
            assert!(!is_unfinished(pressed), "{pressed:?}");
        }
    }
}
