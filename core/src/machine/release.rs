//! The result of a release.

/// What a release found, from [`Lease::release`](crate::Lease::release). None of these is an error: after each the lock is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Release {
    /// It was held until now, and the server has taken it back.
    Released,
    /// It had ended before: expired, deleted, or taken by force. Somebody else may have worked meanwhile. If it was
    /// found gone before its deadline, it is lost, and [`Lease::loss`](crate::Lease::loss) says so.
    AlreadyExpired,
    /// This handle was released, detached or closed before. Nothing was sent.
    AlreadyReleased,
    /// It is not held any more, but no server confirmed it in time; cleanup goes on in the background.
    Unconfirmed,
}

impl Release {
    /// The name used by other languages and in scenarios: `released`, `already_expired` ...
    pub const fn as_str(self) -> &'static str {
        match self {
            Release::Released => "released",
            Release::AlreadyExpired => "already_expired",
            Release::AlreadyReleased => "already_released",
            Release::Unconfirmed => "unconfirmed",
        }
    }
}
