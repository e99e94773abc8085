//! Patterns of names, as the `MATCH` of a server's `SCAN` reads them: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before what
//! stands for itself.

/// Whether `text` matches the whole of `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // behind the last star, and what it would swallow next
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', behind)) = pattern.split_first() {
            pattern = behind;
            star = Some((pattern, text));
            continue;
        }
        let Some((byte, rest)) = text.split_first() else { return pattern.is_empty() };
        if let Some((true, behind)) = one(pattern, *byte) {
            (pattern, text) = (behind, rest);
            continue;
        }
        let Some((behind, from)) = star else { return false };
        let Some((_, rest)) = from.split_first() else { return false };
        star = Some((behind, rest));
        (pattern, text) = (behind, rest);
    }
}

/// Whether the first element of `pattern`, which is no star, matches `byte`, and what stands behind it. `None` at its end.
fn one(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (first, behind) = pattern.split_first()?;
    Some(match (first, behind.split_first()) {
        (b'?', _) => (true, behind),
        (b'[', _) => class(behind, byte),
        (b'\\', Some((literal, behind))) => (*literal == byte, behind),
        _ => (*first == byte, behind),
    })
}

/// The same for what stands behind an opening bracket. A class that nobody closes ends with the pattern.
fn class(mut pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let inverted = pattern.first() == Some(&b'^');
    if inverted {
        pattern = &pattern[1..];
    }
    let mut found = false;
    loop {
        match pattern {
            [] => return (found != inverted, pattern),
            [b'\\', literal, behind @ ..] => {
                found |= *literal == byte;
                pattern = behind;
            }
            [b']', behind @ ..] => return (found != inverted, behind),
            [from, b'-', to, behind @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                pattern = behind;
            }
            [literal, behind @ ..] => {
                found |= *literal == byte;
                pattern = behind;
            }
        }
    }
}

/// The pattern that matches `text` alone.
pub fn literal(text: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(text.len());
    for byte in text {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^' | b'-') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matches_and_what_does_not() {
        let table = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("orders:*", "orders:42", true),
            ("orders:*", "orders", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbxc", false),
            ("**b", "ab", true),
            ("[abc]", "b", true),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a-c]", "d", true),
            ("[^a-c]", "b", false),
            ("[\\]]", "]", true),
            ("[]", "]", false),
            ("[ab", "b", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("[a-]", "-", false),
            ("[a-]", "_", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_literal_matches_itself_alone() {
        for text in ["a*b", "[a]", "a\\", "^-]", "plain", "?"] {
            assert!(matches(&literal(text.as_bytes()), text.as_bytes()), "{text}");
            assert!(!matches(&literal(text.as_bytes()), format!("{text}x").as_bytes()), "{text}");
        }
        assert!(!matches(&literal(b"a*b"), b"axb"));
    }
}
