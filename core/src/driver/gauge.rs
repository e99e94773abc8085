//! Counts the waiting and the cancelled acquires, however an acquire ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::Engine;
use super::metrics::count;

/// One acquire in the metrics, until dropped.
pub(super) struct WaitGauge {
    pub(super) engine: Arc<Engine>,
    pub(super) ended: bool,
    pub(super) waiting: bool,
}

impl Drop for WaitGauge {
    fn drop(&mut self) {
        if self.waiting {
            self.engine.metrics.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.ended {
            count(&self.engine.metrics.cancelled);
        }
    }
}
