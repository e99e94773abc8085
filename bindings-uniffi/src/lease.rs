//! One granted hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::entered::{entered, waited};
use crate::error::NativeError;
use crate::events::{NativeEvent, tell};
use crate::options::span;
use crate::words::{Grade, Kind, LossReason, Release};

/// What a fencing token is where there is none.
const NO_TOKEN: i64 = -1;
/// Nobody chose a number for this lease.
const NO_NUMBER: i64 = 0;

/// One granted hold. Dropping it gives the lock back in the background.
#[derive(uniffi::Object)]
pub struct NativeLease {
    held: Held,
    /// By which events name this lease.
    number: AtomicI64,
    /// Dropping it is no mistake of the program.
    forgotten: AtomicBool,
}

/// As it was acquired; the calls of the other form work too.
enum Held {
    OfThread(onelock::blocking::Lease),
    OfCoroutine(onelock::Lease),
}

/// The same call on either form.
macro_rules! either {
    ($held:expr, $lease:ident => $call:expr) => {
        match &$held {
            Held::OfThread($lease) => $call,
            Held::OfCoroutine($lease) => $call,
        }
    };
}

impl NativeLease {
    /// A lease does not look at what ended the wait for it.
    pub(crate) fn of_thread(lease: onelock::blocking::Lease) -> Arc<NativeLease> {
        let lease = onelock::blocking::Lease::from(onelock::Lease::from(lease));
        Arc::new(NativeLease {
            held: Held::OfThread(lease),
            number: AtomicI64::new(NO_NUMBER),
            forgotten: AtomicBool::new(false),
        })
    }

    pub(crate) fn of_coroutine(lease: onelock::Lease) -> Arc<NativeLease> {
        Arc::new(NativeLease {
            held: Held::OfCoroutine(lease),
            number: AtomicI64::new(NO_NUMBER),
            forgotten: AtomicBool::new(false),
        })
    }

    /// Nobody will have it; the last handle gives it back.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
    }

    fn loss_of(&self) -> Option<onelock::LossReason> {
        either!(self.held, lease => lease.loss())
    }

    /// An error of a lease says why the lease was lost.
    fn explained<T>(&self, result: Result<T, onelock::Error>) -> Result<T, NativeError> {
        result.map_err(|error| NativeError::from(error).because_of_loss(self.loss_of()))
    }

    /// A blocking lease has no futures: the other language calls its blocking form on a thread that may wait.
    fn coroutine(&self, tried: &str) -> Result<&onelock::Lease, NativeError> {
        match &self.held {
            Held::OfCoroutine(lease) => Ok(lease),
            Held::OfThread(_) => {
                Err(NativeError::new(onelock::ErrorKind::Internal, tried, "a lease of a thread was asked for a future"))
            }
        }
    }
}

#[uniffi::export]
impl NativeLease {
    /// Whether its calls have a form for coroutines.
    pub fn is_suspending(&self) -> bool {
        matches!(self.held, Held::OfCoroutine(_))
    }

    pub fn name(&self) -> Vec<u8> {
        either!(self.held, lease => lease.name().to_vec())
    }

    pub fn names(&self) -> Vec<Vec<u8>> {
        either!(self.held, lease => lease.names().into_iter().map(<[u8]>::to_vec).collect())
    }

    pub fn kind(&self) -> Kind {
        either!(self.held, lease => lease.kind()).into()
    }

    /// -1 for none.
    pub fn fencing_token(&self) -> i64 {
        either!(self.held, lease => lease.fencing_token()).map_or(NO_TOKEN, |token| token as i64)
    }

    /// -1 for none.
    pub fn fencing_token_of(&self, name: Vec<u8>) -> i64 {
        either!(self.held, lease => lease.fencing_token_of(&name)).map_or(NO_TOKEN, |token| token as i64)
    }

    pub fn fencing_grade(&self) -> Grade {
        either!(self.held, lease => lease.fencing_grade()).into()
    }

    /// The proof of this hold, as it stands on the server.
    pub fn token(&self) -> String {
        either!(self.held, lease => lease.token().to_owned())
    }

    pub fn is_held(&self) -> bool {
        either!(self.held, lease => lease.is_held())
    }

    /// Microseconds until the deadline.
    pub fn remaining_us(&self) -> i64 {
        either!(self.held, lease => lease.remaining()).as_micros() as i64
    }

    pub fn loss(&self) -> Option<LossReason> {
        self.loss_of().map(LossReason::from)
    }

    /// The error of the loss, if it was lost.
    pub fn check_lost(&self) -> Result<(), NativeError> {
        let Some(loss) = self.loss_of() else { return Ok(()) };
        Err(either!(self.held, lease => NativeError::lost(lease.name(), loss)))
    }

    pub fn hold_count(&self) -> i64 {
        either!(self.held, lease => lease.hold_count()) as i64
    }

    /// Chooses the number by which events name this lease. Once, before it is watched.
    pub fn set_number(&self, number: i64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Tells its loss as an event; at once if it is lost already.
    pub fn watch_loss(&self) {
        let lease = self.number.load(Ordering::Relaxed);
        let told = move |reason: onelock::LossReason| tell(NativeEvent::Lost { lease, reason: reason.into() });
        either!(self.held, handle => handle.on_lost(told));
    }

    /// Tells every missed renewal as an event.
    pub fn watch_jeopardy(&self) {
        let lease = self.number.load(Ordering::Relaxed);
        either!(self.held, handle => handle.on_jeopardy(move || tell(NativeEvent::Jeopardy { lease })));
    }

    pub fn extend_blocking(&self, ttl_ms: i64) -> Result<(), NativeError> {
        let ttl = span(ttl_ms, "ttl", "extend")?;
        self.explained(match &self.held {
            Held::OfThread(lease) => lease.extend(ttl),
            Held::OfCoroutine(lease) => waited(lease.extend(ttl))?,
        })
    }

    pub async fn extend(&self, ttl_ms: i64) -> Result<(), NativeError> {
        let ttl = span(ttl_ms, "ttl", "extend")?;
        let extended = entered(self.coroutine("extend")?.extend(ttl)).await?;
        self.explained(extended)
    }

    pub fn release_blocking(&self) -> Result<Release, NativeError> {
        let released = self.explained(match &self.held {
            Held::OfThread(lease) => lease.release(),
            Held::OfCoroutine(lease) => waited(lease.release())?,
        })?;
        Ok(released.into())
    }

    pub async fn release(&self) -> Result<Release, NativeError> {
        let released = entered(self.coroutine("release")?.release()).await?;
        Ok(self.explained(released)?.into())
    }

    pub fn downgrade_blocking(&self) -> Result<(), NativeError> {
        self.explained(match &self.held {
            Held::OfThread(lease) => lease.downgrade(),
            Held::OfCoroutine(lease) => waited(lease.downgrade())?,
        })
    }

    pub async fn downgrade(&self) -> Result<(), NativeError> {
        let done = entered(self.coroutine("downgrade")?.downgrade()).await?;
        self.explained(done)
    }

    /// The proof for another process; this handle holds nothing afterwards.
    pub fn detach(&self) -> Result<String, NativeError> {
        self.explained(either!(self.held, lease => lease.detach()))
    }
}

impl Drop for NativeLease {
    fn drop(&mut self) {
        if !*self.forgotten.get_mut() && either!(self.held, lease => lease.is_held()) {
            tell(NativeEvent::Unreleased { name: self.name() });
        }
        let lease = *self.number.get_mut();
        if lease != NO_NUMBER {
            tell(NativeEvent::Gone { lease });
        }
    }
}
