//! Marks values with the process that made them: a forked child must not touch what it inherited.

use super::fork_detect;

/// The process that made a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStamp(u64);

impl ProcessStamp {
    /// This process.
    pub(crate) fn here() -> ProcessStamp {
        ProcessStamp(fork_detect::process_number())
    }

    /// Whether this is still that process.
    pub(crate) fn is_here(self) -> bool {
        self == ProcessStamp::here()
    }

    /// The process id of that process.
    pub(crate) fn pid(self) -> u32 {
        // the lower half of the process number
        self.0 as u32
    }
}

/// A value that is dropped in the process that made it, and leaked in a forked child.
#[derive(Debug)]
pub(crate) struct LeakAfterFork<T> {
    value: Option<T>,
    stamp: ProcessStamp,
}

impl<T> LeakAfterFork<T> {
    /// Belongs to this process.
    pub(crate) fn new(value: T, stamp: ProcessStamp) -> LeakAfterFork<T> {
        LeakAfterFork { value: Some(value), stamp }
    }
}

impl<T> std::ops::Deref for LeakAfterFork<T> {
    type Target = T;
    #[allow(clippy::expect_used)] // the value is there until drop, which nothing can outlive
    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until drop")
    }
}

impl<T> Drop for LeakAfterFork<T> {
    fn drop(&mut self) {
        if !self.stamp.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}
