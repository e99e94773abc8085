//! The connection that async tasks share.
//!
//! | file | is |
//! |---|---|
//! | `connect` | resolves, connects, encrypts and shakes hands |
//! | `connection` | one multiplexed connection: requests and subscriptions, time limits, silence, its end |
//! | `transport` | moves bytes between its socket and its exchange |
//! | `manager` | makes the connection when it is needed and replaces it when it breaks |
//! | `raw` | a connection that one task uses directly |

pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod manager;
pub(crate) mod raw;
pub(crate) mod transport;
