//! Redlock: one store made of several independent servers. What their answers amount to is decided in
//! [`machine::quorum`](crate::machine::quorum); here are the hands.
//!
//! | file | does |
//! |---|---|
//! | `address` | reads `redlock://h1,h2,h3` and lists of addresses |
//! | `on_thread` | a blocking caller writes to all servers, then reads |
//! | `late` | what a renewal still has to do when its caller goes on |
//! | `openers` | the connections of blocking callers are made by a few threads |
//! | `hearing` | one subscription made of several |
//! | `facts` | what all servers together say about themselves |

mod address;
mod facts;
mod hearing;
mod late;
mod on_thread;
mod openers;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

pub use address::Nodes;

use self::late::{Sent, Underway};
use self::openers::Opener;
use crate::backend::redis::member::Witness;
use crate::backend::redis::node::{How, Node, not_sent};
use crate::backend::redis::request::Announce;
use crate::backend::redis::shared::Common;
use crate::backend::redis::socket::no_connection_in_time;
use crate::backend::redis::{Endpoint, RedisOptions};
use crate::backend::{Boxed, Facts, Interrupt, Store, StoreStats, Subscription};
use crate::driver::clock;
use crate::machine::quorum::{Quorum, Rest, Round, Rules, Send as Request};
use crate::machine::{Answer, Claim, Failure, Key, Kind, Op, Time, naming};

/// How a store of several servers speaks to them.
#[derive(Clone, Debug)]
pub struct QuorumOptions {
    /// How to speak to each of them.
    pub redis: RedisOptions,
    /// How long one server may take for one request; far below the ttl.
    pub node_timeout: Duration,
    /// Quarantine and what else is decided about a quorum.
    pub rules: Rules,
}

/// Locks on several independent servers, held by whoever holds a majority of them.
pub struct QuorumStore {
    inner: Arc<Inner>,
}

struct Inner {
    nodes: Vec<Arc<Node>>,
    openers: Vec<Arc<Opener>>,
    quorum: Arc<Mutex<Quorum>>,
    node_timeout: Duration,
    /// Each node counts its own; whether the store is closed is the same for all.
    commons: Vec<Arc<Common>>,
    address: String,
}

impl QuorumStore {
    /// A store on these servers. No I/O happens.
    pub fn at(nodes: Nodes, mut options: QuorumOptions) -> QuorumStore {
        if let Some(node_timeout) = nodes.node_timeout {
            options.node_timeout = node_timeout;
        }
        if nodes.quarantine.is_some() {
            options.rules.quarantine = nodes.quarantine;
        }
        let names: Vec<String> = nodes.endpoints.iter().map(Endpoint::to_string).collect();
        let address = names.join(" ");
        let quorum = Arc::new(Mutex::new(Quorum::new(names, options.rules)));
        let commons: Vec<_> = nodes.endpoints.iter().map(|_| Arc::new(Common::default())).collect();
        let member = |(number, (mut endpoint, common)): (usize, (Endpoint, &Arc<Common>))| {
            endpoint.witness = Some(witness(&quorum, number, endpoint.to_string()));
            Arc::new(Node::at(endpoint, options.redis.clone(), common.clone(), 0))
        };
        let nodes: Vec<_> = nodes.endpoints.into_iter().zip(&commons).enumerate().map(member).collect();
        let opener = |(number, node): (usize, &Arc<Node>)| Arc::new(Opener::new(number, node.clone()));
        let openers = nodes.iter().enumerate().map(opener).collect();
        let node_timeout = options.node_timeout.min(options.redis.request_timeout);
        QuorumStore { inner: Arc::new(Inner { nodes, openers, quorum, node_timeout, commons, address }) }
    }
}

/// Tells the quorum which run of a server a connection goes to.
fn witness(quorum: &Arc<Mutex<Quorum>>, node: usize, name: String) -> Witness {
    let quorum = Arc::downgrade(quorum);
    Witness::new(move |life| {
        let Some(quorum) = quorum.upgrade() else { return };
        let now = clock::now();
        let mut quorum = lock(&quorum);
        let before = quorum.barred_for(now, node);
        quorum.introduced(now, node, life.as_ref());
        let after = quorum.barred_for(now, node);
        drop(quorum);
        if let (None, Some(left)) = (before, after) {
            tracing::warn!(
                server = name,
                ?left,
                "this server was started anew without its data, so it does not vote yet: set appendonly yes, or another \
                 time with the option quarantine (quarantine_ms=0 in the address for servers that are thrown away)"
            );
        }
    })
}

/// How each server is asked.
const IN_QUORUM: How = How { announce: Announce::Timed, asking: false };

/// Every critical section is short and leaves its data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn quorum(&self) -> MutexGuard<'_, Quorum> {
        lock(&self.quorum)
    }

    fn check_open(&self) -> Result<(), Failure> {
        self.commons.first().map_or(Ok(()), |common| common.check_open())
    }

    /// The time by which a node must have answered.
    fn limit(&self, now: Time, until: Time) -> Time {
        until.min(now + self.node_timeout)
    }

    /// Whether a hold of this renewal is still wanted.
    fn is_renewed(&self, op: &Op) -> bool {
        let quorum = self.quorum();
        matches!(op, Op::Renew { holds } if holds.iter().any(|(claim, _)| quorum.is_renewed(claim)))
    }

    async fn call(self: Arc<Inner>, op: Op, until: Time) -> Answer {
        let begun = clock::now();
        if let Err(failure) = self.check_open() {
            return not_sent(begun, failure).answer;
        }
        let (round, request) = self.quorum().begin(begun, clock::wall_us(), &op);
        let mut call = Underway { store: self.clone(), round };
        let round = &mut call.round;
        // a renewal is listened to for longer than its caller waits
        let patience = if matches!(op, Op::Renew { .. }) { Time::MAX } else { until };
        let mut flights = FuturesUnordered::new();
        let sent = Arc::new(Sent::default());
        let launch = |round: &mut Round, flights: &mut FuturesUnordered<_>, request: Request| {
            let until = self.limit(clock::now(), patience);
            for number in request.nodes.iter() {
                round.sending(number, self.nodes[number].link.number());
                let (node, op, sent) = (self.nodes[number].clone(), request.op.clone(), sent.clone());
                flights.push(async move {
                    let begun = clock::now();
                    if let Err(failure) = node.link.pipe(until).await {
                        return (number, not_sent(begun, failure).answer);
                    }
                    if !sent.leaves(number) {
                        return (number, not_sent(begun, no_connection_in_time(&node.shared.name)).answer);
                    }
                    (number, node.call(&op, IN_QUORUM, until).await.answer)
                });
            }
        };
        launch(round, &mut flights, request);
        loop {
            let rest = round.rest(&self.quorum());
            let moment = match rest {
                Rest::Over => break,
                // every node answers within its time, be it that it did not
                Rest::Wait if patience == until => Time::MAX,
                Rest::Wait => until,
                Rest::Until(moment) => moment.min(until),
            };
            let next = if moment == Time::MAX {
                flights.next().await
            } else {
                let left = moment.since(clock::now());
                let Ok(next) = tokio::time::timeout(left, flights.next()).await else { break };
                next
            };
            let Some((node, answer)) = next else { break };
            if answer.connection != 0 {
                round.sending(node, answer.connection);
            }
            let more = round.answered(&mut self.quorum(), clock::now(), node, &answer);
            if let Some(request) = more {
                launch(round, &mut flights, request);
            }
        }
        let now = clock::now();
        let was_sent = sent.close();
        for number in round.pending().iter().filter(|number| !was_sent(*number)) {
            let name = &self.nodes[number].shared.name;
            let told = not_sent(now, no_connection_in_time(name)).answer;
            round.answered(&mut self.quorum(), now, number, &told);
        }
        let answer = round.conclude(&mut self.quorum(), now);
        late::seeds(&mut call, now).into_iter().for_each(late::Seed::plant);
        // what is still under way has left, and is not listened to any more but for a renewal
        if !call.round.late().is_empty() {
            tokio::spawn(late::listen(call, flights));
        }
        answer
    }
}

impl Store for QuorumStore {
    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let inner = self.inner.clone();
        Box::pin(inner.call(op, until))
    }

    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        if let Err(failure) = self.inner.check_open() {
            return not_sent(clock::now(), failure).answer;
        }
        on_thread::call(&self.inner, op, until, interrupt).0
    }

    fn renew_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> (Answer, Option<Boxed<()>>) {
        if let Err(failure) = self.inner.check_open() {
            return (not_sent(clock::now(), failure).answer, None);
        }
        let (answer, call) = on_thread::call(&self.inner, op, until, interrupt);
        (answer, late::left_over(call, op))
    }

    fn over(&self, claim: &Claim) {
        self.inner.quorum().over(claim);
    }

    fn connection(&self) -> u64 {
        self.inner.nodes.iter().map(|node| node.link.number()).sum()
    }

    fn subscribe(&self, kind: Kind, key: &Key) -> Subscription {
        let channel = naming::channel(kind, key);
        let subscriptions = self.inner.nodes.iter().map(|node| node.subscribe(channel.clone(), false)).collect();
        hearing::merged(subscriptions)
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move { facts::look(&inner, until).await })
    }

    fn stats(&self) -> StoreStats {
        let mut stats = StoreStats::default();
        for common in &self.inner.commons {
            let node = common.stats();
            stats.commands_sent += node.commands_sent;
            stats.reconnects += node.reconnects;
        }
        stats
    }

    fn address(&self) -> &str {
        &self.inner.address
    }

    fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    fn close(&self) {
        for common in &self.commons {
            common.close();
        }
        for node in &self.nodes {
            node.close();
        }
    }
}

impl Drop for QuorumStore {
    fn drop(&mut self) {
        self.inner.close();
    }
}
