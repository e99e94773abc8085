//! Bugs planted on purpose, none of them in production code: each is a plausible way to write a lock client or its
//! scripts wrongly, and each must be caught by the checks.

/// Bugs whose documentation can be shown to people, too.
macro_rules! planted_bugs {
    ($(#[$about:meta])* pub enum Bug { $(#[doc = $text:literal] $name:ident,)* }) => {
        $(#[$about])*
        pub enum Bug {
            $(#[doc = $text] $name,)*
        }

        impl Bug {
            /// What is done wrongly, in a sentence.
            pub fn explain(self) -> &'static str {
                match self {
                    $(Bug::$name => $text.trim(),)*
                }
            }
        }
    };
}
pub(super) use planted_bugs;

planted_bugs! {
/// One planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The deadline counts from the reply instead of the request.
    DeadlineFromReceive,
    /// A renewal is believed as soon as it is sent.
    OptimisticRenew,
    /// The renewal script writes the key again when it is gone.
    RenewRecreates,
    /// Re-entry increments a count on the server; a resent request counts twice.
    IncrementWithRetry,
    /// The token names the client, not the acquisition.
    OwnerIdOnly,
    /// No second attempt once the subscription is confirmed.
    NoSecondLook,
    /// A lease is handed out without looking whether anything is left of it.
    LateGrantHandedOut,
    /// The fencing token is a plain counter.
    CountingFence,
    /// The first answered undo settles every undo.
    UndoOnce,
    /// A release tells neither the watchdog nor the lease's state.
    NotDisarmed,
    /// A waiter trusts in messages: it sleeps until one comes or the holder's time ends.
    NoSafetyPoll,
    /// A resent acquire sets the time to live instead of raising it.
    ResendShortens,
    /// A cancelled acquire leaves the undo to nobody.
    CancelForgets,
    /// A head that leaves the local line does not tell its successor.
    SilentLeave,
    /// A message that comes while an attempt is under way is forgotten.
    HintForgotten,
    /// A retired token is used for the next attempt.
    TokenReused,
    /// A renewal's verdicts are read one place off.
    VerdictsShifted,
    /// A subscription that was lost is not made again.
    NoResubscribe,
    /// A release that was not answered is left at that.
    ReleaseForgotten,
    /// A confirmed count is believed for the length of the lease as it is now, not as it was asked for.
    CountBelievedLonger,
    /// A renewal that failed is not tried again.
    NoRetry,
    /// A release before the shortest time is over deletes the key.
    FreedEarly,
    /// Every message is answered at once, however many came for nothing.
    StormAnswered,
    /// An attach leaves the token of the hold as it is.
    AttachKeepsToken,
    /// An attach that is given up leaves the undo to nobody.
    AttachForgets,
    /// An acquire does not name the place that it had.
    PlaceNumberForgotten,
    /// A request that was not answered is sent again with another token.
    ResentPlaceForgotten,
    /// A head that ends leaves its place although others of its client wait.
    PlaceNotPassedOn,
    /// The last waiter leaves its place in the queue.
    PlaceLeftBehind,
    /// A place is not kept: its acquire waits for the message.
    PlaceNotKept,
    /// An acquire says that it listens although its subscription is not confirmed, or broken.
    ListensSaid,
    /// Whoever hands a hold over releases it.
    DetachedReleased,
    /// A try takes a free lock past those who wait.
    TryBarges,
    /// A place without a record is not forgotten.
    HeadBlocks,
    /// A lock is handed over to a client that is gone.
    DeadGranted,
    /// After the clock was set back places live until their end all the same.
    FarEndsLive,
    /// Who was passed over is not told.
    UnheardUntold,
    /// A told grant is believed from when the message came.
    ToldFromArrival,
    /// Any number is believed of a told grant.
    HorizonIgnored,
    /// A told grant is believed from the last request, answered or not.
    ToldFromSending,
    /// The end of a told grant goes by the last answer, and the horizon by the first.
    AnswersMixed,
    /// A lease that is not renewed is believed from a message.
    FixedLeaseBelieved,
    /// The key of a grant ends before the place would have.
    GrantKeyShort,
    /// The horizon is the counter alone, which may be lost.
    HorizonOfCounter,
    /// A told lease is renewed when any other would be.
    ToldRenewedLate,
    /// Several locks are taken in the order in which the caller names them.
    CallersOrder,
    /// An acquire of several locks that fails keeps what it has.
    MembersKept,
    /// The holder of several locks is not told when one is lost.
    MemberLossUntold,
    /// A member that is lost while a later one is waited for is taken again alone.
    LostMemberRetaken,
    /// The script that takes several locks takes them until one is held by somebody else, and leaves it at that.
    HalfTaken,
    /// The script that takes several locks looks at the first one only.
    FirstLookedAt,
    /// The script that takes several locks gives each the token of another one.
    TokensMixedUp,
    /// The script that releases several locks ends at the first that is not there.
    ReleaseStops,
    /// The script that releases several locks does not compare.
    ReleasesUncompared,
    /// A request for several locks that was given up is undone for all of them but one.
    UndoForgetsOne,
    /// A request for several locks that was not answered is sent again with other tokens, and nobody undoes the first.
    AllResentAnew,
}
}

impl Bug {
    /// Those of several locks at once.
    pub const OF_SEVERAL: [Bug; 11] = [
        Bug::CallersOrder,
        Bug::MembersKept,
        Bug::MemberLossUntold,
        Bug::LostMemberRetaken,
        Bug::HalfTaken,
        Bug::FirstLookedAt,
        Bug::TokensMixedUp,
        Bug::ReleaseStops,
        Bug::ReleasesUncompared,
        Bug::UndoForgetsOne,
        Bug::AllResentAnew,
    ];

    /// Those of locks with a queue on the server.
    pub const OF_QUEUES: [Bug; 20] = [
        Bug::PlaceNumberForgotten,
        Bug::ResentPlaceForgotten,
        Bug::PlaceNotPassedOn,
        Bug::PlaceLeftBehind,
        Bug::PlaceNotKept,
        Bug::ListensSaid,
        Bug::DetachedReleased,
        Bug::TryBarges,
        Bug::HeadBlocks,
        Bug::DeadGranted,
        Bug::FarEndsLive,
        Bug::UnheardUntold,
        Bug::ToldFromArrival,
        Bug::HorizonIgnored,
        Bug::ToldFromSending,
        Bug::AnswersMixed,
        Bug::FixedLeaseBelieved,
        Bug::GrantKeyShort,
        Bug::HorizonOfCounter,
        Bug::ToldRenewedLate,
    ];

    /// Those of every kind.
    pub const ALL: [Bug; 25] = [
        Bug::DeadlineFromReceive,
        Bug::OptimisticRenew,
        Bug::RenewRecreates,
        Bug::IncrementWithRetry,
        Bug::OwnerIdOnly,
        Bug::NoSecondLook,
        Bug::LateGrantHandedOut,
        Bug::CountingFence,
        Bug::UndoOnce,
        Bug::NotDisarmed,
        Bug::NoSafetyPoll,
        Bug::ResendShortens,
        Bug::CancelForgets,
        Bug::SilentLeave,
        Bug::HintForgotten,
        Bug::TokenReused,
        Bug::VerdictsShifted,
        Bug::NoResubscribe,
        Bug::ReleaseForgotten,
        Bug::CountBelievedLonger,
        Bug::NoRetry,
        Bug::FreedEarly,
        Bug::StormAnswered,
        Bug::AttachKeepsToken,
        Bug::AttachForgets,
    ];
}
