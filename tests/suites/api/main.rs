//! What the public API promises beside the lock itself.
//!
//! | file | about |
//! |---|---|
//! | `arguments` | nonsense is refused before any request |
//! | `messages` | errors, debug forms and log lines: what they name and what they never show |
//! | `limits` | every call returns in time, whatever the network does |
//! | `ending` | close, drop, and calls from the wrong place |
//! | `callbacks` | being told of a loss or of jeopardy |
//! | `options` | lock delay, prefix, fencing, grades, labels |
//! | `handing_over` | detach and attach |
//! | `strangers` | addresses that lead somewhere else, servers that lack something |
//! | `scope` | the forms that run a body |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

mod arguments;
mod callbacks;
mod ending;
mod handing_over;
mod limits;
mod messages;
mod options;
mod scope;
mod strangers;
