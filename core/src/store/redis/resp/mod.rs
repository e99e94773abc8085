//! The Redis protocol on one connection, without I/O.
//!
//! | file | is |
//! |---|---|
//! | `exchange` | the state of one connection, which a thread, a task or an event loop drives |
//! | `request_queue` | its requests: which bytes have left, and whose reply comes next |
//! | `decoder` | the incremental decoder, with a bound on the size of a reply |
//! | `script_reply` | the fast path for the replies of our scripts |
//! | `push` | messages and confirmations of subscriptions |
//! | `value` | reading parts of a decoded reply |

pub(crate) mod decoder;
pub(crate) mod exchange;
pub(crate) mod push;
pub(crate) mod request_queue;
pub(crate) mod script_reply;
pub(crate) mod value;
