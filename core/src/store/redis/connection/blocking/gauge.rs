//! Counts the blocking callers of one node, and says when there are enough to share connections.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The callers that are active now.
pub(crate) struct ConcurrencyGauge {
    active: AtomicUsize,
    /// From this many on they share, until half of them have gone.
    threshold: usize,
    above_threshold: AtomicBool,
}

/// One active caller, until dropped.
pub(crate) struct ActiveCaller<'a> {
    gauge: &'a ConcurrencyGauge,
    /// Whether enough callers are active to share connections.
    pub(crate) above_threshold: bool,
}

impl ConcurrencyGauge {
    pub(crate) fn new(threshold: usize) -> ConcurrencyGauge {
        ConcurrencyGauge { active: AtomicUsize::new(0), threshold, above_threshold: AtomicBool::new(false) }
    }

    pub(crate) fn enter(&self) -> ActiveCaller<'_> {
        let active = self.active.fetch_add(1, Ordering::Relaxed) + 1;
        let before = self.above_threshold.load(Ordering::Relaxed);
        let above_threshold = active >= if before { self.threshold.div_ceil(2) } else { self.threshold };
        if above_threshold != before {
            self.above_threshold.store(above_threshold, Ordering::Relaxed);
        }
        ActiveCaller { gauge: self, above_threshold }
    }
}

impl Drop for ActiveCaller<'_> {
    fn drop(&mut self) {
        self.gauge.active.fetch_sub(1, Ordering::Relaxed);
    }
}
