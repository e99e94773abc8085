//! One directory, as this process uses it: which locks it holds there, and who waits for them.
//!
//! The kernel decides between processes, and this table within one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::lock_file::{self, FileId, LockFile, Settings};
use super::name;
use super::process::Process;
use super::record::{self, Record};
use super::watcher::WatchId;
use crate::machine::{Key, Kind, Time};
use crate::store::SubscriptionState;
use crate::sys::lock;

/// Locks of one directory do not wait for each other's system calls, but for those of one in so many.
const SHARDS: usize = 16;

/// A hold of this process.
pub(super) struct FileHold {
    pub(super) token: Arc<str>,
    pub(super) kind: Kind,
    pub(super) count: u64,
    /// The counter in the file; the fencing token of the hold if it has one.
    pub(super) fence: u64,
    pub(super) fenced: bool,
    pub(super) info: Option<Arc<str>>,
    pub(super) ends_at: Time,
    /// The open file with the kernel's lock.
    pub(super) file: LockFile,
    /// Whether somebody waited when it was granted.
    pub(super) waited: bool,
}

impl FileHold {
    /// The text of the file.
    pub(super) fn file_text(&self, key: &Key, process: &Process, now: Time, wall_us: u64) -> Vec<u8> {
        let left_ms = self.ends_at.since(now).as_millis() as u64;
        Record {
            fence: self.fence,
            kind: self.kind,
            count: self.count,
            pid: std::process::id(),
            process: process.mark(),
            until_ms: (wall_us / 1000).saturating_add(left_ms),
            fenced: self.fenced,
            token: &self.token,
            info: self.info.as_deref(),
            key: &name::encode(key),
        }
        .file()
    }

    /// Gives the kernel's lock back. Its waiters hear that the file is closed.
    pub(super) fn end(self) {
        if !self.file.is_open() {
            return;
        }
        // for people, and for those who look who has it
        let _ = self.file.write(record::FREE, record::STATE_AT);
        // before it is closed: a forked child may share the open file, and who hears of the close finds it free
        let _ = self.file.unlock();
    }
}

/// What wakes the waiters of this process.
enum Watch {
    Inotify(WatchId, Option<FileId>),
    /// They look every few milliseconds.
    Polled,
}

/// One lock, while this process holds it or waits for it.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) hold: Option<FileHold>,
    /// The open file with which a waiter tries: closing it after each attempt would wake all others.
    pub(super) waiting: Option<LockFile>,
    /// How many wait.
    pub(super) listeners: usize,
    senders: Vec<(u64, Arc<watch::Sender<SubscriptionState>>)>,
    watch: Option<Watch>,
}

impl Entry {
    /// The hold, unless its lease has ended.
    pub(super) fn hold_at(&self, now: Time) -> Option<&FileHold> {
        self.hold.as_ref().filter(|hold| now < hold.ends_at)
    }

    pub(super) fn wake(&self) {
        for (_, sender) in &self.senders {
            sender.send_modify(|state| state.generation += 1);
        }
    }

    fn is_unused(&self) -> bool {
        self.hold.is_none() && self.listeners == 0
    }
}

type Shard = HashMap<Key, Entry>;

pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) process: Arc<Process>,
    shards: [Mutex<Shard>; SHARDS],
    numbers: AtomicU64,
}

impl Directory {
    pub(super) fn new(path: PathBuf, process: Arc<Process>) -> Directory {
        Directory { path, process, shards: Default::default(), numbers: AtomicU64::new(0) }
    }

    /// The file of a lock.
    pub(super) fn file(&self, key: &[u8]) -> PathBuf {
        self.path.join(name::file_name(key))
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.shards[hasher.finish() as usize % SHARDS]
    }

    /// Does something to a lock, alone.
    pub(super) fn with<R>(&self, key: &Key, work: impl FnOnce(&mut Entry) -> R) -> R {
        let mut shard = lock(self.shard(key));
        if let Some(entry) = shard.get_mut(key) {
            let result = work(entry);
            if entry.is_unused() {
                shard.remove(key);
            }
            return result;
        }
        let mut entry = Entry::default();
        let result = work(&mut entry);
        if !entry.is_unused() {
            shard.insert(key.clone(), entry);
        }
        result
    }

    /// Ends the holds whose leases have ended, and says when the next one does.
    pub(super) fn end_what_is_over(&self, now: Time) -> Time {
        let mut soonest = Time::MAX;
        for shard in &self.shards {
            lock(shard).retain(|_, entry| {
                if let Some(hold) = entry.hold.take_if(|hold| hold.ends_at <= now) {
                    hold.end();
                    entry.wake();
                }
                soonest = soonest.min(entry.hold.as_ref().map_or(Time::MAX, |hold| hold.ends_at));
                !entry.is_unused()
            });
        }
        soonest
    }

    /// Wakes those who wait in this process.
    pub(super) fn wake(&self, key: &Key) {
        if let Some(entry) = lock(self.shard(key)).get(key) {
            entry.wake();
        }
    }

    /// Something happened to the file.
    pub(super) fn heard(self: &Arc<Self>, key: &Key, gone: bool) {
        let mut shard = lock(self.shard(key));
        let Some(entry) = shard.get_mut(key) else { return };
        if entry.senders.is_empty() {
            return;
        }
        if gone {
            // the next attempt watches the file that has the name by then
            self.unwatch(entry, key);
        }
        entry.wake();
        self.process.echo_soon(self, key, false);
    }

    fn unwatch(&self, entry: &mut Entry, key: &Key) {
        if let Some(Watch::Inotify(watch, _)) = entry.watch.take() {
            self.process.watcher.unwatch(watch, self, key);
        }
    }

    /// Has waiters woken by what happens to the file that has this name. `file` is the one that a waiter is about to try.
    pub(super) fn watch(self: &Arc<Self>, entry: &mut Entry, key: &Key, path: &Path, file: Option<FileId>) {
        let is_watched = match &entry.watch {
            Some(Watch::Inotify(_, watched)) => file.is_none() || *watched == file,
            Some(Watch::Polled) => true,
            None => false,
        };
        if entry.senders.is_empty() || is_watched {
            return;
        }
        self.unwatch(entry, key);
        entry.watch = Some(match self.process.watcher.watch(path, self, key) {
            Some(watch) => Watch::Inotify(watch, lock_file::at(path).unwrap_or_default()),
            None => Watch::Polled,
        });
        if matches!(entry.watch, Some(Watch::Polled)) {
            self.process.echo_soon(self, key, true);
        }
    }

    /// Somebody waits from now on. Without a sender he hears by himself.
    pub(super) fn listen(
        self: &Arc<Self>,
        key: &Key,
        sender: Option<Arc<watch::Sender<SubscriptionState>>>,
        settings: Settings,
    ) -> Listener {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let path = self.file(key);
        self.with(key, |entry| {
            entry.listeners += 1;
            if let Some(sender) = sender {
                entry.senders.push((number, sender));
                // there is a file to watch, if there can be one; if not, the next attempt says why
                if matches!(lock_file::at(&path), Ok(None)) {
                    entry.waiting = LockFile::open(&path, settings).ok();
                }
                self.watch(entry, key, &path, None);
            }
        });
        Listener { directory: self.clone(), key: key.clone(), number }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.process.forget_unused();
    }
}

/// Somebody who waits, until it is dropped.
pub(super) struct Listener {
    directory: Arc<Directory>,
    key: Key,
    number: u64,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Listener { directory, key, number } = self;
        if !directory.process.stamp.is_here() {
            return;
        }
        directory.with(key, |entry| {
            entry.senders.retain(|(its, _)| its != number);
            entry.listeners -= 1;
            if entry.senders.is_empty() {
                directory.unwatch(entry, key);
                directory.process.forget_echo(directory, key);
            }
            if entry.listeners == 0 {
                entry.waiting = None;
            }
        });
    }
}
