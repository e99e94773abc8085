//! The fixed words of names, fields and values on the server.

/// The word of the fencing counter's key.
pub const FENCE_WORD: &str = "onelock_fence";
/// The word of the channel that announces the release of a mutex.
pub const MUTEX_CHANNEL_WORD: &str = "onelock_channel";
/// The word of the channel that announces the release of a reentrant lock; Redisson's own.
pub const REENTRANT_CHANNEL_WORD: &str = "redisson_lock__channel";
/// The word of the channel that announces free permits of a semaphore; Redisson's own.
pub const SEMAPHORE_CHANNEL_WORD: &str = "redisson_sc";
/// The word of the channel that announces to all who wait for a read/write lock; Redisson's own.
pub const RW_CHANNEL_WORD: &str = "redisson_rwlock";
/// What is published there: all who wait ask again.
pub const RW_MESSAGE: &str = "1";
/// The word of the key with the readers of a read/write lock: a sorted set of owners, each with its end.
pub const READERS_WORD: &str = "onelock_readers";
/// What stands where a mutex has its fencing counter, when the name is a semaphore's.
pub const SEMAPHORE_MARK: &str = "semaphore";
/// The word of the channels that tell a client of its grants, one for each client.
pub const GRANT_CHANNEL_WORD: &str = "onelock_grant";
/// The word of the key with the queue of a lock that has one: a sorted set of tokens.
pub const QUEUE_WORD: &str = "onelock_queue";
/// The word of the key with the records of the places in that queue: a hash.
pub const WAITERS_WORD: &str = "onelock_waiters";
/// The hash field with the kind of the hold, of kinds that share one layout.
pub const MODE_FIELD: &str = "mode";
/// What no name of a lock begins with: the words of companion keys and channels, and those kept for other kinds of lock.
pub const RESERVED_WORDS: [&str; 9] = [
    FENCE_WORD,
    MUTEX_CHANNEL_WORD,
    REENTRANT_CHANNEL_WORD,
    QUEUE_WORD,
    WAITERS_WORD,
    READERS_WORD,
    GRANT_CHANNEL_WORD,
    RW_CHANNEL_WORD,
    SEMAPHORE_CHANNEL_WORD,
];
/// What is published when a lock was released; of a semaphore it is the number of free permits. Redisson's listeners accept
/// nothing but ASCII integers.
pub const RELEASE_MESSAGE: &str = "0";
/// The hash field that carries the fencing token of a reentrant hold.
pub const FENCE_FIELD: &str = "onelock_fence";
/// The hash field that carries the inspection text of a reentrant hold.
pub const INFO_FIELD: &str = "onelock_info";
/// How every value written by this library begins.
pub const VALUE_PREFIX: &str = "onelock1:";
/// The value of a mutex, and the `onelock_info` of a reentrant lock, that was released before its shortest time was over:
/// nobody's. No token has this form.
pub const RELEASED_VALUE: &str = "onelock1:released";
