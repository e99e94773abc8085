//! What the tests of every language stand on: real servers, a fault proxy that knows the protocol, and a checker for
//! recorded histories.
//!
//! - [`servers`]: a Redis or Valkey of one's own, ready within milliseconds and gone at the end of the test.
//! - [`etcd`]: an etcd of one's own, and `etcdctl` for it.
//! - [`postgres`]: a PostgreSQL of one's own.
//! - [`memcached`]: a memcached of one's own.
//! - [`proxy`]: sits between client and server and loses, holds, doubles, delays or spoils single messages.
//! - [`wire`]: the same between any client and server, without knowing their protocol.
//! - [`history`]: what clients saw, one line per event, and the properties that it must have.
//! - [`resp`]: a small raw client, for what a client library would hide.
//! - [`sim`]: clients, a server and everything that can go wrong between them, in virtual time.
//! - [`supervisor`]: driver processes, which use the library from one language each.
//! - [`scenario`]: declarative cases that every driver runs.
//! - [`chaos`]: many processes, few locks, and somebody who breaks things.
//! - [`topology`]: a master with replicas and Sentinels; a cluster whose slots can be moved.
//! - [`wait`]: waiting for conditions instead of sleeping.
//! - [`face`]: the async and the blocking client behind one face, so that a test holds for both.
//! - [`stage`]: a server, a proxy in front of it, and clients that lose patience soon.
//! - [`holder`]: a process that holds a lock, to be stopped, killed, or told another time of day.
//! - [`scripts`]: the scripts, for choosing requests by what they do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "this crate is test code: a fixture that fails should stop the test at once, with its message"
)]

pub mod chaos;
pub mod clock;
pub mod etcd;
pub mod face;
pub mod history;
pub mod holder;
pub mod memcached;
pub mod postgres;
pub mod proxy;
pub mod resp;
pub mod scenario;
pub mod scripts;
pub mod servers;
pub mod stage;
pub mod supervisor;
pub mod topology;
pub mod wait;
pub mod wire;

pub use onelock_simulator as sim;
