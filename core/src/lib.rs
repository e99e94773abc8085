//! A distributed lock on Redis and Valkey: mutual exclusion between processes and machines, with fencing tokens, renewal
//! that nothing blocks, loss detection, waiting without polling, and an API that may be cancelled anywhere.
//!
//! ```no_run
//! # async fn demo() -> Result<(), onelock::Error> {
//! let client = onelock::Client::connect("redis://127.0.0.1/").await?;
//! let lease = client.lock("orders:42").acquire().await?;   // waits its turn
//! println!("mine; tell the database {:?}", lease.fencing_token());
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! A **lock** is a description: kind, name, options. A **lease** is one granted hold of it, renewed in the background
//! until it is released, dropped or lost. [`Lease::is_held`] tells at any time whether it is still yours, without I/O.
//!
//! # The way through the crate
//!
//! | you want | look at |
//! |---|---|
//! | to lock something | [`Client`] -> [`Lock`] -> [`Lease`], or the same in [`blocking`] |
//! | to lock several at once | [`Client::multi_lock`], [`MultiLock`] |
//! | to set options | [`Client::builder`], and the setters of [`Lock`] |
//! | to know why it failed | [`Error`], [`ErrorKind`], [`LossReason`] |
//! | to protect the resource itself | [`FenceGate`], [`Lease::fencing_token`] |
//! | to see what goes on | [`Client::inspect`], [`Client::list`], [`Client::stats`], [`Client::diagnose`], `tracing` events of this crate |
//! | to know what is promised | `GUARANTEES.md` in the repository |
//!
//! # What is stable
//!
//! The items at the root of the crate and [`blocking`] are for users, and change only with the version number.
//! [`runtime`], [`event_loop`] and [`log`] are for bindings to other languages. [`machine`] and [`store`] are public for simulators, for stores and
//! for the tests of this project: they come without any promise of stability.
//!
//! Inside, decisions and deeds are kept apart: [`machine`] decides and does no I/O, [`store`] carries out single
//! operations on a store, and a private driver runs the one against the other.
//!
//! # Features
//!
//! Each store has one; `redis`, `redlock` and `file` are on by default. `memory://` is always there.
//!
//! | feature | addresses |
//! |---|---|
//! | `redis` | one server, a group behind Sentinels, a cluster: `redis://`, `valkey://`, `unix://`, `redis+sentinel://` ... |
//! | `redlock` | several independent servers, of Redis or, with `postgres`, databases: `redlock://`, [`ClientBuilder::connect_nodes`] |
//! | `postgres` | a table of PostgreSQL: `postgres://` |
//! | `etcd` | a cluster of etcd: `etcd://`, `etcds://` |
//! | `file` | a directory on one machine: `file:///dir`; Unix only |
//! | `memcached` | items of a cache, best effort only: `memcached://host` |
//! | `client` | `memory://`; the others imply it |
//! | `spans` | (none) acquires, holds and releases are `tracing` spans, see below |
//! | `metrics` | (none) [`Client::stats`] as metrics of OpenTelemetry, see below |
//!
//! Without any of them only [`machine`] is built, which depends on next to nothing.
//!
//! # Spans
//!
//! With the feature `spans` every acquire, hold and release is a `tracing` span of level `INFO` and target `onelock...`, for
//! OpenTelemetry (by `tracing-opentelemetry`) and whatever else subscribes. Each belongs to the span of the caller: a hold
//! begins there with the grant and ends with the hold, however often it is entered. So a caller's span that a lease outlives
//! is not closed before the lease has ended. Times are seconds; a name is the lock's, unprintable bytes escaped.
//!
//! | span | begins and ends with | fields beside `onelock.lock.name`, `onelock.lock.kind`, `onelock.outcome` |
//! |---|---|---|
//! | `onelock.acquire` | the call | `onelock.wait.duration`, `onelock.wait.timeout` (left out: for ever), `onelock.fencing_token`, `error.type` (the name of the [`ErrorKind`]) |
//! | `onelock.hold` | grant and end of the hold | `onelock.hold.duration`, `onelock.fencing_token`, `onelock.loss.reason` |
//! | `onelock.release` | the call | `onelock.hold.duration`, from the grant to the call |
//!
//! | span | `onelock.outcome` |
//! |---|---|
//! | `onelock.acquire` | `acquired`, `busy` (one try), `timeout`, `cancelled` (the future was dropped, or the thread interrupted), `failed` |
//! | `onelock.hold` | `released`, `lost`, `detached` |
//! | `onelock.release` | the text of a [`Release`]: `released`, `already_expired`, `already_released`, `unconfirmed` |
//!
//! `otel.kind` is `client` or `internal`, and `otel.status_code` is `ERROR` for `timeout`, `failed` and `lost`. A lease that
//! is dropped, and what closing a client releases, have no span of the release. Of several locks that are acquired as one
//! each has spans of its own. `tracing` events of the library are the same with and without.
//!
//! # Metrics
//!
//! With the feature `metrics` there is `Client::register_metrics(meter, attributes)`, and the same in [`blocking`]. It takes a
//! meter of the crate `opentelemetry` (its API alone, version 0.33; a newer one of that crate may come with any version of this one),
//! and the program brings the SDK and an exporter. What Prometheus makes of the names is what the packages for Python and Node.js
//! tell it: `onelock_acquired_total`, `onelock_wait_seconds`.
//!
//! | instrument | names |
//! |---|---|
//! | observable counter | `onelock.acquired`, `onelock.busy`, `onelock.timeouts`, `onelock.cancelled`, `onelock.failed`, `onelock.released`, `onelock.lost`, `onelock.renewals`, `onelock.renewals_missed`, `onelock.reconnects`, `onelock.commands_sent` |
//! | observable up-down counter | `onelock.held`, `onelock.waiting`, `onelock.cleaning` |
//! | histogram, seconds | `onelock.wait` (call to grant), `onelock.hold` (grant to the end of the hold); a re-entry is in neither |
//!
//! Each is the field of [`Stats`] of that name. The counters are read when the SDK collects, and have the attributes that were given. The
//! histograms are recorded from the registration on, have `onelock.lock.kind` (six values) beside them, and bounds from 0.1 ms to 300 s,
//! among them those of `db.client.operation.duration`; a view of the SDK sets others. No lock's name is an attribute: there may be
//! any number of them. Spans carry it.

#![cfg_attr(
    target_family = "wasm",
    allow(dead_code, unused_imports, reason = "what only threads and sockets of a system use")
)]
#![deny(unsafe_code)] // but for a few lines in `sys::fork_detect`, `sys::fork_close` and `exit`

mod error;
pub mod machine;

#[cfg(feature = "client")]
mod address;
#[cfg(all(feature = "client", not(target_family = "wasm")))]
pub mod blocking;
#[cfg(feature = "client")]
mod builder;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "what only stores with servers use"))]
mod config;
#[cfg(feature = "client")]
mod diagnosis;
#[cfg(feature = "client")]
mod driver;
#[cfg(all(feature = "client", not(target_family = "wasm")))]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "what only stores with servers use"))]
pub mod event_loop;
#[cfg(feature = "client")]
mod exit;
#[cfg(feature = "client")]
mod inspect;
#[cfg(feature = "client")]
mod lease;
#[cfg(feature = "client")]
mod list;
#[cfg(feature = "client")]
mod lock;
#[cfg(feature = "client")]
pub mod log;
#[cfg(feature = "client")]
mod multi_handle;
#[cfg(feature = "client")]
mod multi_lock;
#[cfg(feature = "client")]
mod multi_members;
#[cfg(feature = "metrics")]
mod open_telemetry;
#[cfg(all(feature = "client", not(target_family = "wasm")))]
pub mod runtime;
#[cfg(feature = "client")]
mod rw_lock;
#[cfg(feature = "client")]
mod semaphore;
#[cfg(feature = "client")]
mod server_check;
#[cfg(feature = "client")]
pub mod store;
#[cfg(feature = "client")]
mod sys;
/// Running the library in a host that is an event loop and brings clocks, random bytes, one timer and byte streams: on
/// WebAssembly only. For bindings.
#[cfg(all(feature = "client", target_family = "wasm"))]
pub mod host {
    pub use crate::sys::hosted::{
        Certificates, End, HostFunctions, HostedTask, Target, closed, install, opened, rang, received, spawn, turn,
    };
}
#[cfg(feature = "client")]
mod waiters;

pub use error::{Error, ErrorKind};
#[doc(inline)]
pub use machine::{FENCE_GUARD_SCRIPT, FenceGate, Grade, Kind, LossReason, Origin, Owner, OwnerInfo, Stale};

#[cfg(feature = "client")]
pub use address::URL_VARIABLE;
#[cfg(feature = "client")]
pub use builder::ClientBuilder;
#[cfg(feature = "client")]
pub use client::Client;
#[cfg(feature = "client")]
pub use driver::metrics::{Histogram, Stats};
#[cfg(feature = "client")]
pub use inspect::{Inspection, Permits};
#[cfg(feature = "client")]
pub use lease::Lease;
#[cfg(feature = "client")]
pub use list::{Listing, LockEntry, LockPage};
#[cfg(feature = "client")]
pub use lock::Lock;
#[cfg(feature = "client")]
pub use machine::Release;
#[cfg(feature = "client")]
pub use multi_lock::MultiLock;
#[cfg(feature = "client")]
pub use rw_lock::RwLock;
#[cfg(feature = "client")]
#[doc(inline)]
pub use store::{Credentials, CredentialsProvider, CredentialsRequest, Diagnosis, Facts, Finding, Notify, Severity};
#[cfg(feature = "client")]
pub use waiters::Waiter;

/// The Rust in the README compiles.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../../README.md")]
struct ReadMe;

/// So does that on the crate's page.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
struct CratePage;
