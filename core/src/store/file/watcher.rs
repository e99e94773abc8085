//! Hears when the file of a lock is closed, removed or replaced: inotify, one instance for all waiters of the process,
//! and a thread that reads it. Without inotify (another system, or a limit of the system) waiters look every few
//! milliseconds.

use std::path::Path;
use std::sync::Arc;

use super::directory::Directory;
use crate::machine::Key;

/// What keeps one lock's file watched. Ended with [`Watcher::unwatch`].
pub(super) type WatchId = i32;

#[cfg(target_os = "linux")]
pub(super) use self::linux::{Heard, Inotify, ThreadInstances, Watcher};

#[cfg(not(target_os = "linux"))]
#[derive(Default)]
pub(super) struct Watcher;

#[cfg(not(target_os = "linux"))]
impl Watcher {
    pub(super) fn watch(&self, _: &Path, _: &Arc<Directory>, _: &Key) -> Option<WatchId> {
        None
    }

    pub(super) fn unwatch(&self, _: WatchId, _: &Directory, _: &Key) {}

    pub(super) fn is_possible() -> Result<(), String> {
        Err("this system has no inotify".to_owned())
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::mem::MaybeUninit;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, Weak};
    use std::thread;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;

    use super::{Arc, Directory, Key, Path, WatchId};
    use crate::sys::fork_close::ProcessFd;
    use crate::sys::lock;

    /// A holder that ends or releases closes the file, whichever way it opened it: flock(1) opens it for reading. A file
    /// that is removed while somebody has it open is only told as an attribute.
    const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
        .union(WatchFlags::CLOSE_NOWRITE)
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::MOVE_SELF)
        .union(WatchFlags::DELETE_SELF);
    /// The name may lead to another file now.
    const GONE: ReadFlags = ReadFlags::ATTRIB
        .union(ReadFlags::MOVE_SELF)
        .union(ReadFlags::DELETE_SELF)
        .union(ReadFlags::IGNORED)
        .union(ReadFlags::UNMOUNT);

    /// An inotify instance.
    pub(in crate::store::file) struct Inotify {
        fd: ProcessFd,
    }

    /// The instances of the waiting threads of a process.
    #[derive(Default)]
    pub(in crate::store::file) struct ThreadInstances {
        pub(in crate::store::file) active: AtomicUsize,
        /// Kept for the next waiter.
        pub(in crate::store::file) idle: Mutex<Option<Inotify>>,
    }

    /// What a read found.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(in crate::store::file) struct Heard {
        /// Something happened to the file.
        pub(in crate::store::file) any: bool,
        /// It may be another file by now.
        pub(in crate::store::file) gone: bool,
    }

    impl Inotify {
        pub(in crate::store::file) fn new(waits: bool) -> Result<Inotify, Errno> {
            let flags = CreateFlags::CLOEXEC | if waits { CreateFlags::empty() } else { CreateFlags::NONBLOCK };
            let fd = ProcessFd::open(|| Ok(inotify::init(flags)?));
            fd.map(|fd| Inotify { fd }).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }

        pub(in crate::store::file) fn fd(&self) -> &ProcessFd {
            &self.fd
        }

        pub(in crate::store::file) fn add(&self, path: &Path) -> Result<WatchId, Errno> {
            inotify::add_watch(&self.fd, path, EVENTS)
        }

        pub(in crate::store::file) fn remove(&self, watch: WatchId) {
            // it may have ended with its file
            let _ = inotify::remove_watch(&self.fd, watch);
        }

        /// Reads what has happened to one file, without waiting.
        pub(in crate::store::file) fn read(&self, watch: WatchId) -> Heard {
            let mut buffer = [MaybeUninit::uninit(); 1024];
            let mut reader = Reader::new(&self.fd, &mut buffer);
            let mut heard = Heard::default();
            while let Ok(event) = reader.next() {
                let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                // events of an earlier user of this instance are skipped
                if event.wd() == watch || lost {
                    heard.any = true;
                    heard.gone |= event.events().intersects(GONE);
                }
            }
            heard
        }
    }

    /// Those who are to be told of a file.
    type Targets = Vec<(Weak<Directory>, Key)>;

    /// All watches of the process.
    #[derive(Default)]
    pub(in crate::store::file) struct Watcher {
        watches: Mutex<Watches>,
    }

    #[derive(Default)]
    struct Watches {
        /// There once it was needed, with its thread.
        inotify: Option<Arc<Inotify>>,
        targets: HashMap<WatchId, Targets>,
    }

    impl Watcher {
        /// Wakes those who wait for this lock whenever something happens to the file that has this name now. `None` where
        /// that is not possible.
        pub(in crate::store::file) fn watch(
            &self,
            path: &Path,
            directory: &Arc<Directory>,
            key: &Key,
        ) -> Option<WatchId> {
            // held until the target is entered: the thread that reads an event of it waits so long
            let mut watches = lock(&self.watches);
            let inotify = if let Some(inotify) = &watches.inotify {
                inotify.clone()
            } else {
                let inotify = Arc::new(Inotify::new(true).ok()?);
                let (reading, process) = (inotify.clone(), directory.process.clone());
                let work = move || process.watcher.run(&reading);
                thread::Builder::new().name("onelock-watch".to_owned()).spawn(work).ok()?;
                watches.inotify = Some(inotify.clone());
                inotify
            };
            let watch = inotify.add(path).ok()?;
            let targets = watches.targets.entry(watch).or_default();
            targets.push((Arc::downgrade(directory), key.clone()));
            Some(watch)
        }

        /// Ends one of them.
        pub(in crate::store::file) fn unwatch(&self, watch: WatchId, directory: &Directory, key: &Key) {
            let mut watches = lock(&self.watches);
            let Some(targets) = watches.targets.get_mut(&watch) else { return };
            let is_it = |(of, its): &(Weak<Directory>, Key)| std::ptr::eq(of.as_ptr(), directory) && its == key;
            if let Some(place) = targets.iter().position(is_it) {
                targets.swap_remove(place);
            }
            if targets.is_empty() {
                watches.targets.remove(&watch);
                if let Some(inotify) = &watches.inotify {
                    inotify.remove(watch);
                }
            }
        }

        fn run(&self, inotify: &Inotify) {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(&inotify.fd, &mut buffer);
            loop {
                let (watch, events) = match reader.next() {
                    Ok(event) => (event.wd(), event.events()),
                    Err(Errno::INTR) => continue,
                    // nothing is heard any more: the safety poll of the waiters is left
                    Err(error) => return tracing::error!("onelock: wake-ups of file:// have ended: {error}"),
                };
                let mut watches = lock(&self.watches);
                let targets: Targets = if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                    watches.targets.values().flatten().cloned().collect()
                } else if events.contains(ReadFlags::IGNORED) {
                    watches.targets.remove(&watch).unwrap_or_default()
                } else {
                    watches.targets.get(&watch).cloned().unwrap_or_default()
                };
                drop(watches);
                for (directory, key) in targets {
                    if let Some(directory) = directory.upgrade() {
                        directory.heard(&key, events.intersects(GONE));
                    }
                }
            }
        }

        /// Whether there is an instance to be had, as the words of the system.
        pub(in crate::store::file) fn is_possible() -> Result<(), String> {
            Inotify::new(false).map(drop).map_err(|error| error.to_string())
        }
    }
}
