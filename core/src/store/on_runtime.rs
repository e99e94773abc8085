//! A call of a store from a thread, where the store has only the async form: it runs on the background runtime of the
//! process while the thread waits.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::{Boxed, Interrupt};
use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Outcome, Time};
use crate::sys::{clock, runtime};

/// How often a waiting thread looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Makes the call in the context of the background runtime and waits for its answer until `until`, or until the caller is
/// interrupted. What is then still under way is dropped: whether it happened is not known.
pub(super) fn wait(call: impl FnOnce() -> Boxed<Answer>, until: Time, interrupt: &dyn Interrupt) -> Answer {
    let sent_at = clock::now();
    let handle = match runtime::handle() {
        Ok(handle) => handle,
        Err(error) => {
            let failure = Failure::transient(ErrorKind::SystemLimit, error.detail());
            return answer(sent_at, Outcome::NotApplied(failure));
        }
    };
    let (sender, receiver) = sync_channel(1);
    let entered = handle.enter();
    let call = call();
    drop(entered);
    let task = handle.spawn(async move {
        let _ = sender.send(call.await);
    });
    let why = loop {
        let left = until.since(clock::now());
        match receiver.recv_timeout(left.min(LOOK_EVERY)) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => break "the background runtime has ended",
            Err(RecvTimeoutError::Timeout) if interrupt.interrupted() => break "the caller was interrupted",
            Err(RecvTimeoutError::Timeout) if left.is_zero() => break "no reply in time",
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    task.abort();
    answer(sent_at, Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, why)))
}

fn answer(sent_at: Time, outcome: Outcome<crate::machine::Reply>) -> Answer {
    Answer { sent_at, received_at: clock::now(), connection: 0, server_time_us: None, outcome }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::machine::Reply;
    use crate::store::Uninterrupted;

    fn found() -> Answer {
        answer(clock::now(), Outcome::Applied(Reply::Released(true)))
    }

    /// A call that never ends, and what disconnects when it is dropped.
    fn endless() -> (impl FnOnce() -> Boxed<Answer>, Receiver<()>) {
        let (sender, dropped): (Sender<()>, _) = channel();
        let call = move || -> Boxed<Answer> {
            Box::pin(async move {
                let _sender = sender;
                std::future::pending().await
            })
        };
        (call, dropped)
    }

    fn unknown(answer: &Answer) -> &str {
        match &answer.outcome {
            Outcome::Indeterminate(failure) => &failure.detail,
            other => panic!("{other:?}"),
        }
    }

    fn wait_for(dropped: &Receiver<()>) {
        assert_eq!(dropped.recv_timeout(Duration::from_secs(20)), Err(RecvTimeoutError::Disconnected), "not dropped");
    }

    #[test]
    fn the_answer_of_a_call_that_needs_a_runtime_comes_back() {
        let call = || -> Boxed<Answer> {
            // both need the runtime: what is done before the future is polled, and the future
            let task = tokio::spawn(async { tokio::time::sleep(Duration::from_millis(1)).await });
            Box::pin(async move {
                let _ = task.await;
                found()
            })
        };
        let answer = wait(call, clock::now() + Duration::from_secs(20), &Uninterrupted);
        assert_eq!(answer.outcome, Outcome::Applied(Reply::Released(true)));
    }

    #[test]
    fn a_call_without_an_answer_ends_in_time_and_is_not_known_to_have_happened() {
        let (call, dropped) = endless();
        let begun = clock::now();
        let answer = wait(call, begun + Duration::from_millis(30), &Uninterrupted);
        assert_eq!(unknown(&answer), "no reply in time");
        assert!(answer.sent_at >= begun && answer.received_at.since(begun) >= Duration::from_millis(30));
        wait_for(&dropped);
    }

    #[test]
    fn an_interrupted_caller_leaves_soon() {
        struct Always;
        impl Interrupt for Always {
            fn interrupted(&self) -> bool {
                true
            }
        }
        let (call, dropped) = endless();
        assert_eq!(unknown(&wait(call, Time::MAX, &Always)), "the caller was interrupted");
        wait_for(&dropped);
    }
}
