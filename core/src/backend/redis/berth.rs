//! Connections that are read by the event loops of other languages: one for each loop and server, with one request at a
//! time. Whatever does not find it idle goes over the connection that tasks share.

use std::future::poll_fn;
use std::mem;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;

use super::background::Background;
use super::line::{Line, Patience};
use super::lines::Lines;
use super::pace::Pace;
use super::shared::Shared;
use crate::backend::Uninterrupted;
use crate::driver::clock;
use crate::machine::{Outcome, Time};
use crate::port::{self, Asking, Moored};

/// After a connection could not be made, or was lost, another one is not tried for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// A connection whose replies an event loop reads.
pub(crate) struct Berth {
    fd: i32,
    state: Mutex<State>,
    pace: Arc<Pace>,
    _pacemaker: Background,
}

struct State {
    line: Line,
    /// The loop watches it.
    watched: bool,
    /// Not to be used again. It is closed when the loop has let go of it.
    lost: bool,
    awaited: Awaited,
}

/// The reply to the request under way.
enum Awaited {
    Nothing,
    Reply(Option<Waker>),
    /// It came then.
    Came(Outcome<Value>, Time),
}

/// Lost or cancelled, nobody waits for the reply any more.
struct Waiting<'a>(&'a Berth);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if matches!(mem::replace(&mut state.awaited, Awaited::Nothing), Awaited::Reply(_)) && !state.lost {
            state.line.owe();
            state.line.rest(clock::now());
            if state.line.is_spoilt() {
                state.lose();
            }
        }
    }
}

impl State {
    /// Not to be used again; the loop hears of it.
    fn lose(&mut self) -> Option<Waker> {
        self.lost = true;
        let _ = self.line.wire().socket().shutdown(Shutdown::Both);
        let Awaited::Reply(waker) = &mut self.awaited else { return None };
        let waker = waker.take();
        self.awaited = Awaited::Came(Outcome::Indeterminate(self.line.gone()), clock::now());
        waker
    }

    fn is_idle(&mut self, shared: &Shared) -> bool {
        if !self.watched || self.lost || !matches!(self.awaited, Awaited::Nothing) {
            return false;
        }
        if self.line.epoch != shared.epoch() || !self.line.is_usable(clock::now()) {
            self.lose();
            return false;
        }
        true
    }
}

impl Berth {
    fn new(mut line: Line) -> std::io::Result<Arc<Berth>> {
        let fd = line.unblock()?;
        line.rest(clock::now());
        let state = Mutex::new(State { line, watched: false, lost: false, awaited: Awaited::Nothing });
        let pace = Arc::new(Pace::default());
        let pacing = pace.clone();
        Ok(Arc::new(Berth { fd, state, pace, _pacemaker: Background::spawn(async move { pacing.keep().await }) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Not to be used again.
    pub(crate) fn lose(&self) {
        let waker = self.state().lose();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sends a request at `sent_at` and waits for its reply until `until`: what came of it and when. `None` when it took
    /// nothing: then not a byte left.
    pub(crate) async fn exchange(
        &self,
        bytes: &[u8],
        sent_at: Time,
        until: Time,
        request_timeout: Duration,
    ) -> Option<(Outcome<Value>, Time)> {
        if let Err(unsent) = self.post(bytes, sent_at) {
            return unsent.map(|outcome| (outcome, clock::now()));
        }
        let (waiting, _asking) = (Waiting(self), Asking::begin());
        let reply = poll_fn(|context| {
            let mut state = self.state();
            if let Awaited::Came(outcome, at) = mem::replace(&mut state.awaited, Awaited::Nothing) {
                return Poll::Ready((outcome, at));
            }
            state.awaited = Awaited::Reply(Some(context.waker().clone()));
            Poll::Pending
        });
        let replied = tokio::time::timeout(until.since(clock::now()), reply).await;
        Some(replied.unwrap_or_else(|_| {
            let now = clock::now();
            if let Some(outcome) = self.overlooked() {
                return (outcome, now);
            }
            let silence = Outcome::Indeterminate(self.state().line.silence());
            // one that is only in a hurry does not end it
            if now.since(sent_at) >= request_timeout {
                self.lose();
            }
            drop(waiting);
            (silence, now)
        }))
    }

    /// The reply that the loop did not get round to reading.
    fn overlooked(&self) -> Option<Outcome<Value>> {
        self.ready();
        let mut state = self.state();
        match mem::replace(&mut state.awaited, Awaited::Nothing) {
            Awaited::Came(outcome, _) => Some(outcome),
            other => {
                state.awaited = other;
                None
            }
        }
    }

    /// The error is what is known then; nothing when not a byte left.
    fn post(&self, bytes: &[u8], sent_at: Time) -> Result<(), Option<Outcome<Value>>> {
        let mut state = self.state();
        if state.lost || !matches!(state.awaited, Awaited::Nothing) {
            return Err(None);
        }
        self.pace.quicken();
        // the socket has room for a request: there is no other one under way
        let posted = state.line.post(bytes, Patience { until: sent_at, interrupt: &Uninterrupted });
        if let Err(outcome) = posted {
            state.lose();
            return Err(Some(outcome).filter(|outcome| !matches!(outcome, Outcome::NotApplied(_))));
        }
        state.awaited = Awaited::Reply(None);
        Ok(())
    }
}

impl Moored for Berth {
    fn fd(&self) -> i32 {
        self.fd
    }

    fn watched(&self) {
        self.state().watched = true;
    }

    fn ready(&self) -> bool {
        let mut state = self.state();
        if state.lost {
            return false;
        }
        let Some(outcome) = state.line.collect() else { return true };
        let now = clock::now();
        let in_order = matches!(outcome, Outcome::Applied(_)) && !state.line.is_spoilt();
        let waker = match mem::replace(&mut state.awaited, Awaited::Nothing) {
            Awaited::Reply(waker) => {
                state.awaited = Awaited::Came(outcome, now);
                state.line.rest(now);
                state.lost = !in_order;
                waker
            }
            // closed, or said without being asked
            others => {
                state.awaited = others;
                state.lost = true;
                None
            }
        };
        let goes_on = !state.lost;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        goes_on
    }
}

/// The connections of one server that event loops read.
#[derive(Default)]
pub(crate) struct Berths(Mutex<Vec<Slot>>);

/// What there is for one loop.
struct Slot {
    port: u64,
    /// Kept by the loop.
    berth: Weak<Berth>,
    opening: bool,
    /// Not tried before.
    again_at: Time,
}

impl Berths {
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The idle connection of the loop whose work this thread is at. If there is none at all, one is made in the
    /// background, for later. What is idle now stays so until this thread does something else.
    pub(crate) fn idle(self: &Arc<Self>, shared: &Arc<Shared>, lines: &Arc<Lines>) -> Option<Arc<Berth>> {
        let port = port::current()?;
        shared.common.check_open().ok()?;
        let mut slots = self.slots();
        let slot = if let Some(place) = slots.iter().position(|slot| slot.port == port.number) {
            &mut slots[place]
        } else {
            slots.retain(|slot| slot.opening || slot.berth.strong_count() > 0);
            slots.push(Slot { port: port.number, berth: Weak::new(), opening: false, again_at: Time::ZERO });
            slots.last_mut()?
        };
        if let Some(berth) = slot.berth.upgrade() {
            let idle = berth.state().is_idle(shared);
            return idle.then_some(berth);
        }
        let now = clock::now();
        if slot.opening || now < slot.again_at || !cfg!(unix) {
            return None;
        }
        if slot.again_at != Time::ZERO {
            lines.mourn();
        }
        slot.opening = true;
        slot.again_at = now + PAUSE;
        drop(slots);
        self.open(port, shared.clone(), lines.clone());
        None
    }

    /// On a thread of its own: connecting blocks.
    fn open(self: &Arc<Self>, port: Arc<port::Inner>, shared: Arc<Shared>, lines: Arc<Lines>) {
        let until = clock::now() + shared.options.connect_timeout;
        let (berths, number, runtime) = (self.clone(), port.number, Handle::try_current());
        let work = move || {
            // why not is said by whoever needs a connection
            let line = lines.open(Patience { until, interrupt: &Uninterrupted });
            let berth = line.ok().zip(runtime.ok()).and_then(|(line, runtime)| {
                let _context = runtime.enter();
                Berth::new(line).ok()
            });
            berths.opened(&port, &shared, berth);
        };
        if thread::Builder::new().name("onelock-berth".to_owned()).spawn(work).is_err() {
            self.forget(number);
        }
    }

    fn opened(&self, port: &port::Inner, shared: &Shared, berth: Option<Arc<Berth>>) {
        let mut slots = self.slots();
        let Some(slot) = slots.iter_mut().find(|slot| slot.port == port.number) else { return };
        slot.opening = false;
        // asked under the lock, so that `close` misses none
        if let Some(berth) = berth.filter(|_| shared.common.check_open().is_ok()) {
            slot.berth = Arc::downgrade(&berth);
            port.moor(berth);
        }
    }

    fn forget(&self, port: u64) {
        self.slots().retain(|slot| slot.port != port);
    }

    /// Ends them all. `Common` must be closed before, so that no new ones are used.
    pub(crate) fn close(&self) {
        let berths: Vec<_> = self.slots().iter().filter_map(|slot| slot.berth.upgrade()).collect();
        for berth in berths {
            berth.lose();
        }
    }
}
