//! The `file://` store: locks between the processes of one machine, without a server. Unix only.
//!
//! Each lock is a file in a directory, and whoever has the kernel's lock on it (`flock`) holds it. So a lock ends with the
//! process that holds it, at once, and programs that use `flock` on the same file take part. The time to live is kept by
//! the holder: a process that is stopped keeps others out until it goes on, and then finds its lease ended.
//!
//! | file | is |
//! |---|---|
//! | `address` | `file:///dir` |
//! | `name` | the file of a lock |
//! | `record` | what stands in it |
//! | `holder` | whether the process that wrote it has ended |
//! | `lock_file` | the open file, and the kernel's lock on it |
//! | `file_system` | which file systems will do |
//! | `process` | what all clients of the process share, and the thread that ends leases |
//! | `directory` | what this process holds and waits for in a directory |
//! | `look` | whether somebody has a lock, and what its file says of him |
//! | `operations` | acquire, renew, release, inspect ... |
//! | `watcher`, `blocking` | wake-ups: for the process, and for a waiting thread |
//! | `diagnosis` | a look at a directory step by step |

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

use self::directory::Directory;
use self::file_system::FileSystem;
use self::lock_file::Settings;
use self::operations::FileAcquire;
use self::process::Process;
use super::{
    BlockingSubscription, Boxed, Capabilities, Facts, Interrupt, Scan, Scanned, Store, StoreStats, Subscription,
    SubscriptionState,
};
use crate::ErrorKind;
use crate::config::warning::{UNKNOWN, finding};
use crate::machine::{Answer, ClientTag, Failure, Grade, Key, Kind, Op, Outcome, Renewal, Reply, Time};
use crate::sys::{clock, runtime};

pub(crate) mod address;
#[cfg(target_os = "linux")]
mod blocking;
mod diagnosis;
mod directory;
mod file_system;
mod holder;
mod lock_file;
mod look;
mod name;
mod operations;
mod process;
mod record;
mod watcher;

/// What it can do. A lock of the kernel ends with its process: it can neither be handed to another one nor outlive its
/// holder.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    attach: false,
    min_hold: false,
    lock_delay: false,
    min_replicas: false,
    ..Capabilities::all("file", &[Kind::Mutex, Kind::Reentrant])
};

/// One client's access to the locks of a directory.
pub(crate) struct FileStore {
    shared: Arc<Shared>,
    address: String,
}

struct Shared {
    directory: Arc<Directory>,
    settings: Settings,
    /// Whether the file system was looked at.
    checked: AtomicBool,
    closed: AtomicBool,
    commands_sent: AtomicU64,
}

impl FileStore {
    fn new(path: &Path, settings: Settings) -> FileStore {
        let shared = Shared {
            directory: Process::here().directory(path),
            settings,
            checked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            commands_sent: AtomicU64::new(0),
        };
        FileStore { shared: Arc::new(shared), address: format!("file://{}", path.display()) }
    }
}

impl Shared {
    /// Before anything is done: not closed, not inherited, and on a file system that will do.
    fn ready(&self) -> Result<(), Failure> {
        let shown = self.directory.path.display();
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::lasting(ErrorKind::Closed, format!("file://{shown} was closed")));
        }
        if !self.directory.process.stamp.is_here() {
            let detail = format!("file://{shown} was opened by the parent process");
            return Err(Failure::lasting(ErrorKind::Forked, detail));
        }
        if !self.checked.load(Ordering::Relaxed) {
            self.file_system()?;
        }
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn file_system(&self) -> Result<FileSystem, Failure> {
        let found = file_system::check(&self.directory.path, self.settings)?;
        self.checked.store(true, Ordering::Relaxed);
        Ok(found)
    }

    fn answer(&self, op: &Op) -> Answer {
        let sent_at = clock::now();
        let outcome = match self.ready() {
            Ok(()) => self.outcome(op),
            Err(failure) => Outcome::NotApplied(failure),
        };
        let connection = self.connection();
        Answer { sent_at, received_at: clock::now(), connection, server_time_us: None, outcome }
    }

    /// Where another thread carries an acquire out, an undo may be faster: then there is no order.
    fn connection(&self) -> u64 {
        u64::from(!self.settings.sync)
    }

    fn outcome(&self, op: &Op) -> Outcome<Reply> {
        let directory = &self.directory;
        match op {
            Op::Acquire { claim, ttl_ms, fence_ttl_ms, info } => {
                let fenced = fence_ttl_ms.is_some();
                let wanted = FileAcquire { claim, ttl_ms: *ttl_ms, fenced, info: info.as_ref() };
                directory.acquire(&wanted, self.settings)
            }
            Op::Renew { holds } => {
                let one = |(claim, ttl_ms): &(_, u64)| directory.renew(claim, *ttl_ms, None);
                Outcome::Applied(Reply::Renewed(holds.iter().map(one).collect()))
            }
            Op::SetCount { claim, count, ttl_ms } => match directory.renew(claim, *ttl_ms, Some(*count)) {
                Renewal::Renewed => Outcome::Applied(Reply::Counted(true)),
                Renewal::NotMine => Outcome::Applied(Reply::Counted(false)),
                Renewal::Failed(why) => Outcome::NotApplied(Failure::transient(ErrorKind::ServerRefused, why)),
            },
            Op::Release { claim } | Op::Undo { claim, .. } => Outcome::Applied(directory.release(claim)),
            Op::Inspect { key } => directory.inspect(key),
            Op::ForceRelease { key, foreign } => directory.force_release(key, *foreign, self.settings),
            // refused above the store, by its capabilities
            _ => {
                let detail = format!("file:// has no {}", op.name());
                Outcome::NotApplied(Failure::lasting(ErrorKind::Unsupported, detail))
            }
        }
    }
}

impl Store for FileStore {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    /// Carried out at once, in microseconds; only where a grant waits for the disk another thread does it.
    fn call(&self, op: Op, _until: Time) -> Boxed<Answer> {
        if self.shared.settings.sync
            && matches!(op, Op::Acquire { .. })
            && let Ok(handle) = runtime::handle()
        {
            let (shared, sent_at) = (self.shared.clone(), clock::now());
            let task = handle.spawn_blocking(move || shared.answer(&op));
            return Box::pin(async move {
                task.await.unwrap_or_else(|error| {
                    let failure = Failure::transient(ErrorKind::SystemLimit, error.to_string());
                    let (received_at, outcome) = (clock::now(), Outcome::Indeterminate(failure));
                    Answer { sent_at, received_at, connection: 0, server_time_us: None, outcome }
                })
            });
        }
        Box::pin(std::future::ready(self.shared.answer(&op)))
    }

    fn call_blocking(&self, op: &Op, _until: Time, _interrupt: &dyn Interrupt) -> Answer {
        self.shared.answer(op)
    }

    fn connection(&self) -> u64 {
        self.shared.connection()
    }

    fn subscribe(&self, _kind: Kind, key: &Key, _client: ClientTag) -> Subscription {
        let subscribed = !self.shared.closed.load(Ordering::Acquire) && self.shared.directory.process.stamp.is_here();
        let (sender, state) =
            watch::channel(SubscriptionState { subscribed, generation: 1, ..SubscriptionState::default() });
        let sender = Arc::new(sender);
        let Shared { directory, settings, .. } = &*self.shared;
        let listener = subscribed.then(|| {
            // it ends what is over, and wakes whom nothing else wakes
            let _ = directory.process.start();
            directory.listen(key, Some(sender.clone()), *settings)
        });
        // the sender too: a waiter whose client was closed waits for nothing instead of seeing a closed channel
        Subscription { state, guard: Box::new((listener, sender)) }
    }

    #[cfg(target_os = "linux")]
    fn subscribe_blocking(
        &self,
        _kind: Kind,
        key: &Key,
        _client: ClientTag,
        _until: Time,
        _interrupt: &dyn Interrupt,
    ) -> Option<Box<dyn BlockingSubscription>> {
        let Shared { directory, settings, .. } = &*self.shared;
        self.shared.ready().ok()?;
        let listener = directory.listen(key, None, *settings);
        let subscription = blocking::ThreadSubscription::new(&directory.file(key), &directory.process, listener)?;
        Some(Box::new(subscription))
    }

    fn facts(&self, _until: Time) -> Boxed<Result<Facts, Failure>> {
        let facts = self.shared.ready().and_then(|()| self.shared.facts());
        Box::pin(std::future::ready(facts))
    }

    fn scan(&self, scan: Scan, _until: Time) -> Boxed<Result<Scanned, Failure>> {
        let scanned = self.shared.ready().and_then(|()| self.shared.directory.scan(&scan));
        Box::pin(std::future::ready(scanned))
    }

    fn stats(&self) -> StoreStats {
        StoreStats { commands_sent: self.shared.commands_sent.load(Ordering::Relaxed), reconnects: 0 }
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl Shared {
    fn facts(&self) -> Result<Facts, Failure> {
        use rustix::fs::Access;
        let found = self.file_system()?;
        let path = &self.directory.path;
        rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| lock_file::failure(path, "write to", error))?;
        let mut warnings = Vec::new();
        if !found.is_local {
            let text = format!(
                "{} is on {}, which does not tell where the files are: if other machines share them, locks may not exclude \
                 those; use a directory on a local disk",
                path.display(),
                found.name
            );
            warnings.push(finding(UNKNOWN, &text));
        }
        let grade =
            if self.settings.sync && found.keeps && found.is_local { Grade::Strict } else { Grade::ClockBounded };
        Ok(Facts { grade, warnings, dangers: Vec::new(), server: format!("files on {}", found.name) })
    }
}
