//! Counts the waiting and the cancelled acquires, however an acquire ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::Engine;
use super::tally::count;

/// One acquire in the metrics, until dropped.
pub(super) struct Gauge {
    pub(super) engine: Arc<Engine>,
    pub(super) ended: bool,
    pub(super) waiting: bool,
}

impl Drop for Gauge {
    fn drop(&mut self) {
        if self.waiting {
            self.engine.tally.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.ended {
            count(&self.engine.tally.cancelled);
        }
    }
}
