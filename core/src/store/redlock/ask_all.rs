//! Asking several servers at once: all are asked before the first answer is looked at.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// What `request` returns, but never at its first poll. A fast server may have answered by then, and a majority of fast
/// servers would settle the round before the others were asked.
pub(crate) async fn not_at_first<F: Future>(request: F) -> F::Output {
    let (mut request, mut first, mut early) = (pin!(request), true, None);
    poll_fn(move |context| {
        if let Some(output) = early.take() {
            return Poll::Ready(output);
        }
        let polled = request.as_mut().poll(context);
        match polled {
            Poll::Ready(output) if first => {
                early = Some(output);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            polled => {
                first = false;
                polled
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::StreamExt as _;
    use futures_util::stream::FuturesUnordered;

    use super::*;

    #[tokio::test]
    async fn all_are_asked_before_the_first_answer() {
        for servers in 1..=9 {
            let asked = Cell::new(0);
            let ask = |server| {
                let asked = &asked;
                not_at_first(async move {
                    asked.set(asked.get() + 1);
                    server
                })
            };
            let mut requests: FuturesUnordered<_> = (0..servers).map(ask).collect();
            let mut answers = Vec::new();
            while let Some(answer) = requests.next().await {
                assert_eq!(asked.get(), servers);
                answers.push(answer);
            }
            answers.sort_unstable();
            assert_eq!(answers, (0..servers).collect::<Vec<_>>());
        }
    }
}
