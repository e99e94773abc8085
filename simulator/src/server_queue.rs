//! Bugs planted in the scripts of locks with a queue on the server.

use onelock::machine::model::{ModelReply, Value};
use onelock::machine::naming::{fence_key, queue_key, waiters_key};
use onelock::machine::{Claim, Key, NodeSet, Op, Outcome, QueueEntry, Reply};

use super::bug::Bug;
use super::server::{Executed, Server};

/// How far ahead the end of a live place is at most.
const LONGEST_MS: u64 = 3_000;
/// How long a direct grant lasts at least.
const SHORTEST_MS: u64 = 200;

impl Server {
    /// `None` where the honest script is right.
    pub(super) fn queue_wrongly(&mut self, us: u64, op: &Op, bug: Bug) -> Option<Executed> {
        let key = match op {
            Op::Enter { claim, .. } | Op::Release { claim } if claim.kind.row().queues => claim.key.clone(),
            _ => return None,
        };
        let done = match (bug, op) {
            (Bug::TryBarges, Op::Enter { entry: QueueEntry { window_ms: 0, .. }, .. }) => {
                self.without_queue(us, &key, op)
            }
            (Bug::HeadBlocks, _) => self.with_blocking_head(us, &key, op)?,
            (Bug::FarEndsLive, _) => {
                self.bring_ends_near(us, &key);
                self.model.apply(us, op)
            }
            (Bug::GrantKeyShort, _) => {
                let done = self.model.apply(us, op);
                for grant in &done.granted {
                    self.set_ttl(us, &grant.claim, SHORTEST_MS);
                }
                done
            }
            (Bug::HorizonOfCounter, _) => {
                let mut done = self.model.apply(us, op);
                if let Outcome::Applied(Reply::Queued { horizon, .. }) = &mut done.outcome {
                    let counter = match self.value(us, &fence_key(&key)) {
                        Some(Value::Text(text)) => str::from_utf8(&text).ok().and_then(|text| text.parse().ok()),
                        _ => None,
                    };
                    *horizon = Some(counter.unwrap_or(0));
                }
                done
            }
            (Bug::UnheardUntold, _) => {
                let mut done = self.model.apply(us, op);
                if let Outcome::Applied(Reply::Queued { unheard, .. }) = &mut done.outcome {
                    *unheard = false;
                }
                done
            }
            _ => return None,
        };
        let announced = done.announced.into_iter().collect();
        Some(Executed { outcome: done.outcome, announced, granted: done.granted })
    }

    fn value(&self, us: u64, key: &[u8]) -> Option<Value> {
        self.model.live(us).into_iter().find(|live| *live.key == *key).map(|live| live.value)
    }

    /// The end of a place that its record says.
    pub(super) fn recorded_end_us(&self, us: u64, claim: &Claim) -> Option<u64> {
        let records = self.value(us, &waiters_key(&claim.key))?;
        let text = str::from_utf8(records.field(claim.token.as_bytes())?).ok()?;
        Some(text.split(' ').next()?.parse::<u64>().ok()? * 1000)
    }

    fn without_queue(&mut self, us: u64, key: &Key, op: &Op) -> ModelReply {
        let keys = [queue_key(key), waiters_key(key)];
        let hidden = keys.map(|key| (self.value(us, &key), key));
        for (_, key) in &hidden {
            self.model.del(us, key);
        }
        let done = self.model.apply(us, op);
        for (value, key) in hidden {
            if let Some(value) = value {
                self.model.set_foreign(us, &key, value, Some(10_000));
            }
        }
        done
    }

    /// Nobody gets the lock while the head has no record.
    fn with_blocking_head(&mut self, us: u64, key: &Key, op: &Op) -> Option<ModelReply> {
        let head = self.model.queue_of(us, key).first().cloned()?;
        let recorded = self.value(us, &waiters_key(key)).is_some_and(|records| records.field(&head).is_some());
        if recorded {
            return None;
        }
        match op {
            Op::Release { claim } => {
                self.model.del(us, &queue_key(key));
                let undo = Op::Undo { claim: claim.clone(), nodes: NodeSet::ALL, quiet: true };
                Some(self.model.apply(us, &undo))
            }
            Op::Enter { .. } if self.value(us, key).is_none() => {
                let taken = vec![(Key::from(b"mode".as_slice()), Key::from(b"fair".as_slice()))];
                self.model.set_foreign(us, key, Value::Hash(taken), Some(1));
                let done = self.model.apply(us, op);
                self.model.del(us, key);
                Some(done)
            }
            _ => None,
        }
    }

    /// Whatever end a place has, it is not further ahead than that of a live one.
    fn bring_ends_near(&mut self, us: u64, key: &Key) {
        let now_ms = us / 1000;
        let Some(Value::Hash(mut records)) = self.value(us, &waiters_key(key)) else { return };
        for (token, record) in &mut records {
            let text = String::from_utf8_lossy(record).into_owned();
            let Some((end, rest)) = text.split_once(' ') else { continue };
            let end: u64 = end.parse().unwrap_or(0);
            if end > now_ms + LONGEST_MS {
                self.far_ends.insert(token.clone(), end);
            }
            if self.far_ends.get(token).is_some_and(|end| *end > now_ms) {
                *record = format!("{} {rest}", now_ms + LONGEST_MS).into_bytes().into();
            }
        }
        self.model.set_foreign(us, &waiters_key(key), Value::Hash(records), Some(10_000));
    }
}
