//! Texts on a terminal: as wide as they are drawn there, where a letter may take two columns or none.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// As much of a text as there is room for.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut short, mut left) = (String::new(), columns.saturating_sub(1));
    for letter in text.chars() {
        let wide = letter.width().unwrap_or_default();
        if wide > left {
            break;
        }
        left -= wide;
        short.push(letter);
    }
    if columns > 0 {
        short.push('~');
    }
    short
}

/// A text with spaces behind it up to this width, if it is not wider.
pub(crate) fn filled(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(width(text)))
}

/// A text as wide as the room is.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    filled(&fit(text, columns), columns)
}

/// A text in lines of at most so many columns, broken between words. A longer word has a line for itself.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(last) = lines.last_mut() else { continue };
        if last.is_empty() {
            last.push_str(word);
        } else if width(last) + 1 + width(word) <= columns {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_marked() {
        assert_eq!((fit("abc", 3).as_str(), fit("abcd", 3).as_str()), ("abc", "ab~"));
        assert_eq!((fit("ab", 1).as_str(), fit("ab", 0).as_str()), ("~", ""));
        assert_eq!(padded("grüße", 7), "grüße  ");
    }

    #[test]
    fn a_letter_may_take_two_columns_or_none() {
        assert_eq!((width("日本語"), width("e\u{301}"), width("abc")), (6, 1, 3));
        assert_eq!(
            (fit("日本語", 6).as_str(), fit("日本語", 5).as_str(), fit("日本語", 4).as_str()),
            ("日本語", "日本~", "日~")
        );
        assert_eq!((padded("日本", 6).as_str(), padded("日本語", 4).as_str()), ("日本  ", "日~ "));
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrapped("one two  three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", 6), "one\ntwo\nthree");
        assert_eq!(wrapped("unbreakable a 日本 b", 6), "unbreakable\na 日本\nb");
        assert_eq!(wrapped("", 6), "");
    }
}
