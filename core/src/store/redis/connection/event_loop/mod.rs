//! Connections that the event loop of another language reads.
//!
//! | file | is |
//! |---|---|
//! | `connection` | one such connection: batches requests, matches replies |
//! | `pool` | one connection for each event loop |

pub(crate) mod connection;
pub(crate) mod pool;
