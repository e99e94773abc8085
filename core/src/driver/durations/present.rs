//! Durations that are recorded in histograms of OpenTelemetry, in seconds and by the kind of lock.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use crate::machine::Kind;
use crate::sys::fork::ProcessStamp;

/// Upper bounds in seconds: those of OpenTelemetry's `db.client.operation.duration`, and some on both sides of them, since a
/// lock of a near server takes less than a millisecond and work under it may take minutes.
const BOUNDARIES: [f64; 14] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The histograms of one client, once they are registered.
#[derive(Debug, Default)]
pub(crate) struct Durations(ArcSwapOption<Registered>);

#[derive(Debug)]
struct Registered {
    /// A forked child leaves them alone: another thread may have held a lock in there.
    stamp: ProcessStamp,
    wait: Histogram<f64>,
    hold: Histogram<f64>,
    /// What each measurement of a kind of lock carries.
    attributes: Vec<(Kind, Vec<KeyValue>)>,
}

impl Registered {
    fn record(&self, histogram: &Histogram<f64>, kind: Kind, span: Duration) {
        if let Some((_, attributes)) = self.attributes.iter().find(|(of, _)| *of == kind) {
            histogram.record(span.as_secs_f64(), attributes);
        }
    }
}

impl Durations {
    /// Records from now on what this client does. False when something is registered already.
    pub(crate) fn register(&self, meter: &Meter, attributes: &[KeyValue]) -> bool {
        let before = self.0.load_full();
        if before.as_ref().is_some_and(|before| before.stamp.is_here()) {
            return false;
        }
        let histogram = |name, text| {
            meter.f64_histogram(name).with_description(text).with_unit("s").with_boundaries(BOUNDARIES.to_vec()).build()
        };
        let of_kind = |kind: Kind| {
            let kind_of_lock = KeyValue::new("onelock.lock.kind", kind.as_str());
            (kind, attributes.iter().cloned().chain([kind_of_lock]).collect())
        };
        let fresh = Arc::new(Registered {
            stamp: ProcessStamp::here(),
            wait: histogram("onelock.wait", "How long granted acquires waited."),
            hold: histogram("onelock.hold", "How long leases were held."),
            attributes: Kind::ALL.into_iter().map(of_kind).collect(),
        });
        let seen = Guard::into_inner(self.0.compare_and_swap(&before, Some(fresh)));
        let is_ours = match (&seen, &before) {
            (Some(seen), Some(before)) => Arc::ptr_eq(seen, before),
            (None, None) => true,
            _ => false,
        };
        if is_ours {
            // the parent's
            std::mem::forget(before);
        }
        is_ours
    }

    pub(crate) fn waited(&self, kind: Kind, span: Duration) {
        self.with(|registered| registered.record(&registered.wait, kind, span));
    }

    pub(crate) fn held(&self, kind: Kind, span: Duration) {
        self.with(|registered| registered.record(&registered.hold, kind, span));
    }

    fn with(&self, record: impl FnOnce(&Registered)) {
        if let Some(registered) = &*self.0.load()
            && registered.stamp.is_here()
        {
            record(registered);
        }
    }
}
