//! libonelock: what C and C++ programs link against. No lock logic lives here: every function checks its arguments,
//! calls the crate `onelock` and carries the result over.
//!
//! The way through: `boundary` is the frame of every exported function (panics, NULL, outputs, errors), `table` knows
//! which handles are alive, `object` says what a handle can stand for. The other files are one noun each, exported.
//! `include/onelock.h` is generated from them; the conventions that C programmers rely on stand at its head
//! (`cbindgen.toml`).

// A C interface reads and writes memory of its caller. Each unsafe block says why it may.
#![allow(unsafe_code)]
// Exported types carry the names they have in C.
#![allow(non_camel_case_types)]
// What callers owe is the same for all functions and stands at the head of the header.
#![allow(clippy::missing_safety_doc)]
// Exported to C; no Rust code imports this crate.
#![allow(unreachable_pub)]

#[macro_use]
mod boundary;
mod acquisition;
mod cancel;
mod client;
mod client_options;
mod client_setters;
mod credentials;
mod error;
mod exit;
mod facts;
mod gate;
mod inspection;
mod lease;
mod listeners;
mod lock;
mod lock_options;
mod lock_setters;
mod log;
mod names;
mod object;
mod owner;
mod proof;
mod signal;
mod stats;
mod status;
mod table;
mod text;
mod uncancelled;
mod version;
