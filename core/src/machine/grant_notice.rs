//! The message that tells a client that its place in a queue became a hold: which token, the number of the grant, and when.

use std::sync::Arc;

/// No token is longer.
const TOKEN_MAX: usize = 128;
/// No fencing token is as high: the scripts count them in numbers that are exact up to here.
const NUMBER_END: u64 = 1 << 53;

/// What such a message says. Anybody may publish anything: by itself it proves nothing, see [`Place`](super::Place).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantNotice {
    /// The token of the place.
    pub token: Arc<str>,
    /// The fencing token of the grant; 0: it was not granted, or grants of this kind are not numbered.
    pub number: u64,
    /// When it was granted: the server's clock in microseconds.
    pub server_us: u64,
}

impl GrantNotice {
    /// Reads `<token> <number> <us>`; `None` for any other text.
    pub fn parse(payload: &[u8]) -> Option<GrantNotice> {
        let text = str::from_utf8(payload).ok().filter(|text| text.len() <= TOKEN_MAX + 2 * 21)?;
        let mut words = text.split(' ');
        let (token, number, server_us) = (words.next()?, words.next()?, words.next()?);
        let plain = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if words.next().is_some() || !(1..=TOKEN_MAX).contains(&token.len()) || !plain(number) || !plain(server_us) {
            return None;
        }
        let (number, server_us) = (number.parse().ok()?, server_us.parse().ok()?);
        (number < NUMBER_END).then(|| GrantNotice { token: token.into(), number, server_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_the_scripts_is_read() {
        let notice = GrantNotice { token: "onelock1:ab".into(), number: 7, server_us: 1_700_000_000_000_001 };
        assert_eq!(GrantNotice::parse(b"onelock1:ab 7 1700000000000001"), Some(notice));
        assert!(GrantNotice::parse(b"a 9007199254740991 8").is_some());
        let long = "x".repeat(TOKEN_MAX + 1);
        for other in [
            "",
            "1",
            "a 7",
            "a  7",
            "a 7 ",
            " 7 8",
            "a 7 8 9",
            "a +7 8",
            "a -7 8",
            "a 7 8.0",
            "a 7 8\n",
            "a 99999999999999999999 8",
            "a 9007199254740993 8",
            "a 9007199254740992 8",
            "a 7 99999999999999999999",
            &format!("{long} 7 8"),
        ] {
            assert_eq!(GrantNotice::parse(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(GrantNotice::parse(b"\xff 7 8"), None);
    }
}
