//! How many blocking callers are at a node at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The callers inside at present.
#[derive(Default)]
pub(crate) struct Crowd(AtomicUsize);

/// One of them, until dropped.
pub(crate) struct Caller<'a> {
    crowd: &'a Crowd,
    /// How many there are with this one.
    pub(crate) size: usize,
}

impl Crowd {
    pub(crate) fn join(&self) -> Caller<'_> {
        Caller { crowd: self, size: self.0.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.crowd.0.fetch_sub(1, Ordering::Relaxed);
    }
}
