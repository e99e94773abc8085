//! Connections that the calling thread drives.
//!
//! | file | is |
//! |---|---|
//! | `stream` | a blocking socket: TCP, TLS over TCP, or Unix |
//! | `bounded_socket` | bounds the time of several reads or writes in a row |
//! | `connected_socket` | moves bytes between a socket and an exchange, within deadlines |
//! | `connection` | one connection: handshake, request, reply |
//! | `pool` | idle connections, one per concurrent caller |
//! | `shared`, `shared_pool` | connections that many threads share, by leader and followers |
//! | `gauge` | how many callers are active, and whether that is enough to share connections |

pub(crate) mod bounded_socket;
pub(crate) mod connected_socket;
pub(crate) mod connection;
pub(crate) mod gauge;
pub(crate) mod pool;
pub(crate) mod shared;
pub(crate) mod shared_pool;
pub(crate) mod stream;
