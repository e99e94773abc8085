//! The connection that async tasks share.
//!
//! | file | is |
//! |---|---|
//! | `connect` | connects and shakes hands |
//! | `connection` | one multiplexed connection: requests and subscriptions, time limits, silence, its end |
//! | `dial` | reaches the server: name, TCP, TLS |
//! | `stream` | what carries its bytes |
//! | `transport` | moves bytes between its socket and its exchange |
//! | `manager` | makes the connection when it is needed and replaces it when it breaks |
//! | `raw` | a connection that one task uses directly |

pub(crate) mod connect;
pub(crate) mod connection;
#[cfg_attr(target_family = "wasm", path = "dial_hosted.rs")]
pub(crate) mod dial;
pub(crate) mod manager;
pub(crate) mod raw;
pub(crate) mod stream;
pub(crate) mod transport;
