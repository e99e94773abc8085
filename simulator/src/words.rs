//! What happens, in words for people.

use onelock::machine::{Op, Outcome, Renewal, Reply};

use super::plan::Fault;

/// The name of a client: A, B, C ...
pub(super) fn client(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    format!("client {letter}")
}

/// Claims by their numbers: `claim 3`, `claims 3 and 4`.
pub(super) fn claims(numbers: &[usize]) -> String {
    let word = if numbers.len() == 1 { "claim" } else { "claims" };
    let numbers = numbers.iter().map(usize::to_string).collect::<Vec<_>>();
    format!("{word} {}", numbers.join(" and "))
}

/// A moment or a span in milliseconds.
pub(super) fn ms(nanos: u64) -> String {
    format!("{}.{} ms", nanos / 1_000_000, nanos / 100_000 % 10)
}

/// What a request asks for.
pub(super) fn op(op: &Op) -> &'static str {
    match op {
        Op::Acquire { .. } => "acquire",
        Op::AcquireMany { .. } => "acquire all",
        Op::ReleaseMany { .. } => "release all",
        Op::Enter { .. } => "acquire or queue",
        Op::Attach { .. } => "attach",
        Op::Renew { .. } => "renew",
        Op::SetCount { .. } => "set the count",
        Op::Release { .. } => "release",
        Op::Retain { .. } => "release later",
        Op::Undo { .. } => "undo",
        Op::Vote { .. } => "vote",
        Op::WriteBack { .. } => "write the token back",
        other => other.name(),
    }
}

/// What came of a request.
pub(super) fn outcome(outcome: &Outcome<Reply>) -> String {
    match outcome {
        Outcome::Applied(reply) => self::reply(reply),
        Outcome::NotApplied(failure) => format!("refused: {}", failure.detail),
        Outcome::Indeterminate(failure) => format!("nobody knows: {}", failure.detail),
    }
}

fn held_for(left: Option<u64>) -> String {
    left.map_or("held by somebody else".to_owned(), |left| format!("held by somebody else for another {left} ms"))
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Granted { fence, again } => {
            let token = fence.map_or(String::new(), |fence| format!(", fencing token {fence}"));
            if *again { format!("has it already{token}") } else { format!("granted{token}") }
        }
        Reply::Many(replies) => replies.iter().map(self::reply).collect::<Vec<_>>().join("; "),
        Reply::RefusedAt { reply, .. } => format!("none taken: {}", self::reply(reply)),
        Reply::Gone => "it is gone".to_owned(),
        Reply::Denied { ttl_left_ms, .. } | Reply::Taken { ttl_left_ms, .. } => held_for(*ttl_left_ms),
        Reply::Queued { ahead, unheard, .. } => {
            let heard = if *unheard { ", and was passed over" } else { "" };
            format!("waits in the queue, {ahead} before it{heard}")
        }
        Reply::WrongKind { found } => format!("something else stands there: {found}"),
        Reply::Renewed(verdicts) => {
            let told = verdicts.iter().map(|verdict| match verdict {
                Renewal::Renewed => "renewed",
                Renewal::NotMine => "not its own any more",
                Renewal::Failed(_) => "failed",
            });
            told.collect::<Vec<_>>().join(", ")
        }
        Reply::Counted(found) => if *found { "counted" } else { "it is gone" }.to_owned(),
        Reply::Released(true) | Reply::ReleasedToWaiters => "released".to_owned(),
        Reply::Released(false) => "it was not there".to_owned(),
        Reply::Written(fence) => fence.map_or("it is gone".to_owned(), |fence| format!("token is {fence} now")),
        other => format!("{other:?}"),
    }
}

/// A fault that begins, where nothing else of the trace shows it.
pub(super) fn fault(fault: Fault) -> &'static str {
    match fault {
        Fault::Reset => "a connection breaks",
        Fault::BlackHole => "a client is cut off from the server",
        Fault::DataLoss => "the server dies, and will have lost its data",
        Fault::OldData => "the server dies, and will come back with data of some time ago",
        Fault::Crash => "the server dies, and will come back with its data",
        Fault::EvictLock => "the server evicts a lock",
        Fault::EvictFence => "the server evicts a fencing counter",
        Fault::Flush => "somebody deletes all data",
        Fault::Delete => "somebody deletes the key of a lock",
        Fault::Force => "somebody releases a lock by force",
        Fault::Freeze => "the server is stopped",
        Fault::Pause => "a client is stopped",
        Fault::Kill => "a client is killed",
        Fault::ClockForward => "the server's clock is set forward",
        Fault::ClockBackward => "the server's clock is set back",
        Fault::SubscriptionLoss => "a subscription breaks",
        Fault::Foreign => "another program wants a lock",
        Fault::Squatter => "something else is put under the name of a lock",
        Fault::Refusals => "the server refuses commands for a while",
        Fault::Storm => "somebody publishes again and again, for nothing",
        Fault::QueueLoss => "a part of a queue is lost",
        Fault::Deaf => "a subscription is gone, and its client does not notice",
        _ => "something goes wrong",
    }
}
