//! Spans for tracing systems such as OpenTelemetry: an acquire, a hold, a release. Without the feature `spans` they are
//! nothing, and cost nothing.

#[cfg(not(feature = "spans"))]
mod absent;
#[cfg(feature = "spans")]
mod present;

#[cfg(not(feature = "spans"))]
pub(crate) use self::absent::{NoAcquireSpan as AcquireSpan, NoHoldSpan as HoldSpan, NoReleaseSpan as ReleaseSpan};
#[cfg(feature = "spans")]
pub(crate) use self::present::{AcquireSpan, HoldSpan, ReleaseSpan};
