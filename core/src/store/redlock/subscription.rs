//! One subscription made of several: a release is announced on every node that had the hold, and the first message
//! counts.

use std::future::{Future, poll_fn};
use std::task::Poll;

use tokio::sync::watch;

use crate::store::{Subscription, SubscriptionState};
use crate::sys::task::{self, AbortHandle};

/// The task that merges the subscriptions, which it owns.
struct MergeGuard(AbortHandle);

impl Drop for MergeGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Merges subscriptions: a message on any of them counts. Confirmed once a majority is: any two majorities share a
/// node, so no release of a majority is missed.
pub(crate) fn merge(parts: Vec<Subscription>) -> Subscription {
    let (sender, state) = watch::channel(combined_state(&parts));
    let task = task::spawn(async move {
        let mut parts = parts;
        loop {
            let now = combined_state(&parts);
            sender.send_if_modified(|known| {
                let changed = *known != now;
                *known = now;
                changed
            });
            let mut changes: Vec<_> = parts.iter_mut().map(|part| Some(Box::pin(part.state.changed()))).collect();
            let alive = poll_fn(|context| {
                let mut pending = false;
                for change in &mut changes {
                    let Some(waiting) = change else { continue };
                    match waiting.as_mut().poll(context) {
                        Poll::Ready(Ok(())) => return Poll::Ready(true),
                        // this one gets no more messages
                        Poll::Ready(Err(_)) => *change = None,
                        Poll::Pending => pending = true,
                    }
                }
                if pending { Poll::Pending } else { Poll::Ready(false) }
            });
            if !alive.await {
                // the store is closed, and no more messages arrive; its waiters are woken by other means
                drop(changes);
                std::future::pending::<()>().await;
            }
        }
    });
    Subscription { state, guard: Box::new(MergeGuard(task.abort_handle())) }
}

fn combined_state(parts: &[Subscription]) -> SubscriptionState {
    let heard: Vec<SubscriptionState> = parts.iter().map(|part| part.state.borrow().clone()).collect();
    let majority = parts.len() / 2 + 1;
    SubscriptionState {
        subscribed: heard.iter().filter(|part| part.subscribed).count() >= majority,
        refused: heard.iter().filter(|part| part.refused).count() > parts.len() - majority,
        generation: heard.iter().map(|part| part.generation).sum(),
        ..SubscriptionState::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn one_that_has_ended_is_not_asked_again_while_others_go_on() {
        let (gone, first) = watch::channel(SubscriptionState::default());
        let (lives, second) = watch::channel(SubscriptionState::default());
        let part = |state| Subscription { state, guard: Box::new(()) };
        let mut merged = merge(vec![part(first), part(second)]);
        drop(gone);
        for hints in 1..4 {
            lives.send_modify(|state| state.generation = hints);
            merged.state.wait_for(|state| state.generation == hints).await.unwrap();
        }
    }
}
