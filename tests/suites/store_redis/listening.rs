//! Subscriptions: confirmed, shared, made again, given up.

use std::time::Duration;

use onelock::machine::{ClientTag, Kind, Outcome, Reply};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Store, Subscription, SubscriptionState};
use onelock_tests::servers::{Server, all_flavors};
use onelock_tests::wait::eventually;
use tokio::time::timeout;

use crate::asker::{LONG, acquire, claim, key, now, release};

const TOKEN: &str = "onelock1:00000000000000000000000000000001";
const CHANNEL: &str = "onelock_channel:{a}";
const PROTOCOLS: [&str; 2] = ["/?protocol=resp3", "/?protocol=resp2"];

fn listen(store: &RedisStore) -> Subscription {
    store.subscribe(Kind::Mutex, &key("a"), ClientTag(1))
}

/// Waits until the state is as wanted.
async fn until(
    subscription: &mut Subscription,
    what: &str,
    wanted: impl Fn(&SubscriptionState) -> bool,
) -> SubscriptionState {
    let hearing = timeout(LONG, subscription.state.wait_for(wanted)).await;
    hearing.unwrap_or_else(|_| panic!("waited for {what}")).unwrap().clone()
}

async fn subscribed(subscription: &mut Subscription) -> SubscriptionState {
    until(subscription, "the subscription", |hearing| hearing.subscribed).await
}

/// How many connections the server sends this channel's messages to.
fn listeners(server: &Server, channel: &str) -> i64 {
    server
        .text(&["PUBSUB", "NUMSUB", channel])
        .rsplit([' ', '\n', ','])
        .find_map(|word| word.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().ok())
        .unwrap()
}

async fn nobody_listens(server: &Server) {
    eventually(LONG, "nothing to be left", || async { listeners(server, CHANNEL) == 0 }).await;
}

async fn cycle(store: &RedisStore) {
    let mine = claim(Kind::Mutex, "a", TOKEN);
    let answer = store.call(acquire(&mine), now() + LONG).await;
    assert!(matches!(answer.outcome, Outcome::Applied(Reply::Granted { .. })), "{answer:?}");
    let answer = store.call(release(&mine), now() + LONG).await;
    assert!(matches!(answer.outcome, Outcome::Applied(Reply::Released(true) | Reply::ReleasedToWaiters)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_heard() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for tail in PROTOCOLS {
            for kind in [Kind::Mutex, Kind::Reentrant] {
                let store = RedisStore::new(&server.url_with("", tail), RedisOptions::default()).unwrap();
                let mut subscription = store.subscribe(kind, &key("a"), ClientTag(1));
                let before = subscribed(&mut subscription).await;
                assert!(before.generation > 0 && !before.refused);
                let token = if kind == Kind::Mutex { TOKEN } else { "ffffffff-ffff-4fff-bfff-ffffffffffff:1" };
                let mine = claim(kind, "a", token);
                let _ = store.call(acquire(&mine), now() + LONG).await;
                assert_eq!(subscription.state.borrow().generation, before.generation);
                let answer = store.call(release(&mine), now() + LONG).await;
                assert_eq!(answer.outcome, Outcome::Applied(Reply::ReleasedToWaiters));
                until(&mut subscription, "the release", |hearing| hearing.generation == before.generation + 1).await;
                let _ = store.call(acquire(&mine), now() + LONG).await;
                let _ = store
                    .call(onelock::machine::Op::ForceRelease { key: key("a"), foreign: false }, now() + LONG)
                    .await;
                until(&mut subscription, "the forced release", |hearing| hearing.generation == before.generation + 2)
                    .await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_subscription_serves_all_and_ends_with_the_last() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for tail in PROTOCOLS {
            let store = RedisStore::new(&server.url_with("", tail), RedisOptions::default()).unwrap();
            let (mut first, mut second) = (listen(&store), listen(&store));
            subscribed(&mut first).await;
            subscribed(&mut second).await;
            assert_eq!(listeners(&server, CHANNEL), 1);
            let before = second.state.borrow().generation;
            drop(first);
            server.cmd(&["PUBLISH", CHANNEL, "0"]);
            until(&mut second, "the message", |hearing| hearing.generation > before).await;
            drop(second);
            nobody_listens(&server).await;
            // and again
            let mut third = listen(&store);
            subscribed(&mut third).await;
            drop(third);
            nobody_listens(&server).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comings_and_goings_in_any_order_end_right() {
    for tail in PROTOCOLS {
        let server = Server::valkey();
        let store = RedisStore::new(&server.url_with("", tail), RedisOptions::default()).unwrap();
        for round in 0..200 {
            let one = listen(&store);
            if round % 3 == 0 {
                tokio::task::yield_now().await;
            }
            drop(one);
            let mut two = listen(&store);
            if round % 2 == 0 {
                subscribed(&mut two).await;
                let before = two.state.borrow().generation;
                assert_eq!(server.int(&["PUBLISH", CHANNEL, "0"]), 1, "round {round}");
                until(&mut two, "the message", |hearing| hearing.generation > before).await;
            }
        }
        nobody_listens(&server).await;
        cycle(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_survives_its_connection() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for tail in PROTOCOLS {
            let store = RedisStore::new(&server.url_with("", tail), RedisOptions::default()).unwrap();
            let mut subscription = listen(&store);
            let before = subscribed(&mut subscription).await;
            server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            // lost and made again: two reasons to look
            until(&mut subscription, "the new one", |hearing| {
                hearing.subscribed && hearing.generation >= before.generation + 2
            })
            .await;
            let before = subscription.state.borrow().generation;
            server.cmd(&["PUBLISH", CHANNEL, "0"]);
            until(&mut subscription, "the message", |hearing| hearing.generation > before).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_waited_for() {
    for tail in PROTOCOLS {
        let server = Server::valkey();
        let store = RedisStore::new(&server.url_with("", tail), RedisOptions::default()).unwrap();
        server.kill();
        let mut subscription = listen(&store);
        server.restart();
        subscribed(&mut subscription).await;
        server.kill();
        until(&mut subscription, "the loss", |hearing| !hearing.subscribed).await;
        server.restart();
        subscribed(&mut subscription).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_channel_is_told_and_harms_nothing() {
    for flavor in all_flavors() {
        let server = Server::builder(flavor).user("app", "on >pw ~* resetchannels +@all").start();
        for tail in PROTOCOLS {
            server.cmd(&["ACL", "SETUSER", "app", "resetchannels"]);
            let store = RedisStore::new(&server.url_with("app:pw", tail), RedisOptions::default()).unwrap();
            let monitor = server.monitor();
            let mut subscription = listen(&store);
            let hearing = until(&mut subscription, "the refusal", |hearing| hearing.refused).await;
            assert!(!hearing.subscribed);
            cycle(&store).await;
            cycle(&store).await;
            assert_eq!(store.stats().reconnects, 0);
            drop(subscription);
            drop(monitor);
            server.cmd(&["ACL", "SETUSER", "app", "allchannels"]);
            let mut subscription = listen(&store);
            subscribed(&mut subscription).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_between_replies() {
    let server = Server::valkey();
    let store = RedisStore::new(&server.url(), RedisOptions::default()).unwrap();
    let mut subscription = listen(&store);
    let before = subscribed(&mut subscription).await;
    // each cycle publishes to this very connection, in the midst of its own replies
    for round in 1..=200 {
        cycle(&store).await;
        until(&mut subscription, "the message", |hearing| hearing.generation >= before.generation + round).await;
    }
    assert_eq!(store.connection(), 1);
}

#[test]
fn the_next_runtime_takes_over() {
    let server = Server::valkey();
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for tail in PROTOCOLS {
        let store = RedisStore::new(&server.url_with("", tail), RedisOptions::default()).unwrap();
        for _ in 0..3 {
            let runtime = runtime();
            runtime.block_on(async {
                let mut subscription = listen(&store);
                subscribed(&mut subscription).await;
                cycle(&store).await;
            });
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_behind() {
    let server = Server::valkey();
    let store = RedisStore::new(&server.url_with("", PROTOCOLS[1]), RedisOptions::default()).unwrap();
    let mut subscription = listen(&store);
    subscribed(&mut subscription).await;
    assert_eq!(server.info("clients")["connected_clients"], "3");
    drop(subscription);
    // the second connection is kept for a moment only
    eventually(LONG, "the listening connection to be closed", || async {
        server.info("clients")["connected_clients"] == "2"
    })
    .await;
    let mut subscription = listen(&store);
    subscribed(&mut subscription).await;
    drop(store);
    eventually(LONG, "all to be closed", || async { server.info("clients")["connected_clients"] == "1" }).await;
}
