//! Inspecting a lock from outside, and releasing it by force.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::engine::Engine;
use crate::driver::failures::failed;
use crate::driver::lock_spec::LockSpec;
use crate::machine::naming::RELEASED_VALUE;
use crate::machine::{
    Answer, Failure, InspectedKey, Key, Kind, Op, Origin, Outcome, OwnerInfo, PermitCount, Reply, Time, TokenForm,
    token,
};
use crate::sys::clock;
use crate::waiters::{self, Waiter};
use crate::{Client, Error, ErrorKind};

/// What a key holds, from [`Client::inspect`](crate::Client::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The kind of lock that stands there.
    pub kind: Kind,
    /// Which client's it is, as far as can be told.
    pub origin: Origin,
    /// Who holds it, when the holder is an `inspectable` client of this library.
    pub owner: Option<OwnerInfo>,
    /// Of a holder that is no client of this library: as much of what it wrote as tells people who it is, and is no proof or
    /// secret. `None` where nothing of it can be shown.
    pub foreign_holder: Option<String>,
    /// How often the holder has entered; 1 for a lock that is not reentrant; of a semaphore how many permits are held, of a read/write lock
    /// how many readers hold it. 0: it was released, and stands for the rest of
    /// its `min_hold`.
    pub hold_count: u64,
    /// What is left of the holder's time to live on the server, of a semaphore of the permit that ends first; `None` for a foreign key without one.
    pub ttl_left: Option<Duration>,
    /// The fencing token of the present hold; `None` for a holder without one, such as a foreign client.
    pub fencing_token: Option<u64>,
    /// Of a semaphore how many permits there are in all.
    pub permits: Option<u64>,
    /// Of a semaphore how many permits are free.
    pub free: Option<u64>,
    /// How many processes wait for it: those that listen for its release or have a place in its queue. `None` where the server
    /// doesn't tell, such as a cluster without sharded channels, and where nobody listens for a lock of Redisson's, which may
    /// be a fair one with a queue of its own. Clients that poll are not counted.
    pub waiting: Option<u64>,
    /// Those of them that have a place in the queue on the server, the first 16, the head first: who waits for a fair lock, for
    /// permits of a semaphore, or to write. Who waits for any other lock, or to read, has told the server no name.
    pub waiters: Vec<Waiter>,
}

impl Inspection {
    /// Of a lock that stands there and nobody holds, for which nobody is known to wait.
    fn released(kind: Kind, origin: Origin) -> Inspection {
        let (owner, foreign_holder, ttl_left, fencing_token) = (None, None, None, None);
        let (permits, free, waiting, waiters) = (None, None, None, Vec::new());
        Inspection {
            kind,
            origin,
            owner,
            foreign_holder,
            hold_count: 0,
            ttl_left,
            fencing_token,
            permits,
            free,
            waiting,
            waiters,
        }
    }

    fn with_permits(self, count: Option<PermitCount>) -> Inspection {
        let total = count.map(|count| count.total);
        Inspection { permits: total, free: count.map(|count| count.total.saturating_sub(count.held)), ..self }
    }
}

/// The permits of a semaphore at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permits {
    /// How many there are in all.
    pub total: u64,
    /// How many are held. More than there are, for a while, after their number was made smaller.
    pub held: u64,
    /// How many are free.
    pub free: u64,
}

impl Client {
    /// Who holds the lock of this name, whatever its kind, and who waits for it; `None` when nobody holds it. One round trip,
    /// and where it is held one more (of a semaphore two), within `connect_timeout + request_timeout`.
    ///
    /// For people and dashboards: when the answer arrives it may be old. Label, process and host are known of holders
    /// whose client is [`inspectable`](crate::ClientBuilder::inspectable).
    ///
    /// # Errors
    /// `WrongKind` when something that is no lock stands there; `Unavailable`, `NotPermitted` and so on from the server.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// let seen = client.inspect("orders:42").await?.unwrap();
    /// assert_eq!(seen.fencing_token, lease.fencing_token());
    /// assert!(seen.ttl_left.unwrap().as_secs() >= 29);
    /// # lease.release().await?;
    /// assert!(client.inspect("orders:42").await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Option<Inspection>, Error> {
        let what = LockSpec::new(self.options(), self.capabilities(), Kind::Mutex, name.as_ref());
        what.check("inspect")?;
        let engine = self.engine()?;
        engine.check_open("inspect").map_err(|error| error.on(&what.name))?;
        inspect(&engine, &what.name, what.key).await
    }

    /// Takes the lock of this name away from whoever holds it, and wakes a waiter. True when there was one.
    ///
    /// Only what is recognisably a lock is deleted: one of this library, one of Redisson, or a string with a time to live.
    ///
    /// The old holder learns of it at its next renewal; until then it believes in its lease, and two may be at work. The
    /// next fencing token is higher, so a resource that checks tokens stays safe. For people in an emergency, not for
    /// programs.
    ///
    /// # Errors
    /// `WrongKind` when anything else stands there (it is left untouched; see [`Client::force_release_foreign`]);
    /// `Unavailable`, `NotPermitted` and so on from the server.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been taken away.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// assert!(client.force_release("orders:42").await?);
    /// assert_eq!(lease.release().await?, onelock::Release::AlreadyExpired);
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.force(name.as_ref(), false).await
    }

    /// [`Client::force_release`] by whoever is sure that a string without a time to live is a lock, too: that of a client
    /// that does `SET NX` alone. Any other string goes as well, so look first.
    ///
    /// # Errors
    /// As [`Client::force_release`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not have been taken away.
    pub async fn force_release_foreign(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.force(name.as_ref(), true).await
    }

    async fn force(&self, name: &[u8], foreign: bool) -> Result<bool, Error> {
        let what = LockSpec::new(self.options(), self.capabilities(), Kind::Mutex, name);
        what.check("force_release")?;
        what.require("force_release", "force_release")?;
        let engine = self.engine()?;
        engine.check_open("force_release").map_err(|error| error.on(&what.name))?;
        force_release(&engine, &what.name, what.key, foreign).await
    }
}

pub(crate) fn inspection(
    standing: InspectedKey,
    name: &[u8],
    permits: Option<PermitCount>,
) -> Result<Inspection, Error> {
    let InspectedKey { kind, holder, count, ttl_left_ms, fence, info } = standing;
    let kind = kind.map_err(|found| {
        Error::new(ErrorKind::WrongKind, "inspect", format!("a {found} stands under this name")).on(name)
    })?;
    let origin = match kind.row().token {
        TokenForm::Value => Origin::of_value(&holder),
        TokenForm::Owner => Origin::of_field(&holder, fence.is_some() || info.is_some()),
        // recognised by a mark of ours
        TokenForm::Permits => Origin::Onelock,
    };
    let released = RELEASED_VALUE.as_bytes();
    let is_released = holder == released || info.as_deref() == Some(released);
    // others may read beside one that was released and stays for a while
    if is_released && !(kind == Kind::Read && count > 1) {
        return Ok(Inspection {
            ttl_left: ttl_left_ms.map(Duration::from_millis),
            ..Inspection::released(kind, origin)
        });
    }
    Ok(Inspection {
        owner: token::owner_info(info.as_deref().unwrap_or(&holder)),
        foreign_holder: if origin == Origin::Onelock { None } else { token::foreign_holder(&holder) },
        hold_count: count - u64::from(is_released),
        ttl_left: ttl_left_ms.map(Duration::from_millis),
        fencing_token: fence,
        ..Inspection::released(kind, origin).with_permits(permits)
    })
}

/// The time by which a look returns.
pub(crate) fn limit(engine: &Engine) -> Time {
    clock::now() + engine.options.connect_timeout + engine.options.request_timeout
}

fn failure(answer: &Answer) -> Failure {
    answer.outcome.failure().cloned().unwrap_or_else(|| {
        Failure::lasting(ErrorKind::Internal, format!("the store answered with {:?}", answer.outcome))
    })
}

/// Whether what was seen is a semaphore, so that its permits have to be looked at, too.
pub(crate) fn is_semaphore(answer: &Answer) -> bool {
    let Outcome::Applied(Reply::Inspected(Some(found))) = &answer.outcome else { return false };
    found.kind == Ok(Kind::Semaphore)
}

/// The same answer with the permits counted, if it was a semaphore that was seen: one request more. Of whom nobody holds a
/// permit is not locked.
pub(crate) async fn with_permits(
    engine: &Engine,
    key: Key,
    answer: Answer,
    until: Time,
) -> (Answer, Option<PermitCount>) {
    if !is_semaphore(&answer) {
        return (answer, None);
    }
    if !engine.store.capabilities().kinds.contains(&Kind::Semaphore) {
        return (not_a_lock_here(answer), None);
    }
    let counted = engine.store.call(Op::InspectPermits { key }, until).await;
    let mut permits = None;
    let outcome = match (answer.outcome, &counted.outcome) {
        (Outcome::Applied(Reply::Inspected(Some(found))), Outcome::Applied(Reply::Permits(Some(count))))
            if count.held > 0 =>
        {
            permits = Some(*count);
            let found = InspectedKey { count: count.held, ttl_left_ms: count.ttl_left_ms, ..found };
            Outcome::Applied(Reply::Inspected(Some(found)))
        }
        // none is held, or another lock stands there by now
        (_, Outcome::Applied(_)) => Outcome::Applied(Reply::Inspected(None)),
        (_, other) => other.clone(),
    };
    (Answer { outcome, ..counted }, permits)
}

/// A semaphore where the store has none: another client's, or one of a single server among several.
fn not_a_lock_here(answer: Answer) -> Answer {
    let outcome = match answer.outcome {
        Outcome::Applied(Reply::Inspected(Some(found))) => {
            let kind = Err(Kind::Semaphore.as_str().to_owned());
            Outcome::Applied(Reply::Inspected(Some(InspectedKey { kind, ..found })))
        }
        other => other,
    };
    Answer { outcome, ..answer }
}

/// The permits of a semaphore.
pub(crate) fn permits_of(engine: &Engine, tried: &str, name: &[u8], answer: &Answer) -> Result<Option<Permits>, Error> {
    match &answer.outcome {
        Outcome::Applied(Reply::Permits(count)) => Ok(count.map(|count| Permits {
            total: count.total,
            held: count.held,
            free: count.total.saturating_sub(count.held),
        })),
        Outcome::Applied(Reply::WrongKind { found }) => {
            Err(Error::new(ErrorKind::WrongKind, tried, format!("a {found} stands under this name")).on(name))
        }
        _ => Err(failed(engine, tried, name, &failure(answer))),
    }
}

/// Asks about permits, or sets how many there are, and once more if no reply came.
pub(crate) async fn permits(engine: &Arc<Engine>, tried: &str, name: &[u8], op: Op) -> Result<Option<Permits>, Error> {
    let until = limit(engine) + engine.options.request_timeout;
    let mut answer = engine.store.call(op.clone(), until).await;
    if matches!(answer.outcome, Outcome::Indeterminate(_)) {
        answer = engine.store.call(op, until).await;
    }
    engine.observe_clock(&answer);
    permits_of(engine, tried, name, &answer)
}

pub(crate) fn looked(
    engine: &Engine,
    name: &[u8],
    (answer, permits): (Answer, Option<PermitCount>),
) -> Result<Option<Inspection>, Error> {
    match answer.outcome {
        Outcome::Applied(Reply::Inspected(found)) => {
            found.map(|standing| inspection(standing, name, permits)).transpose()
        }
        _ => Err(failed(engine, "inspect", name, &failure(&answer))),
    }
}

/// What taking it by force found.
pub(crate) fn forced(engine: &Engine, name: &[u8], answer: &Answer) -> Result<bool, Error> {
    match &answer.outcome {
        Outcome::Applied(Reply::Forced(found)) => {
            tracing::warn!(lock = %name.escape_ascii(), found, "lock released by force");
            Ok(*found)
        }
        Outcome::Applied(Reply::WrongKind { found }) => {
            let why = match found.as_str() {
                "string" => "has no time to live, so it may be no lock (who is sure that it is one, says `foreign`)",
                _ => "is not recognisably a lock",
            };
            let detail = format!("what stands under this name (a {found}) {why}; it was left untouched");
            Err(Error::new(ErrorKind::WrongKind, "force_release", detail).on(name))
        }
        _ => Err(failed(engine, "force_release", name, &failure(answer))),
    }
}

/// Who holds it, and who waits for it.
pub(crate) async fn inspect(engine: &Arc<Engine>, name: &[u8], key: Key) -> Result<Option<Inspection>, Error> {
    let until = limit(engine);
    match held(engine, name, key.clone(), until).await? {
        Some(found) => Ok(Some(with_waiters(engine, key, found, until).await)),
        None => Ok(None),
    }
}

/// What was found, and who waits for it.
pub(crate) async fn with_waiters(engine: &Arc<Engine>, key: Key, found: Inspection, until: Time) -> Inspection {
    let waiting = waiters::waiting(engine, vec![(found.kind, key)], until).await.pop();
    waiting.unwrap_or_default().tell(found)
}

/// Who holds it.
pub(crate) async fn held(
    engine: &Arc<Engine>,
    name: &[u8],
    key: Key,
    until: Time,
) -> Result<Option<Inspection>, Error> {
    let answer = engine.store.call(Op::Inspect { key: key.clone() }, until).await;
    engine.observe_clock(&answer);
    looked(engine, name, with_permits(engine, key, answer, until).await)
}

pub(crate) async fn is_locked(engine: &Arc<Engine>, what: &LockSpec) -> Result<bool, Error> {
    engine.check_open("is_locked").map_err(|error| error.on(&what.name))?;
    if what.kind == Kind::Semaphore {
        let op = Op::InspectPermits { key: what.key.clone() };
        let found = permits(engine, "is_locked", &what.name, op).await?;
        return Ok(found.is_some_and(|found| found.free < u64::from(what.count)));
    }
    same_kind(held(engine, &what.name, what.key.clone(), limit(engine)).await?, what)
}

/// Whether what was found is a lock of this kind.
pub(crate) fn same_kind(found: Option<Inspection>, what: &LockSpec) -> Result<bool, Error> {
    match found {
        // the other side of a read/write lock has it
        Some(found) if found.kind != what.kind && found.kind.is_shared() && what.kind.is_shared() => Ok(false),
        Some(found) if found.kind != what.kind => {
            let detail = format!("a {} stands under this name", found.kind.as_str());
            Err(Error::new(ErrorKind::WrongKind, "is_locked", detail).on(&what.name))
        }
        found => Ok(found.is_some()),
    }
}

pub(crate) async fn force_release(engine: &Arc<Engine>, name: &[u8], key: Key, foreign: bool) -> Result<bool, Error> {
    let until = limit(engine) + engine.options.request_timeout;
    if engine.store.capabilities().kinds.contains(&Kind::Semaphore) {
        // its own script is for semaphores alone; what cannot be looked at is none, or is told below
        let seen = engine.store.call(Op::Inspect { key: key.clone() }, until).await;
        // where nothing stands, its number may be lost, and permits are held all the same
        let lost = seen.outcome == Outcome::Applied(Reply::Inspected(None));
        if lost || is_semaphore(&seen) {
            let op = Op::ForceReleasePermits { key: key.clone() };
            let mut answer = engine.store.call(op.clone(), until).await;
            if matches!(answer.outcome, Outcome::Indeterminate(_)) {
                answer = engine.store.call(op, until).await;
            }
            if !lost || answer.outcome == Outcome::Applied(Reply::Forced(true)) {
                return forced(engine, name, &answer);
            }
        }
    }
    let mut answer = engine.store.call(Op::ForceRelease { key: key.clone(), foreign }, until).await;
    if matches!(answer.outcome, Outcome::Indeterminate(_)) {
        // deleting twice is as good as once; only "was there something" may be off after a lost reply
        answer = engine.store.call(Op::ForceRelease { key, foreign }, until).await;
    }
    engine.observe_clock(&answer);
    forced(engine, name, &answer)
}
