//! The operations of a store and its replies.
//!
//! Every operation is conditional on a token and idempotent: sending it twice is as good as sending it once.

use std::sync::Arc;

use crate::machine::failure::Failure;
use crate::machine::kind::Kind;
use crate::machine::quorum::NodeSet;
use crate::machine::token::ClientTag;

/// A key on the server: the client's prefix, then the lock's name. Any bytes.
pub type Key = Arc<[u8]>;

/// One claim to a lock: its kind, its key, and the token that proves the hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The shape of the lock.
    pub kind: Kind,
    /// The key.
    pub key: Key,
    /// The token: the string value (mutex), the hash field (reentrant lock), or what the ids of the permits begin with and
    /// how many they are (semaphore). Made from fresh random bits for every acquisition, before the first byte is sent.
    pub token: Arc<str>,
}

/// One request to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Take the key if it is free; answer "yours already" (same fence, time to live refreshed, never shortened) if
    /// this very token holds it.
    Acquire {
        /// Key, kind and token.
        claim: Claim,
        /// Time to live on the server in milliseconds (`ttl + lock_delay`).
        ttl_ms: u64,
        /// Time to live of the fencing counter in milliseconds, or `None` for no fencing at all.
        fence_ttl_ms: Option<u64>,
        /// Text for inspection, stored as `onelock_info` in the hash of a reentrant lock (a mutex carries it in its token).
        info: Option<Arc<str>>,
    },
    /// [`Op::Acquire`] of several mutexes whose keys one server has in one slot: all of them in one step, or none. No key may
    /// be there twice. Sent again it takes what is missing and answers "yours already" for the rest.
    AcquireMany {
        /// The claims, each with its time to live on the server in milliseconds.
        claims: Vec<(Claim, u64)>,
        /// Whether fencing tokens are drawn, for each as [`naming::fence_ttl_ms`](crate::machine::naming::fence_ttl_ms) says.
        fenced: bool,
    },
    /// [`Op::Release`] of several mutexes, in one step. Each is compared by itself: what is not there any more keeps
    /// nothing else from being released.
    ReleaseMany {
        /// The holds.
        claims: Vec<Claim>,
    },
    /// Take the lock if it is this claim's turn, else a place in its queue on the server; keep the place if it has one. For
    /// kinds that queue, and for readers, who take no place. Answer "yours already" if this very token holds it, perhaps since somebody else's release.
    Enter {
        /// Key, kind and token.
        claim: Claim,
        /// Time to live on the server in milliseconds (`ttl + lock_delay`).
        ttl_ms: u64,
        /// Time to live of the fencing counter in milliseconds; it is always kept, since it orders the grants.
        fence_ttl_ms: u64,
        /// Text for inspection, as in [`Op::Acquire`].
        info: Option<Arc<str>>,
        /// The place to take or to keep.
        entry: QueueEntry,
    },
    /// Make the hold of a writer one of a reader, with no moment in between in which another writer could enter. A new fencing
    /// token is drawn. Answer "yours already" if it reads.
    Downgrade {
        /// Key and token; the kind is [`Kind::Write`].
        claim: Claim,
        /// Time to live on the server in milliseconds; what is left is never shortened.
        ttl_ms: u64,
        /// Time to live of the fencing counter in milliseconds.
        fence_ttl_ms: u64,
        /// Text for inspection, as in [`Op::Acquire`].
        info: Option<Arc<str>>,
    },
    /// Take as many permits as the claim says, all or none, if it is this claim's turn, else a place in the queue on the server;
    /// keep the place if it has one. Answer "yours already" if this very token holds them.
    AcquirePermits {
        /// Key and token; the kind is [`Kind::Semaphore`].
        claim: Claim,
        /// How many permits there are in all; `None` for as many as are set.
        total: Option<u32>,
        /// Time to live of the permits in milliseconds (`ttl + lock_delay`).
        ttl_ms: u64,
        /// Text for inspection, as in [`Op::Acquire`]: that of the place. Permits have none.
        info: Option<Arc<str>>,
        /// The place to take or to keep.
        entry: QueueEntry,
    },
    /// Look at the permits of a semaphore without touching them.
    InspectPermits {
        /// The key.
        key: Key,
    },
    /// Set how many permits a semaphore has. Whoever holds one keeps it.
    SetPermits {
        /// The key.
        key: Key,
        /// How many there are in all, held ones included.
        total: u32,
    },
    /// Take all permits from their holders, then announce that they are free.
    ForceReleasePermits {
        /// The key.
        key: Key,
    },
    /// Go on with a hold that was handed over: exchange its token for a new one, so that the old one proves nothing any
    /// more. Answer "yours already" if the new one holds it. The fencing token and the count stay what they are.
    Attach {
        /// Key, kind and the new token.
        claim: Claim,
        /// The token that was handed over.
        from: Arc<str>,
        /// Time to live on the server in milliseconds; what is left is never shortened.
        ttl_ms: u64,
        /// Text for inspection, as in [`Op::Acquire`]; it takes the place of the former holder's.
        info: Option<Arc<str>>,
    },
    /// Set the time to live to the larger of what is left and the given one, for each hold that is still there.
    /// Never recreates a key.
    Renew {
        /// The holds, each with its server-side time to live in milliseconds.
        holds: Vec<(Claim, u64)>,
    },
    /// Verify a reentrant hold, refresh its time to live as [`Op::Renew`] does, and *set* its count (that of a read/write
    /// lock stays 1 on the server).
    SetCount {
        /// The hold.
        claim: Claim,
        /// The absolute count, at least 1.
        count: u64,
        /// Server-side time to live in milliseconds.
        ttl_ms: u64,
    },
    /// Compare and delete, then announce the release.
    Release {
        /// The hold.
        claim: Claim,
    },
    /// Release a hold before its minimum time is over: the key stays for the rest of it, held by nobody, and the
    /// release is announced, so that waiters learn how long that is.
    Retain {
        /// The hold.
        claim: Claim,
        /// The nodes to ask; all of them, or those without an answer yet.
        nodes: NodeSet,
        /// For how long the key stays, in milliseconds; at least 1.
        rest_ms: u64,
    },
    /// Look at a key without touching it.
    Inspect {
        /// The key.
        key: Key,
    },
    /// Look at the queue of a lock without touching it.
    InspectQueue {
        /// The key.
        key: Key,
    },
    /// Delete a lock of either kind whoever holds it, then announce the release. What is not recognisably a lock is
    /// left alone.
    ForceRelease {
        /// The key.
        key: Key,
        /// A string without time to live is a lock, too. Else it may be anybody's data.
        foreign: bool,
    },
    /// [`Op::Release`] of what is left over: on some nodes of a store that has several (a store of one is all of them).
    Undo {
        /// The hold.
        claim: Claim,
        /// The nodes without an answer yet.
        nodes: NodeSet,
        /// Without an announcement: it never was a hold, and waiters wait for another holder. A lock with a queue is handed
        /// over to nobody, and a place stays.
        quiet: bool,
    },
    /// [`Op::Acquire`] on one node of several: the fencing counter goes up to the client's proposal, which is the same
    /// for all nodes, and a refusal identifies the holder.
    Vote {
        /// Key, kind and token.
        claim: Claim,
        /// Time to live on the server in milliseconds.
        ttl_ms: u64,
        /// The proposed fencing token, or `None` for no fencing at all.
        fence: Option<Proposal>,
        /// Text for inspection, as in [`Op::Acquire`].
        info: Option<Arc<str>>,
    },
    /// Raise the fencing counter of one node to the token that the others have, if the hold is still there.
    WriteBack {
        /// The hold.
        claim: Claim,
        /// The token.
        fence: u64,
        /// Time to live of the fencing counter in milliseconds.
        fence_ttl_ms: u64,
    },
}

/// What an [`Op::Enter`] says of the place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Whose it is: the client that is told of the grant.
    pub client: ClientTag,
    /// For how many milliseconds the place is kept from now on without another enter; 0 takes none (a single try).
    pub window_ms: u64,
    /// The number of a place that this token had before, in case that it is gone.
    pub place: Option<u64>,
    /// The client's subscription is confirmed: if the server counts no subscriber, the client is gone.
    pub listens: bool,
}

/// A fencing token as a client proposes it. A node that is further on takes the next number of its own, and none goes
/// further than an hour past its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The token.
    pub base: u64,
    /// Time to live of the fencing counter in milliseconds.
    pub ttl_ms: u64,
}

impl Op {
    /// A short word for messages, spans and statistics.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Acquire { .. } => "acquire",
            Op::AcquireMany { .. } => "acquire_many",
            Op::ReleaseMany { .. } => "release_many",
            Op::Enter { .. } => "enter",
            Op::Downgrade { .. } => "downgrade",
            Op::AcquirePermits { .. } => "acquire_permits",
            Op::InspectPermits { .. } => "inspect_permits",
            Op::SetPermits { .. } => "set_permits",
            Op::ForceReleasePermits { .. } => "force_release_permits",
            Op::Attach { .. } => "attach",
            Op::Renew { .. } => "renew",
            Op::SetCount { .. } => "set_count",
            Op::Release { .. } => "release",
            Op::Retain { .. } => "retain",
            Op::Inspect { .. } => "inspect",
            Op::InspectQueue { .. } => "inspect_queue",
            Op::ForceRelease { .. } => "force_release",
            Op::Undo { .. } => "undo",
            Op::Vote { .. } => "vote",
            Op::WriteBack { .. } => "write_back",
        }
    }
}

/// What came back for an [`Op`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Op::Acquire`], [`Op::Enter`], [`Op::Downgrade`] and [`Op::Attach`]: the key is held by this token now.
    Granted {
        /// The fencing token of this grant; `None` when fencing is off, or when the server has lost that of a hold that was
        /// handed over.
        fence: Option<u64>,
        /// It was held by this token before: a resent request.
        again: bool,
    },
    /// To [`Op::AcquireMany`] and [`Op::ReleaseMany`]: what would be the reply for each claim alone, in order.
    Many(Vec<Reply>),
    /// To [`Op::AcquireMany`]: nothing was taken, because of this claim.
    RefusedAt {
        /// Its place among the claims.
        index: usize,
        /// What would be the reply for it alone: [`Reply::Denied`] or [`Reply::WrongKind`].
        reply: Box<Reply>,
    },
    /// To [`Op::Acquire`] and [`Op::Attach`]: granted, but confirmed by too few servers. Not valid: the token must be
    /// released and not used again; the failure says what was missing.
    Unconfirmed(Failure),
    /// To [`Op::Attach`]: neither the old token nor the new one holds it. To [`Op::Downgrade`]: the token does not.
    Gone,
    /// To [`Op::Acquire`], and to an [`Op::Enter`] or [`Op::AcquirePermits`] without a place: somebody else holds it, or waits
    /// for it.
    Denied {
        /// What is left of the holder's time to live, in milliseconds, or until enough permits have ended; `None` when the
        /// key has none, or they never do.
        ttl_left_ms: Option<u64>,
        /// Whether the holder announces its release (our own kinds and Redisson do; other `SET NX PX` clients don't).
        announces: bool,
    },
    /// To [`Op::Enter`] and [`Op::AcquirePermits`]: not its turn yet; the token has a place in the queue on the server, which has to be given up when
    /// the acquire ends otherwise.
    Queued {
        /// The number of the place: the lowest is the head.
        place: u64,
        /// How many places are before it.
        ahead: u64,
        /// After how many milliseconds the head may find it free without having been told, such as the rest of the
        /// holder's time to live; `None` when there is no such time.
        look_in_ms: Option<u64>,
        /// It was passed over, because the server counted no subscriber though it said that it listens.
        unheard: bool,
        /// No grant of this lock before this answer has a higher fencing token; `None` of a kind whose grants are not numbered.
        horizon: Option<u64>,
    },
    /// To [`Op::Vote`]: somebody else holds it on this node.
    Taken {
        /// As in [`Reply::Denied`].
        ttl_left_ms: Option<u64>,
        /// As in [`Reply::Denied`].
        announces: bool,
        /// Identifies the holder: equal for one and the same.
        holder: u64,
    },
    /// To [`Op::Acquire`] and [`Op::Attach`], from a store of several nodes: no majority granted it, though some may
    /// have. The token must be released on all nodes and not used again. (That of an attach once it is not repeated any
    /// more.)
    Split {
        /// In how many milliseconds enough nodes may be free; `None` when that is not known.
        ttl_left_ms: Option<u64>,
        /// Whether the holder announces its release.
        announces: bool,
        /// Nobody has a majority: several clients tried at once.
        tie: bool,
        /// A node may still carry the request out later.
        may_still_arrive: bool,
        /// Too few nodes were there at all, and why; `None` when others were before us, or the hold is gone.
        failure: Option<Failure>,
    },
    /// To [`Op::Acquire`], [`Op::Vote`] and [`Op::ForceRelease`]: the key holds something else; it was left untouched.
    WrongKind {
        /// What the key holds: a server type such as `list`, or `hash` / `string` that is of the other kind or no lock.
        found: String,
    },
    /// To [`Op::AcquirePermits`]: there is another number of permits than was said, or none is set, or there are fewer than
    /// were asked for. Nothing was taken.
    Mismatch {
        /// How many there are in all; 0 when no number is set.
        total: u64,
        /// How many there should be.
        expected: Option<u32>,
        /// How many were asked for.
        count: u16,
    },
    /// To [`Op::InspectPermits`] and [`Op::SetPermits`]: `None` when no number is set.
    Permits(Option<PermitCount>),
    /// To [`Op::Renew`]: one verdict per hold, in order.
    Renewed(Vec<Renewal>),
    /// To [`Op::SetCount`]: whether the hold was there.
    Counted(bool),
    /// To [`Op::Release`], [`Op::Retain`] and [`Op::Undo`]: whether the hold was there.
    Released(bool),
    /// To [`Op::Release`] and [`Op::Undo`]: the hold was there, and somebody was told that it is gone.
    ReleasedToWaiters,
    /// The same from a store of several nodes, a majority of which answered.
    PartlyReleased {
        /// Whether the hold was there.
        found: bool,
        /// The nodes on which it may still be.
        outstanding: NodeSet,
        /// A request that brings it back there may still arrive.
        may_still_arrive: bool,
    },
    /// To [`Op::WriteBack`]: the fencing counter as it is now, or `None` if the hold was not there.
    Written(Option<u64>),
    /// To [`Op::Inspect`]: what the key holds, if anything.
    Inspected(Option<InspectedKey>),
    /// To [`Op::InspectQueue`]: who waits with a place.
    Queue(QueueSight),
    /// To [`Op::ForceRelease`] and [`Op::ForceReleasePermits`]: whether there was a lock to delete, or a permit to take.
    Forced(bool),
}

/// The permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitCount {
    /// How many there are in all.
    pub total: u64,
    /// How many are held. More than there are, for a while, after the number was made smaller.
    pub held: u64,
    /// Milliseconds until the first of those that are held ends; `None` when none is held, or it never ends.
    pub ttl_left_ms: Option<u64>,
}

/// The queue of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSight {
    /// How many places it has, without those of the first 64 that are dead.
    pub length: u64,
    /// The first 16 of those that are alive, the head first.
    pub places: Vec<QueuePlace>,
}

/// A place in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// Its number: when it was taken, in microseconds of the server's clock, or more.
    pub number: u64,
    /// The stored inspection text (`onelock1:…` form); empty for none.
    pub info: Vec<u8>,
}

/// What a renewal found for one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Still this token's; its time to live was refreshed.
    Renewed,
    /// Gone, somebody else's, or of another type. The lease is lost.
    NotMine,
    /// This one key was not renewed; the text says why. Deadline unchanged, try it alone.
    Failed(String),
}

/// What [`Op::Inspect`] saw under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedKey {
    /// The shape, or the server's type name when it is no lock of ours.
    pub kind: Result<Kind, String>,
    /// The holder: the string value, or the first owner field of the hash. Raw bytes.
    pub holder: Vec<u8>,
    /// The hold count; 1 for a mutex.
    pub count: u64,
    /// Milliseconds left on the server, `None` for a key without time to live.
    pub ttl_left_ms: Option<u64>,
    /// The fencing token of the present hold, if it has one.
    pub fence: Option<u64>,
    /// The stored inspection text (`onelock1:…` form), for a hash; a mutex has it in `holder`.
    pub info: Option<Vec<u8>>,
}
