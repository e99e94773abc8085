//! What the answer to one who waits says of the grants so far: whatever became of the counter, none has a higher number.

use onelock::machine::{Claim, ClientTag, Kind, Op, Outcome, QueueEntry, Reply, Time};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Store, Uninterrupted};
use onelock_tests::servers::{Flavor, Server};

use super::list;

fn enter(store: &RedisStore, claim: &Claim) -> Reply {
    let entry = QueueEntry { client: ClientTag(7), window_ms: 3000, place: None, listens: false };
    let op = Op::Enter { claim: claim.clone(), ttl_ms: 30_000, fence_ttl_ms: 60_000, info: None, entry };
    let Outcome::Applied(reply) = store.call_blocking(&op, Time::MAX, &Uninterrupted).outcome else {
        panic!("the server answers")
    };
    reply
}

fn fence(reply: &Reply) -> u64 {
    let Reply::Granted { fence: Some(fence), .. } = reply else { panic!("{reply:?} is no grant") };
    *fence
}

fn horizon(reply: &Reply) -> u64 {
    let Reply::Queued { horizon: Some(horizon), .. } = reply else { panic!("{reply:?} is no place") };
    *horizon
}

fn server_us(server: &Server) -> u64 {
    let [seconds, micros] = list(&server.cmd(&["TIME"])).try_into().unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

#[test]
fn no_grant_before_an_answer_has_a_higher_number_than_its_horizon() {
    let tokens = [
        (Kind::Fair, ["onelock1:11111111111111111111111111111111", "onelock1:22222222222222222222222222222222"]),
        (Kind::Write, ["11111111-1111-4111-8111-111111111111:1", "22222222-2222-4222-8222-222222222222:1"]),
    ];
    for flavor in [Flavor::Redis62, Flavor::Valkey91] {
        let server = Server::start(flavor);
        let store = RedisStore::new(&server.url(), RedisOptions::default()).unwrap();
        for (kind, tokens) in tokens {
            server.cmd(&["FLUSHALL"]);
            let [first, second] = tokens.map(|token| Claim { kind, key: b"x"[..].into(), token: token.into() });
            let counter = "onelock_fence:{x}";
            // as after the server's clock was set back
            let ahead = server_us(&server) + 3_600_000_000;
            server.cmd(&["SET", counter, &ahead.to_string()]);
            assert_eq!(fence(&enter(&store, &first)), ahead + 1);
            assert_eq!(horizon(&enter(&store, &second)), ahead + 1, "{kind:?}: by the counter");
            server.cmd(&["DEL", counter]);
            assert_eq!(
                horizon(&enter(&store, &second)),
                ahead + 1,
                "{kind:?}: by the holder, since the counter is lost"
            );
            server.cmd(&["SET", counter, &(ahead + 5).to_string()]);
            assert_eq!(horizon(&enter(&store, &second)), ahead + 5, "{kind:?}: by the counter");
            let release = Op::Release { claim: first.clone() };
            store.call_blocking(&release, Time::MAX, &Uninterrupted);
            assert_eq!(fence(&enter(&store, &second)), ahead + 6, "{kind:?}: a later grant is above it");
            // no counter, and a holder with a low number
            server.cmd(&["FLUSHALL"]);
            enter(&store, &first);
            server.cmd(&["SET", counter, "no number"]);
            let before = server_us(&server);
            let after = horizon(&enter(&store, &second));
            assert!(after >= before, "{kind:?}: by the clock: {after} < {before}");
        }
    }
}
