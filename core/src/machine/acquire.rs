//! The state machine of one acquire, from the call to the grant or the time limit, for every store and every kind.
//!
//! The driver calls [`Acquire::next`], does what it says, and reports the result. A wake-up is a reason to ask the server,
//! never a grant; but for the message that the place in a queue became a hold, where [`Place::told`] believes it.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::machine::last_answer::LastAnswer;
use crate::machine::{
    ATTEMPT_SPACING, AcquireLimits, Answer, Failure, HerdBackoff, Jitter, Outcome, Place, Reply, Route, Spacing, Step,
    Terms, Time, Verdict, WakeRace, YIELD,
};

mod queued;

const SAFETY_POLL_MIN: Duration = Duration::from_secs(1);
const SAFETY_POLL_MAX: Duration = Duration::from_secs(5);
const FOREIGN_POLL_MIN: Duration = Duration::from_millis(50);
const FOREIGN_POLL_MAX: Duration = Duration::from_millis(150);
/// After a tie every client waits for a random time: up to this, or twice the time that the attempt took; each further tie
/// doubles it …
const TIE_MIN: Duration = Duration::from_millis(6);
/// … up to this.
const TIE_MAX: Duration = Duration::from_millis(400);
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// What becomes of the token after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// It stays in use.
    Keep,
    /// It is dead: queue its undo, and make a new one before the next attempt.
    Retire,
}

/// The state machine of one acquire.
#[derive(Clone, Debug)]
pub struct Acquire {
    terms: Terms,
    limits: AcquireLimits,
    give_up_at: Time,
    hard_limit: Time,
    state: AcquireState,
    spacing: Spacing,
    /// The next attempt answers a message. Further messages change nothing.
    answering: bool,
    /// The subscription is confirmed (or cannot be had), so the acquire may sleep after a refusal.
    watched: bool,
    last: LastAnswer,
    unreachable_since: Option<Time>,
    failures: u32,
    resends: u32,
    /// How many ties came in a row: several clients asked at once, and none got a majority.
    ties: u32,
    safety_poll: Duration,
    race: WakeRace,
    /// Its place in a queue on the server, of a kind that has one.
    place: Place,
    /// As it was when the last request was made.
    route: Route,
}

#[derive(Clone, Debug, PartialEq)]
enum AcquireState {
    Ready,
    NeedWatch,
    Asleep { until: Time },
    Over(Verdict),
}

impl Acquire {
    /// An acquire that begins at `now`.
    pub fn new(terms: Terms, patience: AcquireLimits, now: Time) -> Acquire {
        let give_up_at = patience.wait.map_or(Time::MAX, |wait| now + wait);
        let hard_limit = give_up_at + patience.connect_timeout + patience.request_timeout * 2;
        Acquire {
            terms,
            place: Place::lasting(patience.place_for),
            safety_poll: patience.look_every.unwrap_or(SAFETY_POLL_MIN),
            limits: patience,
            give_up_at,
            hard_limit,
            state: AcquireState::Ready,
            spacing: Spacing::default(),
            answering: false,
            watched: false,
            last: LastAnswer::Nothing,
            unreachable_since: None,
            failures: 0,
            resends: 0,
            ties: 0,
            race: WakeRace::default(),
            route: Route::default(),
        }
    }

    /// Whether this is a single try.
    pub fn is_try(&self) -> bool {
        self.limits.wait == Some(Duration::ZERO)
    }

    /// When the wait ends; [`Time::MAX`] for never.
    pub fn gives_up_at(&self) -> Time {
        self.give_up_at
    }

    /// The moment by which the call returns whatever happens.
    pub fn hard_limit(&self) -> Time {
        self.hard_limit
    }

    /// Takes over the spacing of its predecessor in the wait queue.
    pub fn set_spacing(&mut self, spacing: Spacing) {
        self.spacing = spacing;
    }

    /// The spacing that its successor takes over.
    pub fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// The server has been unreachable for other waiters of this process since `since`.
    pub fn set_unreachable_since(&mut self, since: Option<Time>) {
        if self.unreachable_since.is_none() {
            self.unreachable_since = since;
        }
    }

    /// Since when the server has been unreachable, if it is.
    pub fn unreachable_since(&self) -> Option<Time> {
        self.unreachable_since
    }

    /// Sets the contention that the client has seen for this lock so far.
    pub fn set_herd_backoff(&mut self, backoff: HerdBackoff) {
        self.race.backoff = backoff;
    }

    /// The contention that it has seen by now.
    pub fn herd_backoff(&self) -> HerdBackoff {
        self.race.backoff
    }

    /// It ignores messages until then, and answers them at that time.
    pub fn away_until(&self) -> Time {
        self.race.away_until
    }

    /// Delays the first attempt by [`YIELD`]: this client has retaken the lock several times in a row while others waited.
    pub fn yield_first(&mut self, now: Time) {
        self.state = AcquireState::Asleep { until: (now + YIELD).min(self.give_up_at) };
    }

    /// Whether the first attempt is delayed, so that other clients get the lock.
    pub fn is_yielding(&self) -> bool {
        matches!(self.state, AcquireState::Asleep { .. }) && self.last == LastAnswer::Nothing
    }

    /// What to do next.
    pub fn next(&mut self, now: Time) -> Step {
        match &self.state {
            AcquireState::Over(verdict) => Step::Done(verdict.clone()),
            AcquireState::Ready => self.attempt(now),
            AcquireState::NeedWatch => {
                if now >= self.give_up_at {
                    return self.give_up_waiting();
                }
                // a place has to be kept meanwhile; a later confirmation is a hint
                let most = if self.last == LastAnswer::Queued { self.place.watch_for() } else { Duration::MAX };
                Step::Watch { until: (now + self.limits.request_timeout.min(most)).min(self.give_up_at) }
            }
            AcquireState::Asleep { until } => {
                let until = *until;
                if now >= until {
                    self.state = AcquireState::Ready;
                    return self.attempt(now);
                }
                if now >= self.give_up_at {
                    return self.give_up_waiting();
                }
                Step::Sleep { until: until.min(self.give_up_at) }
            }
        }
    }

    fn attempt(&mut self, now: Time) -> Step {
        // the first attempt is always made, also with no wait at all; after a lost reply the request is sent once more
        let fresh = self.last == LastAnswer::Nothing || self.resends == 1;
        if (now >= self.give_up_at && !fresh) || now >= self.hard_limit {
            return self.give_up_waiting();
        }
        let earliest = self.spacing.next(self.answering, self.watched);
        if now < earliest && now < self.give_up_at {
            return Step::Sleep { until: earliest.min(self.give_up_at) };
        }
        let span = self.limits.connect_timeout + self.limits.request_timeout;
        Step::Attempt { until: (now + span).min(self.hard_limit) }
    }

    /// Ends it now, because the wait is over: [`Step::Done`] with the last refusal or failure.
    pub fn give_up_waiting(&mut self) -> Step {
        let failure = self.last.failure(self.limits.wait, self.place.ahead());
        self.over(Verdict::Failed(failure))
    }

    fn over(&mut self, verdict: Verdict) -> Step {
        self.state = AcquireState::Over(verdict.clone());
        Step::Done(verdict)
    }

    /// Reports the answer to an attempt, or that there was none.
    pub fn answered(&mut self, now: Time, answer: &Answer, jitter: &mut Jitter) -> Token {
        self.race.answered(now, &answer.outcome, jitter);
        let answering = std::mem::take(&mut self.answering);
        if matches!(answer.outcome, Outcome::Applied(Reply::Denied { .. } | Reply::Queued { .. } | Reply::Split { .. }))
        {
            self.spacing.refused(now, answering);
        }
        if matches!(answer.outcome, Outcome::Applied(_)) {
            // what came before it says nothing any more: it has no place, or this answer tells of it
            self.place.forget_answer();
        }
        match &answer.outcome {
            Outcome::Applied(Reply::Granted { fence, .. }) => self.granted(now, answer.sent_at, *fence, jitter),
            Outcome::Applied(Reply::Denied { ttl_left_ms, announces }) => {
                self.denied(now, *ttl_left_ms, *announces, jitter);
                Token::Keep
            }
            Outcome::Applied(Reply::Queued { place, ahead, look_in_ms, unheard, horizon }) => {
                self.place.queued(*place, *ahead, *unheard);
                self.place.kept(answer, *horizon, self.route);
                self.queued(now, *look_in_ms, jitter);
                Token::Keep
            }
            Outcome::Applied(Reply::Unconfirmed(failure)) => self.retired(now, failure, jitter),
            Outcome::Applied(Reply::Split { ttl_left_ms, announces, tie, failure, .. }) => {
                match failure {
                    Some(failure) => self.failed(now, failure, false, jitter),
                    None if *tie => self.tied(now, answer.sent_at, jitter),
                    None => self.denied(now, *ttl_left_ms, *announces, jitter),
                }
                Token::Retire
            }
            Outcome::Applied(Reply::WrongKind { found }) => {
                let detail = format!("a {found} stands under this name; it was left untouched");
                self.over(Verdict::Failed(Failure::lasting(ErrorKind::WrongKind, detail)));
                Token::Keep
            }
            Outcome::Applied(Reply::Mismatch { total, expected, count }) => {
                self.over(Verdict::Failed(crate::machine::failure::mismatch(*total, *expected, *count)));
                Token::Keep
            }
            Outcome::Applied(other) => {
                let detail = format!("the store answered an acquire with {other:?}");
                self.over(Verdict::Failed(Failure::lasting(ErrorKind::Internal, detail)));
                Token::Retire
            }
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => {
                self.failed(now, failure, matches!(answer.outcome, Outcome::Indeterminate(_)), jitter);
                Token::Keep
            }
        }
    }

    fn granted(&mut self, now: Time, sent_at: Time, fence: Option<u64>, jitter: &mut Jitter) -> Token {
        let deadline = self.terms.deadline(sent_at, self.terms.ttl);
        if self.is_worth_handing_out(now, deadline) {
            self.unreachable_since = None;
            self.spacing.granted(now);
            self.over(Verdict::Granted { deadline, fence, told: None });
            return Token::Keep;
        }
        // too late to be believed: not a grant
        let detail = format!("granted, but the reply took {:?} of a ttl of {:?}", now.since(sent_at), self.terms.ttl);
        self.retired(now, &Failure::transient(ErrorKind::Unavailable, detail), jitter)
    }

    fn retired(&mut self, now: Time, failure: &Failure, jitter: &mut Jitter) -> Token {
        self.place.retire();
        self.failed(now, failure, false, jitter);
        Token::Retire
    }

    /// Whether enough is left of a grant with this deadline; asked again at the last moment before it is handed out. If
    /// not, the token is dead, and [`Acquire::too_late`] follows.
    pub fn is_worth_handing_out(&self, now: Time, deadline: Time) -> bool {
        now < deadline && deadline.since(now) >= self.terms.min_validity
    }

    /// A lease was granted but its deadline came before it could be handed out: not a grant after all.
    pub fn too_late(&mut self, now: Time, jitter: &mut Jitter) {
        let detail = format!("granted, but nothing of the ttl of {:?} was left on hand-over", self.terms.ttl);
        self.retired(now, &Failure::transient(ErrorKind::Unavailable, detail), jitter);
    }

    /// Another client has the lock, or is about to. Returns whether the acquire ends with that.
    fn refused(&mut self, last: LastAnswer) -> bool {
        self.last = last;
        self.unreachable_since = None;
        self.failures = 0;
        self.resends = 0;
        if self.is_try() {
            self.give_up_waiting();
        }
        self.is_try()
    }

    /// Several clients asked at once, and each got some of the servers. A random delay keeps them apart, whatever messages
    /// come meanwhile.
    fn tied(&mut self, now: Time, sent_at: Time, jitter: &mut Jitter) {
        if self.refused(LastAnswer::Tied) {
            return;
        }
        let most = (now.since(sent_at) * 2).max(TIE_MIN).saturating_mul(1 << self.ties.min(8)).min(TIE_MAX);
        self.ties += 1;
        self.state = AcquireState::Asleep { until: now + jitter.between(ATTEMPT_SPACING, most) };
    }

    fn denied(&mut self, now: Time, ttl_left_ms: Option<u64>, announces: bool, jitter: &mut Jitter) {
        self.ties = 0;
        if self.refused(LastAnswer::Denied { ttl_left_ms }) {
            return;
        }
        if announces && !self.watched {
            self.state = AcquireState::NeedWatch;
            return;
        }
        let poll = if announces {
            let most = self.limits.look_every.unwrap_or(SAFETY_POLL_MAX);
            let poll = jitter.between(self.safety_poll.mul_f64(0.8), self.safety_poll);
            self.safety_poll = (self.safety_poll * 3 / 2).min(most);
            poll
        } else {
            jitter.between(FOREIGN_POLL_MIN, FOREIGN_POLL_MAX)
        };
        // the expiry of a key is not published: ask shortly after it is due
        let expiry = ttl_left_ms.map_or(Duration::MAX, |ms| {
            Duration::from_millis(ms) + jitter.between(Duration::from_millis(1), Duration::from_millis(8))
        });
        self.state = AcquireState::Asleep { until: now + poll.min(expiry) };
    }

    /// It has a place on the server: the next attempt, which is due soon, keeps it.
    fn queued(&mut self, now: Time, look_in_ms: Option<u64>, jitter: &mut Jitter) {
        if self.refused(LastAnswer::Queued) {
            return;
        }
        self.state = if self.watched {
            AcquireState::Asleep { until: now + self.place.keep_in(look_in_ms, jitter) }
        } else {
            AcquireState::NeedWatch
        };
    }

    fn failed(&mut self, now: Time, failure: &Failure, resend: bool, jitter: &mut Jitter) {
        self.last = LastAnswer::Failed(failure.clone());
        if !failure.transient {
            self.over(Verdict::Failed(failure.clone()));
            return;
        }
        let since = *self.unreachable_since.get_or_insert(now);
        self.failures += 1;
        if resend {
            self.resends += 1;
        } else {
            self.resends = 0;
        }
        if self.limits.wait.is_none() && now.since(since) >= self.limits.unreachable_limit {
            self.give_up_waiting();
            return;
        }
        if self.resends == 1 {
            // the server may have granted it already: ask at once, with the same token
            self.state = AcquireState::Ready;
            return;
        }
        if now >= self.give_up_at {
            self.give_up_waiting();
            return;
        }
        let backoff = BACKOFF_MIN.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX);
        self.state = AcquireState::Asleep { until: now + jitter.between(backoff / 2, backoff) };
    }

    /// The subscription is confirmed. Messages before it were missed, so the acquire asks again.
    pub fn watch_confirmed(&mut self) {
        self.watched = true;
        if self.state == AcquireState::NeedWatch {
            self.state = AcquireState::Ready;
        }
    }

    /// The subscription cannot be had, or not in time: the safety poll is left.
    pub fn watch_failed(&mut self) {
        self.watch_confirmed();
    }

    /// There is no subscription any more: subscribe again before the next refusal is slept on.
    pub fn watch_lost(&mut self) {
        self.watched = false;
        if matches!(
            (&self.state, &self.last),
            (AcquireState::Asleep { .. }, LastAnswer::Denied { .. } | LastAnswer::Queued)
        ) {
            self.state = AcquireState::NeedWatch;
        }
    }

    /// A message came, or the subscription changed: ask again. It counts only while the machine sleeps: what comes during
    /// an attempt has to be reported again when the machine sleeps, since the refusal may be older.
    ///
    /// Under contention it may ask a little later: see [`HerdBackoff`].
    pub fn hint(&mut self, now: Time, jitter: &mut Jitter) {
        let until = match self.state {
            // it is for this client alone: nobody else is woken
            AcquireState::Asleep { .. } if !self.answering && self.last == LastAnswer::Queued => {
                self.answering = true;
                self.state = AcquireState::Ready;
                return;
            }
            AcquireState::Asleep { until } if !self.answering && matches!(self.last, LastAnswer::Denied { .. }) => {
                until
            }
            // the message lifts the spacing
            AcquireState::Ready if !self.answering => self.spacing.next(false, self.watched),
            _ => return,
        };
        self.answering = true;
        let at = self.race.begin(now, until, jitter);
        self.state = if at <= now { AcquireState::Ready } else { AcquireState::Asleep { until: at } };
    }

    /// Whether the next attempt already answers a message, so that further messages change nothing.
    pub fn is_answering(&self) -> bool {
        self.answering
    }
}

#[cfg(test)]
#[path = "acquire_tests.rs"]
mod tests;
