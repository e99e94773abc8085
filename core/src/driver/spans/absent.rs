//! What stands for spans where there are none.

#![allow(clippy::unused_self, reason = "the same calls as those that record")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::super::hold::Hold;
use super::super::lock_spec::LockSpec;
use crate::Error;
use crate::machine::{LossReason, Release};

pub(crate) struct NoAcquireSpan;

impl NoAcquireSpan {
    pub(crate) fn begin(_: &LockSpec, _: Option<Duration>) -> NoAcquireSpan {
        NoAcquireSpan
    }

    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    pub(crate) fn follow<F: Future>(&self, work: F) -> F {
        work
    }

    pub(crate) fn end(self, _: Result<&Hold, &Error>) {}
}

#[derive(Default)]
pub(crate) struct NoHoldSpan(());

impl NoHoldSpan {
    pub(crate) fn begin(&self, _: &Hold, _: &Arc<[u8]>) {}

    pub(crate) fn stop(&self, _: Duration) {}

    pub(crate) fn end(&self, _: &'static str, _: Option<LossReason>) {}
}

pub(crate) struct NoReleaseSpan;

impl NoReleaseSpan {
    pub(crate) fn begin(_: &Hold) -> NoReleaseSpan {
        NoReleaseSpan
    }

    pub(crate) fn end(self, outcome: Release) -> Release {
        outcome
    }
}
