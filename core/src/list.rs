//! The locks of a server, page by page.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::config::{check_name, check_words};
use crate::driver::engine::Engine;
use crate::driver::failures::cause;
use crate::error::invalid;
use crate::inspect::{self, Inspection, inspection};
use crate::machine::naming::is_timeout_key;
use crate::machine::token::is_ours;
use crate::machine::{Failure, InspectedKey, Key, Kind, Op, Outcome, PermitCount, Reply, Time, glob};
use crate::store::Scan;
use crate::sys::clock;
use crate::sys::task;
use crate::waiters::{self, WhoWaits};
use crate::{Client, Error, ErrorKind};

/// How many keys the server looks at in one step at most, and at least.
const STEP_MAX: u32 = 100;
const STEP_MIN: u32 = 10;
/// How many keys are looked into at a time: the server serves nobody else while it does what came at once. Ten looks are
/// less than 0.1 ms of its time.
pub(crate) const LOOKS_AT_ONCE: usize = 10;
/// After each step the server is left alone for as long as the step took, within these bounds.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// A longer string is no token of a lock.
const FOREIGN_VALUE_MAX: usize = 128;
/// Patterns are no longer than that.
const PATTERN_MAX: usize = 1024;
/// The largest page, and that of a [`Listing`].
const LIMIT_MAX: u32 = 10_000;
const LISTING_LIMIT: u32 = 100;

/// A lock that stands on the server, from [`Client::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockEntry {
    /// The lock's name, without the client's prefix. Any bytes.
    pub name: Vec<u8>,
    /// What stands under the name, as [`Client::inspect`] tells it.
    pub inspection: Inspection,
    /// How many processes wait for it: [`Inspection::waiting`].
    pub waiting: Option<u64>,
}

/// Some of the locks of a server, and where to go on, from [`Client::list`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockPage {
    /// The locks, in no order. May be empty though more follow.
    pub entries: Vec<LockEntry>,
    /// What to give as `cursor` for the next page; `None` on the last one.
    pub next: Option<String>,
}

impl Client {
    /// The locks whose names match `pattern`, about `limit` of them at a time, whoever holds them.
    ///
    /// The pattern is the server's own: `*`, `?`, `[abc]`, `[^a-z]`, and `\` before a character that stands for itself. Give
    /// `None` as `cursor` for the first page and [`LockPage::next`] for each further one; [`Client::listing`] does that.
    ///
    /// What counts as a lock: one of this library, one of Redisson, and a string of at most 128 bytes with a time to live, as
    /// any `SET NX PX` client writes it. [`Inspection::origin`] says which. A cached value may look like the last, so choose
    /// the pattern. On several independent servers (Redlock) it is what a majority sees.
    ///
    /// For people and dashboards: each entry is as it was when it was looked at. A lock that stands from the first page to
    /// the last is told, perhaps twice; one that comes or goes meanwhile may be missed. The server looks at 100 keys at most
    /// in one step, whatever it holds, and is left alone for a moment after each: it serves everybody else meanwhile. A page
    /// ends early when it has taken long, and returns within `connect_timeout + request_timeout`.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty pattern, a limit of 0 and a cursor that is none; `Unavailable`, `NotPermitted` (it needs
    /// `SCAN`) and so on from the server. Keys that the user may not read are left out.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// let page = client.list("orders:*", 100, None).await?;
    /// assert_eq!(page.entries[0].name, b"orders:42");
    /// assert_eq!(page.entries[0].inspection.fencing_token, lease.fencing_token());
    /// assert_eq!(page.next, None); // that was all
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub async fn list(&self, pattern: impl AsRef<[u8]>, limit: u32, cursor: Option<&str>) -> Result<LockPage, Error> {
        let wanted = Wanted::new(pattern.as_ref(), limit, cursor)?;
        self.capabilities().require("list", "list")?;
        let engine = self.engine()?;
        engine.check_open("list")?;
        page(engine, wanted).await
    }

    /// All locks whose names match `pattern`, one after the other: the pages of [`Client::list`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// # let lease = client.lock("orders:42").acquire().await?;
    /// let mut listing = client.listing("orders:*");
    /// while let Some(entry) = listing.next().await? {
    ///     println!("{} {:?}", String::from_utf8_lossy(&entry.name), entry.inspection.ttl_left);
    /// }
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub fn listing(&self, pattern: impl AsRef<[u8]>) -> Listing {
        Listing { client: self.clone(), pages: Pages::new(pattern.as_ref()) }
    }
}

/// The locks of a server, from [`Client::listing`].
#[derive(Debug)]
pub struct Listing {
    client: Client,
    pages: Pages,
}

impl Listing {
    /// The next lock; `None` when all were told. After an error it goes on where it stopped.
    ///
    /// # Errors
    /// As [`Client::list`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is left out.
    pub async fn next(&mut self) -> Result<Option<LockEntry>, Error> {
        while self.pages.ready.is_empty() {
            let Some(cursor) = self.pages.cursor() else { return Ok(None) };
            let page = self.client.list(&self.pages.pattern, LISTING_LIMIT, cursor).await?;
            self.pages.turn(page);
        }
        Ok(self.pages.ready.pop_front())
    }
}

/// What both faces of a listing share.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) pattern: Vec<u8>,
    pub(crate) ready: VecDeque<LockEntry>,
    next: Option<String>,
    begun: bool,
}

impl Pages {
    pub(crate) const LIMIT: u32 = LISTING_LIMIT;

    pub(crate) fn new(pattern: &[u8]) -> Pages {
        Pages { pattern: pattern.to_vec(), ready: VecDeque::new(), next: None, begun: false }
    }

    /// The cursor of the page to ask for; `None` behind the last one.
    #[allow(clippy::option_option, reason = "the first page has none, and behind the last there is no page")]
    pub(crate) fn cursor(&self) -> Option<Option<&str>> {
        (!self.begun || self.next.is_some()).then_some(self.next.as_deref())
    }

    pub(crate) fn turn(&mut self, page: LockPage) {
        self.begun = true;
        self.next = page.next;
        self.ready.extend(page.entries);
    }
}

/// What to list, checked before any I/O.
pub(crate) struct Wanted {
    pattern: Vec<u8>,
    limit: u32,
    cursor: Option<String>,
}

impl Wanted {
    pub(crate) fn new(pattern: &[u8], limit: u32, cursor: Option<&str>) -> Result<Wanted, Error> {
        let length = pattern.len();
        if length == 0 {
            return Err(invalid("list", "the pattern is empty; `*` lists every lock"));
        }
        if length > PATTERN_MAX {
            return Err(invalid("list", format!("the pattern has {length} bytes; it may have {PATTERN_MAX} at most")));
        }
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(invalid("list", format!("limit is {limit}; it may be 1 to {LIMIT_MAX}")));
        }
        Ok(Wanted { pattern: pattern.to_vec(), limit, cursor: cursor.map(str::to_owned) })
    }
}

/// One page.
pub(crate) async fn page(engine: Arc<Engine>, wanted: Wanted) -> Result<LockPage, Error> {
    let Wanted { pattern, limit, mut cursor } = wanted;
    let (until, long_enough) = (inspect::limit(&engine), clock::now() + engine.options.request_timeout / 4);
    let prefix = engine.options.prefix.clone();
    let pattern = [glob::literal(&prefix), pattern].concat();
    let (mut entries, mut told) = (Vec::new(), HashSet::new());
    loop {
        let begun = clock::now();
        let scan = Scan { pattern: pattern.clone(), count: limit.clamp(STEP_MIN, STEP_MAX), cursor };
        let found = engine.store.scan(scan, until).await.map_err(|failure| failed(&engine, &failure))?;
        let keys = found.keys.into_iter().filter(|key| is_name(key, &prefix) && told.insert(key.clone()));
        for (key, Seen { standing, permits, .. }, waiting) in look_into(&engine, keys.collect(), until).await? {
            let name = &key[prefix.len()..];
            let inspection = waiting.tell(inspection(standing, name, permits)?);
            entries.push(LockEntry { name: name.to_vec(), waiting: inspection.waiting, inspection });
        }
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
        task::sleep(clock::now().since(begun).clamp(PAUSE_MIN, PAUSE_MAX)).await;
        if entries.len() >= limit as usize || clock::now() >= long_enough {
            break;
        }
    }
    Ok(LockPage { entries, next: cursor })
}

/// Whether a lock of this client may have this key, and not another one's counter or reader.
fn is_name(key: &Key, prefix: &[u8]) -> bool {
    let may_be = key.strip_prefix(prefix).is_some_and(|name| check_name(name).is_ok());
    may_be && check_words(key, "").is_ok() && !is_timeout_key(key)
}

/// A lock that was looked at.
struct Seen {
    kind: Kind,
    standing: InspectedKey,
    permits: Option<PermitCount>,
}

/// Those that are locks.
async fn look_into(engine: &Arc<Engine>, keys: Vec<Key>, until: Time) -> Result<Vec<(Key, Seen, WhoWaits)>, Error> {
    let pending: Vec<_> = keys.into_iter().map(|key| look(engine.clone(), key, until)).collect();
    let found: Vec<_> = stream::iter(pending).buffered(LOOKS_AT_ONCE).try_collect().await?;
    let found: Vec<(Key, Seen)> = found.into_iter().flatten().collect();
    let locks = found.iter().map(|(key, seen)| (seen.kind, key.clone())).collect();
    let waiting = waiters::waiting(engine, locks, until).await;
    Ok(found.into_iter().zip(waiting).map(|((key, seen), waiting)| (key, seen, waiting)).collect())
}

async fn look(engine: Arc<Engine>, key: Key, until: Time) -> Result<Option<(Key, Seen)>, Error> {
    let answer = engine.store.call(Op::Inspect { key: key.clone() }, until).await;
    let (answer, permits) = inspect::with_permits(&engine, key.clone(), answer, until).await;
    match answer.outcome {
        Outcome::Applied(Reply::Inspected(found)) => Ok(found.and_then(|standing| {
            let kind = kind_of_lock(&standing)?;
            Some((key, Seen { kind, standing, permits }))
        })),
        Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) if is_about_one_key(&failure) => Ok(None),
        Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Err(failed(&engine, &failure)),
        Outcome::Applied(other) => {
            let failure = Failure::lasting(ErrorKind::Internal, format!("the store answered with {other:?}"));
            Err(failed(&engine, &failure))
        }
    }
}

/// The kind, of what is recognisably a lock.
fn kind_of_lock(standing: &InspectedKey) -> Option<Kind> {
    let kind = *standing.kind.as_ref().ok()?;
    let foreign = standing.ttl_left_ms.is_some() && (1..=FOREIGN_VALUE_MAX).contains(&standing.holder.len());
    (kind != Kind::Mutex || is_ours(&standing.holder) || foreign).then_some(kind)
}

/// Whether it is this key that could not be looked into: another one's, that the user may not read; one that is no name in a
/// cluster; one of which several servers that answer cannot say without the others whether it is held. `SCAN` tells those too.
fn is_about_one_key(failure: &Failure) -> bool {
    match failure.kind {
        ErrorKind::NotPermitted => failure.detail.contains(" key"),
        kind => matches!(kind, ErrorKind::InvalidArgument | ErrorKind::NoQuorum),
    }
}

fn failed(engine: &Engine, failure: &Failure) -> Error {
    use ErrorKind as K;
    if !failure.nodes.is_empty() {
        let error = Error::new(failure.kind, "list", failure.detail.clone());
        return failure.nodes.iter().fold(error, |error, node| error.because(node.clone()));
    }
    match failure.kind {
        K::Unavailable | K::AuthFailed | K::NotPermitted | K::ReadOnly | K::ServerRefused => {
            Error::new(failure.kind, "list", "the server did not tell").because(cause(engine, failure))
        }
        _ => Error::new(failure.kind, "list", failure.detail.clone()),
    }
}
