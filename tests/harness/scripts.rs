//! The scripts that run on the server, for choosing requests by what they do.

use crate::proxy::Match;

/// The text of a kind with a queue on the server.
macro_rules! queue_script {
    ($file:literal) => {
        concat!(
            include_str!("../../core/src/store/redis/command/scripts/queue.lua"),
            include_str!(concat!("../../core/src/store/redis/command/scripts/", $file))
        )
    };
}

/// Every script of the Redis store.
pub const ALL: [&str; 15] = [
    ACQUIRE,
    ACQUIRE_MANY,
    RELEASE_MANY,
    ACQUIRE_REENTRANT,
    FAIR_LOCK,
    RW_LOCK,
    SEMAPHORE,
    ATTACH,
    RENEW,
    SET_COUNT,
    RELEASE,
    RETAIN,
    INSPECT,
    FORCE_RELEASE,
    WRITE_BACK,
];

/// Takes a mutex.
pub const ACQUIRE: &str = include_str!("../../core/src/store/redis/command/scripts/lock/acquire.lua");
/// Takes several mutexes, all or none.
pub const ACQUIRE_MANY: &str = include_str!("../../core/src/store/redis/command/scripts/multi_lock/acquire.lua");
/// Gives several mutexes back.
pub const RELEASE_MANY: &str = include_str!("../../core/src/store/redis/command/scripts/multi_lock/release.lua");
/// Takes a reentrant lock.
pub const ACQUIRE_REENTRANT: &str =
    include_str!("../../core/src/store/redis/command/scripts/reentrant_lock/acquire.lua");
/// Enters, keeps, tries and leaves a lock with a queue.
pub const FAIR_LOCK: &str = queue_script!("fair_lock/fair.lua");
/// Everything about a read/write lock but its renewal.
pub const RW_LOCK: &str = queue_script!("rw_lock/rw.lua");
/// Everything about a semaphore but its renewal.
pub const SEMAPHORE: &str = queue_script!("semaphore/permits.lua");
/// Goes on with a hold that was handed over.
pub const ATTACH: &str = include_str!("../../core/src/store/redis/command/scripts/attach.lua");
/// Renews a batch of holds; also extends one.
pub const RENEW: &str = include_str!("../../core/src/store/redis/command/scripts/renew.lua");
/// Re-enters, and leaves an inner hold.
pub const SET_COUNT: &str = include_str!("../../core/src/store/redis/command/scripts/set_count.lua");
/// Releases a hold.
pub const RELEASE: &str = include_str!("../../core/src/store/redis/command/scripts/release.lua");
/// Releases a hold whose key has to stay.
pub const RETAIN: &str = include_str!("../../core/src/store/redis/command/scripts/retain.lua");
/// Looks.
pub const INSPECT: &str = include_str!("../../core/src/store/redis/command/scripts/inspect.lua");
/// Takes by force.
pub const FORCE_RELEASE: &str = include_str!("../../core/src/store/redis/command/scripts/force_release.lua");
/// Raises a fencing counter to the token of the other servers of a quorum.
pub const WRITE_BACK: &str = include_str!("../../core/src/store/redis/command/scripts/write_back.lua");

/// Requests that take a mutex.
pub fn acquire() -> Match {
    Match::script(ACQUIRE)
}

/// Requests that take a reentrant lock.
pub fn acquire_reentrant() -> Match {
    Match::script(ACQUIRE_REENTRANT)
}

/// Requests that take a fair lock, or take or keep a place in its queue.
pub fn enter() -> Match {
    Match::script(FAIR_LOCK).with_arg("enter")
}

/// Requests that give a fair lock back, or a place in its queue.
pub fn leave() -> Match {
    Match::script(FAIR_LOCK).with_arg("leave")
}

/// Requests that go on with a hold that was handed over.
pub fn attach() -> Match {
    Match::script(ATTACH)
}

/// Requests that renew or extend.
pub fn renew() -> Match {
    Match::script(RENEW)
}

/// Requests that set the count of a reentrant hold.
pub fn set_count() -> Match {
    Match::script(SET_COUNT)
}

/// Requests that release a hold.
pub fn release() -> Match {
    Match::script(RELEASE)
}
