//! Waiting for conditions. A test that sleeps is either slow or wrong on a busy machine; one that waits is neither.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long to rest between two looks: at first, and in the end. A look may be work for a server that has other things to
/// do, which is what is waited for.
const REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(20);

fn rest(start: Instant) -> Duration {
    (start.elapsed() / 20).clamp(REST, LONGEST_REST)
}

/// Looks again and again until `look` gives a value, and returns it.
///
/// # Panics
/// When nothing came within `limit`; `what` completes the sentence "waited ... for ".
pub fn wait_for<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(rest(start));
    }
}

/// Looks again and again until `look` is true.
///
/// # Panics
/// When it did not become true within `limit`.
pub fn wait_until(limit: Duration, what: &str, mut look: impl FnMut() -> bool) {
    wait_for(limit, what, || look().then_some(()));
}

/// As [`wait_until`], for asynchronous tests: `look` makes a future each time, and the thread is free in between.
///
/// # Panics
/// When it did not become true within `limit`.
pub async fn eventually<F: Future<Output = bool>>(limit: Duration, what: &str, mut look: impl FnMut() -> F) {
    let start = Instant::now();
    while !look().await {
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        tokio::time::sleep(rest(start)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_as_soon_as_it_is_true() {
        let mut looks = 0;
        wait_until(Duration::from_secs(5), "the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "for something that never happens")]
    fn panics_when_the_limit_has_passed() {
        wait_until(Duration::from_millis(5), "something that never happens", || false);
    }
}
