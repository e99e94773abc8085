//! A connection that is read by the event loop of another language. Requests are sent together where they come together:
//! the first at once, those that come while it is on its way when the loop has gone round, in one piece.

use std::collections::VecDeque;
use std::mem;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use redis::Value;

use super::background::Background;
use super::line::Line;
use super::pace::Pace;
use super::shared::Shared;
use super::ticket::{Ending, Ticket, Waiting};
use crate::driver::clock;
use crate::machine::{Outcome, Time};
use crate::port::{self, Asking, Moored};

/// So many requests at most are under way; others go over the shared connection.
const ABOARD: usize = 512;
/// A request that is longer has a way to itself, which the shared connection knows how to find. Every script fits.
const LONG: usize = 8192;
/// So many wait for the loop at most; then the server begins with them.
const TOGETHER: usize = 16;

/// A connection whose replies an event loop reads.
pub(crate) struct Berth {
    fd: i32,
    /// Of the time when it was made; see [`Shared::epoch`].
    pub(crate) epoch: u64,
    /// Of its connection, among all of the process.
    pub(crate) number: u64,
    /// The number of the loop's port.
    port: u64,
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
    /// Those whose replies are to come, in this order.
    sent: VecDeque<Arc<Ticket>>,
    /// What the socket did not take of these yet.
    rest: Vec<u8>,
    /// Those of which not a byte was sent.
    queued: Vec<(Arc<Ticket>, Vec<u8>)>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.queued.is_empty()
    }

    /// Not to be used again; the loop hears of it, and so do those that are to be woken.
    fn lose(&mut self) -> Vec<Waker> {
        self.lost = true;
        let _ = self.line.wire().socket().shutdown(Shutdown::Both);
        let now = clock::now();
        let gone = || Ending::Came(Outcome::Indeterminate(self.line.gone()), now);
        let mut woken: Vec<_> = self.sent.drain(..).filter_map(|ticket| ticket.end(gone())).collect();
        woken.extend(self.queued.drain(..).filter_map(|(ticket, _)| ticket.end(Ending::Unsent)));
        woken
    }

    /// Sends what there is, as far as the socket takes it. Those to be woken if it takes nothing any more.
    fn send(&mut self) -> Vec<Waker> {
        let before = self.sent.len();
        for (ticket, bytes) in mem::take(&mut self.queued) {
            if ticket.depart() {
                self.rest.extend_from_slice(&bytes);
                self.sent.push_back(ticket);
            }
        }
        if self.lost || (self.rest.is_empty() && self.line.is_flushed()) {
            return Vec::new();
        }
        let Some(written) = self.line.write(&self.rest) else {
            // of these not a byte has left
            let unsent = self.sent.split_off(before);
            let mut woken: Vec<_> = unsent.iter().filter_map(|ticket| ticket.end(Ending::Unsent)).collect();
            woken.extend(self.lose());
            return woken;
        };
        self.rest.drain(..written);
        Vec::new()
    }

    /// Takes in the replies that are there. Those to be woken.
    fn receive(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        while let Some(outcome) = self.line.read() {
            let in_order = matches!(outcome, Outcome::Applied(_));
            let now = clock::now();
            let ticket = self.sent.pop_front();
            let asked = ticket.is_some();
            woken.extend(ticket.and_then(|ticket| ticket.end(Ending::Came(outcome, now))));
            // closed, or said without being asked
            if !in_order || !asked {
                woken.extend(self.lose());
                break;
            }
            if self.sent.is_empty() {
                self.line.rest(now);
                if !self.line.is_clean() {
                    woken.extend(self.lose());
                }
                break;
            }
        }
        woken
    }
}

fn wake(woken: Vec<Waker>) {
    for waker in woken {
        waker.wake();
    }
}

impl Berth {
    /// For the loop with the port of this number.
    pub(crate) fn new(mut line: Line, port: u64) -> std::io::Result<Arc<Berth>> {
        let (fd, number, epoch) = (line.unblock()?, line.number, line.epoch);
        line.rest(clock::now());
        let (sent, rest, queued) = (VecDeque::new(), Vec::new(), Vec::new());
        let state = Mutex::new(State { line, watched: false, lost: false, sent, rest, queued });
        let pace = Arc::new(Pace::default());
        let pacing = pace.clone();
        let pacemaker = Background::spawn(async move { pacing.keep().await });
        Ok(Arc::new(Berth { fd, epoch, number, port, state, pace, _pacemaker: pacemaker }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Not to be used again.
    pub(crate) fn lose(&self) {
        let woken = self.state().lose();
        wake(woken);
    }

    /// Whether it takes another request. One that has become useless is lost.
    pub(crate) fn has_room(&self, shared: &Shared) -> bool {
        let mut state = self.state();
        if !state.watched || state.lost {
            return false;
        }
        let (now, current) = (clock::now(), self.epoch == shared.epoch());
        let useless = match state.sent.front() {
            // the server keeps it open and says nothing, and who waited for this has gone
            Some(oldest) => now.since(oldest.since) > shared.options.request_timeout,
            None => state.queued.is_empty() && !(current && state.line.is_usable(now)),
        };
        if useless {
            let woken = state.lose();
            drop(state);
            wake(woken);
            return false;
        }
        current && state.sent.len() + state.queued.len() < ABOARD
    }

    /// Sends a request and waits for its reply until `until`: what came of it and when. `None` when it took nothing: then
    /// not a byte left.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        bytes: Vec<u8>,
        sent_at: Time,
        until: Time,
        request_timeout: Duration,
    ) -> Option<(Outcome<Value>, Time)> {
        let ticket = self.post(bytes, sent_at)?;
        let (_waiting, _asking) = (Waiting(&ticket), Asking::begin());
        let ending = match tokio::time::timeout(until.since(clock::now()), ticket.ended()).await {
            Ok(ending) => ending,
            Err(_) => self.overdue(&ticket, request_timeout),
        };
        match ending {
            Ending::Came(outcome, at) => Some((outcome, at)),
            Ending::Unsent => None,
        }
    }

    /// The time is over; but the reply may have come without the loop having got round to reading it.
    fn overdue(&self, ticket: &Ticket, request_timeout: Duration) -> Ending {
        let woken = self.state().receive();
        wake(woken);
        let now = clock::now();
        let (silence, gone) = {
            let line = &self.state().line;
            (line.silence(), ticket.leave())
        };
        match gone {
            Some(Ending::Came(outcome, _)) => Ending::Came(outcome, now),
            Some(Ending::Unsent) => Ending::Came(Outcome::NotApplied(silence), now),
            None => {
                // one that is only in a hurry does not end it
                if now.since(ticket.since) >= request_timeout {
                    self.lose();
                }
                Ending::Came(Outcome::Indeterminate(silence), now)
            }
        }
    }

    fn post(self: &Arc<Self>, bytes: Vec<u8>, sent_at: Time) -> Option<Arc<Ticket>> {
        if bytes.len() > LONG {
            return None;
        }
        let ticket = Arc::new(Ticket::new(sent_at));
        let port = port::current().filter(|port| port.number == self.port);
        let mut state = self.state();
        if state.lost {
            return None;
        }
        self.pace.quicken();
        let waits = port.is_some() && !state.is_idle() && state.queued.len() + 1 < TOGETHER;
        state.queued.push((ticket.clone(), bytes));
        if waits {
            if state.queued.len() == 1 {
                port?.owe(self.clone());
            }
            return Some(ticket);
        }
        let woken = state.send();
        drop(state);
        wake(woken);
        Some(ticket)
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
        let mut woken = state.receive();
        woken.extend(state.send());
        let goes_on = !state.lost;
        drop(state);
        wake(woken);
        goes_on
    }

    fn flush(&self) {
        let woken = self.state().send();
        wake(woken);
    }

    fn relieve(&self) {
        let mut state = self.state();
        let woken = if state.lost { Vec::new() } else { state.receive() };
        drop(state);
        wake(woken);
    }
}
