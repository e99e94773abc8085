//! Enumerations of the core, as uniffi can carry them.

/// An enumeration of the core with the same names, and the conversion into it. `else` stands for what a later core adds.
macro_rules! mirror {
    ($(#[$doc:meta])* $name:ident of $of:path, else $other:ident { $($(#[$says:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, uniffi::Enum)]
        pub enum $name {
            $($(#[$says])* $variant,)*
        }

        impl From<$of> for $name {
            #[allow(unreachable_patterns, reason = "not every one of them may grow")]
            fn from(value: $of) -> $name {
                use $of as Core;
                match value {
                    $(Core::$variant => $name::$variant,)*
                    _ => $name::$other,
                }
            }
        }
    };
}

/// The way back.
macro_rules! and_back {
    ($name:ident to $of:path { $($variant:ident,)* }) => {
        impl From<$name> for $of {
            fn from(value: $name) -> $of {
                use $of as Core;
                match value {
                    $($name::$variant => Core::$variant,)*
                }
            }
        }
    };
}

pub(crate) use mirror;

mirror! {
    /// Why a lease was lost.
    LossReason of onelock::LossReason, else Expired {
        /// The deadline passed without a confirmed renewal.
        Expired,
        /// The server says that the hold is not there any more.
        Taken,
        /// It was held for `max_hold`.
        MaxHold,
        /// The clocks of server and holder run apart.
        ClockAnomaly,
        /// The client was closed.
        Closed,
    }
}

mirror! {
    /// What a release found. None of them is an error.
    Release of onelock::Release, else Unconfirmed {
        /// It was held, and is free now.
        Released,
        /// It had ended before.
        AlreadyExpired,
        /// It was released before.
        AlreadyReleased,
        /// No server could be asked in time; it is tried again in the background.
        Unconfirmed,
    }
}

mirror! {
    /// How strong fencing tokens are, as far as the server's configuration tells.
    Grade of onelock::Grade, else None {
        /// There are none.
        None,
        /// They may fall back: the store evicts, or is replicated asynchronously.
        BestEffort,
        /// They grow as long as the server's clock does.
        ClockBounded,
        /// The store keeps what it acknowledged.
        Strict,
    }
}
and_back! { Grade to onelock::Grade { None, BestEffort, ClockBounded, Strict, } }

mirror! {
    /// How a cluster's releases are announced.
    Notify of onelock::Notify, else Auto {
        /// On sharded channels where the servers have them.
        Auto,
        /// On classic channels.
        Classic,
        /// On sharded channels.
        Sharded,
        /// On both.
        Both,
    }
}
and_back! { Notify to onelock::Notify { Auto, Classic, Sharded, Both, } }

mirror! {
    /// A kind of lock.
    Kind of onelock::Kind, else Mutex {
        /// One holder.
        Mutex,
        /// One owner, who may enter again.
        Reentrant,
        /// One holder, first come, first served.
        Fair,
        /// The reading side of a read/write lock.
        Read,
        /// The writing side of a read/write lock.
        Write,
        /// So many holders at a time.
        Semaphore,
    }
}
and_back! { Kind to onelock::Kind { Mutex, Reentrant, Fair, Read, Write, Semaphore, } }

mirror! {
    /// Whose hold it is that an inspection found.
    Origin of onelock::Origin, else Other {
        /// This library's, in any language.
        Onelock,
        /// Redisson's.
        Redisson,
        /// Another client's.
        Other,
    }
}

mirror! {
    /// How serious a finding of a diagnosis is.
    Severity of onelock::Severity, else Failed {
        /// It was not tried.
        Skipped,
        /// It is as it should be.
        Passed,
        /// Worth knowing.
        Remark,
        /// It may break locks.
        Warning,
        /// It does not work.
        Failed,
    }
}

/// The word of a kind that all languages share: `lock`, `reentrant_lock` and so on.
#[uniffi::export]
pub fn kind_word(kind: Kind) -> String {
    onelock::Kind::from(kind).as_str().to_owned()
}
