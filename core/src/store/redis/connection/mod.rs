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
//! | `socket` | socket options, address attempts, and the failures of a connection |
//! | `tls` | the failures of TLS handshakes |

pub(crate) mod blocking;
pub(crate) mod context;
pub(crate) mod deadline;
pub(crate) mod event_loop;
pub(crate) mod handshake;
pub(crate) mod login;
pub(crate) mod multiplexed;
pub(crate) mod socket;
pub(crate) mod tls;
