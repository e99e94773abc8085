//! The connection that async tasks share.
//!
//! | file | is |
//! |---|---|
//! | `connect` | resolves, connects, encrypts and shakes hands |
//! | `connection` | one multiplexed connection, and whether its replies can be trusted |
//! | `manager` | makes the connection when it is needed and replaces it when it breaks |
//! | `raw` | a connection that one task uses directly |
//! | `assisted_task` | a background task of which a caller may do a step on its own thread |
//! | `timer_tick` | a tick while requests are in flight, so that time limits wake nobody |

pub(crate) mod assisted_task;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod manager;
pub(crate) mod raw;
pub(crate) mod timer_tick;
