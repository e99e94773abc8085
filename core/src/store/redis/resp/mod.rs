//! Reading replies in the Redis protocol.
//!
//! | file | is |
//! |---|---|
//! | `decoder` | the incremental decoder of one connection, with a bound on the size of a reply |
//! | `script_reply` | the fast path for the replies of our scripts |
//! | `value` | reading parts of a decoded reply |

pub(crate) mod decoder;
pub(crate) mod script_reply;
pub(crate) mod value;
