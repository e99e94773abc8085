//! Connections to one server, for each kind of caller.
//!
//! | file | is |
//! |---|---|
//! | `blocking/` | connections that the calling thread drives |
//! | `multiplexed/` | the connection that async tasks share |
//! | `event_loop/` | connections that the event loop of another language reads |
//! | `context` | what all connections of a node share: server, options, counters |
//! | `deadline` | the deadline of a blocking call |
//! | `handshake`, `login` | the first commands on a connection, and its credentials |
//! | `pending_request` | one request on a connection that tasks share, from submission to completion |
//! | `socket` | socket options, address attempts, and the failures of a connection |
//! | `timer_tick` | a tick while requests are in flight, so that time limits wake nobody |
//! | `tls` | the failures of TLS handshakes |

#[cfg(not(target_family = "wasm"))]
pub(crate) mod blocking;
pub(crate) mod context;
pub(crate) mod deadline;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod event_loop;
pub(crate) mod handshake;
pub(crate) mod login;
pub(crate) mod multiplexed;
pub(crate) mod pending_request;
pub(crate) mod socket;
pub(crate) mod timer_tick;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod tls;
