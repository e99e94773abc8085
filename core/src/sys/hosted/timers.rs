//! All timers, on the one that the host has. A timer of a host may be early, late, or not run while the machine is suspended:
//! the clock decides what is due, and the host's timer is set again until everything is.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Add;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::clock::{left_until, now};
use super::host;
use crate::machine::Time;
use crate::sys::lock;

/// Who waits until when; the number keeps those apart that wait for the same moment.
static WAITING: Mutex<BTreeMap<(Time, u64), Waker>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicU64 = AtomicU64::new(1);
/// The moment that the host's timer is set to.
static ALARM: Mutex<Time> = Mutex::new(Time::MAX);

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant(Time);

impl Instant {
    /// Now.
    pub(crate) fn now() -> Instant {
        Instant(now())
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0 + span)
    }
}

/// Ends at a moment.
pub(crate) struct Sleep {
    due: Time,
    number: u64,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if now() >= self.due {
            return Poll::Ready(());
        }
        if self.number == 0 {
            self.number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        }
        lock(&WAITING).insert((self.due, self.number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.number != 0 {
            lock(&WAITING).remove(&(self.due, self.number));
        }
    }
}

/// Waits for so long.
pub(crate) fn sleep(span: Duration) -> Sleep {
    Sleep { due: now() + span, number: 0 }
}

/// Waits until then.
pub(crate) fn sleep_until(moment: Instant) -> Sleep {
    Sleep { due: moment.0, number: 0 }
}

/// The time limit is over.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// What becomes of `future` within `span`.
pub(crate) async fn timeout<F: Future>(span: Duration, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, mut limit) = (pin!(future), pin!(sleep(span)));
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(value));
        }
        limit.as_mut().poll(context).map(|()| Err(Elapsed))
    })
    .await
}

/// Wakes those whose time has come.
pub(crate) fn wake_due() {
    let due = {
        let mut waiting = lock(&WAITING);
        if waiting.is_empty() {
            return;
        }
        let later = waiting.split_off(&(now() + Duration::from_nanos(1), 0));
        std::mem::replace(&mut *waiting, later)
    };
    due.into_values().for_each(Waker::wake);
}

/// The host's timer is not set any more.
pub(crate) fn rang() {
    *lock(&ALARM) = Time::MAX;
}

/// Sets the host's timer to what is due first, unless it comes before that anyway.
pub(crate) fn set_alarm() {
    let Some(first) = lock(&WAITING).first_key_value().map(|((due, _), _)| *due) else { return };
    let mut alarm = lock(&ALARM);
    if first < *alarm {
        *alarm = first;
        drop(alarm);
        host().set_alarm(left_until(first));
    }
}
