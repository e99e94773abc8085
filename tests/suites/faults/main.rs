//! Real faults against real servers, seen through the public API.
//!
//! | file | what goes wrong |
//! |---|---|
//! | `network` | no connection, silence, a slow link, something else than the protocol |
//! | `replies` | requests and replies that are lost, late, doubled or cut into pieces |
//! | `server` | the server's state: loading, busy, frozen, out of memory, too many clients |
//! | `refusals` | the server says no: failing to persist, no replicas, no permission, another type under the name |
//! | `data` | what was written is gone: evicted, flushed, lost in a crash |
//! | `names` | names, durations and numbers at their limits |
//! | `clocks` | stopped processes and wall clocks that jump |
//! | `lookouts` | the connections on which waiting threads hear of wake-ups |
//! | `cancelled` | futures that are dropped at every step |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

mod cancelled;
mod clocks;
mod data;
mod lookouts;
mod names;
mod network;
mod refusals;
mod replies;
mod server;
