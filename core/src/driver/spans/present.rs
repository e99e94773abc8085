//! Spans that are recorded. The names of their fields are those that the crate's page lists; times are seconds.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::{Instrument as _, Span};

use super::super::hold::Hold;
use super::super::lock_spec::LockSpec;
use crate::machine::{LossReason, Release, Time};
use crate::sys::{clock, lock};
use crate::{Error, ErrorKind};

/// One acquire, from the call to its end. Dropped before that, it was cancelled.
pub(crate) struct AcquireSpan {
    span: Span,
    started: Time,
    ended: bool,
}

impl AcquireSpan {
    pub(crate) fn begin(spec: &LockSpec, wait: Option<Duration>) -> AcquireSpan {
        let span = tracing::info_span!(
            "onelock.acquire",
            otel.kind = "client",
            otel.status_code = Empty,
            onelock.lock.name = %spec.name.escape_ascii(),
            onelock.lock.kind = spec.kind.as_str(),
            onelock.wait.timeout = wait.map(|wait| wait.as_secs_f64()),
            onelock.wait.duration = Empty,
            onelock.fencing_token = Empty,
            onelock.outcome = Empty,
            error.type = Empty,
        );
        AcquireSpan { span, started: clock::now(), ended: false }
    }

    /// Does this inside the span.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.span.in_scope(work)
    }

    /// The same, whenever the future runs.
    pub(crate) fn follow<F: Future>(&self, work: F) -> Instrumented<F> {
        work.instrument(self.span.clone())
    }

    pub(crate) fn end(mut self, result: Result<&Hold, &Error>) {
        match result {
            Ok(hold) => {
                self.span.record("onelock.fencing_token", hold.fence());
                self.finish("acquired");
            }
            Err(error) => {
                let (outcome, failed) = match error.kind() {
                    ErrorKind::Busy => ("busy", false),
                    ErrorKind::Cancelled => ("cancelled", false),
                    ErrorKind::Timeout => ("timeout", true),
                    _ => ("failed", true),
                };
                if failed {
                    self.span.record("otel.status_code", "ERROR");
                    self.span.record("error.type", error.kind().name());
                }
                self.finish(outcome);
            }
        }
    }

    fn finish(&mut self, outcome: &str) {
        self.ended = true;
        self.span.record("onelock.wait.duration", clock::now().since(self.started).as_secs_f64());
        self.span.record("onelock.outcome", outcome);
    }
}

impl Drop for AcquireSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.finish("cancelled");
        }
    }
}

#[derive(Default)]
enum HoldState {
    #[default]
    NotBegun,
    Open(Span, Arc<[u8]>),
    Ended(Option<Arc<[u8]>>),
}

/// One hold, from the grant to its end, however often it is entered.
#[derive(Default)]
pub(crate) struct HoldSpan(Mutex<HoldState>);

impl HoldSpan {
    /// Begins it in the span of the caller, unless it has begun before.
    pub(crate) fn begin(&self, hold: &Hold, name: &Arc<[u8]>) {
        let mut state = lock(&self.0);
        if matches!(*state, HoldState::NotBegun) {
            let span = tracing::info_span!(
                "onelock.hold",
                otel.kind = "internal",
                otel.status_code = Empty,
                onelock.lock.name = %name.escape_ascii(),
                onelock.lock.kind = hold.claim.kind.as_str(),
                onelock.fencing_token = hold.fence(),
                onelock.hold.duration = Empty,
                onelock.outcome = Empty,
                onelock.loss.reason = Empty,
            );
            *state = HoldState::Open(span, name.clone());
        }
    }

    /// It does not count as held from here on.
    pub(crate) fn stop(&self, held: Duration) {
        let span = match &*lock(&self.0) {
            HoldState::Open(span, _) => span.clone(),
            _ => return,
        };
        span.record("onelock.hold.duration", held.as_secs_f64());
    }

    /// What became of it. Only the first call counts.
    pub(crate) fn end(&self, outcome: &'static str, loss: Option<LossReason>) {
        let before = {
            let mut state = lock(&self.0);
            let name = match &*state {
                HoldState::Open(_, name) => Some(name.clone()),
                _ => return,
            };
            std::mem::replace(&mut *state, HoldState::Ended(name))
        };
        let HoldState::Open(span, _) = before else { return };
        span.record("onelock.outcome", outcome);
        if let Some(reason) = loss {
            span.record("onelock.loss.reason", reason.as_str());
            span.record("otel.status_code", "ERROR");
        }
    }

    fn name(&self) -> Option<Arc<[u8]>> {
        match &*lock(&self.0) {
            HoldState::Open(_, name) => Some(name.clone()),
            HoldState::Ended(name) => name.clone(),
            HoldState::NotBegun => None,
        }
    }
}

/// One release, from the call to its end.
pub(crate) struct ReleaseSpan {
    span: Span,
    ended: bool,
}

impl ReleaseSpan {
    /// Begins it in the span of the caller.
    pub(crate) fn begin(hold: &Hold) -> ReleaseSpan {
        let name = hold.span.name();
        let span = tracing::info_span!(
            "onelock.release",
            otel.kind = "client",
            onelock.lock.name = %name.as_deref().unwrap_or_else(|| hold.key()).escape_ascii(),
            onelock.lock.kind = hold.claim.kind.as_str(),
            onelock.hold.duration = clock::now().since(hold.granted_at).as_secs_f64(),
            onelock.outcome = Empty,
        );
        ReleaseSpan { span, ended: false }
    }

    pub(crate) fn end(mut self, outcome: Release) -> Release {
        self.finish(outcome);
        outcome
    }

    fn finish(&mut self, outcome: Release) {
        self.ended = true;
        self.span.record("onelock.outcome", outcome.as_str());
    }
}

impl Drop for ReleaseSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(Release::Unconfirmed);
        }
    }
}
