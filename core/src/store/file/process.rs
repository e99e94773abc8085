//! What the stores of one process share: the directories, and the thread that ends what is over. A forked child has its
//! own, and leaks what it inherited.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::directory::Directory;
use super::holder;
use super::watcher::Watcher;
use crate::ErrorKind;
use crate::machine::{Failure, Key, Time};
use crate::sys::fork::ProcessStamp;
use crate::sys::{clock, lock};

/// When to look again after a wake-up: the kernel tells of the end of a process before it ends its locks.
pub(super) const ECHOES: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(4), Duration::from_millis(16)];
/// How often a waiter looks whom nothing wakes.
const POLL: Duration = Duration::from_millis(25);

/// A lock for which somebody waits in this process.
type Waited = (PathBuf, Key);

/// When to wake its waiters next.
struct Echo {
    at: Time,
    /// How many of [`ECHOES`] are over.
    stage: usize,
    /// Whether nothing else wakes them.
    polled: bool,
    directory: Weak<Directory>,
}

/// This process.
pub(super) struct Process {
    pub(super) stamp: ProcessStamp,
    mark: OnceLock<Option<String>>,
    directories: Mutex<BTreeMap<PathBuf, Weak<Directory>>>,
    /// When the thread has to look next, in nanoseconds.
    next: AtomicU64,
    thread: Mutex<Option<Thread>>,
    echoes: Mutex<HashMap<Waited, Echo>>,
    pub(super) watcher: Watcher,
    #[cfg(target_os = "linux")]
    pub(super) threads: super::watcher::ThreadInstances,
}

static SLOT: ArcSwapOption<Process> = ArcSwapOption::const_empty();

impl Process {
    /// That of this process. Lock-free, so that a child forked at any moment can call it.
    pub(super) fn here() -> Arc<Process> {
        loop {
            let present = SLOT.load_full();
            if let Some(process) = &present
                && process.stamp.is_here()
            {
                return process.clone();
            }
            let fresh = Arc::new(Process {
                stamp: ProcessStamp::here(),
                mark: OnceLock::new(),
                directories: Mutex::default(),
                next: AtomicU64::new(u64::MAX),
                thread: Mutex::default(),
                echoes: Mutex::default(),
                watcher: Watcher::default(),
                #[cfg(target_os = "linux")]
                threads: super::watcher::ThreadInstances::default(),
            });
            drop(SLOT.compare_and_swap(&present, Some(fresh)));
            // the parent's is never dropped here
            std::mem::forget(present);
        }
    }

    /// What tells it from another one with its number; empty if unknown.
    pub(super) fn mark(&self) -> &str {
        self.mark.get_or_init(holder::this_process).as_deref().unwrap_or_default()
    }

    /// The directory with this path, shared by all clients of the process.
    pub(super) fn directory(self: &Arc<Self>, path: &Path) -> Arc<Directory> {
        let mut directories = lock(&self.directories);
        if let Some(known) = directories.get(path).and_then(Weak::upgrade) {
            return known;
        }
        let fresh = Arc::new(Directory::new(path.to_owned(), self.clone()));
        directories.insert(path.to_owned(), Arc::downgrade(&fresh));
        fresh
    }

    /// Forgets directories that nobody uses.
    pub(super) fn forget_unused(&self) {
        lock(&self.directories).retain(|_, directory| directory.strong_count() > 0);
    }

    /// Has the thread run, without which no lease would end.
    pub(super) fn start(self: &Arc<Self>) -> Result<(), Failure> {
        let mut thread = lock(&self.thread);
        if thread.is_some() {
            return Ok(());
        }
        let process = self.clone();
        let work = move || process.run();
        match thread::Builder::new().name("onelock-file".to_owned()).spawn(work) {
            Ok(handle) => {
                *thread = Some(handle.thread().clone());
                Ok(())
            }
            Err(error) => {
                let detail = format!("no thread to end leases with: {error}");
                Err(Failure::transient(ErrorKind::SystemLimit, detail))
            }
        }
    }

    /// Has the thread look at this time at the latest.
    pub(super) fn look_at(&self, at: Time) {
        if self.next.fetch_min(at.as_nanos(), Ordering::SeqCst) > at.as_nanos()
            && let Some(thread) = &*lock(&self.thread)
        {
            thread.unpark();
        }
    }

    fn run(&self) {
        loop {
            let next = Time::from_nanos(self.next.load(Ordering::SeqCst));
            let now = clock::now();
            if now < next {
                thread::park_timeout(next.since(now));
                continue;
            }
            // before looking: what begins meanwhile sets an earlier time again
            self.next.store(u64::MAX, Ordering::SeqCst);
            let directories: Vec<_> = lock(&self.directories).values().filter_map(Weak::upgrade).collect();
            let ends = directories.iter().map(|directory| directory.end_what_is_over(now));
            let soonest = ends.min().unwrap_or(Time::MAX).min(self.echo(now));
            drop(directories);
            self.look_at(soonest);
        }
    }

    /// Somebody was told of this lock: tells him again soon.
    pub(super) fn echo_soon(&self, directory: &Arc<Directory>, key: &Key, polled: bool) {
        let at = clock::now() + ECHOES[0];
        let echo = Echo { at, stage: 0, polled, directory: Arc::downgrade(directory) };
        lock(&self.echoes).insert((directory.path.clone(), key.clone()), echo);
        self.look_at(at);
    }

    /// Nobody waits for this lock any more.
    pub(super) fn forget_echo(&self, directory: &Directory, key: &Key) {
        lock(&self.echoes).remove(&(directory.path.clone(), key.clone()));
    }

    /// Wakes those whose time has come, and says when the next ones are due.
    fn echo(&self, now: Time) -> Time {
        let mut due = Vec::new();
        let mut soonest = Time::MAX;
        lock(&self.echoes).retain(|(_, key), echo| {
            if echo.at <= now {
                due.push((echo.directory.clone(), key.clone()));
                echo.stage += 1;
                match ECHOES.get(echo.stage) {
                    Some(span) => echo.at = now + *span,
                    None if echo.polled => echo.at = now + POLL,
                    None => return false,
                }
            }
            soonest = soonest.min(echo.at);
            true
        });
        for (directory, key) in due {
            if let Some(directory) = directory.upgrade() {
                directory.wake(&key);
            }
        }
        soonest
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::sync::watch;

    use super::*;
    use crate::store::SubscriptionState;
    use crate::store::file::lock_file::Settings;

    #[test]
    fn whom_nothing_wakes_looks_again_and_again() {
        let process = Process::here();
        process.start().unwrap();
        let directory = process.directory(&std::env::temp_dir());
        let key: Key = b"onelock-polled-test".as_slice().into();
        let (sender, state) = watch::channel(SubscriptionState::default());
        let settings = Settings { mode: 0o600, sync: false, any_file_system: true };
        let listener = directory.listen(&key, Some(Arc::new(sender)), settings);
        for (polled, wakes) in [(false, ECHOES.len() as u64), (true, 6)] {
            let before = state.borrow().generation;
            process.echo_soon(&directory, &key, polled);
            let begun = clock::now();
            while state.borrow().generation < before + wakes {
                assert!(clock::now().since(begun) < Duration::from_secs(20), "{polled} {:?}", *state.borrow());
                thread::park_timeout(Duration::from_millis(1));
            }
        }
        drop(listener);
        assert!(lock(&process.echoes).is_empty());
        let _ = std::fs::remove_file(directory.file(&key));
        assert!(Arc::ptr_eq(&process, &Process::here()));
    }
}
