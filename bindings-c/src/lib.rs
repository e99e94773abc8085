//! libonelock, the C library. It holds no lock logic: every function checks its arguments, calls the crate `onelock`
//! and converts the result.
//!
//! `boundary` is the wrapper of every exported function (panics, NULL, outputs, errors), `handles` is the table of
//! living handles, `object` lists the kinds of objects. Each other file exports the functions of one noun.
//! `include/onelock.h` is generated from them; its head (`cbindgen.toml`) has the conventions for C programmers.

// A C interface reads and writes memory of its caller. Each unsafe block says why it may.
#![allow(unsafe_code)]
// Exported types carry the names they have in C.
#![allow(non_camel_case_types)]
// The obligations of callers are the same for all functions; the head of the header has them.
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
mod diagnosis;
mod enums;
mod error;
mod facts;
mod gate;
mod handles;
mod inspection;
mod lease;
mod listeners;
mod lock;
mod lock_options;
mod lock_setters;
mod log;
mod object;
mod owner;
mod page;
mod proof;
mod signal;
mod stats;
mod status;
mod text;
mod uncancelled;
mod version;
