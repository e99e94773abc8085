//! The operations of a store on the locks of a directory.

use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::directory::{Directory, Entry, FileHold};
use super::lock_file::{self, LockFile, Refused, Settings};
use super::look::{described, holding, inspected, look};
use super::name::{self, Named};
use super::record::{self, Content};
use crate::ErrorKind;
use crate::machine::{Claim, Failure, InspectedKey, Key, Kind, Outcome, Renewal, Reply, glob};
use crate::store::{Scan, Scanned, foreign_cursor};
use crate::sys::clock;

/// Somebody waited so shortly before a grant that he still does.
const STILL_WAITS: std::time::Duration = std::time::Duration::from_secs(6);
/// What stands in the way of a forced release.
const FOREIGN_KIND: &str = "a file that another program has locked";

/// What an acquire asks for.
pub(super) struct FileAcquire<'a> {
    pub(super) claim: &'a Claim,
    pub(super) ttl_ms: u64,
    pub(super) fenced: bool,
    pub(super) info: Option<&'a Arc<str>>,
}

fn ms(span: u64) -> std::time::Duration {
    std::time::Duration::from_millis(span)
}

/// The kind of a file with other text than a lock's.
const DATA: &str = "a file with another program's text";

impl Refused {
    fn outcome(self) -> Outcome<Reply> {
        match self {
            Refused::WrongKind(found) => Outcome::Applied(Reply::WrongKind { found }),
            Refused::Failed(failure) => Outcome::NotApplied(failure),
        }
    }
}

impl Directory {
    pub(super) fn acquire(self: &Arc<Self>, wanted: &FileAcquire<'_>, settings: Settings) -> Outcome<Reply> {
        if let Err(failure) = self.process.start() {
            return Outcome::NotApplied(failure);
        }
        let claim = wanted.claim;
        let path = self.file(&claim.key);
        self.with(&claim.key, |entry| {
            let now = clock::now();
            if let Some(over) = entry.hold.take_if(|hold| hold.ends_at <= now) {
                over.end();
            }
            if let Some(hold) = &mut entry.hold {
                if hold.token == claim.token && hold.kind == claim.kind {
                    hold.ends_at = hold.ends_at.max(now + ms(wanted.ttl_ms));
                    return granted(hold, true);
                }
                return refused(hold.kind, claim.kind);
            }
            match self.take(entry, wanted, &path, settings) {
                Ok(reply) => Outcome::Applied(reply),
                Err(refused) => refused.outcome(),
            }
        })
    }

    /// Takes the kernel's lock, if nobody has it.
    fn take(
        self: &Arc<Self>,
        entry: &mut Entry,
        wanted: &FileAcquire<'_>,
        path: &Path,
        settings: Settings,
    ) -> Result<Reply, Refused> {
        let key = &wanted.claim.key;
        let failed = |what: &str, error: Errno| Refused::Failed(lock_file::failure(path, what, error));
        // a file that was removed or replaced is opened anew
        for _ in 0..8 {
            let file = match entry.waiting.take().filter(LockFile::is_open) {
                Some(file) => file,
                None => LockFile::open(path, settings)?,
            };
            self.watch(entry, key, path, Some(file.id));
            let taken = file.try_lock().map_err(|error| failed("lock", error))?;
            if !file.is_at(path).map_err(|error| failed("look at", error))? {
                if file.is_open() {
                    let _ = file.unlock();
                }
                continue;
            }
            if !taken {
                return Ok(keep_waiting(entry, file, wanted.claim.kind));
            }
            let text = match file.read() {
                Ok(text) if record::is_data(&text) => Err(Refused::WrongKind(DATA.to_owned())),
                Ok(text) => Ok(text),
                Err(error) => Err(failed("read", error)),
            };
            let text = text.inspect_err(|_| {
                let _ = file.unlock();
            })?;
            return self.grant(entry, wanted, file, &text, settings).map_err(|(file, what, error)| {
                let _ = file.unlock();
                failed(what, error)
            });
        }
        let detail = format!("{} is replaced again and again", path.display());
        Err(Refused::Failed(Failure::transient(ErrorKind::ServerRefused, detail)))
    }

    /// Writes down who has it.
    fn grant(
        self: &Arc<Self>,
        entry: &mut Entry,
        wanted: &FileAcquire<'_>,
        file: LockFile,
        text: &[u8],
        settings: Settings,
    ) -> Result<Reply, (LockFile, &'static str, Errno)> {
        let FileAcquire { claim, ttl_ms, fenced, info } = wanted;
        let Content { waited_at, record, .. } = record::read(text);
        let (now, wall_us) = (clock::now(), clock::wall_us());
        let last = record.map_or(0, |record| record.fence);
        let hold = FileHold {
            token: claim.token.clone(),
            kind: claim.kind,
            count: 1,
            fence: if *fenced { record::next_fence(last, wall_us) } else { last },
            fenced: *fenced,
            info: info.cloned(),
            ends_at: now + ms(*ttl_ms),
            file,
            waited: waited_at.is_some_and(|at| now.since(at) < STILL_WAITS),
        };
        if let Err(error) = hold.file.write(&hold.file_text(&claim.key, &self.process, now, wall_us), 0) {
            return Err((hold.file, "write", error));
        }
        if settings.sync
            && hold.fenced
            && let Err(error) = hold.file.sync()
        {
            return Err((hold.file, "sync", error));
        }
        Ok(self.enter(entry, hold))
    }

    fn enter(&self, entry: &mut Entry, hold: FileHold) -> Reply {
        let reply = Reply::Granted { fence: hold.fenced.then_some(hold.fence), again: false };
        self.process.look_at(hold.ends_at);
        entry.hold = Some(hold);
        reply
    }

    pub(super) fn renew(&self, claim: &Claim, ttl_ms: u64, count: Option<u64>) -> Renewal {
        let path = self.file(&claim.key);
        self.with(&claim.key, |entry| {
            let now = clock::now();
            let is_it =
                |hold: &&mut FileHold| hold.token == claim.token && hold.kind == claim.kind && now < hold.ends_at;
            let Some(hold) = entry.hold.as_mut().filter(is_it) else { return Renewal::NotMine };
            match hold.file.is_at(&path) {
                Ok(true) => {}
                Ok(false) => {
                    // the file is closed, or others find another one: this lock excludes nobody any more
                    if let Some(hold) = entry.hold.take() {
                        hold.end();
                    }
                    return Renewal::NotMine;
                }
                Err(error) => return Renewal::Failed(lock_file::failure(&path, "look at", error).detail),
            }
            hold.ends_at = hold.ends_at.max(now + ms(ttl_ms));
            hold.count = count.unwrap_or(hold.count);
            // for people: the lock does not depend on it
            let _ = hold.file.write(&hold.file_text(&claim.key, &self.process, now, clock::wall_us()), 0);
            Renewal::Renewed
        })
    }

    pub(super) fn release(&self, claim: &Claim) -> Reply {
        self.with(&claim.key, |entry| {
            let is_it = |hold: &mut FileHold| hold.token == claim.token && hold.kind == claim.kind;
            let Some(hold) = entry.hold.take_if(is_it) else { return Reply::Released(false) };
            let there = clock::now() < hold.ends_at && hold.file.is_at(&self.file(&claim.key)).unwrap_or(true);
            let waited = hold.waited || entry.listeners > 0;
            hold.end();
            entry.wake();
            match there {
                true if waited => Reply::ReleasedToWaiters,
                there => Reply::Released(there),
            }
        })
    }

    pub(super) fn inspect(&self, key: &Key) -> Outcome<Reply> {
        let path = self.file(key);
        self.with(key, |entry| {
            let now = clock::now();
            if let Some(hold) = entry.hold_at(now)
                && hold.file.is_at(&path).unwrap_or(true)
            {
                let left = hold.ends_at.since(now).as_millis() as u64;
                let holder = hold.token.as_bytes().to_vec();
                return inspected(InspectedKey {
                    kind: Ok(hold.kind),
                    holder,
                    count: hold.count,
                    ttl_left_ms: Some(left),
                    fence: hold.fenced.then_some(hold.fence),
                    info: hold.info.as_ref().map(|info| info.as_bytes().to_vec()),
                });
            }
            match look(&path) {
                Ok(Some((_, text))) => inspected(described(&record::read(&text))),
                Ok(None) => Outcome::Applied(Reply::Inspected(None)),
                Err(Refused::WrongKind(found)) => inspected(InspectedKey {
                    kind: Err(found),
                    holder: Vec::new(),
                    count: 0,
                    ttl_left_ms: None,
                    fence: None,
                    info: None,
                }),
                Err(Refused::Failed(failure)) => Outcome::NotApplied(failure),
            }
        })
    }

    /// Takes a lock from its holder: from one of this process by ending the hold, from another one by putting another file
    /// in the place of the locked one, which the holder finds at its next renewal.
    pub(super) fn force_release(&self, key: &Key, foreign: bool, settings: Settings) -> Outcome<Reply> {
        let path = self.file(key);
        self.with(key, |entry| {
            let now = clock::now();
            if let Some(hold) = entry.hold.take() {
                let there = now < hold.ends_at && hold.file.is_at(&path).unwrap_or(true);
                hold.end();
                entry.wake();
                if there {
                    return Outcome::Applied(Reply::Forced(true));
                }
            }
            let (file, mut text) = match look(&path) {
                Ok(Some(found)) => found,
                Ok(None) => return Outcome::Applied(Reply::Forced(false)),
                Err(refused) => return refused.outcome(),
            };
            let content = record::read(&text);
            if holding(&content).is_none() && !foreign {
                return Refused::WrongKind(FOREIGN_KIND.to_owned()).outcome();
            }
            // the counter goes on in the new file
            match (content.record.is_some(), text.get_mut(record::STATE_AT as usize..)) {
                (true, Some(state)) if state.len() >= record::FREE.len() => {
                    state[..record::FREE.len()].copy_from_slice(record::FREE);
                }
                _ => text.clear(),
            }
            match file.replace(&path, &text, settings) {
                Ok(()) => Outcome::Applied(Reply::Forced(true)),
                Err(failure) => Outcome::NotApplied(failure),
            }
        })
    }

    /// The locks that somebody holds. A cursor is the last file that was looked at.
    pub(super) fn scan(&self, scan: &Scan) -> Result<Scanned, Failure> {
        let after =
            scan.cursor.as_deref().map(|cursor| cursor.strip_prefix("f:").ok_or_else(foreign_cursor)).transpose()?;
        let failed = |error: &std::io::Error| {
            let error = Errno::from_io_error(error).unwrap_or(Errno::IO);
            lock_file::failure(&self.path.join("*"), "list", error)
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(|error| failed(&error))? {
            // what is no text is no lock's
            let Ok(file) = entry.map_err(|error| failed(&error))?.file_name().into_string() else { continue };
            if after.is_none_or(|after| file.as_str() > after) && name::read(file.as_bytes()) != Named::Nothing {
                files.push(file);
            }
        }
        files.sort_unstable();
        let more = files.len() > scan.count as usize;
        files.truncate(scan.count as usize);
        let next = files.last().filter(|_| more).map(|file| format!("f:{file}"));
        let keys = files.iter().filter_map(|file| self.held(file, &scan.pattern)).collect();
        Ok(Scanned { keys, next })
    }

    /// The key of the lock with this file, if it matches and is held.
    fn held(&self, file: &str, pattern: &[u8]) -> Option<Key> {
        let path = self.path.join(file);
        let key: Key = match name::read(file.as_bytes()) {
            Named::Key(key) => key.into(),
            Named::Hashed => record::read(&LockFile::look(&path).ok()??.read().ok()?).record?.key().into(),
            Named::Nothing => return None,
        };
        if !glob::matches(pattern, &key) {
            return None;
        }
        match self.inspect(&key) {
            Outcome::Applied(Reply::Inspected(Some(InspectedKey { kind: Ok(_), .. }))) => Some(key),
            _ => None,
        }
    }
}

fn granted(hold: &FileHold, again: bool) -> Outcome<Reply> {
    Outcome::Applied(Reply::Granted { fence: hold.fenced.then_some(hold.fence), again })
}

/// A holder of this kind is in the way.
fn refused(found: Kind, wanted: Kind) -> Outcome<Reply> {
    Outcome::Applied(denied(Some(found), wanted))
}

fn denied(found: Option<Kind>, wanted: Kind) -> Reply {
    match found {
        Some(found) if found != wanted => Reply::WrongKind { found: found.as_str().to_owned() },
        // no lock of the kernel has an end that could be told
        _ => Reply::Denied { ttl_left_ms: None, announces: true },
    }
}

/// The lock is somebody else's. Waiters keep the file open.
fn keep_waiting(entry: &mut Entry, file: LockFile, wanted: Kind) -> Reply {
    let text = file.read().unwrap_or_default();
    let content = record::read(&text);
    // what would be an error has to be true, and nothing else is worth the look
    let found = match content.record.as_ref().filter(|_| content.held) {
        Some(record) if record.kind != wanted => holding(&content).map(|record| record.kind),
        _ => None,
    };
    if entry.listeners > 0 {
        if record::is_ours(&text) {
            // tells the holder, who would else take it again and again; the next grant wipes it out
            let _ = file.write(record::waited(clock::now()).as_bytes(), 0);
        }
        entry.waiting = Some(file);
    }
    denied(found, wanted)
}
