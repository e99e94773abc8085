//! How many blocking callers are at a node at the same time, and whether they are many.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The callers inside at present.
pub(crate) struct Crowd {
    inside: AtomicUsize,
    /// From so many on they are many; until half of them have gone.
    many: usize,
    crowded: AtomicBool,
}

/// One of them, until dropped.
pub(crate) struct Caller<'a> {
    crowd: &'a Crowd,
    /// Whether there are many.
    pub(crate) crowded: bool,
}

impl Crowd {
    pub(crate) fn new(many: usize) -> Crowd {
        Crowd { inside: AtomicUsize::new(0), many, crowded: AtomicBool::new(false) }
    }

    pub(crate) fn join(&self) -> Caller<'_> {
        let size = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        let before = self.crowded.load(Ordering::Relaxed);
        let crowded = size >= if before { self.many.div_ceil(2) } else { self.many };
        if crowded != before {
            self.crowded.store(crowded, Ordering::Relaxed);
        }
        Caller { crowd: self, crowded }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.crowd.inside.fetch_sub(1, Ordering::Relaxed);
    }
}
