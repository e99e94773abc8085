//! The same requests without a lock around them: what the peers' loops send.
//!
//! The scripts are the very files of the library, so a peer pays for the same work on the server.

use onelock::machine::naming;
use onelock::machine::{Kind, Terms};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Connection, FromRedisValue};
use sha1_smol::Sha1;

/// The library's acquire script.
pub(crate) const ACQUIRE: &str = include_str!("../../core/src/store/redis/command/scripts/lock/acquire.lua");
/// The library's release script.
pub(crate) const RELEASE: &str = include_str!("../../core/src/store/redis/command/scripts/release.lua");
/// What a plain lock releases with.
pub(crate) const DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// A script's name for EVALSHA.
pub(crate) fn sha(script: &str) -> String {
    Sha1::from(script).digest().to_string()
}

/// Everything but the token that a cycle of one lock sends.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    /// The lock's key.
    pub(crate) lock: String,
    /// The key of its fencing counter.
    pub(crate) fence: Vec<u8>,
    /// The channel that announces its release.
    pub(crate) channel: Vec<u8>,
    /// Time to live of the lock.
    pub(crate) ttl_ms: u64,
    /// Time to live of the counter.
    pub(crate) fence_ttl_ms: u64,
    /// The acquire script's hash.
    pub(crate) acquire: String,
    /// The release script's hash.
    pub(crate) release: String,
    drawn: u64,
}

impl Requests {
    /// For the lock of this name, with the library's defaults.
    pub(crate) fn new(lock: &str) -> Requests {
        let terms = Terms::default();
        let ttl_ms = terms.server_ttl_ms(terms.ttl);
        Requests {
            lock: lock.to_owned(),
            fence: naming::fence_key(lock.as_bytes()),
            channel: naming::channel(Kind::Mutex, lock.as_bytes()),
            ttl_ms,
            fence_ttl_ms: naming::fence_ttl_ms(ttl_ms),
            acquire: sha(ACQUIRE),
            release: sha(RELEASE),
            drawn: 0,
        }
    }

    /// The two commands of the next cycle. Its token is a counter, as long as a real one: this is the floor.
    pub(crate) fn cycle(&mut self) -> (Cmd, Cmd) {
        let token = self.next_token();
        self.cycle_of(&token)
    }

    /// A token as long as a real one.
    pub(crate) fn next_token(&mut self) -> String {
        self.drawn += 1;
        format!("onelock1:{:032x}", self.drawn)
    }

    /// The two commands of a cycle with this token.
    pub(crate) fn cycle_of(&self, token: &str) -> (Cmd, Cmd) {
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&self.acquire).arg(2).arg(&self.lock).arg(&self.fence);
        acquire.arg(token).arg(self.ttl_ms).arg(self.fence_ttl_ms);
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(1).arg(&self.lock).arg("m").arg(token).arg(&self.channel);
        (acquire, release)
    }

    /// One acquire and release on a blocking connection.
    ///
    /// # Panics
    /// When the lock is not free.
    pub(crate) fn run(&mut self, connection: &mut Connection) {
        let (acquire, release) = self.cycle();
        granted(acquire.query(connection));
        released(release.query(connection));
    }

    /// One acquire and release on a shared connection.
    ///
    /// # Panics
    /// When the lock is not free.
    pub(crate) async fn run_async(&mut self, connection: &mut MultiplexedConnection) {
        let (acquire, release) = self.cycle();
        granted(acquire.query_async(connection).await);
        released(release.query_async(connection).await);
    }
}

/// The reply to an acquire: the server's clock, what it did, and a number more.
fn granted(reply: redis::RedisResult<(u64, u8, u64)>) {
    let (_, found, _) = reply.expect("the server runs the script");
    assert_eq!(found, 0, "somebody else uses the lock of this measurement");
}

fn released(reply: redis::RedisResult<u8>) {
    assert_eq!(reply.expect("the server runs the script"), 1, "somebody else uses the lock of this measurement");
}

/// Runs a command on a blocking connection.
///
/// # Panics
/// When the server refuses it.
pub(crate) fn ask<T: FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.query(connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}
