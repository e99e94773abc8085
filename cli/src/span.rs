//! Durations as people write and read them: `500ms`, `30s`, `5m`, `2h`, `1d`; a number alone is seconds.

use std::time::Duration;

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    For(Duration),
}

/// Nobody reads faster, and the server has others to serve.
pub(crate) const EVERY_MIN: Duration = Duration::from_millis(10);

/// What the library accepts; with more, a moment could not be told any more.
const MAX: Duration = Duration::from_secs(365 * 86400);

/// Reads a duration: at most a year.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no duration; write 500ms, 30s, 5m, 2h or 1d");
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(span) if span <= MAX => Ok(span),
        _ => Err(format!("`{text}` is too long; a year (365d) is the most")),
    }
}

/// Reads how often something is done: a duration that leaves the server some time for others.
pub(crate) fn every(text: &str) -> Result<Duration, String> {
    let every = span(text)?;
    if every < EVERY_MIN { Err(format!("`{text}` is too often; 10ms is the least")) } else { Ok(every) }
}

/// Reads a time to wait: a duration, or `forever`.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        _ => span(text).map(Wait::For).map_err(|why| format!("{why}, or forever")),
    }
}

/// A duration for people: two digits or so.
pub(crate) fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..=9 => format!("{:.1}s", span.as_secs_f64()),
        10..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        7200..=172_799 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, ms) in [
            ("0", 0),
            ("500ms", 500),
            ("1.5", 1500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(span(text).unwrap().as_millis(), ms, "{text}");
        }
        for bad in ["", "s", "-1", "1x", "1 s", "forever", "1e3", ".."] {
            assert!(span(bad).unwrap_err().contains("30s"), "{bad}");
        }
        assert_eq!(span("365d"), Ok(MAX));
        for long in ["366d", "10000000000000000000", "99999999999999999999999999999999999999999d"] {
            assert!(span(long).unwrap_err().contains("a year (365d)"), "{long}");
        }
        assert!(every("0").unwrap_err().contains("10ms") && every("9ms").is_err() && every("x").is_err());
        assert_eq!(every("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(wait("forever"), Ok(Wait::Forever));
        assert_eq!(wait("0"), Ok(Wait::For(Duration::ZERO)));
        assert!(wait("ever").unwrap_err().contains("forever"));
    }

    #[test]
    fn durations_are_short() {
        for (ms, text) in [
            (12, "12ms"),
            (9_440, "9.4s"),
            (30_000, "30s"),
            (150_000, "2m30s"),
            (7_260_000, "2h01m"),
            (200_000_000, "2d07h"),
        ] {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
    }
}
