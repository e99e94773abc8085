//! A connection that several threads share ("leader and followers"). Whoever sends takes along what others have ready; of
//! those who wait for a reply, one drives: it reads for all, and hands the wheel on when it has its own, or has to ask its
//! caller something. So requests and replies that are near each other in time travel together, which spares the server
//! system calls, and every thread a way over another one.
//!
//! A caller that gives up leaves its request behind: it may still be carried out, as on any connection, and what comes of
//! it is for the janitor to undo.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use redis::Value;

use super::endpoint::Endpoint;
use super::line::{Line, Patience, SLICE};
use super::shared::Shared;
use super::socket::broken;
use super::wire::Wire;
use crate::driver::clock;
use crate::machine::{Failure, Outcome, Time};

/// With more replies still to come, the server is away or overwhelmed.
const SEATS: usize = 64;
/// Longer requests might fill the socket, and everybody would wait for the one who sends.
const LONGEST: usize = 8192;

/// When letting others go first takes longer than this, the machine is busy with other things, and nobody does so again
/// for a while. With two programs that never rest on two processors that makes the difference of 17 to 8 thousand cycles
/// a second (14 without sharing); where nothing else runs, 28 to 20.
const LONG: Duration = Duration::from_millis(2);
const IMPATIENCE: Duration = Duration::from_millis(200);

/// The connection.
pub(crate) struct Car {
    /// Of its line, among all of the process.
    pub(crate) number: u64,
    shared: Arc<Shared>,
    endpoint: Arc<Endpoint>,
    /// Of the time when it was made; see [`Shared::epoch`].
    pub(crate) epoch: u64,
    /// For those who send, while another one reads.
    exit: Wire,
    cabin: Mutex<Cabin>,
}

struct Cabin {
    /// Requests that whoever is sending takes along. Empty when nobody is, as long as it runs.
    luggage: Vec<u8>,
    /// Whether somebody is sending.
    loading: bool,
    /// Until then nobody lets others go first: see [`LONG`].
    impatient_until: Time,
    /// Unless somebody drives.
    line: Option<Line>,
    /// In the order of their requests.
    passengers: VecDeque<Arc<Passenger>>,
    /// Whether it takes more of them.
    runs: bool,
}

/// One who waits for a reply.
struct Passenger {
    since: Time,
    stage: Mutex<Stage>,
    bell: Condvar,
}

enum Stage {
    Waits,
    /// Waits, and is just asking whether its caller wants to go on. That may take long (the lock of an interpreter), so it
    /// cannot read for the others.
    Asks,
    /// Is to read for all.
    Drives(Line),
    Ended(Outcome<Value>),
    /// The reply is nobody's.
    Left,
}

impl Car {
    /// Made of a connection and another way to it.
    pub(crate) fn of(line: Line, exit: Wire, shared: &Arc<Shared>) -> Car {
        let (endpoint, epoch, number) = (line.endpoint().clone(), line.epoch, line.number);
        let cabin = Mutex::new(Cabin {
            luggage: Vec::new(),
            loading: false,
            impatient_until: Time::ZERO,
            line: Some(line),
            passengers: VecDeque::new(),
            runs: true,
        });
        Car { number, shared: shared.clone(), endpoint, epoch, exit, cabin }
    }

    /// Whether it takes more requests. Only a connection that has been idle for a while is asked.
    pub(crate) fn runs(&self, now: Time) -> bool {
        let mut cabin = self.cabin();
        if let Some(line) = &cabin.line
            && cabin.passengers.is_empty()
            && !line.is_usable(now)
        {
            cabin.runs = false;
        }
        cabin.runs && self.epoch == self.shared.epoch()
    }

    /// Sends a request and waits for its reply. `None` when it is not taken: then not a byte left.
    pub(crate) fn request(&self, bytes: &[u8], sent_at: Time, patience: Patience<'_>) -> Option<Outcome<Value>> {
        let me = Arc::new(Passenger { since: sent_at, stage: Mutex::new(Stage::Waits), bell: Condvar::new() });
        let mut cabin = self.cabin();
        if !cabin.runs || cabin.passengers.len() >= SEATS || bytes.len() > LONGEST {
            return None;
        }
        self.shared.common.count_command();
        cabin.passengers.push_back(me.clone());
        cabin.luggage.extend_from_slice(bytes);
        if !mem::replace(&mut cabin.loading, true) {
            cabin = self.let_others_come(cabin, sent_at);
            cabin = self.send(cabin);
        }
        // the reply may have come already
        let line = if me.is_waiting() { cabin.line.take() } else { None };
        drop(cabin);
        Some(self.travel(line, &me, patience))
    }

    /// Lets other threads go first, since they may have requests to take along.
    fn let_others_come<'a>(&'a self, cabin: MutexGuard<'a, Cabin>, now: Time) -> MutexGuard<'a, Cabin> {
        if now < cabin.impatient_until {
            return cabin;
        }
        drop(cabin);
        thread::yield_now();
        let after = clock::now();
        let mut cabin = self.cabin();
        if after.since(now) > LONG {
            cabin.impatient_until = after + IMPATIENCE;
        }
        cabin
    }

    /// Sends what there is, and what others add meanwhile.
    fn send<'a>(&'a self, mut cabin: MutexGuard<'a, Cabin>) -> MutexGuard<'a, Cabin> {
        let mut load = Vec::new();
        while !cabin.luggage.is_empty() {
            load.clear();
            mem::swap(&mut load, &mut cabin.luggage);
            drop(cabin);
            let sent = self.exit.send(&load, SLICE);
            cabin = self.cabin();
            if sent.is_err() {
                // behind half a request there can be no other; whoever reads hears of it
                cabin.runs = false;
                self.exit.hang_up();
                break;
            }
        }
        cabin.loading = false;
        cabin
    }

    /// Until the reply is there: with the wheel in hand it reads for all, without it waits for whoever does.
    fn travel(&self, mut wheel: Option<Line>, me: &Arc<Passenger>, patience: Patience<'_>) -> Outcome<Value> {
        let mut left = patience.until.since(me.since);
        loop {
            if let Some(line) = wheel.take() {
                if let Some(outcome) = self.drive(line, me, patience) {
                    return outcome;
                }
            } else {
                match me.wait(left.min(SLICE)) {
                    Stage::Ended(outcome) => return outcome,
                    Stage::Drives(line) => wheel = Some(line),
                    Stage::Waits | Stage::Asks | Stage::Left => {}
                }
                if wheel.is_some() || !me.change(&Stage::Waits, Stage::Asks) {
                    continue;
                }
            }
            // may take long, so nobody depends on this thread meanwhile
            left = match patience.check() {
                Ok(left) => left,
                Err(why) => return self.leave(me, why),
            };
            let mut cabin = self.cabin();
            // whoever passed the wheel on meanwhile has passed this one by
            if me.change(&Stage::Asks, Stage::Waits) {
                wheel = cabin.line.take();
            }
        }
    }

    /// Reads for all, until the own reply is there. `None` when nothing came for a while: then somebody else has the wheel,
    /// and this one is about to ask its caller.
    fn drive(&self, mut line: Line, me: &Arc<Passenger>, patience: Patience<'_>) -> Option<Outcome<Value>> {
        loop {
            // replies to others are no reason to stay on
            let left = patience.until.since(clock::now());
            let mut next = if left.is_zero() { None } else { line.await_reply(left) };
            if next.is_none() {
                me.change(&Stage::Waits, Stage::Asks);
                self.hand_over(line);
                return None;
            }
            let (mut replies, mut lost) = (Vec::new(), None);
            while let Some(outcome) = next {
                match outcome {
                    Outcome::Applied(reply) => replies.push(reply),
                    Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => {
                        lost = Some(failure);
                        break;
                    }
                }
                next = line.reply_at_hand();
            }
            let own = self.hand_out(replies, me);
            if let Some(failure) = lost {
                self.crash(&failure);
                return Some(own.map_or(Outcome::Indeterminate(failure), Outcome::Applied));
            }
            if let Some(reply) = own {
                self.hand_over(line);
                return Some(Outcome::Applied(reply));
            }
        }
    }

    /// Gives each the reply to its request; the own one is returned.
    fn hand_out(&self, replies: Vec<Value>, me: &Arc<Passenger>) -> Option<Value> {
        let mut own = None;
        let whose: Vec<_> = {
            let mut cabin = self.cabin();
            let count = replies.len().min(cabin.passengers.len());
            // one too many would be taken for the next request's
            cabin.runs &= count == replies.len();
            cabin.passengers.drain(..count).collect()
        };
        for (passenger, reply) in whose.into_iter().zip(replies) {
            if Arc::ptr_eq(&passenger, me) {
                own = Some(reply);
            } else {
                passenger.end(Outcome::Applied(reply));
            }
        }
        own
    }

    /// To the next one who waits; to nobody, if nobody does.
    fn hand_over(&self, mut line: Line) {
        let mut cabin = self.cabin();
        let Cabin { passengers, .. } = &mut *cabin;
        for passenger in passengers.iter() {
            match passenger.take_wheel(line) {
                None => return,
                Some(still) => line = still,
            }
        }
        line.rest(clock::now());
        cabin.line = Some(line);
    }

    /// Gives up waiting; with the wheel in hand, somebody else gets it.
    fn leave(&self, me: &Arc<Passenger>, why: &str) -> Outcome<Value> {
        let stage = mem::replace(&mut *me.stage(), Stage::Left);
        match stage {
            Stage::Ended(outcome) => return outcome,
            Stage::Drives(line) => self.hand_over(line),
            Stage::Waits | Stage::Asks | Stage::Left => {}
        }
        let now = clock::now();
        let mut cabin = self.cabin();
        if cabin.passengers.front().is_some_and(|oldest| now.since(oldest.since) >= self.shared.options.request_timeout)
        {
            // nobody who comes later is to wait for it
            cabin.runs = false;
        }
        Outcome::Indeterminate(self.failure(why))
    }

    /// The connection is lost, with all replies that were still to come.
    fn crash(&self, failure: &Failure) {
        let passengers = {
            let mut cabin = self.cabin();
            cabin.runs = false;
            mem::take(&mut cabin.passengers)
        };
        for passenger in passengers {
            passenger.end(Outcome::Indeterminate(failure.clone()));
        }
    }

    fn failure(&self, why: &str) -> Failure {
        broken(&*self.endpoint, why)
    }

    fn cabin(&self) -> MutexGuard<'_, Cabin> {
        self.cabin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Passenger {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.stage(), Stage::Waits)
    }

    /// From one stage to the next; false if it is at another one.
    fn change(&self, from: &Stage, to: Stage) -> bool {
        let mut stage = self.stage();
        let right = mem::discriminant(&*stage) == mem::discriminant(from);
        if right {
            *stage = to;
        }
        right
    }

    /// Until there is news, for `limit` at most; takes it.
    fn wait(&self, limit: Duration) -> Stage {
        let mut stage = self.stage();
        if matches!(*stage, Stage::Waits) {
            stage = self.bell.wait_timeout(stage, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
        if matches!(*stage, Stage::Waits) { Stage::Waits } else { mem::replace(&mut *stage, Stage::Waits) }
    }

    fn end(&self, outcome: Outcome<Value>) {
        self.tell(Stage::Ended(outcome));
    }

    /// The wheel comes back from one who has left.
    fn take_wheel(&self, line: Line) -> Option<Line> {
        match self.tell(Stage::Drives(line)) {
            Some(Stage::Drives(line)) => Some(line),
            _ => None,
        }
    }

    /// News for one who waits; they come back from one who does not, or cannot do what they ask for.
    fn tell(&self, news: Stage) -> Option<Stage> {
        let mut stage = self.stage();
        match (&*stage, &news) {
            (Stage::Waits, _) | (Stage::Asks, Stage::Ended(_)) => {}
            _ => return Some(news),
        }
        *stage = news;
        drop(stage);
        self.bell.notify_one();
        None
    }
}
