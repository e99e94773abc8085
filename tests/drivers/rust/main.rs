//! The Rust driver: carries out what the supervisor asks for, one line of JSON at a time. `onelock-driver async` uses
//! the asynchronous API, `onelock-driver blocking` the blocking one. The protocol stands in `tests/drivers/README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a driver that cannot go on ends with its message")]

mod asynchronous;
mod blocking;
mod protocol;

use std::io::BufRead;

use protocol::{Request, reply_error};

/// Reads requests until the supervisor closes the pipe, which is how a driver is told to end.
fn requests() -> impl Iterator<Item = Request> {
    std::io::stdin().lock().lines().map_while(Result::ok).filter_map(|line| match serde_json::from_str(&line) {
        Ok(request) => Some(request),
        Err(error) => {
            let id = serde_json::from_str::<serde_json::Value>(&line).ok().and_then(|it| it["id"].as_u64());
            reply_error(id.unwrap_or(0), "Driver", &format!("{error}: {line}"));
            None
        }
    })
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("async") => asynchronous::run(requests()),
        Some("blocking") => blocking::run(requests()),
        other => panic!("the mode is async or blocking, not {other:?}"),
    }
    // Without the destructors: what is still held then ends as it does when a process is killed.
    std::process::exit(0);
}
