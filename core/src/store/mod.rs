//! Stores: they keep the locks. For authors and tests of stores; **no promise of stability**.
//!
//! A store carries out single operations; it has no waiting loop, no deadline and no policy.
//!
//! A new store is one implementation of [`Store`]; nothing above it changes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

pub use self::capabilities::Capabilities;
pub use self::diagnosis::{Diagnosis, Finding, Severity};
pub use crate::config::credentials::{Credentials, CredentialsProvider, CredentialsRequest, CredentialsSource};
use crate::config::warning;
pub use crate::config::{Notify, Secret};
use crate::error::ErrorKind;
use crate::machine::{Answer, Claim, ClientTag, Failure, Grade, GrantNotice, Key, Kind, Op, Time};

pub(crate) mod address;
mod capabilities;
pub(crate) mod diagnosis;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "file", unix))]
mod file;
#[cfg(any(feature = "postgres", feature = "etcd", feature = "memcached"))]
mod login;
#[cfg_attr(not(feature = "redlock"), allow(dead_code, reason = "what only a store of several servers uses"))]
pub(crate) mod member;
#[cfg(feature = "memcached")]
mod memcached;
pub mod memory;
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "memcached"))]
#[cfg_attr(target_family = "wasm", path = "net_hosted.rs")]
pub(crate) mod net;
#[cfg_attr(target_family = "wasm", path = "on_runtime_hosted.rs")]
mod on_runtime;
#[cfg(feature = "postgres")]
#[cfg_attr(not(feature = "redlock"), allow(dead_code, reason = "what only a store of several servers uses"))]
mod postgres;
#[cfg(feature = "redis")]
#[cfg_attr(not(feature = "redlock"), allow(dead_code, reason = "what only a store of several servers uses"))]
pub mod redis;
#[cfg(feature = "redlock")]
pub mod redlock;
pub(crate) mod schemes;
#[cfg(any(all(feature = "file", unix), feature = "memcached", feature = "etcd"))]
mod sha256;
#[cfg(all(
    any(feature = "redis", feature = "postgres", feature = "etcd", feature = "memcached"),
    not(target_family = "wasm")
))]
pub(crate) mod tls;
#[cfg(all(
    any(feature = "redis", feature = "postgres", feature = "etcd", feature = "memcached"),
    not(target_family = "wasm")
))]
mod tls_configs;
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "memcached"))]
mod tls_files;

/// A boxed future, so that stores are trait objects.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The state of the subscription to one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionState {
    /// Whether the subscription is confirmed right now.
    pub subscribed: bool,
    /// Whether it was refused permanently (no channel permission): rely on the safety poll.
    pub refused: bool,
    /// Grows with every message, every new subscription and every loss of one. A change is a reason to retry.
    pub generation: u64,
    /// The number of the connection of a confirmed subscription, as [`Answer::connection`] has it: another one after each
    /// loss. 0: not confirmed, or its messages may come from another server than the answers.
    pub connection: u64,
    /// What the last message on this connection said that told a grant.
    pub granted: Option<Arc<GrantNotice>>,
}

impl SubscriptionState {
    /// It is confirmed on this connection.
    pub(crate) fn confirm(&mut self, connection: u64) {
        if connection != self.connection {
            self.granted = None;
        }
        (self.subscribed, self.refused, self.connection) = (true, false, connection);
    }

    /// It is lost.
    pub(crate) fn lose(&mut self) {
        (self.subscribed, self.connection, self.granted) = (false, 0, None);
    }
}

/// A live subscription. Dropping it unsubscribes; nothing is awaited.
pub struct Subscription {
    /// The latest state; `changed()` wakes at every change.
    pub state: watch::Receiver<SubscriptionState>,
    /// Ends the subscription when dropped.
    pub guard: Box<dyn Send + Sync>,
}

/// A live subscription that a waiting thread reads. Dropping it unsubscribes; nothing is awaited.
pub trait BlockingSubscription {
    /// Waits for a message until `until`; may return earlier.
    fn recv(&mut self, until: Time, interrupt: &dyn Interrupt) -> Notification;

    /// Skips the messages that have arrived, without waiting.
    fn drain(&mut self);
}

/// What a waiting thread has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// A message: a reason to retry.
    Message,
    /// Nothing yet.
    TimedOut,
    /// The subscription is lost, and messages since then may have been missed.
    Lost,
}

/// What is known about the server: its version, how strong its fencing tokens are, and what breaks locks on it. From
/// [`Client::check`](crate::Client::check).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::Client::connect("memory://").await?;
/// let facts = client.check().await?;
/// for warning in &facts.warnings {
///     eprintln!("{}: {warning}", facts.server);
/// }
/// assert_eq!(facts.grade, onelock::Grade::ClockBounded);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How strong its fencing tokens are; [`Grade::None`] for a client without fencing.
    pub grade: Grade,
    /// What breaks locks on it, each a sentence for people with the setting to change (evicting policy, no persistence,
    /// replicas ...), and the name of the finding in brackets. Empty when nothing was found.
    pub warnings: Vec<String>,
    /// Those of them that endanger exclusion while the server runs, and that the client has not
    /// [accepted](crate::ClientBuilder::accepted_warnings): they are logged as a warning.
    pub dangers: Vec<String>,
    /// The server's name and version for people, such as `valkey 9.1.0`.
    pub server: String,
}

/// Tells a blocking caller that it should stop waiting: a flag, a signal, the interrupt of another language.
///
/// [`blocking::Cancel`](crate::blocking::Cancel) is a flag that suits most; implement this for anything else.
pub trait Interrupt {
    /// Whether to stop. Asked at least every 50 ms while a call waits, on the waiting thread; must not block.
    ///
    /// `true` ends the call with `Cancelled`, and what may have been acquired is released in the background.
    fn interrupted(&self) -> bool;
}

/// Never interrupts.
pub struct Uninterrupted;

impl Interrupt for Uninterrupted {
    fn interrupted(&self) -> bool {
        false
    }
}

/// Counters that a store keeps for `client.stats()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Requests handed to a connection.
    pub commands_sent: u64,
    /// Connections made after the first.
    pub reconnects: u64,
}

/// One step of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Which keys, as [`machine::glob`](crate::machine::glob) reads it. Any bytes.
    pub pattern: Vec<u8>,
    /// How many keys to look at, about: what a server does for this step, and so how long it serves nobody else.
    pub count: u32,
    /// Where the step before ended; `None` for the first.
    pub cursor: Option<String>,
}

/// What a step of a listing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Keys that match, whatever stands there.
    pub keys: Vec<Key>,
    /// Where to go on; `None` when that was all.
    pub next: Option<String>,
}

/// A cursor that this store cannot have told.
pub(crate) fn foreign_cursor() -> Failure {
    Failure::lasting(ErrorKind::InvalidArgument, "this cursor is none that a page of this client's list told as next")
}

/// A place that keeps locks. Every call is idempotent, none waits for a lock.
///
/// Stores are made without I/O; the first call connects. They must be shareable between threads.
pub trait Store: Send + Sync + 'static {
    /// What it can do. The same at any time: nothing is asked for that is not there.
    fn capabilities(&self) -> &'static Capabilities;

    /// Carries out one operation from an async caller. Finishes by `until` at the latest, connecting included, whatever
    /// the network does. Dropping the future loses the answer, never the connection.
    fn call(&self, op: Op, until: Time) -> Boxed<Answer>;

    /// The same from a thread without a runtime. Unless the store has a faster way, such as a connection that this very
    /// thread drives, the call runs on the background runtime while the thread waits.
    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        on_runtime::wait(|| self.call(op.clone(), until), until, interrupt)
    }

    /// The same for a renewal, and background work that it leaves: a store of several nodes uses answers that arrive
    /// late.
    fn renew_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> (Answer, Option<Boxed<()>>) {
        (self.call_blocking(op, until, interrupt), None)
    }

    /// This hold is over: about to be released, lost, or detached. No request in the background may bring it back.
    fn over(&self, claim: &Claim) {
        let _ = claim;
    }

    /// Nothing more is sent about this claim: it was released or undone, or that was given up.
    fn settled(&self, claim: &Claim) {
        let _ = claim;
    }

    /// Connects for this operation if need be, so that it is known whether anything was sent, and by `until` at the latest.
    fn prepare(&self, op: &Op, until: Time) -> Boxed<Result<(), Failure>> {
        let _ = (op, until);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The number of the ordered connection that [`Store::call`] uses at present (see [`Answer::connection`]), or of
    /// the next one if there is none; 0 for a store without. While it stays the same, every call meanwhile was sent on
    /// that connection or not at all.
    fn connection(&self) -> u64 {
        0
    }

    /// Which requests can be combined: holds whose keys have the same number are renewed in one call.
    fn shard(&self, key: &Key) -> u32 {
        let _ = key;
        0
    }

    /// Subscribes to the wake-ups of one lock for a client (of a kind that queues, they are for one client), now and after every reconnect, until the guard is dropped. Needs a
    /// runtime context for its background work, but does not wait.
    fn subscribe(&self, kind: Kind, key: &Key, client: ClientTag) -> Subscription;

    /// Subscribes to the wake-ups of one lock from a thread, which reads them itself, and waits for the confirmation.
    /// `None` where that is not possible: then use [`subscribe`](Store::subscribe).
    fn subscribe_blocking(
        &self,
        kind: Kind,
        key: &Key,
        client: ClientTag,
        until: Time,
        interrupt: &dyn Interrupt,
    ) -> Option<Box<dyn BlockingSubscription>> {
        let _ = (kind, key, client, until, interrupt);
        None
    }

    /// Connects if need be and queries the server.
    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>>;

    /// Looks for keys: one short step, so that nobody else waits long. What stands there from the first step to the last
    /// is told at least once; what comes, goes or moves meanwhile may be missed.
    fn scan(&self, scan: Scan, until: Time) -> Boxed<Result<Scanned, Failure>>;

    /// How many clients listen for the release of each of these locks without a place in its queue; `None` where that cannot be
    /// told.
    fn listening(&self, locks: Vec<(Kind, Key)>, until: Time) -> Boxed<Vec<Option<u64>>> {
        let _ = until;
        Box::pin(std::future::ready(vec![None; locks.len()]))
    }

    /// What has been sent so far.
    fn stats(&self) -> StoreStats;

    /// Where this store is, without secrets: for messages.
    fn address(&self) -> &str;

    /// Ends connections and background work. Later calls answer not-applied `Closed`.
    fn close(&self);
}

/// A shared store.
pub type SharedStore = Arc<dyn Store>;

/// Logs the warnings that are not accepted: one line for dangers, one for the rest.
pub(crate) fn log_warnings(mut facts: Facts, accepted: &str) -> Facts {
    let accepted = warning::names(accepted).unwrap_or_default();
    let open = facts.warnings.iter().filter(|warning| !warning::is_accepted(warning, &accepted)).cloned();
    let (dangers, remarks): (Vec<String>, Vec<String>) = open.partition(|warning| warning::is_danger(warning));
    facts.dangers = dangers;
    let server = &facts.server;
    if !facts.dangers.is_empty() {
        tracing::warn!("onelock: {server}: {}", facts.dangers.join("; "));
    }
    if !remarks.is_empty() {
        tracing::info!("onelock: {server}: {}", remarks.join("; "));
    }
    facts
}
