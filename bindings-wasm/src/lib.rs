//! The WebAssembly module under the npm package `@onelock/wasm`. Private: the API that people read is in `bindings-node/ts`, and both
//! are released together. It holds no lock logic: it passes calls to the crate `onelock`, and returns their results.
//!
//! Only numbers cross the boundary, and bytes in the module's memory: `memory` holds what comes in and goes out, `json` writes
//! objects, `options` reads them. `bridge` starts calls, `records` encodes their results as numbers, `host` carries over what the
//! host brings. Everything runs on one thread.

#![cfg(target_family = "wasm")]
// For the functions that the host calls, and those of the host. Each unsafe block says why it is sound.
#![allow(unsafe_code)]
#![allow(unreachable_pub, missing_docs)]

mod bridge;
mod calls;
mod data;
mod fence;
mod host;
mod json;
mod leases;
mod log;
mod memory;
mod options;
mod records;
