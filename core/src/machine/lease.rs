//! One granted hold: its state, its deadline and the reason of its loss in one atomic word, so that "do I still hold it"
//! is a load and a compare, and a loss has one reason for everybody.
//!
//! ```text
//! Acquiring -> Held -> Releasing -> Released | Expired | LostAndReleased
//!              Held -> Lost -> LostAndReleased
//!              Held -> Detached
//! ```
//!
//! Whoever first sees the deadline passed makes the lease lost by compare-and-swap; nothing revives it.

use std::time::Duration;

use crate::machine::Time;
use crate::machine::atomic::{AtomicU64, Ordering};

/// Why a lease ended without the holder releasing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed without a confirmed renewal.
    Expired,
    /// The server says that the key is gone or somebody else's: deleted, evicted, forced, failed over.
    Taken,
    /// `max_hold` was reached.
    MaxHold,
    /// The server's clock jumped, so that the key may have expired early.
    ClockAnomaly,
    /// The client was closed while the lease was held, and released it.
    Closed,
}

impl LossReason {
    const ALL: [LossReason; 5] =
        [LossReason::Expired, LossReason::Taken, LossReason::MaxHold, LossReason::ClockAnomaly, LossReason::Closed];

    /// One sentence for people.
    pub const fn explain(self) -> &'static str {
        match self {
            LossReason::Expired => "its deadline passed without a confirmed renewal",
            LossReason::Taken => "the server no longer knows it: deleted, evicted, forced, or lost in a restart",
            LossReason::MaxHold => "max_hold was reached",
            LossReason::ClockAnomaly => "the server's clock jumped by more than the drift allowance",
            LossReason::Closed => "the client was closed while it was held",
        }
    }

    /// The name used in scenarios and by other languages: `expired`, `taken`, `max_hold`, `clock_anomaly`,
    /// `closed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            LossReason::Expired => "expired",
            LossReason::Taken => "taken",
            LossReason::MaxHold => "max_hold",
            LossReason::ClockAnomaly => "clock_anomaly",
            LossReason::Closed => "closed",
        }
    }
}

/// The phase of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// The claim is made, nothing is granted.
    Acquiring = 0,
    /// Granted, and valid until the deadline.
    Held = 1,
    /// The holder released it; the server's answer is awaited.
    Releasing = 2,
    /// Released, and the server found it.
    Released = 3,
    /// Released, and the server no longer knew it when its deadline had passed.
    Expired = 4,
    /// Ended without the holder releasing it.
    Lost = 5,
    /// Handed to another process; this handle holds nothing.
    Detached = 6,
    /// Lost, and its key cleaned up (or being so) by the holder; or its release found it lost.
    LostAndReleased = 7,
}

const PHASES: [Phase; 8] = [
    Phase::Acquiring,
    Phase::Held,
    Phase::Releasing,
    Phase::Released,
    Phase::Expired,
    Phase::Lost,
    Phase::Detached,
    Phase::LostAndReleased,
];
const PHASE_BITS: u64 = 0b111;
const REASON_SHIFT: u32 = 3;
const REASON_BITS: u64 = 0b111;
/// The low bits of the nanoseconds make room for phase and reason: rounding down is the safe side.
const LOW_BITS: u64 = PHASE_BITS | REASON_BITS << REASON_SHIFT;

/// The unpacked atomic word.
#[derive(Clone, Copy, Debug)]
struct LeaseWord {
    phase: Phase,
    deadline: Time,
    reason: Option<LossReason>,
}

impl LeaseWord {
    fn pack(self) -> u64 {
        let known = |reason| LossReason::ALL.iter().position(|known| *known == reason);
        let reason = self.reason.and_then(known).map_or(0, |index| index as u64 + 1);
        (self.deadline.as_nanos() & !LOW_BITS) | reason << REASON_SHIFT | self.phase as u64
    }

    fn unpack(word: u64) -> LeaseWord {
        let phase = PHASES.get((word & PHASE_BITS) as usize).copied().unwrap_or(Phase::Lost);
        let reason = (word >> REASON_SHIFT & REASON_BITS).checked_sub(1);
        let reason = reason.and_then(|index| LossReason::ALL.get(index as usize).copied());
        LeaseWord { phase, deadline: Time::from_nanos(word & !LOW_BITS), reason }
    }

    fn to(self, phase: Phase) -> LeaseWord {
        LeaseWord { phase, ..self }
    }
}

/// The shared heart of a lease. All methods are lock-free and take the time as an argument.
#[derive(Debug)]
pub struct LeaseState {
    word: AtomicU64,
}

/// What a release requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginRelease {
    /// It was held until now: send the compare-and-delete.
    Held,
    /// It was lost before, and its key not cleaned up yet: send the compare-and-delete, report `AlreadyExpired`.
    Lost,
    /// It was released or detached before: send nothing.
    NotHeld,
}

impl Default for LeaseState {
    fn default() -> LeaseState {
        let state = LeaseWord { phase: Phase::Acquiring, deadline: Time::ZERO, reason: None };
        LeaseState { word: AtomicU64::new(state.pack()) }
    }
}

impl LeaseState {
    /// A cell in the phase [`Phase::Acquiring`].
    pub fn new() -> LeaseState {
        LeaseState::default()
    }

    fn state(&self) -> LeaseWord {
        LeaseWord::unpack(self.word.load(Ordering::Acquire))
    }

    /// The phase, without looking at the clock.
    pub fn phase(&self) -> Phase {
        self.state().phase
    }

    /// The instant after which the lease must be treated as gone.
    pub fn deadline(&self) -> Time {
        self.state().deadline
    }

    /// Why it was lost, if it was. It never changes again.
    pub fn loss(&self) -> Option<LossReason> {
        self.state().reason
    }

    /// `Acquiring -> Held`.
    pub fn grant(&self, deadline: Time) -> bool {
        self.swap(|old| (old.phase == Phase::Acquiring).then_some(LeaseWord { phase: Phase::Held, deadline, ..old }))
    }

    /// Whether the lease is held at `now`. Seeing the deadline passed makes it lost.
    pub fn is_held(&self, now: Time) -> bool {
        let LeaseWord { phase, deadline, .. } = self.state();
        if phase != Phase::Held {
            return false;
        }
        if now < deadline {
            return true;
        }
        self.lapse(now);
        false
    }

    /// What is left until the deadline; zero when it is not held.
    pub fn remaining(&self, now: Time) -> Duration {
        if self.is_held(now) { self.deadline().since(now) } else { Duration::ZERO }
    }

    /// `Held -> Lost` if the deadline has passed. True for the one caller that did it.
    pub fn lapse(&self, now: Time) -> bool {
        self.lose_if(LossReason::Expired, |deadline| now >= deadline)
    }

    /// A renewal was confirmed: moves the deadline forward, never back. False when it came too late or the lease has
    /// ended; a late confirmation makes the lease lost.
    pub fn confirm(&self, now: Time, deadline: Time) -> bool {
        if self.lapse(now) {
            return false;
        }
        self.swap(|old| {
            let held = old.phase == Phase::Held && now < old.deadline;
            held.then_some(LeaseWord { deadline: old.deadline.max(deadline), ..old })
        })
    }

    /// Moves the deadline back: only when a server's clock is known to have jumped forward.
    pub fn shorten(&self, deadline: Time) -> bool {
        self.swap(|old| (old.phase == Phase::Held).then_some(LeaseWord { deadline: old.deadline.min(deadline), ..old }))
    }

    /// `Held -> Lost`. True for the one caller that did it.
    pub fn lose(&self, reason: LossReason) -> bool {
        self.lose_if(reason, |_| true)
    }

    /// `Held -> Releasing`; from here on the lease does not count as held. A lost lease is released once, too.
    pub fn begin_release(&self, now: Time) -> BeginRelease {
        self.lapse(now);
        let mut giving = BeginRelease::NotHeld;
        self.swap(|old| {
            let (found, next) = match old.phase {
                Phase::Held => (BeginRelease::Held, Phase::Releasing),
                Phase::Lost => (BeginRelease::Lost, Phase::LostAndReleased),
                _ => (BeginRelease::NotHeld, old.phase),
            };
            giving = found;
            (found != BeginRelease::NotHeld).then_some(old.to(next))
        });
        giving
    }

    /// `Releasing -> Released | Expired`, according to an answer that arrived at `heard_at`. It must be the answer to
    /// the only request that can have removed the hold.
    ///
    /// A hold that is not found before its deadline was taken from its holder: `Releasing -> LostAndReleased`. True for
    /// the one caller that did this.
    pub fn finish_release(&self, found: bool, heard_at: Time) -> bool {
        let mut lost = false;
        let ended = self.swap(|old| {
            lost = !found && heard_at < old.deadline;
            let next = match found {
                true => old.to(Phase::Released),
                false if lost => LeaseWord { reason: Some(LossReason::Taken), ..old.to(Phase::LostAndReleased) },
                false => old.to(Phase::Expired),
            };
            (old.phase == Phase::Releasing).then_some(next)
        });
        ended && lost
    }

    /// `Held -> Detached`. False when it is not held at `now`.
    pub fn detach(&self, now: Time) -> bool {
        self.swap(|old| (old.phase == Phase::Held && now < old.deadline).then_some(old.to(Phase::Detached)))
    }

    fn lose_if(&self, reason: LossReason, passed: impl Fn(Time) -> bool) -> bool {
        self.swap(|old| {
            let lost = LeaseWord { reason: Some(reason), ..old.to(Phase::Lost) };
            (old.phase == Phase::Held && passed(old.deadline)).then_some(lost)
        })
    }

    fn swap(&self, mut next: impl FnMut(LeaseWord) -> Option<LeaseWord>) -> bool {
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                next(LeaseWord::unpack(word)).map(LeaseWord::pack)
            })
            .is_ok()
    }
}
