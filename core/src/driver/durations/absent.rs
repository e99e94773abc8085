//! What stands for histograms where there are none.

#![allow(clippy::unused_self, reason = "the same calls as those that record")]

use std::time::Duration;

use crate::machine::Kind;

#[derive(Debug, Default)]
pub(crate) struct NoDurations;

impl NoDurations {
    pub(crate) fn waited(&self, _: Kind, _: Duration) {}

    pub(crate) fn held(&self, _: Kind, _: Duration) {}
}
