//! The `memory://` store.
