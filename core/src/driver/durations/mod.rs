//! Each time that an acquire waited or a lock was held, told to the histograms of OpenTelemetry. Without the feature `metrics`
//! it is nothing, and costs nothing.

#[cfg(not(feature = "metrics"))]
mod absent;
#[cfg(feature = "metrics")]
mod present;

#[cfg(not(feature = "metrics"))]
pub(crate) use self::absent::NoDurations as Durations;
#[cfg(feature = "metrics")]
pub(crate) use self::present::Durations;
