//! One granted hold: its state and its deadline in one atomic word, so that "do I still hold it" is a load and a compare.
//!
//! ```text
//! Acquiring -> Held -> Releasing -> Released | Expired
//!              Held -> Lost -> LostAndReleased
//!              Held -> Detached
//! ```
//!
//! Whoever first sees the deadline passed makes the lease lost by compare-and-swap; nothing revives it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::machine::Time;

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
}

impl LossReason {
    const ALL: [LossReason; 4] =
        [LossReason::Expired, LossReason::Taken, LossReason::MaxHold, LossReason::ClockAnomaly];

    /// One sentence for people.
    pub const fn explain(self) -> &'static str {
        match self {
            LossReason::Expired => "its deadline passed without a confirmed renewal",
            LossReason::Taken => "the server no longer knows it: deleted, evicted, forced, or lost in a restart",
            LossReason::MaxHold => "max_hold was reached",
            LossReason::ClockAnomaly => "the server's clock jumped by more than the drift allowance",
        }
    }

    /// The name used in scenarios and by other languages: `expired`, `taken`, `max_hold`, `clock_anomaly`.
    pub const fn as_str(self) -> &'static str {
        match self {
            LossReason::Expired => "expired",
            LossReason::Taken => "taken",
            LossReason::MaxHold => "max_hold",
            LossReason::ClockAnomaly => "clock_anomaly",
        }
    }
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// The claim is made, nothing is granted.
    Acquiring = 0,
    /// Granted, and believed until the deadline.
    Held = 1,
    /// The holder gave it back; the server's answer is awaited.
    Releasing = 2,
    /// Given back, and the server found it.
    Released = 3,
    /// Given back, and the server no longer knew it.
    Expired = 4,
    /// Ended without the holder giving it back.
    Lost = 5,
    /// Handed to another process; this handle holds nothing.
    Detached = 6,
    /// Lost, and its key cleaned up (or being so) by the holder.
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

fn pack(phase: Phase, deadline: Time) -> u64 {
    // the low three bits of the nanoseconds make room for the phase: rounding down is the safe side
    (deadline.as_nanos() & !PHASE_BITS) | phase as u64
}

fn unpack(word: u64) -> (Phase, Time) {
    let phase = PHASES.get((word & PHASE_BITS) as usize).copied().unwrap_or(Phase::Lost);
    (phase, Time::from_nanos(word & !PHASE_BITS))
}

/// The shared heart of a lease. All methods are lock-free and take the time as an argument.
#[derive(Debug)]
pub struct LeaseCell {
    word: AtomicU64,
    reason: AtomicU8,
}

/// What a holder who wants to give a lease back has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    /// It was held until now: send the compare-and-delete.
    Held,
    /// It was lost before, and its key not cleaned up yet: send the compare-and-delete, report `AlreadyExpired`.
    Lost,
    /// It was given back or handed away before: send nothing.
    Gone,
}

impl Default for LeaseCell {
    fn default() -> LeaseCell {
        LeaseCell { word: AtomicU64::new(pack(Phase::Acquiring, Time::ZERO)), reason: AtomicU8::new(0) }
    }
}

impl LeaseCell {
    /// A cell in the phase [`Phase::Acquiring`].
    pub fn new() -> LeaseCell {
        LeaseCell::default()
    }

    /// The phase, without looking at the clock.
    pub fn phase(&self) -> Phase {
        unpack(self.word.load(Ordering::Acquire)).0
    }

    /// The instant after which the lease must be treated as gone.
    pub fn deadline(&self) -> Time {
        unpack(self.word.load(Ordering::Acquire)).1
    }

    /// Why it was lost, if it was.
    pub fn loss(&self) -> Option<LossReason> {
        if !matches!(self.phase(), Phase::Lost | Phase::LostAndReleased) {
            return None;
        }
        LossReason::ALL.get(usize::from(self.reason.load(Ordering::Acquire))).copied()
    }

    /// `Acquiring -> Held`.
    pub fn grant(&self, deadline: Time) -> bool {
        self.swap(|phase, _| (phase == Phase::Acquiring).then_some((Phase::Held, deadline)))
    }

    /// Whether the lease is held at `now`. Seeing the deadline passed makes it lost.
    pub fn is_held(&self, now: Time) -> bool {
        let (phase, deadline) = unpack(self.word.load(Ordering::Acquire));
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
        self.swap(|phase, old| (phase == Phase::Held && now < old).then_some((Phase::Held, old.max(deadline))))
    }

    /// Moves the deadline back: only when a server's clock is known to have jumped forward.
    pub fn shorten(&self, deadline: Time) -> bool {
        self.swap(|phase, old| (phase == Phase::Held).then_some((Phase::Held, old.min(deadline))))
    }

    /// `Held -> Lost`. True for the one caller that did it.
    pub fn lose(&self, reason: LossReason) -> bool {
        self.lose_if(reason, |_| true)
    }

    /// `Held -> Releasing`; from here on nothing believes in the lease. A lost lease is given back once, too.
    pub fn begin_release(&self, now: Time) -> Giving {
        self.lapse(now);
        let mut giving = Giving::Gone;
        self.swap(|phase, deadline| {
            let (found, next) = match phase {
                Phase::Held => (Giving::Held, Phase::Releasing),
                Phase::Lost => (Giving::Lost, Phase::LostAndReleased),
                _ => (Giving::Gone, phase),
            };
            giving = found;
            (found != Giving::Gone).then_some((next, deadline))
        });
        giving
    }

    /// `Releasing -> Released | Expired`.
    pub fn finish_release(&self, found: bool) {
        let end = if found { Phase::Released } else { Phase::Expired };
        self.swap(|phase, deadline| (phase == Phase::Releasing).then_some((end, deadline)));
    }

    /// `Held -> Detached`. False when it is not held at `now`.
    pub fn detach(&self, now: Time) -> bool {
        self.swap(|phase, deadline| (phase == Phase::Held && now < deadline).then_some((Phase::Detached, deadline)))
    }

    fn lose_if(&self, reason: LossReason, passed: impl Fn(Time) -> bool) -> bool {
        let (phase, deadline) = unpack(self.word.load(Ordering::Acquire));
        if phase != Phase::Held || !passed(deadline) {
            return false;
        }
        // The reason is written before the phase, so that whoever sees `Lost` sees a reason. If two threads lose the
        // lease at once for different reasons, either reason is true.
        let index = LossReason::ALL.iter().position(|known| *known == reason).unwrap_or(0);
        self.reason.store(index as u8, Ordering::Release);
        self.swap(|phase, deadline| (phase == Phase::Held && passed(deadline)).then_some((Phase::Lost, deadline)))
    }

    fn swap(&self, mut next: impl FnMut(Phase, Time) -> Option<(Phase, Time)>) -> bool {
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                let (phase, deadline) = unpack(word);
                next(phase, deadline).map(|(phase, deadline)| pack(phase, deadline))
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn held(until_ms: u64) -> LeaseCell {
        let cell = LeaseCell::new();
        assert!(cell.grant(at(until_ms)));
        cell
    }

    #[test]
    fn the_first_look_after_the_deadline_loses_the_lease_and_nothing_revives_it() {
        let cell = held(100);
        assert!(cell.is_held(at(99)));
        assert!(!cell.is_held(at(100)));
        assert_eq!(cell.loss(), Some(LossReason::Expired));
        assert!(!cell.confirm(at(100), at(500)));
        assert!(!cell.is_held(at(50)));
        assert!(!cell.lose(LossReason::Taken), "lost once, for one reason");
    }

    #[test]
    fn a_late_confirmation_makes_it_lost() {
        let cell = held(100);
        assert!(!cell.confirm(at(101), at(500)));
        assert_eq!(cell.phase(), Phase::Lost);
    }

    #[test]
    fn the_deadline_moves_only_forward() {
        let cell = held(100);
        assert!(cell.confirm(at(10), at(300)));
        assert!(cell.confirm(at(20), at(200)));
        assert_eq!(cell.deadline(), at(300));
    }

    #[test]
    fn releasing_twice_sends_once() {
        let cell = held(100);
        assert_eq!(cell.begin_release(at(1)), Giving::Held);
        assert!(!cell.is_held(at(1)));
        assert_eq!(cell.begin_release(at(1)), Giving::Gone);
        assert!(!cell.confirm(at(2), at(900)), "a renewal in flight is ignored on arrival");
        cell.finish_release(true);
        assert_eq!(cell.phase(), Phase::Released);
    }

    #[test]
    fn a_lost_lease_is_cleaned_up_once() {
        let cell = held(100);
        assert!(cell.lose(LossReason::MaxHold));
        assert_eq!(cell.begin_release(at(1)), Giving::Lost);
        assert_eq!(cell.begin_release(at(1)), Giving::Gone);
        assert_eq!(cell.loss(), Some(LossReason::MaxHold), "the reason stays");
    }

    #[test]
    fn a_detached_lease_holds_and_sends_nothing() {
        let cell = held(100);
        assert!(cell.detach(at(5)));
        assert!(!cell.is_held(at(5)) && !cell.detach(at(5)));
        assert_eq!(cell.begin_release(at(6)), Giving::Gone);
        assert!(!held(100).detach(at(100)));
    }
}
