//! One subscription made of several: a release is announced on every node that had the hold, and the first word counts.

use std::future::poll_fn;
use std::pin::pin;
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
            let mut changes: Vec<_> = parts.iter_mut().map(|part| Box::pin(part.hearing.changed())).collect();
            let alive = poll_fn(|context| {
                let mut pending = false;
                for change in &mut changes {
                    match pin!(change).poll(context) {
                        Poll::Ready(Ok(())) => return Poll::Ready(true),
                        Poll::Ready(Err(_)) => {}
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
