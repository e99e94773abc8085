//! The connection against a peer in the same process: whoever goes, whatever is cut, however slow the peer is.

#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::future::{Future, poll_fn};
use std::sync::Mutex;
use std::task::Poll;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};

use super::*;
use crate::store::redis::connection::handshake::HandshakeResult;
use crate::store::redis::connection::multiplexed::transport::MAX_UNSENT_BYTES;
use crate::store::redis::options::RedisOptions;

/// No test takes that long.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// Notes the channels of messages.
#[derive(Default)]
pub(super) struct HeardChannels(Mutex<Vec<Vec<u8>>>, Notify);

impl PushHandler for HeardChannels {
    fn on_message(&self, _: u64, channel: &[u8], payload: &[u8]) {
        assert_eq!(payload, b"x");
        self.0.lock().unwrap().push(channel.to_vec());
        self.1.notify_one();
    }
}

/// A connection and its peer, with room for `capacity` bytes between them.
fn connected(capacity: usize, heard: &Arc<HeardChannels>) -> (AsyncConnection, DuplexStream) {
    connected_for(LONG, capacity, heard)
}

/// The same with this request timeout.
pub(super) fn connected_for(
    request_timeout: Duration,
    capacity: usize,
    heard: &Arc<HeardChannels>,
) -> (AsyncConnection, DuplexStream) {
    let (ours, peer) = duplex(capacity);
    let endpoint = Arc::new(Endpoint::parse("redis://nowhere", &RedisOptions::default()).unwrap());
    let result = HandshakeResult { resp3: true };
    let connected = ConnectedStream { endpoint, stream: Box::new(ours), exchange: Exchange::new(), result };
    (AsyncConnection::start(connected, 1, request_timeout, heard.clone()), peer)
}

fn pair(capacity: usize) -> (Arc<AsyncConnection>, DuplexStream) {
    let (connection, peer) = connected(capacity, &Arc::default());
    (Arc::new(connection), peer)
}

pub(super) fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

pub(super) fn echo(word: &str) -> Cmd {
    let mut command = redis::cmd("ECHO");
    command.arg(word);
    command
}

/// The word of this caller: no two are alike, and their lengths differ.
fn word(caller: usize) -> String {
    format!("<{caller}{}>", ".".repeat(caller * 7 % 50))
}

pub(super) async fn ask(connection: &AsyncConnection, command: &Cmd, limit: Duration) -> Outcome<Value> {
    connection.request(None, command, clock::now(), limit).await
}

/// Drops `future` at the await point that it reaches with this poll.
async fn drop_after<F: Future>(polls: u8, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (Box::pin(future), polls);
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// The words of the first command in `bytes`, and its length, if it is complete.
fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').take_while(|line| line.ends_with(b"\r\n"));
    let mut line = || lines.next().map(|line| str::from_utf8(&line[..line.len() - 2]).unwrap());
    let mut length = 0;
    let mut next = || line().inspect(|line| length += line.len() + 2);
    let count: usize = next()?.strip_prefix('*').unwrap().parse().unwrap();
    let words = (0..count).map(|_| next().and_then(|_| next()).map(str::to_owned)).collect::<Option<_>>()?;
    Some((words, length))
}

/// Reads `reading` bytes at a time and answers each command with its last word, `writing` bytes at a time, until the
/// other side has gone or `cut` bytes were read. Returns what was read.
async fn serve(mut peer: DuplexStream, reading: usize, writing: usize, cut: usize) -> Vec<u8> {
    let (mut seen, mut answered) = (Vec::new(), 0);
    let mut space = vec![0; reading];
    while seen.len() < cut {
        let most = reading.min(cut - seen.len());
        let count = peer.read(&mut space[..most]).await.unwrap_or(0);
        if count == 0 {
            break;
        }
        seen.extend_from_slice(&space[..count]);
        while let Some((words, length)) = command(&seen[answered..]) {
            answered += length;
            let last = words.last().unwrap();
            for piece in format!("${}\r\n{last}\r\n", last.len()).as_bytes().chunks(writing) {
                let _ = peer.write_all(piece).await;
                yield_now().await;
            }
        }
    }
    seen
}

pub(super) fn is_reply(outcome: &Outcome<Value>, word: &str) -> bool {
    matches!(outcome, Outcome::Applied(Value::BulkString(text)) if text == word.as_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Callers go at any await point: all others get their own replies, and so does who comes later.
    #[test]
    fn who_goes_takes_nothing_from_those_who_stay(
        callers in proptest::collection::vec((proptest::option::of(0..4u8), 0..3u8), 1..30),
        (capacity, reading, writing) in (1..200usize, 1..60usize, 1..20usize),
    ) {
        let outcomes = one_thread().block_on(async {
            let (connection, peer) = pair(capacity);
            let server = tokio::spawn(serve(peer, reading, writing, usize::MAX));
            let mut tasks = JoinSet::new();
            for (caller, (stays, pauses)) in callers.into_iter().enumerate() {
                let connection = connection.clone();
                tasks.spawn(async move {
                    let word = word(caller);
                    let outcome = match stays {
                        Some(polls) => drop_after(polls, ask(&connection, &echo(&word), LONG)).await,
                        None => Some(ask(&connection, &echo(&word), LONG).await),
                    };
                    (word, outcome)
                });
                for _ in 0..pauses {
                    yield_now().await;
                }
            }
            let mut outcomes = tasks.join_all().await;
            outcomes.push(("last".to_owned(), Some(ask(&connection, &echo("last"), LONG).await)));
            drop(connection);
            server.await.unwrap();
            outcomes
        });
        for (word, outcome) in outcomes {
            prop_assert!(outcome.as_ref().is_none_or(|outcome| is_reply(outcome, &word)), "{}: {:?}", word, outcome);
        }
    }

    /// The peer goes after any byte: not applied is what it cannot have seen, and nothing else.
    #[test]
    fn a_cut_tells_what_has_left_from_what_has_not(
        count in 1..12usize,
        cut in 0..400usize,
        (capacity, reading, writing) in (1..100usize, 1..60usize, 1..20usize),
    ) {
        let (seen, outcomes) = one_thread().block_on(async {
            let (connection, peer) = pair(capacity);
            let server = tokio::spawn(serve(peer, reading, writing, cut));
            let mut tasks = JoinSet::new();
            for caller in 0..count {
                let connection = connection.clone();
                tasks.spawn(async move { (caller, ask(&connection, &echo(&word(caller)), LONG).await) });
            }
            let mut outcomes = Vec::new();
            // those who come while the connection is in use are queued in the order in which they come
            while let Some(ended) = tasks.join_next().await {
                outcomes.push(ended.unwrap());
                if outcomes.len() == count {
                    break;
                }
            }
            outcomes.sort_by_key(|(caller, _)| *caller);
            drop(connection);
            (server.await.unwrap(), outcomes)
        });
        let packed: Vec<_> = (0..count).map(|caller| echo(&word(caller)).get_packed_command()).collect();
        prop_assert!(packed.concat().starts_with(&seen));
        let mut begins = 0;
        for (caller, outcome) in outcomes {
            let place = format!("{caller} at {begins}: {outcome:?}");
            match &outcome {
                Outcome::Applied(_) => prop_assert!(is_reply(&outcome, &word(caller)), "{}", place),
                Outcome::Indeterminate(_) => prop_assert!(begins < seen.len() + capacity, "{}", place),
                Outcome::NotApplied(_) => prop_assert!(begins >= seen.len(), "{}", place),
            }
            begins += packed[caller].len();
        }
    }
}

#[test]
fn a_slow_peer_is_waited_for_and_keeps_little_in_memory() {
    const SIZE: usize = 20_000;
    let callers = 3 * MAX_UNSENT_BYTES / SIZE;
    one_thread().block_on(async {
        let (connection, peer) = pair(64);
        let long = |caller: usize| format!("{caller}{}", "x".repeat(SIZE));
        let mut tasks = JoinSet::new();
        for caller in 0..callers {
            let connection = connection.clone();
            tasks.spawn(async move {
                let outcome = ask(&connection, &echo(&long(caller)), LONG).await;
                assert!(is_reply(&outcome, &long(caller)), "{caller}");
            });
        }
        yield_now().await;
        let server = tokio::spawn(serve(peer, 1000, 1000, usize::MAX));
        let mut most = 0;
        while !tasks.is_empty() {
            most = most.max(connection.transport.unsent_bytes());
            yield_now().await;
            while let Some(ended) = tasks.try_join_next() {
                ended.unwrap();
            }
        }
        assert!((MAX_UNSENT_BYTES..=2 * (MAX_UNSENT_BYTES + SIZE + 100)).contains(&most), "{most}");
        drop(connection);
        server.await.unwrap();
    });
}

#[test]
fn what_a_stuck_peer_does_not_take_in_time_is_not_applied_and_not_kept() {
    const SIZE: usize = 20_000;
    // fewer and more than there is room for
    for callers in [5, 3 * MAX_UNSENT_BYTES / SIZE] {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (connection, peer) = pair(64);
            let mut tasks = JoinSet::new();
            for caller in 0..callers {
                let connection = connection.clone();
                tasks.spawn(async move {
                    // nothing else may follow what is meant for a request
                    let before = (caller == 3).then(|| redis::cmd("ASKING"));
                    let (command, limit) = (echo(&"x".repeat(SIZE)), Duration::from_millis(50));
                    connection.request(before.as_ref(), &command, clock::now(), limit).await
                });
            }
            let outcomes = tasks.join_all().await;
            let applied = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied(_))).count();
            let unknown = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Indeterminate(_))).count();
            assert_eq!((applied, unknown), (0, 2), "{outcomes:?}");
            // a short limit does not end the connection, and those who have gone make room for the next
            assert!(connection.transport.unsent_bytes() <= MAX_UNSENT_BYTES + 2 * (SIZE + 100));
            let server = tokio::spawn(serve(peer, 1000, 1000, usize::MAX));
            assert!(is_reply(&ask(&connection, &echo("next"), LONG).await, "next"));
            drop(connection);
            let seen = server.await.unwrap();
            let count = |what: &[u8]| seen.windows(what.len()).filter(|word| *word == what).count();
            assert_eq!((count(b"ECHO"), count(b"ASKING")), (3, 1), "the first one, the one asked for, and the next");
        });
    }
}

/// Whose reply is late keeps nobody else's request back.
#[test]
fn a_request_is_sent_while_another_one_waits_for_its_reply() {
    one_thread().block_on(async {
        let (connection, mut peer) = pair(1000);
        for name in ["first", "second"] {
            let (connection, command) = (connection.clone(), echo(name));
            let mut seen = vec![0; command.get_packed_command().len()];
            tokio::spawn(async move { ask(&connection, &command, LONG).await });
            timeout(LONG / 2, peer.read_exact(&mut seen)).await.expect("it is sent").unwrap();
            assert_eq!(seen, echo(name).get_packed_command());
        }
    });
}

/// As the last of several servers, when the others have settled the matter.
#[test]
fn a_request_whose_caller_has_gone_is_sent_all_the_same() {
    let seen = one_thread().block_on(async {
        let (connection, peer) = pair(1000);
        // before the task has begun, so that nothing is sent yet
        assert!(drop_after(0, ask(&connection, &echo("gone"), LONG)).await.is_none());
        let server = tokio::spawn(serve(peer, 1000, 1000, usize::MAX));
        assert!(is_reply(&ask(&connection, &echo("next"), LONG).await, "next"));
        drop(connection);
        server.await.unwrap()
    });
    assert_eq!(seen, [echo("gone"), echo("next")].map(|command| command.get_packed_command()).concat());
}

#[test]
fn messages_reach_the_handler_and_a_subscription_that_ends_ends_the_connection() {
    one_thread().block_on(async {
        let heard = Arc::<HeardChannels>::default();
        let (connection, mut peer) = connected(1000, &heard);
        let channels = [b"a".to_vec(), b"b".to_vec()];
        let (changed, ()) =
            tokio::join!(connection.change_subscriptions(("SUBSCRIBE", true), &channels, LONG), async {
                // what comes before it is asked for is no confirmation
                let mut begun = [0];
                peer.read_exact(&mut begun).await.unwrap();
                for channel in ["b", "a"] {
                    let push =
                        format!(">3\r\n+subscribe\r\n+{channel}\r\n:1\r\n>3\r\n+message\r\n+{channel}\r\n+x\r\n");
                    peer.write_all(push.as_bytes()).await.unwrap();
                    heard.1.notified().await;
                }
            });
        assert!(matches!(changed, Outcome::Applied(Value::Okay)), "{changed:?}");
        assert_eq!(*heard.0.lock().unwrap(), [b"b".to_vec(), b"a".to_vec()]);
        assert!(!connection.is_gone());
        peer.write_all(b">3\r\n+unsubscribe\r\n+a\r\n:1\r\n").await.unwrap();
        timeout(LONG, connection.gone()).await.unwrap();
        let outcome = ask(&connection, &echo("x"), LONG).await;
        assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
    });
}

/// No request is left lying, whatever happens concurrently.
#[test]
fn no_request_is_left_lying() {
    let runtime = Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap();
    runtime.block_on(async {
        for _ in 0..10 {
            let (connection, peer) = pair(1 << 16);
            let server = tokio::spawn(serve(peer, 4096, 4096, usize::MAX));
            let mut tasks = JoinSet::new();
            for caller in 0..4 {
                let connection = connection.clone();
                tasks.spawn(async move {
                    for round in 0..500 {
                        let word = format!("{caller}:{round}");
                        let outcome = ask(&connection, &echo(&word), LONG).await;
                        assert!(is_reply(&outcome, &word), "{word}: {outcome:?}");
                    }
                });
            }
            tasks.join_all().await;
            drop(connection);
            server.await.unwrap();
        }
    });
}

#[test]
fn a_runtime_that_ends_or_rests_hangs_nobody_elsewhere() {
    let (there, here) = (one_thread(), one_thread());
    let (connection, _peer) = there.block_on(async {
        let both = pair(1000);
        yield_now().await;
        both
    });
    // it rests: the caller's own runtime watches the time
    let outcome = here.block_on(ask(&connection, &echo("a"), Duration::from_millis(20)));
    assert!(matches!(outcome, Outcome::Indeterminate(_)), "{outcome:?}");
    assert!(!connection.is_gone());
    // it ends while somebody waits elsewhere
    let request = echo("b");
    let outcome = here.block_on(async {
        let asked = timeout(LONG / 2, ask(&connection, &request, LONG));
        let (outcome, ()) = tokio::join!(asked, async {
            yield_now().await;
            there.shutdown_background();
        });
        outcome.expect("it is told at once")
    });
    assert!(!matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    assert!(connection.is_gone());
    let outcome = here.block_on(ask(&connection, &echo("c"), LONG));
    assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
}
