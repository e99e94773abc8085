//! Hands: runs the machine room's decisions against a store.

pub mod clock;
