//! Subscriptions to the channels on which releases are announced.
//!
//! | file | is |
//! |---|---|
//! | `registry` | which channels have listeners; keeps them subscribed over reconnects |
//! | `subscriber` | subscribes and unsubscribes on one connection |
//! | `blocking` | a subscription that a waiting thread reads itself |

#[cfg(not(target_family = "wasm"))]
pub(crate) mod blocking;
pub(crate) mod registry;
pub(crate) mod subscriber;

/// Why a change of subscriptions failed.
#[derive(Debug)]
pub(crate) enum SubscribeError {
    /// The server refused, in these words.
    Refused(String),
    /// The connection is lost.
    Lost,
}
