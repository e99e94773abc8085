//! `onelock wait`: until nobody holds a lock.

use std::time::{Duration, Instant};

use crate::arguments::WaitFree;
use crate::span::{Wait, show};
use crate::status::{Failure, Status};
use crate::{server, show as shown};

/// How often the server is asked; sooner when the holder's time is over before.
const EVERY: Duration = Duration::from_millis(500);
const SOONEST: Duration = Duration::from_millis(10);

pub(crate) fn wait(options: &WaitFree) -> Result<Status, Failure> {
    let name = options.name.as_encoded_bytes();
    let client = server::client(&options.server)?;
    let begun = Instant::now();
    let mut answered = false;
    loop {
        let found = match client.inspect(name) {
            Ok(None) => return Ok(Status::Done),
            Ok(found) => found,
            // a server that has answered once is waited for
            Err(error) if answered && error.is_retryable() => None,
            Err(error) => return Err(error.into()),
        };
        answered = true;
        let mut pause = found.and_then(|found| found.ttl_left).map_or(EVERY, |left| left.clamp(SOONEST, EVERY));
        if let Wait::For(limit) = options.timeout {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                let status = if limit.is_zero() { Status::Busy } else { Status::Timeout };
                let name = shown::name(name);
                let text = if limit.is_zero() {
                    format!("{name}: held by somebody; see `onelock inspect`")
                } else {
                    format!("{name}: still held after {}", show(limit))
                };
                return Err(Failure::new(status, text));
            }
            pause = pause.min(left);
        }
        std::thread::sleep(pause);
    }
}
