//! The connection with a peer that replies too early, too late, or never.

#![allow(clippy::unwrap_used, clippy::expect_used)]
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::task::yield_now;

use super::tests::{LONG, ask, connected_for, echo, is_reply, one_thread};
use super::*;

/// A connection whose task has begun, and goes on only when this runtime is driven.
fn resting(request_timeout: Duration) -> (Arc<AsyncConnection>, DuplexStream, Runtime) {
    let runtime = one_thread();
    let (connection, peer) = runtime.block_on(async {
        let both = connected_for(request_timeout, 1000, &Arc::default());
        yield_now().await;
        both
    });
    (Arc::new(connection), peer, runtime)
}

/// A request whose time is up before it was sent is not sent then, and says nothing about the server.
#[test]
fn a_request_that_is_late_for_sending_is_not_sent_and_ends_no_connection() {
    const LIMIT: Duration = Duration::from_millis(30);
    let (connection, mut peer, resting) = resting(LIMIT);
    let (first, second) = (echo("first"), echo("second"));
    let outcomes = one_thread().block_on(async {
        let answered = async {
            let mut seen = vec![0; first.get_packed_command().len()];
            peer.read_exact(&mut seen).await.unwrap();
            peer.write_all(b"$5\r\nfirst\r\n").await.unwrap();
        };
        tokio::join!(ask(&connection, &first, LONG), ask(&connection, &second, LIMIT), answered)
    });
    let (sent, late, ()) = outcomes;
    assert!(is_reply(&sent, "first"), "{sent:?}");
    assert!(matches!(late, Outcome::NotApplied(_)), "{late:?}");
    assert!(!connection.is_gone(), "the server has answered all that it was asked");
    drop(connection);
    drop(resting);
    let mut seen = Vec::new();
    one_thread().block_on(peer.read_to_end(&mut seen)).unwrap();
    assert_eq!(seen, b"");
}

/// Messages are no sign that the server answers: it does not, for as long as a request may take.
#[test]
fn a_server_that_sends_messages_and_no_replies_is_silent() {
    let limit = Duration::from_millis(60);
    one_thread().block_on(async {
        let (connection, mut peer) = connected_for(limit, 10_000, &Arc::default());
        let asked_for = clock::now();
        timeout(LONG, async {
            while !connection.is_gone() {
                peer.write_all(b">2\r\n+invalidate\r\n+x\r\n").await.unwrap();
                let outcome = ask(&connection, &echo("x"), limit / 4).await;
                assert!(!matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
            }
        })
        .await
        .expect("it ends");
        assert!(clock::now().since(asked_for) >= limit);
    });
}

#[test]
fn a_reply_that_came_before_the_request_is_not_its_reply() {
    let (connection, mut peer, resting) = resting(LONG);
    one_thread().block_on(async {
        peer.write_all(b"$7\r\nsurplus\r\n").await.unwrap();
        let outcome = ask(&connection, &echo("x"), Duration::from_millis(50)).await;
        assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
        assert!(connection.is_gone());
        let mut seen = Vec::new();
        timeout(LONG, peer.read_to_end(&mut seen)).await.expect("it is closed").unwrap();
        assert_eq!(seen, b"");
    });
    drop(resting);
}
