//! A look at a directory step by step.

use super::watcher::Watcher;
use super::{FileStore, file_system};
use crate::config::Options;
use crate::machine::{Claim, Kind, Outcome, Reply, token};
use crate::store::Store;
use crate::store::diagnosis::{Finding, FindingList};
use crate::sys::random;

/// Looks at the directory, its file system, whether locks can be taken in it, and what wakes waiters. `name` is what the
/// keys begin with.
pub(super) fn look(store: &FileStore, _options: &Options, name: &[u8]) -> Vec<Finding> {
    let mut found = FindingList::of(store.address());
    let shared = &store.shared;
    let (directory, settings) = (&shared.directory, shared.settings);
    let system = match file_system::check(&directory.path, settings) {
        Ok(system) => system,
        Err(failure) => {
            let front = format!("{}: ", store.address());
            let detail = failure.detail.strip_prefix(&front).unwrap_or(&failure.detail);
            let todo = "name a directory that exists, on a local disk, and that this user may read and write";
            found.failed("file system", failure.kind, detail, todo);
            return found.all;
        }
    };
    if system.is_local {
        found.passed("file system", format!("{}, on this machine", system.name));
    } else {
        found.warning(
            "file system",
            format!("{} does not tell where its files are", system.name),
            "use a directory on a local disk, which no other machine shares",
        );
    }
    if !take(&mut found, store, name) {
        return found.all;
    }
    match Watcher::is_possible() {
        Ok(()) => found.passed("notify", "inotify wakes waiters"),
        Err(why) => found.remark(
            "notify",
            format!("there is no inotify instance ({why}): waiters look every 25 ms"),
            "on Linux raise fs.inotify.max_user_instances",
        ),
    }
    match (settings.sync, system.keeps) {
        (true, true) => found.passed("persistence", "each fencing token is on the disk before it is handed out"),
        (_, false) => found.remark(
            "persistence",
            format!(
                "{} forgets the fencing counters when the machine restarts; they go on from the clock",
                system.name
            ),
            "use a directory on a disk, with sync=1 in the address",
        ),
        (false, true) => found.remark(
            "persistence",
            "a crash of the machine may forget the latest fencing tokens; they go on from the clock",
            "write sync=1 in the address, which costs a write to the disk for each grant",
        ),
    }
    found.all
}

/// Takes a lock of its own, looks at it, and removes its file.
fn take(found: &mut FindingList, store: &FileStore, name: &[u8]) -> bool {
    let random = match random::random() {
        Ok(random) => random,
        Err(error) => {
            found.failed("permission", error.kind(), error.detail(), error.kind().todo());
            return false;
        }
    };
    let token = token::value(random, None);
    let mut key = name.to_vec();
    key.extend_from_slice(b"onelock-doctor-");
    key.extend_from_slice(&token.as_bytes()[token.len() - 16..]);
    let claim = Claim { kind: Kind::Mutex, key: key.into(), token };
    let path = store.shared.directory.file(&claim.key);
    let wanted = super::FileAcquire { claim: &claim, ttl_ms: 10_000, fenced: true, info: None };
    let outcome = store.shared.directory.acquire(&wanted, store.shared.settings);
    let released = store.shared.directory.release(&claim);
    let is_taken = match (outcome, released) {
        (Outcome::Applied(Reply::Granted { .. }), Reply::Released(true)) => {
            found.passed("permission", "a lock was taken and released");
            true
        }
        (Outcome::NotApplied(failure), _) => {
            let todo = "let this user create and write files in the directory";
            found.failed("permission", failure.kind, failure.detail, todo);
            false
        }
        (outcome, released) => {
            let detail = format!("a new lock could not be taken and released: {outcome:?}, {released:?}");
            found.failed("permission", crate::ErrorKind::Internal, detail, crate::ErrorKind::Internal.todo());
            false
        }
    };
    let _ = std::fs::remove_file(&path);
    is_taken
}
