//! Connecting through a host that is an event loop: what it lacks.

use std::io;

/// The host gave no thread for a blocking call.
pub(crate) fn no_thread(error: &io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, format!("this host gave no thread: {error}"))
}

/// Whether the host lacks a resource, and neither the network nor the server failed.
pub(crate) fn is_limit(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory
}
