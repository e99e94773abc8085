//! What is really so: the acquisitions and the names as no client can see them.

use std::sync::Arc;
use std::time::Duration;

use onelock::machine::{Claim, FenceGate, Key, Kind, LeaseState, PLACE_MAX, Terms, Time};

use super::places::{Passing, TruePlace};
use super::trail::Trail;

/// One acquisition as the simulator knows it: the claim, its lease if it came to one, and the truth about both.
pub(super) struct Deed {
    pub(super) client: usize,
    pub(super) name: usize,
    pub(super) claim: Claim,
    /// The deed whose hold it goes on with.
    pub(super) from: Option<usize>,
    pub(super) cell: Arc<LeaseState>,
    pub(super) terms: Arc<Terms>,
    /// The length that is renewed; grows with extend.
    pub(super) ttl: Duration,
    pub(super) trail: Trail,
    pub(super) fence: Option<u64>,
    /// The server granted it at least once.
    pub(super) granted: bool,
    /// The lease was handed to a caller.
    pub(super) handed: bool,
    /// An assumption was broken while it stood on the server: exclusion is not promised for it.
    pub(super) tainted: bool,
    /// Its process was killed.
    pub(super) gone: bool,
    /// The acquire ended without handing it out, or retired its token.
    pub(super) abandoned: bool,
    pub(super) release_begun: bool,
    pub(super) release_applied: bool,
    /// The server was asked to release it, whether or not it found it.
    pub(super) release_executed: bool,
    /// It came to hold its name after it had ended.
    pub(super) orphaned: bool,
    /// When the server granted it last.
    pub(super) granted_at: u64,
    /// By its process' clock: until then its key stays when it is released.
    pub(super) stays_until: Time,
    pub(super) told: u32,
    /// It was given up because another member of its group was lost.
    pub(super) lost_with_group: bool,
    pub(super) undo: Option<u64>,
    pub(super) undo_over: bool,
    pub(super) undone_at: Option<Time>,
    /// Something on the way made copies of its acquire: no client can know of them.
    pub(super) copied: bool,
    pub(super) counts_in_air: u32,
    pub(super) last_count: u32,
    /// The server's count may differ from the local one until a request of this number or a later one is confirmed.
    pub(super) count_dirty: Option<usize>,
    /// The longest time that its key or its place lived on the server, of all who went on with its claim.
    pub(super) lives: Duration,
    /// What its client has to know of places that were passed over.
    pub(super) passing: Passing,
}

impl Deed {
    /// How long its key lives on the server, or its place in a queue.
    pub(super) fn server_ttl(&self) -> Duration {
        let ttl = Duration::from_millis(self.terms.server_ttl_ms(self.ttl));
        let place = if self.claim.kind.row().queues { PLACE_MAX } else { Duration::ZERO };
        ttl.max(place).max(self.lives)
    }
}

/// One lock name and what was seen of it.
pub(super) struct Name {
    pub(super) key: Key,
    pub(super) kind: Kind,
    /// Deeds that were handed out and may be held.
    pub(super) live: Vec<usize>,
    pub(super) last_fence: u64,
    pub(super) handed_fence: u64,
    pub(super) fence_lost: bool,
    pub(super) gate: FenceGate,
    /// Acquires carried out.
    pub(super) attempts: u32,
    pub(super) free_since: Option<u64>,
    pub(super) foreign: Option<Key>,
    /// The last deed that was handed out, and the server's clock until which nobody else may have the name.
    pub(super) stay: Option<(usize, u64)>,
    /// The places in its queue on the server, as far as they were not lost there.
    pub(super) places: Vec<TruePlace>,
    /// Its queue came back from some time ago, perhaps with places that had been left.
    pub(super) old_queue: bool,
}

impl Name {
    pub(super) fn new(index: usize, kind: Kind) -> Name {
        Name {
            key: Key::from(format!("sim:{index}").as_bytes()),
            kind,
            live: Vec::new(),
            last_fence: 0,
            handed_fence: 0,
            fence_lost: false,
            gate: FenceGate::new(),
            attempts: 0,
            free_since: None,
            foreign: None,
            stay: None,
            places: Vec::new(),
            old_queue: false,
        }
    }
}
