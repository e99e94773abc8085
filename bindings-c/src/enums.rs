//! The enumerations of the C interface (kinds, outcomes, reasons, grades): numbers and names.

use std::ffi::{CStr, c_char};
use std::ptr::null;
use std::time::Duration;

use onelock::{ErrorKind, Grade, Kind, LossReason, Notify, Origin, Release, Severity};

use crate::boundary::value;
use crate::error::Failure;

/// The mutual exclusion lock: a string key that any `SET NX PX` client respects. Not re-entrant.
pub const ONELOCK_KIND_MUTEX: u32 = 1;
/// The reentrant lock: a hash that Redisson's `RLock` shares. Give it an owner to re-enter.
pub const ONELOCK_KIND_REENTRANT: u32 = 2;
/// The fair lock: first come, first served among the processes that wait. Not re-entrant, and not on several servers.
pub const ONELOCK_KIND_FAIR: u32 = 3;
/// The reading side of a read/write lock: any number hold it at a time while nobody writes, in the layout of Redisson's
/// `RReadWriteLock`. Give it an owner to re-enter. Not on several servers.
pub const ONELOCK_KIND_READ: u32 = 4;
/// The writing side of the same lock: one holds it, and nobody reads meanwhile.
pub const ONELOCK_KIND_WRITE: u32 = 5;
/// The semaphore: several hold at once, each with permits of its own, in the layout of Redisson's
/// `RPermitExpirableSemaphore`, whose clients do not queue. Who waits is served first come, first served. How many there
/// are say the options of the lock.
pub const ONELOCK_KIND_SEMAPHORE: u32 = 6;

/// Several locks that are held together, from `onelock_multi_new`; not a kind for `onelock_lock_new`.
pub const ONELOCK_KIND_MULTI: u32 = 255;

/// It was held, and the server has deleted the hold.
pub const ONELOCK_RELEASED: u32 = 1;
/// It had ended before: expired, deleted, or force-released. There may have been another holder since.
pub const ONELOCK_ALREADY_EXPIRED: u32 = 2;
/// This handle was released, detached or closed before. Nothing was sent.
pub const ONELOCK_ALREADY_RELEASED: u32 = 3;
/// It is not held any more, but no server confirmed it in time; the release is retried in the background.
pub const ONELOCK_UNCONFIRMED: u32 = 4;

/// Not lost.
pub const ONELOCK_LOSS_NONE: u32 = 0;
/// The deadline passed without a confirmed renewal.
pub const ONELOCK_LOSS_EXPIRED: u32 = 1;
/// The key is gone or has another holder: deleted, evicted, force-released, or lost in a restart.
pub const ONELOCK_LOSS_TAKEN: u32 = 2;
/// `max_hold` was reached.
pub const ONELOCK_LOSS_MAX_HOLD: u32 = 3;
/// The server's clock jumped, so that the key may have expired early.
pub const ONELOCK_LOSS_CLOCK_ANOMALY: u32 = 4;
/// The client was closed while the lease was held, and released it.
pub const ONELOCK_LOSS_CLOSED: u32 = 5;

/// No fencing tokens.
pub const ONELOCK_GRADE_NONE: u32 = 0;
/// The store may forget acknowledged writes without notice (evicting policy, asynchronous replicas).
pub const ONELOCK_GRADE_BEST_EFFORT: u32 = 1;
/// Tokens grow even if the counter is lost, as long as the clock of the server does not run back.
pub const ONELOCK_GRADE_CLOCK_BOUNDED: u32 = 2;
/// The store keeps every acknowledged write.
pub const ONELOCK_GRADE_STRICT: u32 = 3;

/// It could not be tried.
pub const ONELOCK_SEVERITY_SKIPPED: u32 = 1;
/// It is as it should be.
pub const ONELOCK_SEVERITY_PASSED: u32 = 2;
/// It is worth knowing; locks are safe while the server runs.
pub const ONELOCK_SEVERITY_REMARK: u32 = 3;
/// Locks can be taken, but something endangers or delays them.
pub const ONELOCK_SEVERITY_WARNING: u32 = 4;
/// Locks cannot be taken.
pub const ONELOCK_SEVERITY_FAILED: u32 = 5;

/// A client of this library.
pub const ONELOCK_ORIGIN_ONELOCK: u32 = 1;
/// Redisson, or another client that shares its layout.
pub const ONELOCK_ORIGIN_REDISSON: u32 = 2;
/// Any other client: a string that `SET NX` may have written.
pub const ONELOCK_ORIGIN_OTHER: u32 = 3;

const ORIGINS: [(u32, Origin, &CStr); 3] = [
    (ONELOCK_ORIGIN_ONELOCK, Origin::Onelock, c"onelock"),
    (ONELOCK_ORIGIN_REDISSON, Origin::Redisson, c"redisson"),
    (ONELOCK_ORIGIN_OTHER, Origin::Other, c"other"),
];
const KINDS: [(u32, Kind, &CStr); 6] = [
    (ONELOCK_KIND_MUTEX, Kind::Mutex, c"lock"),
    (ONELOCK_KIND_REENTRANT, Kind::Reentrant, c"reentrant_lock"),
    (ONELOCK_KIND_FAIR, Kind::Fair, c"fair_lock"),
    (ONELOCK_KIND_READ, Kind::Read, c"read_lock"),
    (ONELOCK_KIND_WRITE, Kind::Write, c"write_lock"),
    (ONELOCK_KIND_SEMAPHORE, Kind::Semaphore, c"semaphore"),
];
const SEVERAL: [(u32, (), &CStr); 1] = [(ONELOCK_KIND_MULTI, (), c"multi_lock")];
/// Sharded channels where a cluster has them (7.0 and newer), else classic ones.
pub const ONELOCK_NOTIFY_AUTO: u32 = 0;
/// Classic channels, which every node of a cluster forwards to all others.
pub const ONELOCK_NOTIFY_CLASSIC: u32 = 1;
/// Sharded channels, which stay on the nodes of their slot.
pub const ONELOCK_NOTIFY_SHARDED: u32 = 2;
/// Both.
pub const ONELOCK_NOTIFY_BOTH: u32 = 3;

const NOTIFIES: [(u32, Notify); 4] = [
    (ONELOCK_NOTIFY_AUTO, Notify::Auto),
    (ONELOCK_NOTIFY_CLASSIC, Notify::Classic),
    (ONELOCK_NOTIFY_SHARDED, Notify::Sharded),
    (ONELOCK_NOTIFY_BOTH, Notify::Both),
];

const GRADES: [(u32, Grade, &CStr); 4] = [
    (ONELOCK_GRADE_NONE, Grade::None, c"None"),
    (ONELOCK_GRADE_BEST_EFFORT, Grade::BestEffort, c"BestEffort"),
    (ONELOCK_GRADE_CLOCK_BOUNDED, Grade::ClockBounded, c"ClockBounded"),
    (ONELOCK_GRADE_STRICT, Grade::Strict, c"Strict"),
];
const LOSSES: [(u32, LossReason, &CStr); 5] = [
    (ONELOCK_LOSS_EXPIRED, LossReason::Expired, c"expired"),
    (ONELOCK_LOSS_TAKEN, LossReason::Taken, c"taken"),
    (ONELOCK_LOSS_MAX_HOLD, LossReason::MaxHold, c"max_hold"),
    (ONELOCK_LOSS_CLOCK_ANOMALY, LossReason::ClockAnomaly, c"clock_anomaly"),
    (ONELOCK_LOSS_CLOSED, LossReason::Closed, c"closed"),
];
const RELEASES: [(u32, Release, &CStr); 4] = [
    (ONELOCK_RELEASED, Release::Released, c"released"),
    (ONELOCK_ALREADY_EXPIRED, Release::AlreadyExpired, c"already_expired"),
    (ONELOCK_ALREADY_RELEASED, Release::AlreadyReleased, c"already_released"),
    (ONELOCK_UNCONFIRMED, Release::Unconfirmed, c"unconfirmed"),
];

const SEVERITIES: [(u32, Severity, &CStr); 5] = [
    (ONELOCK_SEVERITY_SKIPPED, Severity::Skipped, c"skipped"),
    (ONELOCK_SEVERITY_PASSED, Severity::Passed, c"passed"),
    (ONELOCK_SEVERITY_REMARK, Severity::Remark, c"remark"),
    (ONELOCK_SEVERITY_WARNING, Severity::Warning, c"warning"),
    (ONELOCK_SEVERITY_FAILED, Severity::Failed, c"failed"),
];

fn number_of<T: PartialEq + Copy>(rows: &[(u32, T, &CStr)], value: T) -> u32 {
    // a value that a later core adds has no number yet; no set uses this one
    rows.iter().find(|row| row.1 == value).map_or(u32::MAX, |row| row.0)
}

fn name_of<T>(rows: &[(u32, T, &'static CStr)], number: u32) -> *const c_char {
    value(null(), || rows.iter().find(|row| row.0 == number).map(|row| row.2.as_ptr()))
}

pub(crate) fn kind_number(kind: Kind) -> u32 {
    number_of(&KINDS, kind)
}

pub(crate) fn origin_number(origin: Origin) -> u32 {
    number_of(&ORIGINS, origin)
}

pub(crate) fn grade_number(grade: Grade) -> u32 {
    number_of(&GRADES, grade)
}

pub(crate) fn severity_number(severity: Severity) -> u32 {
    number_of(&SEVERITIES, severity)
}

pub(crate) fn loss_number(loss: Option<LossReason>) -> u32 {
    loss.map_or(ONELOCK_LOSS_NONE, |reason| number_of(&LOSSES, reason))
}

pub(crate) fn release_number(release: Release) -> u32 {
    number_of(&RELEASES, release)
}

fn refuse(tried: &str, detail: &str) -> Failure {
    Failure::new(ErrorKind::InvalidArgument, tried, detail)
}

/// C passes integers, so any value is possible.
pub(crate) fn kind(number: u32, tried: &str) -> Result<Kind, Failure> {
    let found = KINDS.iter().find(|row| row.0 == number).map(|row| row.1);
    found.ok_or_else(|| refuse(tried, &format!("{number} is no kind of lock; use an ONELOCK_KIND_ constant")))
}

pub(crate) fn grade(number: u32, tried: &str) -> Result<Grade, Failure> {
    let found = GRADES.iter().find(|row| row.0 == number).map(|row| row.1);
    found.ok_or_else(|| refuse(tried, &format!("{number} is no grade; use an ONELOCK_GRADE_ constant")))
}

pub(crate) fn notify(number: u32, tried: &str) -> Result<Notify, Failure> {
    let found = NOTIFIES.iter().find(|row| row.0 == number).map(|row| row.1);
    found.ok_or_else(|| refuse(tried, &format!("{number} is no way to notify; use an ONELOCK_NOTIFY_ constant")))
}

/// A length of time in milliseconds; negative ones are refused.
pub(crate) fn duration(ms: i64, what: &str, tried: &str) -> Result<Duration, Failure> {
    u64::try_from(ms)
        .map(Duration::from_millis)
        .map_err(|_| refuse(tried, &format!("{what} is {ms} ms; it cannot be negative")))
}

/// A limit of waiting; -1 is none.
pub(crate) fn wait(ms: i64, tried: &str) -> Result<Option<Duration>, Failure> {
    match ms {
        -1 => Ok(None),
        _ => u64::try_from(ms).map(|ms| Some(Duration::from_millis(ms))).map_err(|_| {
            refuse(tried, &format!("wait_ms is {ms}; use -1 to wait for ever, 0 to try once, or a positive number"))
        }),
    }
}

/// Milliseconds for C, rounded down.
pub(crate) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The name of a kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock`, `semaphore`, `multi_lock`;
/// `NULL` for another number. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_kind_name(kind: u32) -> *const c_char {
    let several = name_of(&SEVERAL, kind);
    if several.is_null() { name_of(&KINDS, kind) } else { several }
}

/// The name of an origin: `onelock`, `redisson`, `other`; `NULL` for another number. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_origin_name(origin: u32) -> *const c_char {
    name_of(&ORIGINS, origin)
}

/// The name of a grade: `None`, `BestEffort`, `ClockBounded`, `Strict`; `NULL` for another number. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_grade_name(grade: u32) -> *const c_char {
    name_of(&GRADES, grade)
}

/// The name of a reason of loss: `expired`, `taken`, `max_hold`, `clock_anomaly`, `closed`; `NULL` for another
/// number. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_loss_name(reason: u32) -> *const c_char {
    name_of(&LOSSES, reason)
}

/// The name of an outcome of release: `released`, `already_expired`, `already_released`, `unconfirmed`; `NULL` for
/// another number. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_release_name(outcome: u32) -> *const c_char {
    name_of(&RELEASES, outcome)
}

/// The name of a severity: `skipped`, `passed`, `remark`, `warning`, `failed`; `NULL` for another number. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_severity_name(severity: u32) -> *const c_char {
    name_of(&SEVERITIES, severity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_core() {
        let same = |name: &CStr, core: &str| assert_eq!(name.to_str().unwrap(), core);
        assert_eq!(KINDS.len(), Kind::ALL.len());
        for row in &KINDS {
            same(row.2, row.1.as_str());
            assert_eq!(row.0, row.1.number());
        }
        for row in &GRADES {
            same(row.2, row.1.as_str());
        }
        for row in &LOSSES {
            same(row.2, row.1.as_str());
        }
        for row in &SEVERITIES {
            same(row.2, row.1.as_str());
        }
        for row in &RELEASES {
            same(row.2, row.1.as_str());
        }
    }

    #[test]
    fn times_are_checked() {
        assert_eq!(wait(-1, "try").unwrap(), None);
        assert_eq!(wait(0, "try").unwrap(), Some(Duration::ZERO));
        assert!(wait(-2, "try").is_err() && wait(i64::MIN, "try").is_err());
        assert!(duration(-1, "ttl_ms", "try").is_err());
        assert_eq!(ms(Duration::MAX), i64::MAX);
    }
}
