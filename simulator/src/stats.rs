//! What happened, counted: a simulator that never meets the rare cases proves nothing about them.

use super::Scope;

/// Something worth counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Count {
    /// Events of the simulation.
    Events,
    /// Acquires begun.
    Acquires,
    /// Leases handed out.
    Leases,
    /// Acquires that ended without a lease.
    Refused,
    /// Acquires cancelled before a request went out.
    CancelledUnsent,
    /// Acquires cancelled with a request under way.
    CancelledInFlight,
    /// Acquires cancelled after the grant was seen and before the lease was handed out.
    CancelledGranted,
    /// Acquires sent again with the same token.
    Resends,
    /// Resent acquires that the server had carried out before.
    Again,
    /// Grants that came too late to be believed.
    LateGrants,
    /// Grants whose deadline came before they could be handed out.
    LateHandOvers,
    /// Renewals confirmed.
    Renewals,
    /// Renewal rounds of more than one hold.
    Batches,
    /// Batches of renewals refused, as a whole or for each hold.
    BatchesRefused,
    /// Leases lost.
    Losses,
    /// Leases extended.
    Extensions,
    /// Leases released.
    Releases,
    /// Releases of which no answer came.
    Unconfirmed,
    /// Re-entries.
    Entries,
    /// Undos in the cleanup queue.
    Duties,
    /// Undos sent for them.
    Undos,
    /// Requests executed after their connection was closed.
    ExecutedLate,
    /// Requests executed a second time.
    ExecutedTwice,
    /// Holds taken on the server for a token that nobody owned any more.
    Orphans,
    /// Overlapping leases in schedules that broke an assumption: fencing told them apart.
    Overlaps,
    /// Clock anomalies seen by clients.
    Anomalies,
    /// Hints that came while an attempt was under way.
    HintsInFlight,
    /// Comparisons of the local and the server's hold count.
    CountsCompared,
    /// Hand-overs that were watched for promptness.
    HandOvers,
    /// Holds handed to somebody else.
    Detached,
    /// Holds gone on with.
    Attached,
    /// Proofs that came again, or too late.
    AttachedInVain,
    /// Attaches cancelled.
    AttachesCancelled,
    /// Answers that a place in a queue on the server stands.
    Queued,
    /// Answers that it was passed over.
    Unheard,
    /// Places that went from one waiter of a client to the next.
    PlacesPassedOn,
    /// Locks handed over to a client that is told.
    DirectGrants,
    /// Live places passed over, since no subscriber was counted.
    PassedOver,
    /// Told grants that were believed.
    ToldBelieved,
    /// Told grants of a waiting token that were not.
    ToldDoubted,
    /// Acquires of several locks begun.
    ManyAcquires,
    /// Several locks handed out as one.
    ManyLeases,
    /// Acquires of several locks that ended without a lease.
    ManyRefused,
    /// Acquires of several locks that released everything and began anew.
    ManyAnew,
    /// Members renewed before the whole was handed out.
    ManyRenewals,
    /// Leases of several locks lost.
    ManyLost,
    /// Several locks taken by one request.
    AllTaken,
    /// Requests for several locks that took none.
    AllRefused,
    /// The same, sent again.
    AllResent,
    /// The same, cancelled.
    AllCancelled,
    /// Several locks released by one request.
    AllReleased,
}

const COUNTS: usize = Count::AllReleased as usize + 1;

/// The counts of one or many schedules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stats([u64; COUNTS]);

impl Default for Stats {
    fn default() -> Stats {
        Stats([0; COUNTS])
    }
}

impl Stats {
    pub(super) fn add(&mut self, count: Count) {
        self.0[count as usize] += 1;
    }

    /// How often it happened.
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    pub(super) fn merge(&mut self, other: &Stats) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Every count with its name.
    pub fn named(&self) -> impl Iterator<Item = (Count, u64)> {
        Count::ALL.into_iter().map(|count| (count, self.get(count)))
    }
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.named()).finish()
    }
}

impl Count {
    /// All of them.
    pub const ALL: [Count; COUNTS] = [
        Count::Events,
        Count::Acquires,
        Count::Leases,
        Count::Refused,
        Count::CancelledUnsent,
        Count::CancelledInFlight,
        Count::CancelledGranted,
        Count::Resends,
        Count::Again,
        Count::LateGrants,
        Count::LateHandOvers,
        Count::Renewals,
        Count::Batches,
        Count::BatchesRefused,
        Count::Losses,
        Count::Extensions,
        Count::Releases,
        Count::Unconfirmed,
        Count::Entries,
        Count::Duties,
        Count::Undos,
        Count::ExecutedLate,
        Count::ExecutedTwice,
        Count::Orphans,
        Count::Overlaps,
        Count::Anomalies,
        Count::HintsInFlight,
        Count::CountsCompared,
        Count::HandOvers,
        Count::Detached,
        Count::Attached,
        Count::AttachedInVain,
        Count::AttachesCancelled,
        Count::Queued,
        Count::Unheard,
        Count::PlacesPassedOn,
        Count::DirectGrants,
        Count::PassedOver,
        Count::ToldBelieved,
        Count::ToldDoubted,
        Count::ManyAcquires,
        Count::ManyLeases,
        Count::ManyRefused,
        Count::ManyAnew,
        Count::ManyRenewals,
        Count::ManyLost,
        Count::AllTaken,
        Count::AllRefused,
        Count::AllResent,
        Count::AllCancelled,
        Count::AllReleased,
    ];

    /// With which kinds of locks it has to happen.
    pub fn scope(self) -> Scope {
        match self as usize {
            number if number >= Count::ManyAcquires as usize => Scope::Several,
            number if number >= Count::Queued as usize => Scope::Queues,
            _ => Scope::Plain,
        }
    }
}
