//! One server: its connections of either way, and one operation on them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};

use super::RedisOptions;
use super::berth::Berth;
use super::berths::Berths;
use super::carpool::Carpool;
use super::crowd::Crowd;
use super::endpoint::Endpoint;
use super::forms::Forms;
use super::line::{Line, Patience};
use super::lines::Lines;
use super::link::Link;
use super::listen::{self, Topics};
use super::lookout::Lookouts;
use super::pipe::Pipe;
use super::redirect::Redirect;
use super::replicas::{self, Confirmations};
use super::reply;
use super::request::{self, Announce};
use super::scout::Scout;
use super::shared::{Common, Shared, Target};
use crate::backend::{Interrupt, Subscription};
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Op, Outcome, Time};

/// How many idle connections are kept for acquires that wait for replicas.
const KEPT: usize = 16;

/// How an operation is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// On which channels a release is announced.
    pub(crate) announce: Announce,
    /// To a node that takes the slot over: for this once.
    pub(crate) asking: bool,
}

/// An answer, and where a node of a cluster said that the question belongs.
pub(crate) struct Told {
    pub(crate) answer: Answer,
    pub(crate) redirect: Option<Redirect>,
}

/// One server.
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared>,
    pub(crate) link: Arc<Link>,
    topics: Arc<Topics>,
    shards: Arc<Topics>,
    pub(crate) lines: Arc<Lines>,
    pub(crate) lookouts: Arc<Lookouts>,
    berths: Arc<Berths>,
    crowd: Crowd,
    carpool: Carpool,
    forms: Forms,
    /// Idle connections on which nobody stands behind whoever waits for replicas.
    own: Mutex<Vec<Pipe>>,
}

/// A request that was answered, or was not.
pub(crate) struct Exchange {
    pub(crate) sent_at: Time,
    pub(crate) connection: u64,
    pub(crate) outcome: Outcome<Value>,
    pub(crate) confirmations: Option<Confirmations>,
}

impl Node {
    /// The node at `endpoint`; its connections are numbered from `numbers_from` on.
    pub(crate) fn at(endpoint: Endpoint, options: RedisOptions, common: Arc<Common>, numbers_from: u64) -> Node {
        Node::new(Shared::new(endpoint, options, common), numbers_from)
    }

    /// Whichever server the Sentinels say is the master.
    pub(crate) fn watched(scout: Scout, options: RedisOptions) -> Node {
        Node::new(Shared::watched(scout, options), 0)
    }

    fn new(shared: Shared, numbers_from: u64) -> Node {
        let shared = Arc::new(shared);
        let topics = Arc::new(Topics::default());
        let link = Arc::new(Link::new(shared.clone(), topics.clone(), numbers_from));
        let lines = Arc::new(Lines::new(shared.clone()));
        let berths = Arc::default();
        let lookouts = Arc::new(Lookouts::new(shared.clone(), lines.clone()));
        let shards = Arc::new(Topics::sharded());
        let carpool = Carpool::new(shared.clone(), lines.clone());
        let (crowd, own, forms) = (Crowd::new(shared.options.share_from), Mutex::default(), Forms::default());
        Node { shared, link, topics, shards, lines, lookouts, berths, crowd, carpool, forms, own }
    }

    /// Hears what is announced on `channel`.
    pub(crate) fn subscribe(&self, channel: Vec<u8>, sharded: bool) -> Subscription {
        listen::subscribe(if sharded { &self.shards } else { &self.topics }, &self.link, channel)
    }

    /// Ends its connections. `Common` must be closed before, so that no new ones are made.
    pub(crate) fn close(&self) {
        self.carpool.close();
        self.lines.close();
        self.lookouts.close();
        self.berths.close();
        self.link.close();
        self.own().clear();
        self.topics.wake();
        self.shards.wake();
    }

    /// Nothing is kept for later any more, since nobody is going to ask it again. What is in use ends with its users.
    pub(crate) fn part(&self) {
        self.carpool.close();
        self.lines.close();
        self.lookouts.close();
        self.own().clear();
    }

    /// Whether an operation is to be confirmed by replicas.
    fn waits_for_replicas(&self, op: &Op) -> bool {
        matches!(op, Op::Acquire { .. } | Op::Attach { .. })
            && self.shared.options.min_replicas > 0
            && self.shared.common.has_wait()
    }

    /// One operation from a task.
    pub(crate) async fn call(&self, op: &Op, how: How, until: Time) -> Told {
        if self.waits_for_replicas(op) {
            self.call_alone(op, how, until).await
        } else {
            self.call_shared(op, how, until).await
        }
    }

    /// The connection of the event loop whose work this thread is at, if it takes another request.
    pub(crate) fn berth(&self) -> Option<Arc<Berth>> {
        if self.shared.options.min_replicas > 0 { None } else { self.berths.of_this_loop(&self.shared, &self.lines) }
    }

    /// One operation from an event loop, which reads its connection itself: without a switch to another thread.
    pub(crate) async fn call_from_loop(&self, op: &Op, how: How, until: Time) -> Told {
        let Some(berth) = self.berth() else { return self.call(op, how, until).await };
        let mut form = self.forms.first(op);
        loop {
            let bytes = request::command(op, form, how.announce).get_packed_command();
            let sent_at = clock::now();
            let limit = self.shared.reply_until(until, sent_at);
            let exchange = berth.exchange(bytes, sent_at, limit, self.shared.options.request_timeout);
            self.shared.common.count_command();
            let Some((outcome, received_at)) = exchange.await else { return self.call(op, how, until).await };
            if let Some(next) = self.forms.next(op, form, &outcome) {
                form = next;
                continue;
            }
            let sent = Exchange { sent_at, connection: berth.number, outcome, confirmations: None };
            let told = self.read(op, sent, received_at);
            if is_refused_for_good(&told.answer.outcome) {
                // others that wait for their replies still get them: in another epoch it takes nobody else
                if !self.moves() {
                    berth.lose();
                }
                self.shared.missed(berth.epoch);
            }
            return told;
        }
    }

    async fn call_shared(&self, op: &Op, how: How, until: Time) -> Told {
        let mut form = self.forms.first(op);
        loop {
            let (begun, epoch) = (clock::now(), self.shared.epoch());
            let pipe = match self.link.pipe(until).await {
                Ok(pipe) => pipe,
                Err(failure) => return not_sent(begun, failure),
            };
            let (sent_at, outcome) = self.exchange(&pipe, &request::command(op, form, how.announce), how, until).await;
            if let Some(next) = self.forms.next(op, form, &outcome) {
                form = next;
                continue;
            }
            match &outcome {
                // the connection ended before this request's turn came: take the next one
                Outcome::NotApplied(_) if clock::now() < until && self.shared.common.check_open().is_ok() => {}
                _ => {
                    let sent = Exchange { sent_at, connection: pipe.number, outcome, confirmations: None };
                    let told = self.read(op, sent, clock::now());
                    if is_refused_for_good(&told.answer.outcome) {
                        // those who wait for their replies still get them
                        pipe.retire();
                        self.shared.missed(epoch);
                    }
                    return told;
                }
            }
        }
    }

    /// On a connection of its own, on which nothing stands behind it while it waits for replicas.
    async fn call_alone(&self, op: &Op, how: How, until: Time) -> Told {
        let mut form = self.forms.first(op);
        loop {
            let begun = clock::now();
            let idle = self.own().pop();
            let reused = idle.is_some();
            let pipe = match idle {
                Some(pipe) => pipe,
                None => match self.own_pipe(until).await {
                    Ok(pipe) => pipe,
                    Err(failure) => return not_sent(begun, failure),
                },
            };
            let (sent_at, outcome) = self.exchange(&pipe, &request::command(op, form, how.announce), how, until).await;
            if let Some(next) = self.forms.next(op, form, &outcome) {
                form = next;
                self.keep(pipe);
                continue;
            }
            if reused && matches!(outcome, Outcome::NotApplied(_)) {
                continue;
            }
            let mut sent = Exchange { sent_at, connection: 0, outcome, confirmations: None };
            if matches!(&sent.outcome, Outcome::Applied(value) if reply::is_grant(value)) {
                let wait = replicas::wait(&self.shared, until);
                let limit = wait.limit + self.shared.options.request_timeout;
                sent.confirm(&self.shared, pipe.request(None, &wait.command, clock::now(), limit).await);
            }
            let told = self.read(op, sent, clock::now());
            if is_worth_keeping(&told.answer.outcome) {
                self.keep(pipe);
            }
            return told;
        }
    }

    async fn own_pipe(&self, until: Time) -> Result<Pipe, Failure> {
        self.shared.common.check_open()?;
        let left = until.since(clock::now());
        let made = tokio::time::timeout(left, self.link.own_pipe()).await;
        made.unwrap_or_else(|_| Err(super::socket::no_connection_in_time(&self.shared.name)))
    }

    fn keep(&self, pipe: Pipe) {
        let mut own = self.own();
        if own.len() < KEPT && !pipe.is_gone() && self.shared.common.check_open().is_ok() {
            own.push(pipe);
        }
    }

    fn own(&self) -> MutexGuard<'_, Vec<Pipe>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One request on a connection, and when it was handed in.
    async fn exchange(&self, pipe: &Pipe, command: &Cmd, how: How, until: Time) -> (Time, Outcome<Value>) {
        self.shared.common.count_command();
        let asking = how.asking.then(|| redis::cmd("ASKING"));
        let sent_at = clock::now();
        let limit = until.since(sent_at).min(self.shared.options.request_timeout);
        (sent_at, pipe.request(asking.as_ref(), command, sent_at, limit).await)
    }

    /// The reply to a command that is no operation, a refusal included.
    pub(crate) async fn ask(&self, words: &[&str], until: Time) -> Result<Value, Failure> {
        let pipe = self.link.pipe(until).await?;
        let mut command = Cmd::new();
        command.arg(words);
        match self.exchange(&pipe, &command, How::default(), until).await.1 {
            Outcome::Applied(value) => Ok(value),
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Err(failure),
        }
    }

    /// One operation from a thread, on a connection that it drives itself.
    pub(crate) fn call_blocking(&self, op: &Op, how: How, until: Time, interrupt: &dyn Interrupt) -> Told {
        let begun = clock::now();
        if let Err(failure) = self.shared.common.check_open() {
            return not_sent(begun, failure);
        }
        let patience = Patience { until, interrupt };
        let caller = self.crowd.join();
        if caller.crowded
            && !how.asking
            && !self.waits_for_replicas(op)
            && let Some(told) = self.call_sharing(op, how, patience)
        {
            return told;
        }
        let mut pooled = self.lines.pooled(begun);
        loop {
            let reused = pooled.is_some();
            let mut line = match pooled.take().map_or_else(|| self.lines.open(patience), Ok) {
                Ok(line) => line,
                Err(failure) => return not_sent(begun, failure),
            };
            let sent = self.exchange_blocking(&mut line, op, how, patience);
            let received_at = clock::now();
            if reused && matches!(sent.outcome, Outcome::NotApplied(_)) {
                // closed by the server while it was idle: not a byte left, so a new connection is as good
                self.lines.lose(line);
                continue;
            }
            let told = self.read(op, sent, received_at);
            let epoch = line.epoch;
            if is_worth_keeping(&told.answer.outcome) {
                self.lines.give(line, received_at);
            } else {
                self.lines.lose(line);
            }
            if is_refused_for_good(&told.answer.outcome) {
                self.shared.missed(epoch);
            }
            return told;
        }
    }

    /// Over a connection that it shares with others. `None` when there is none that takes it: then not a byte left.
    fn call_sharing(&self, op: &Op, how: How, patience: Patience<'_>) -> Option<Told> {
        let begun = clock::now();
        let car = match self.carpool.car(begun, patience) {
            Ok(car) => car?,
            Err(failure) => return Some(not_sent(begun, failure)),
        };
        let mut form = self.forms.first(op);
        loop {
            let bytes = request::command(op, form, how.announce).get_packed_command();
            let sent_at = clock::now();
            let within = Patience { until: self.shared.reply_until(patience.until, sent_at), ..patience };
            let outcome = car.request(&bytes, sent_at, within)?;
            if let Some(next) = self.forms.next(op, form, &outcome) {
                form = next;
                continue;
            }
            let sent = Exchange { sent_at, connection: car.number, outcome, confirmations: None };
            let told = self.read(op, sent, clock::now());
            if is_refused_for_good(&told.answer.outcome) {
                self.carpool.close();
                self.shared.missed(car.epoch);
            }
            return Some(told);
        }
    }

    fn exchange_blocking(&self, line: &mut Line, op: &Op, how: How, patience: Patience<'_>) -> Exchange {
        let shared = &*self.shared;
        let asking = how.asking.then(|| redis::cmd("ASKING"));
        let mut form = self.forms.first(op);
        loop {
            let request = request::command(op, form, how.announce);
            let sent_at = clock::now();
            let within = Patience { until: shared.reply_until(patience.until, sent_at), ..patience };
            shared.common.count_command();
            let outcome = line.exchange(asking.as_ref(), &request, sent_at, within);
            if let Some(next) = self.forms.next(op, form, &outcome) {
                form = next;
                continue;
            }
            let mut sent = Exchange { sent_at, connection: line.number, outcome, confirmations: None };
            let granted = matches!(&sent.outcome, Outcome::Applied(value) if reply::is_grant(value));
            if granted && self.waits_for_replicas(op) {
                let wait = replicas::wait(shared, patience.until);
                let now = clock::now();
                let within = Patience { until: now + wait.limit + shared.options.request_timeout, ..patience };
                sent.confirm(shared, line.exchange(None, &wait.command, now, within));
            }
            return sent;
        }
    }

    /// What a raw reply says about `op`.
    pub(crate) fn read(&self, op: &Op, sent: Exchange, received_at: Time) -> Told {
        let Exchange { sent_at, connection, outcome, confirmations } = sent;
        let mut redirect = None;
        let (server_time_us, outcome) = match outcome {
            Outcome::Applied(value) => {
                redirect = Redirect::of(&value, &self.shared);
                let reading = reply::read(op, value);
                if reading.unheard {
                    self.shared.common.warn_unheard(&self.shared.name);
                }
                (reading.server_time_us, replicas::judge(reading.outcome, confirmations, &self.shared.options))
            }
            Outcome::NotApplied(failure) => (None, Outcome::NotApplied(failure)),
            Outcome::Indeterminate(failure) => (None, Outcome::Indeterminate(failure)),
        };
        Told { answer: Answer { sent_at, received_at, connection, server_time_us, outcome }, redirect }
    }

    /// Whether its server can be another one tomorrow.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.shared.target, Target::Watched(_))
    }
}

impl Exchange {
    /// Takes the answer to `WAIT` into account: one that did not come leaves it open what was granted.
    fn confirm(&mut self, shared: &Shared, answer: Outcome<Value>) {
        match answer {
            Outcome::Applied(value) => self.confirmations = replicas::read(shared, &value),
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => {
                self.outcome = Outcome::Indeterminate(failure);
            }
        }
    }
}

/// The answer to a request for which there was no connection.
pub(crate) fn not_sent(begun: Time, failure: Failure) -> Told {
    let answer = Answer {
        sent_at: begun,
        received_at: clock::now(),
        connection: 0,
        server_time_us: None,
        outcome: Outcome::NotApplied(failure),
    };
    Told { answer, redirect: None }
}

/// A server that turned into a replica, or no longer knows the user, is looked up and introduced to anew.
fn is_refused_for_good<T>(outcome: &Outcome<T>) -> bool {
    matches!(outcome, Outcome::NotApplied(failure) if matches!(failure.kind, ErrorKind::ReadOnly | ErrorKind::AuthFailed))
}

pub(crate) fn is_worth_keeping<T>(outcome: &Outcome<T>) -> bool {
    !is_refused_for_good(outcome) && !matches!(outcome, Outcome::Indeterminate(_))
}
