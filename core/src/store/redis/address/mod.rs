//! Addresses: one server, and several servers in one address.

pub(crate) mod endpoint;
pub(crate) mod multi;
