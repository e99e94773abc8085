//! One acquire of several locks, all or none: in which order its members are taken, how long each may be waited for, when
//! everything is released to begin anew, and when the whole may be handed out.
//!
//! **Why one order.** Members are held while later ones are waited for. Everybody takes them in the same order, so whoever
//! waits waits for somebody who is further on: there is no circle. Programs can disagree about the order only where two
//! members differ in nothing but how their store's address is spelt; there, and only there, holding while waiting ends
//! after some seconds.
//!
//! **All at once.** Where one server can take them all in one step, it is asked to do that first. Refused, nothing is held;
//! then they are taken one after the other. So whoever takes all at once never waits while it holds.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::machine::last_answer::LastAnswer;
use crate::machine::{Failure, Jitter, Key, Kind, LossReason, Outcome, Owner, Release, Reply, Terms, Time};

/// How many members there may be.
pub const MEMBERS_MAX: usize = 32;
/// How long one member is held at least while another one is waited for that programs may order differently.
pub const HOLD_MIN: Duration = Duration::from_secs(5);
/// The same at most.
pub const HOLD_MAX: Duration = Duration::from_millis(7500);
/// The longest pause before it begins anew after that.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How often members are renewed before the whole is handed out; who is slower than that begins anew.
const RENEWALS_MAX: u32 = 3;
/// How often a request for all at once is sent that is not answered; after that each is asked for by itself.
const REQUESTS_MAX: u32 = 3;

/// What tells one member from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberId {
    /// The key of the lock.
    pub key: Key,
    /// Its kind.
    pub kind: Kind,
    /// The address of its store, as it was spelt.
    pub address: Arc<str>,
    /// Members with the same number are in the same store.
    pub store: usize,
    /// How many permits it takes, of a semaphore.
    pub count: u32,
    /// Who enters it.
    pub owner: Option<Owner>,
}

/// Why such members cannot be acquired together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberFault {
    /// There are none.
    Nothing,
    /// There are too many: so many.
    TooMany(usize),
    /// These two have one name and two kinds.
    TwoKinds(usize, usize),
    /// These two are one lock, but take different numbers of permits or have different owners: it could be held for one only.
    TwoWays(usize, usize),
}

/// One member at its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedMember {
    /// Its place in the caller's list.
    pub given: usize,
    /// Members of the same class differ in the store only: programs may order them differently.
    pub class: usize,
}

/// Brings members into the order that is the same everywhere: by key, kind, and address. A member that is named twice
/// is there once, if both mean the same.
///
/// # Errors
/// What is wrong with them.
pub fn arrange(members: &[MemberId]) -> Result<Vec<PlacedMember>, MemberFault> {
    if members.is_empty() {
        return Err(MemberFault::Nothing);
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    let rank = |index: &usize| members.get(*index).map(|id| (&id.key, id.kind.as_str(), &id.address, *index));
    order.sort_by(|one, other| rank(one).cmp(&rank(other)));
    let mut placed: Vec<PlacedMember> = Vec::with_capacity(order.len());
    for given in order {
        let Some(id) = members.get(given) else { continue };
        let before = placed.iter().filter_map(|placed| Some((placed, members.get(placed.given)?)));
        let mut class = None;
        let mut repeated = false;
        for (placed, other) in before.filter(|(_, other)| other.key == id.key) {
            match (other.kind == id.kind, other.store == id.store) {
                (true, true) if (other.count, &other.owner) != (id.count, &id.owner) => {
                    return Err(MemberFault::TwoWays(placed.given.min(given), placed.given.max(given)));
                }
                (true, true) => repeated = true,
                (true, false) => class = Some(placed.class),
                (false, true) => return Err(MemberFault::TwoKinds(placed.given.min(given), placed.given.max(given))),
                (false, false) => {}
            }
        }
        if !repeated {
            let class = class.unwrap_or(placed.len());
            placed.push(PlacedMember { given, class });
        }
    }
    if placed.len() > MEMBERS_MAX {
        return Err(MemberFault::TooMany(placed.len()));
    }
    Ok(placed)
}

/// The terms of a member while later ones are waited for: it is renewed, and the limits of its hold do not count yet, the
/// shortest time included: an acquire that fails leaves nothing.
#[must_use]
pub fn terms_while_acquiring(terms: &Terms) -> Terms {
    Terms { auto_renew: true, max_hold: None, min_hold: Duration::ZERO, ..terms.clone().within_max_hold() }
}

/// One look at a member, before the whole is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLook {
    /// What is left until its deadline; zero when it is not held.
    pub left: Duration,
    /// How much of it has to be left.
    pub needed: Duration,
    /// It has not been renewed since all were held, and its length counts from the handing out.
    pub fixed: bool,
}

/// What an acquire of several locks wants done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiStep {
    /// Take all by one request, which is answered by then, or given up.
    TakeAll {
        /// When the answer is not waited for any more.
        until: Time,
    },
    /// Acquire this member, waiting at most so long (zero is one try). Stop when a member that is held is lost, and at the
    /// [hard limit](MultiAcquire::hard_limit).
    Enter {
        /// Its place in the order.
        member: usize,
        /// How long to wait; `None` for as long as it takes.
        wait: Option<Duration>,
    },
    /// All are entered: look at them.
    Look,
    /// Renew these, but not beyond the hard limit, then look again.
    Renew(Vec<usize>),
    /// Release everything, wait until then, and go on.
    Release {
        /// When to begin anew.
        until: Time,
    },
    /// All are held: hand the whole out.
    HandOut,
    /// Release everything and end.
    GiveUp(GiveUpReason),
}

/// What the answer to a request for all at once means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllAtOnce {
    /// All are held.
    Held,
    /// Nobody knows: the same request again, with the same tokens.
    Again,
    /// None is held: undo what may have been taken, and go on one after the other.
    Separately,
    /// None is held, and it was one try: the whole ends with this, because of this member.
    Refused(usize, Failure),
}

/// Why an acquire of several locks ends although no member was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// A single try lost what it had.
    LostInTry,
    /// A member was lost, and there is no time to begin anew.
    LostTooLate,
    /// Its members took longer, together, than one call may.
    TooSlow,
}

impl GiveUpReason {
    /// The kind of the error.
    #[must_use]
    pub fn kind(self) -> ErrorKind {
        match self {
            GiveUpReason::LostInTry => ErrorKind::Busy,
            GiveUpReason::LostTooLate => ErrorKind::Timeout,
            GiveUpReason::TooSlow => ErrorKind::Unavailable,
        }
    }

    /// The reason in words.
    #[must_use]
    pub fn explain(self) -> &'static str {
        match self {
            GiveUpReason::LostInTry => "one of the locks was lost before all were held",
            GiveUpReason::LostTooLate => "one of the locks was lost before all were held, and the wait is over",
            GiveUpReason::TooSlow => {
                "the servers answered too slowly for so many locks; name fewer, or set a longer request_timeout"
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultiPhase {
    Entering,
    Releasing(Time),
    GivenUp(GiveUpReason),
}

/// An acquire of several locks. The members are numbered in their order; those before `held` are held.
#[derive(Clone, Debug)]
pub struct MultiAcquire {
    classes: Vec<usize>,
    wait: Option<Duration>,
    give_up_at: Time,
    hard_limit: Time,
    held: usize,
    phase: MultiPhase,
    /// The present wait is cut short, since holding while waiting is limited here.
    cut: bool,
    renewals: u32,
    /// How many requests for all at once may still be sent.
    requests_left: u32,
    grace: Duration,
}

impl MultiAcquire {
    /// Of members in this order, that began at `now`, waits at most so long (zero is one try of each), and ends `grace`
    /// after that at the latest.
    pub fn new(order: &[PlacedMember], wait: Option<Duration>, grace: Duration, now: Time) -> MultiAcquire {
        let give_up_at = wait.map_or(Time::MAX, |wait| now + wait);
        MultiAcquire {
            classes: order.iter().map(|placed| placed.class).collect(),
            wait,
            give_up_at,
            hard_limit: give_up_at + grace,
            held: 0,
            phase: MultiPhase::Entering,
            cut: false,
            renewals: 0,
            requests_left: 0,
            grace,
        }
    }

    /// The same where one server can take all at once.
    #[must_use]
    pub fn at_once(self) -> MultiAcquire {
        MultiAcquire { requests_left: REQUESTS_MAX, ..self }
    }

    fn is_try(&self) -> bool {
        self.wait == Some(Duration::ZERO)
    }

    /// How long it waits; zero is one try, `None` as long as it takes.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// How many members are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// By when it has to end, however many members there are: each of them alone may take as long as one lock.
    pub fn hard_limit(&self) -> Time {
        self.hard_limit
    }

    /// What to do now.
    pub fn next(&mut self, now: Time, jitter: &mut Jitter) -> MultiStep {
        match self.phase {
            MultiPhase::Releasing(until) => return MultiStep::Release { until },
            MultiPhase::GivenUp(why) => return MultiStep::GiveUp(why),
            MultiPhase::Entering => {}
        }
        if now >= self.hard_limit {
            return MultiStep::GiveUp(GiveUpReason::TooSlow);
        }
        if self.requests_left > 0 {
            return MultiStep::TakeAll { until: (now + self.grace).min(self.hard_limit) };
        }
        let Some(class) = self.classes.get(self.held) else { return MultiStep::Look };
        // the rest of a bounded wait never becomes a single try
        let rest = self.wait.map(|wait| self.give_up_at.since(now).max(wait.min(Duration::from_millis(1))));
        let disputed = self.classes.iter().take(self.held).any(|held| held == class);
        let most = if disputed && !self.is_try() { jitter.between(HOLD_MIN, HOLD_MAX) } else { Duration::MAX };
        self.cut = rest.is_none_or(|rest| most < rest) && most < Duration::MAX;
        MultiStep::Enter { member: self.held, wait: if self.cut { Some(most) } else { rest } }
    }

    /// The request for all at once ended so.
    pub fn took_all(&mut self, now: Time, outcome: &Outcome<Reply>) -> AllAtOnce {
        let left = std::mem::take(&mut self.requests_left);
        match outcome {
            Outcome::Applied(Reply::Many(replies)) if replies.len() == self.classes.len() => {
                self.held = self.classes.len();
                AllAtOnce::Held
            }
            Outcome::Applied(Reply::RefusedAt { index, reply }) if self.is_try() => match **reply {
                Reply::Denied { ttl_left_ms, .. } => {
                    AllAtOnce::Refused(*index, LastAnswer::Denied { ttl_left_ms }.failure(self.wait, 0))
                }
                _ => AllAtOnce::Separately,
            },
            Outcome::Indeterminate(_) if left > 1 && now < self.hard_limit => {
                self.requests_left = left - 1;
                AllAtOnce::Again
            }
            // whatever it was, each by itself says it best
            _ => AllAtOnce::Separately,
        }
    }

    /// The member was entered.
    pub fn entered(&mut self) {
        self.held += 1;
    }

    /// The member was not entered, for this reason. True when it begins anew; else the whole ends with this reason.
    pub fn not_entered(&mut self, now: Time, why: ErrorKind, jitter: &mut Jitter) -> bool {
        let again = self.cut && why == ErrorKind::Timeout && now < self.give_up_at;
        if again {
            self.begin_anew((now + jitter.between(Duration::ZERO, PAUSE_MAX)).min(self.give_up_at));
        }
        again
    }

    /// A member that was held is lost. It is not taken again alone: with later ones held, that would break the order.
    pub fn lost(&mut self, now: Time) {
        if self.is_try() {
            self.phase = MultiPhase::GivenUp(GiveUpReason::LostInTry);
        } else if now >= self.give_up_at {
            self.phase = MultiPhase::GivenUp(GiveUpReason::LostTooLate);
        } else {
            self.begin_anew(now);
        }
    }

    fn begin_anew(&mut self, at: Time) {
        self.phase = MultiPhase::Releasing(at);
    }

    /// Everything was released.
    pub fn released(&mut self) {
        self.held = 0;
        self.renewals = 0;
        self.phase = MultiPhase::Entering;
    }

    /// What one look at all members says.
    pub fn looked(&mut self, now: Time, looks: &[MemberLook]) -> MultiStep {
        let whole = looks.len() == self.classes.len() && looks.iter().all(|look| !look.left.is_zero());
        let short = |look: &MemberLook| look.left < look.needed || (look.fixed && self.renewals == 0);
        let due: Vec<usize> = looks.iter().enumerate().filter(|(_, look)| short(look)).map(|(at, _)| at).collect();
        if whole && due.is_empty() {
            return MultiStep::HandOut;
        }
        if now >= self.hard_limit {
            return MultiStep::GiveUp(GiveUpReason::TooSlow);
        }
        if whole && self.renewals < RENEWALS_MAX {
            self.renewals += 1;
            return MultiStep::Renew(due);
        }
        self.lost(now);
        match self.phase {
            MultiPhase::GivenUp(why) => MultiStep::GiveUp(why),
            MultiPhase::Releasing(_) | MultiPhase::Entering => MultiStep::Release { until: now },
        }
    }
}

/// The result of the whole: the worst of its members'.
#[must_use]
pub fn worst_release(one: Release, other: Release) -> Release {
    let rank = |release| match release {
        Release::Unconfirmed => 3,
        Release::AlreadyExpired => 2,
        Release::Released => 1,
        Release::AlreadyReleased => 0,
    };
    if rank(one) >= rank(other) { one } else { other }
}

/// The loss of the whole: the first loss of a member, for everybody and for good.
#[derive(Debug, Default)]
pub struct SharedLoss(OnceLock<LossReason>);

impl SharedLoss {
    /// A member was seen lost. Returns the reason that counts.
    pub fn note(&self, reason: LossReason) -> LossReason {
        *self.0.get_or_init(|| reason)
    }

    /// Why the whole was lost, if it was.
    pub fn reason(&self) -> Option<LossReason> {
        self.0.get().copied()
    }
}

#[cfg(test)]
#[path = "multi_tests.rs"]
mod tests;
