//! An operation as a command, and its reply as an outcome.
//!
//! | file | is |
//! |---|---|
//! | `request` | the command for an operation |
//! | `call` | what the calls of all scripts share |
//! | `form` | which form of a command is sent first: plain command, script hash or script text |
//! | `semaphore` | the commands for permits |
//! | `rw` | the commands for read/write locks |
//! | `scripts`, `scripts/` | what runs on the server: one script per operation, in a folder what only one kind has |
//! | `reply` | the outcome that a reply means |
//! | `server_error` | the failure that a server's error text means |

pub(crate) mod call;
pub(crate) mod form;
pub(crate) mod reply;
pub(crate) mod request;
mod rw;
pub(crate) mod scripts;
pub(crate) mod semaphore;
pub(crate) mod server_error;
