//! One subscription made of several: a release is announced on every node that had the hold, and the first word counts.

use std::future::{Future, poll_fn};
use std::task::Poll;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::backend::{Hearing, Subscription};

/// What the listener keeps alive: the task that listens, which keeps the parts.
struct Guard(AbortHandle);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whatever is heard on any of them is heard here. Confirmed once a majority is: any two majorities have a node in common,
/// so no release of a majority goes unheard.
pub(super) fn merged(parts: Vec<Subscription>) -> Subscription {
    let (sender, hearing) = watch::channel(sum(&parts));
    let task = tokio::spawn(async move {
        let mut parts = parts;
        loop {
            let now = sum(&parts);
            sender.send_if_modified(|known| std::mem::replace(known, now) != now);
            let mut changes: Vec<_> = parts.iter_mut().map(|part| Some(Box::pin(part.hearing.changed()))).collect();
            let alive = poll_fn(|context| {
                let mut pending = false;
                for change in &mut changes {
                    let Some(waiting) = change else { continue };
                    match waiting.as_mut().poll(context) {
                        Poll::Ready(Ok(())) => return Poll::Ready(true),
                        // nothing is heard of this one any more
                        Poll::Ready(Err(_)) => *change = None,
                        Poll::Pending => pending = true,
                    }
                }
                if pending { Poll::Pending } else { Poll::Ready(false) }
            });
            if !alive.await {
                // the store is closed, and nothing is heard any more; who listens is woken by other means
                drop(changes);
                std::future::pending::<()>().await;
            }
        }
    });
    Subscription { hearing, guard: Box::new(Guard(task.abort_handle())) }
}

fn sum(parts: &[Subscription]) -> Hearing {
    let heard: Vec<Hearing> = parts.iter().map(|part| *part.hearing.borrow()).collect();
    let majority = parts.len() / 2 + 1;
    Hearing {
        subscribed: heard.iter().filter(|part| part.subscribed).count() >= majority,
        refused: heard.iter().filter(|part| part.refused).count() > parts.len() - majority,
        hints: heard.iter().map(|part| part.hints).sum(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn one_that_has_ended_is_not_asked_again_while_others_go_on() {
        let (gone, first) = watch::channel(Hearing::default());
        let (lives, second) = watch::channel(Hearing::default());
        let part = |hearing| Subscription { hearing, guard: Box::new(()) };
        let mut merged = merged(vec![part(first), part(second)]);
        drop(gone);
        for hints in 1..4 {
            lives.send_modify(|hearing| hearing.hints = hints);
            merged.hearing.wait_for(|hearing| hearing.hints == hints).await.unwrap();
        }
    }
}
