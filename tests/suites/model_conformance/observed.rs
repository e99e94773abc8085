//! The real side: raw writes, what stands on the server, and what it published.

use std::time::Duration;

use onelock::machine::model::{DirectGrant, Model, Value};
use onelock::machine::{Key, Kind, naming};
use onelock_tests::resp::Connection;
use onelock_tests::servers::Server;
use onelock_tests::wait::wait_until;

use crate::steps::{LISTENER, Step, keys};

const MARKER: &[u8] = b"marker";
const SOON: Duration = Duration::from_secs(30);

/// A key as it stands on the server; the elements of a list are of no interest, and fields are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) value: Value,
    pub(crate) ttl_left_ms: Option<u64>,
}

/// Raw connections to one server.
pub(crate) struct Real<'a> {
    server: &'a Server,
    commands: Connection,
    ears: Connection,
    _listener: Connection,
}

/// Words of a command, built from anything.
macro_rules! words {
    ($($word:expr),* $(,)?) => { &[$(AsRef::<[u8]>::as_ref(&$word)),*][..] };
}

impl<'a> Real<'a> {
    pub(crate) fn new(server: &'a Server) -> Real<'a> {
        let mut ears = server.connect();
        ears.cmd(words!["PSUBSCRIBE", "*"]).unwrap();
        // the server counts this one, and no pattern
        let mut listener = server.connect();
        for key in keys() {
            listener.cmd(words!["SUBSCRIBE", naming::wake_up_channel(Kind::Fair, &key, LISTENER)]).unwrap();
        }
        Real { server, commands: server.connect(), ears, _listener: listener }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server
    }

    fn cmd(&mut self, words: &[&[u8]]) -> redis::Value {
        match self.commands.cmd(words).unwrap() {
            redis::Value::ServerError(error) => panic!("{error:?}"),
            value => value,
        }
    }

    fn int(&mut self, words: &[&[u8]]) -> i64 {
        redis::from_redis_value(self.cmd(words)).unwrap()
    }

    fn bytes(&mut self, words: &[&[u8]]) -> Vec<Vec<u8>> {
        redis::from_redis_value(self.cmd(words)).unwrap()
    }

    /// The server's clock in microseconds.
    pub(crate) fn time_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::from_redis_value(self.cmd(words!["TIME"])).unwrap();
        seconds * 1_000_000 + micros
    }

    /// Carries out a step that is no operation of ours.
    pub(crate) fn raw(&mut self, step: &Step) {
        match step {
            Step::Ask(_) => {}
            Step::Write { key, value, ttl_ms } => self.write(key, value, *ttl_ms),
            Step::Del(key) => _ = self.int(words!["DEL", key]),
            Step::Flush => _ = self.cmd(words!["FLUSHALL"]),
            Step::ScriptFlush => _ = self.cmd(words!["SCRIPT", "FLUSH"]),
        }
    }

    fn write(&mut self, key: &Key, value: &Value, ttl_ms: Option<u64>) {
        self.cmd(words!["MULTI"]);
        self.cmd(words!["DEL", key]);
        match value {
            Value::Text(text) => self.cmd(words!["SET", key, text]),
            Value::Hash(fields) => {
                let mut hset = words!["HSET", key].to_vec();
                hset.extend(fields.iter().flat_map(|(field, value)| [field.as_ref(), value.as_ref()]));
                self.cmd(&hset)
            }
            Value::Sorted(members) => {
                let scores: Vec<String> = members.values().map(u64::to_string).collect();
                let mut zadd = words!["ZADD", key].to_vec();
                zadd.extend(
                    members.keys().zip(&scores).flat_map(|(member, score)| [score.as_bytes(), member.as_ref()]),
                );
                self.cmd(&zadd)
            }
            Value::List => self.cmd(words!["RPUSH", key, "element"]),
        };
        if let Some(ttl_ms) = ttl_ms {
            self.cmd(words!["PEXPIRE", key, ttl_ms.to_string()]);
        }
        self.cmd(words!["EXEC"]);
    }

    /// Waits until the server says that a key is gone, and its clock is `past_us`. Returns the clock.
    pub(crate) fn outlive(&mut self, key: &[u8], past_us: u64) -> u64 {
        // one that lives for longer than the model says is a difference, to be found by the comparison
        let lasts = u128::try_from(self.int(words!["PTTL", key])).is_ok_and(|left| left > SOON.as_millis() / 2);
        if !lasts {
            wait_until(SOON, "a key to expire", || self.int(words!["EXISTS", key]) == 0);
        }
        wait_until(SOON, "the server's clock", || self.time_us() > past_us);
        self.time_us()
    }

    /// Waits until the server's clock is `past_us`. Returns the clock.
    pub(crate) fn outlast(&mut self, past_us: u64) -> u64 {
        wait_until(SOON, "the server's clock", || self.time_us() > past_us);
        self.time_us()
    }

    /// Everything that stands on the server, in the order of the keys.
    pub(crate) fn stored(&mut self) -> Vec<Stored> {
        let mut keys = self.bytes(words!["KEYS", "*"]);
        keys.sort();
        keys.into_iter().map(|key| self.stored_at(key.into())).collect()
    }

    fn stored_at(&mut self, key: Key) -> Stored {
        let kind: String = redis::from_redis_value(self.cmd(words!["TYPE", key])).unwrap();
        let value = match kind.as_str() {
            "string" => {
                let text: Vec<u8> = redis::from_redis_value(self.cmd(words!["GET", key])).unwrap();
                Value::Text(text.into())
            }
            "hash" => {
                let flat = self.bytes(words!["HGETALL", key]);
                sorted(Value::Hash(flat.chunks(2).map(|pair| (pair[0][..].into(), pair[1][..].into())).collect()))
            }
            "zset" => {
                let flat = self.bytes(words!["ZRANGE", key, "0", "-1", "WITHSCORES"]);
                let score = |text: &[u8]| std::str::from_utf8(text).unwrap().parse().unwrap();
                Value::Sorted(flat.chunks(2).map(|pair| (pair[0][..].into(), score(&pair[1]))).collect())
            }
            _ => Value::List,
        };
        let ttl_left_ms = u64::try_from(self.int(words!["PTTL", key])).ok();
        Stored { key, value, ttl_left_ms }
    }

    /// Channel and message of everything that was published since the last call.
    pub(crate) fn published(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.cmd(words!["PUBLISH", MARKER, ""]);
        let mut heard = Vec::new();
        loop {
            let message: Vec<Vec<u8>> = redis::from_redis_value(self.ears.read().unwrap()).unwrap();
            let [kind, _, channel, payload] = &message[..] else { panic!("{message:?}") };
            assert_eq!(kind, b"pmessage");
            if channel == MARKER {
                return heard;
            }
            heard.push((channel.clone(), payload.clone()));
        }
    }
}

/// A hash with its fields in the order of their bytes.
pub(crate) fn sorted(value: Value) -> Value {
    match value {
        Value::Hash(mut fields) => {
            fields.sort();
            Value::Hash(fields)
        }
        other => other,
    }
}

/// What the release of a lock looks like to a subscriber. Of a semaphore it is the number of free permits.
pub(crate) fn announcement(model: &Model, now_us: u64, kind: onelock::Kind, key: &Key) -> (Vec<u8>, Vec<u8>) {
    let free = model.live(now_us).into_iter().find(|live| live.key == *key).map(|live| live.value);
    let message = match free {
        Some(Value::Text(free)) if kind == onelock::Kind::Semaphore => {
            if free.starts_with(b"-") {
                b"0".to_vec()
            } else {
                free.to_vec()
            }
        }
        _ if kind == onelock::Kind::Read => naming::RW_MESSAGE.into(),
        _ => naming::RELEASE_MESSAGE.into(),
    };
    let channel =
        if kind == onelock::Kind::Semaphore { naming::permits_channel(key) } else { naming::channel(kind, key) };
    (channel, message)
}

/// What the grant to a client that waits looks like to it.
pub(crate) fn told(grant: &DirectGrant, now_us: u64) -> (Vec<u8>, Vec<u8>) {
    let DirectGrant { client, claim, fence } = grant;
    let channel = naming::wake_up_channel(claim.kind, &claim.key, *client);
    (channel, format!("{} {fence} {now_us}", claim.token).into_bytes())
}
