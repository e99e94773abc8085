//! How patient an acquire is.

use std::time::Duration;

/// How patient an acquire is, and how it paces itself.
#[derive(Clone, Debug, PartialEq)]
pub struct AcquireLimits {
    /// How long it may wait for another holder: `None` for ever, zero for a single try.
    pub wait: Option<Duration>,
    /// Time limit of making a connection.
    pub connect_timeout: Duration,
    /// Time limit of one request.
    pub request_timeout: Duration,
    /// How long an acquire without a bound puts up with a server that does not answer.
    pub unreachable_limit: Duration,
    /// How often it asks without a message where the server has to know that it waits; `None`: as seldom as is safe.
    pub look_every: Option<Duration>,
    /// Whether a message may tell it a grant. Not where more than one server has to confirm one,
    /// nor where it may not be renewed at once.
    pub believes_messages: bool,
    /// How long a place in a queue on the server lasts there without being kept, where the store says so.
    pub place_for: Option<Duration>,
}

impl Default for AcquireLimits {
    fn default() -> AcquireLimits {
        AcquireLimits {
            wait: None,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(1),
            unreachable_limit: Duration::from_secs(30),
            look_every: None,
            believes_messages: true,
            place_for: None,
        }
    }
}
