//! Redlock: one store made of several independent ones, Redis servers or others.
//! [`machine::quorum`](crate::machine::quorum) decides; this room does the I/O.
//!
//! | file | does |
//! |---|---|
//! | `address` | reads `redlock://h1,h2,h3` and lists of addresses |
//! | `member`, `mixed_address` | one of several stores, and lists that name other stores than Redis servers |
//! | `ask_all` | asks all servers before it looks at the first answer |
//! | `blocking` | a round from one thread on Redis servers, which writes to all of them and then reads |
//! | `late_replies` | what remains of a renewal after its caller got the result |
//! | `connectors` | a few threads that make the connections of all blocking calls |
//! | `subscription` | one subscription made of several |
//! | `server_info` | what all servers together report about themselves |
//! | `diagnosis` | looking at each server, and at what they are together |
//! | `scan` | listing the keys of all servers |

mod address;
mod ask_all;
#[cfg(not(target_family = "wasm"))]
mod blocking;
#[cfg_attr(target_family = "wasm", path = "connectors_hosted.rs")]
mod connectors;
mod diagnosis;
mod late_replies;
mod member;
mod mixed_address;
mod scan;
mod server_info;
mod subscription;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

pub use self::address::RedlockNodes;

use self::ask_all::not_at_first;
use self::connectors::Connectors;
use self::late_replies::{RoundInProgress, SentNodes};
use self::member::QuorumMember;
use self::mixed_address::{ListAddress, MemberPlace, MixedAddress};
use super::{Boxed, Capabilities, Facts, Finding, Scan, Scanned, SharedStore, Store, StoreStats, Subscription};
#[cfg(not(target_family = "wasm"))]
use super::{Interrupt, on_runtime};
use crate::config::Options;
use crate::error::Error;
use crate::machine::quorum::{NodeRequest as Request, Quorum, QuorumRound, RoundStatus, Rules};
use crate::machine::{Answer, Claim, ClientTag, Failure, Key, Kind, Op, Time};
use crate::store::address::{ReadAddress, StoreAddress};
use crate::store::member::RunObserver;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::command::call::Announce;
use crate::store::redis::connection::context::StoreState;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::diagnosis::DiagnosisPlan;
use crate::store::redis::node::{Node, SendOptions, not_sent};
use crate::store::redis::options::RedisOptions;
use crate::sys::clock;
use crate::sys::task;

/// What several servers can do together: each votes by itself, and its replicas have no say.
pub(crate) const CAPABILITIES: Capabilities =
    Capabilities { min_replicas: false, ..Capabilities::all("redlock", &[Kind::Mutex, Kind::Reentrant]) };

/// The options of a store of several servers.
#[derive(Clone, Debug)]
pub struct RedlockOptions {
    /// The options of each server.
    pub redis: RedisOptions,
    /// How long one server may take for one request; far below the ttl.
    pub node_timeout: Duration,
    /// The rules of the quorum, such as the quarantine.
    pub rules: Rules,
}

impl RedlockOptions {
    /// What the options of a client say about several servers.
    fn of(options: &Options) -> RedlockOptions {
        let rules = Rules {
            quarantine: options.quarantine,
            drift_factor: options.terms.drift_factor,
            fencing: options.fencing,
            longest_ttl: options.terms.ttl.saturating_add(options.terms.lock_delay),
        };
        // a thread has connections of its own to all of them
        let redis = RedisOptions { share_from: usize::MAX, ..RedisOptions::of(options) };
        RedlockOptions { redis, node_timeout: options.node_timeout, rules }
    }
}

/// Reads `redlock://h1,h2,h3`.
pub(crate) fn read_address(url: &str, options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    Ok(Box::new(RedlockNodes::parse(url, &RedisOptions::of(options))?))
}

/// Reads one complete address for each store; `read_other` reads those that are of no Redis server.
pub(crate) fn read_list(
    urls: &[&str],
    options: &Options,
    read_other: ReadAddress,
) -> Result<Box<dyn StoreAddress>, Error> {
    Ok(match mixed_address::read(urls, options, read_other)? {
        ListAddress::Redis(nodes) => Box::new(nodes),
        ListAddress::Mixed(members) => Box::new(members),
    })
}

impl StoreAddress for MixedAddress {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(RedlockStore::of_members(self, options))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        let (address, options) = (self.clone(), options.clone());
        Box::pin(async move { diagnosis::diagnose_members(address, &options, name).await })
    }
}

impl StoreAddress for RedlockNodes {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(RedlockStore::at(self.clone(), RedlockOptions::of(options)))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        let (nodes, plan) = (self.clone(), DiagnosisPlan::new(options, name));
        let rules = RedlockOptions::of(options).rules;
        Box::pin(async move { diagnosis::diagnose(nodes, rules, &plan).await })
    }
}

/// Locks on several independent servers, held by the client that holds a majority of them.
pub struct RedlockStore {
    inner: Arc<RedlockState>,
}

struct RedlockState {
    members: Vec<QuorumMember>,
    /// The same, if all of them are Redis servers; else none.
    nodes: Vec<Arc<Node>>,
    connectors: Connectors,
    quorum: Arc<Mutex<Quorum>>,
    node_timeout: Duration,
    /// Each Redis server has its own counters; whether the store is closed is the same for all. There is at least one.
    store_states: Vec<Arc<StoreState>>,
    address: String,
}

impl RedlockStore {
    /// A store on these servers. No I/O happens.
    pub fn at(nodes: RedlockNodes, mut options: RedlockOptions) -> RedlockStore {
        if let Some(node_timeout) = nodes.node_timeout {
            options.node_timeout = node_timeout;
        }
        if nodes.quarantine.is_some() {
            options.rules.quarantine = nodes.quarantine;
        }
        let names: Vec<String> = nodes.endpoints.iter().map(Endpoint::to_string).collect();
        let address = names.join(" ");
        let quorum = Arc::new(Mutex::new(Quorum::new(names, options.rules)));
        let store_states: Vec<_> = nodes.endpoints.iter().map(|_| Arc::new(StoreState::default())).collect();
        let member = |(number, (mut endpoint, common)): (usize, (Endpoint, &Arc<StoreState>))| {
            endpoint.run_observer = Some(run_observer(&quorum, number, endpoint.to_string()));
            Arc::new(Node::at(endpoint, options.redis.clone(), common.clone(), 0))
        };
        let nodes: Vec<_> = nodes.endpoints.into_iter().zip(&store_states).enumerate().map(member).collect();
        let connectors = Connectors::of(&nodes);
        let node_timeout = options.node_timeout.min(options.redis.request_timeout);
        let members = nodes.iter().cloned().map(QuorumMember::Redis).collect();
        RedlockStore {
            inner: Arc::new(RedlockState { members, nodes, connectors, quorum, node_timeout, store_states, address }),
        }
    }

    /// A store on these members. No I/O happens.
    fn of_members(address: &MixedAddress, options: &Options) -> RedlockStore {
        let redlock = RedlockOptions::of(options);
        let names = address.names();
        let text = names.join(" ");
        let quorum = Arc::new(Mutex::new(Quorum::new(names, redlock.rules)));
        let mut store_states = vec![Arc::new(StoreState::default())];
        let members = address.members.iter().enumerate().map(|(number, member)| {
            let observer = run_observer(&quorum, number, member.name());
            match member {
                MemberPlace::Redis(endpoint) => {
                    let state = Arc::new(StoreState::default());
                    store_states.push(state.clone());
                    let endpoint = Endpoint { run_observer: Some(observer), ..endpoint.clone() };
                    QuorumMember::Redis(Arc::new(Node::at(endpoint, redlock.redis.clone(), state, 0)))
                }
                MemberPlace::Any(place) => QuorumMember::Any(place.open_member(options, observer)),
            }
        });
        let members = members.collect();
        let node_timeout = redlock.node_timeout.min(options.request_timeout);
        let (nodes, connectors, address) = (Vec::new(), Connectors::of(&[]), text);
        RedlockStore {
            inner: Arc::new(RedlockState { members, nodes, connectors, quorum, node_timeout, store_states, address }),
        }
    }
}

/// Tells the quorum which run of a server a connection goes to.
fn run_observer(quorum: &Arc<Mutex<Quorum>>, node: usize, name: String) -> RunObserver {
    let quorum = Arc::downgrade(quorum);
    RunObserver::new(move |life| {
        let Some(quorum) = quorum.upgrade() else { return };
        let now = clock::now();
        let mut quorum = lock(&quorum);
        let before = quorum.ineligible_for(now, node);
        quorum.on_connected(now, node, life);
        let after = quorum.ineligible_for(now, node);
        drop(quorum);
        if let (None, Some(left)) = (before, after) {
            tracing::warn!(
                server = name,
                ?left,
                "this server was started anew without its data, so it does not vote yet: set appendonly yes (fsync on in \
                 PostgreSQL), or another time with the option quarantine (quarantine_ms=0 in the address for servers that \
                 are thrown away)"
            );
        }
    })
}

/// How each server is asked.
const SEND_OPTIONS: SendOptions = SendOptions { announce: Announce::Timed, asking: false };

/// Every critical section is short and leaves its data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RedlockState {
    fn quorum(&self) -> MutexGuard<'_, Quorum> {
        lock(&self.quorum)
    }

    fn check_open(&self) -> Result<(), Failure> {
        self.store_states.first().map_or(Ok(()), |common| common.check_open())
    }

    /// Whether there are other stores than Redis servers.
    fn is_mixed(&self) -> bool {
        self.nodes.is_empty()
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

    async fn call(self: Arc<RedlockState>, op: Op, until: Time) -> Answer {
        let begun = clock::now();
        if let Err(failure) = self.check_open() {
            return not_sent(begun, failure).answer;
        }
        let (mut round, request) = self.quorum().begin(begun, clock::wall_us(), &op);
        round.limit(until);
        let mut call = RoundInProgress { store: self.clone(), round };
        let round = &mut call.round;
        // a renewal reads answers for longer than its caller waits
        let patience = if matches!(op, Op::Renew { .. }) { Time::MAX } else { until };
        let mut requests = FuturesUnordered::new();
        let sent = Arc::new(SentNodes::default());
        let launch = |round: &mut QuorumRound, requests: &mut FuturesUnordered<_>, request: Request| {
            let until = self.limit(clock::now(), patience);
            for number in request.nodes.iter() {
                round.sending(number, self.members[number].connection());
                let (member, op, sent) = (self.members[number].clone(), request.op.clone(), sent.clone());
                requests.push(not_at_first(async move {
                    let begun = clock::now();
                    if let Err(failure) = member.prepare(&op, until).await {
                        return (number, not_sent(begun, failure).answer);
                    }
                    if !sent.try_mark(number) {
                        return (number, not_sent(begun, no_connection_in_time(member.name())).answer);
                    }
                    (number, member.call(&op, until).await)
                }));
            }
        };
        launch(round, &mut requests, request);
        loop {
            let rest = round.status(&self.quorum());
            let moment = match rest {
                RoundStatus::Over => break,
                // every node answers or fails within its time limit
                RoundStatus::Wait if patience == until => Time::MAX,
                RoundStatus::Wait => until,
                RoundStatus::Until(moment) => moment.min(until),
            };
            let next = if moment == Time::MAX {
                requests.next().await
            } else {
                let left = moment.since(clock::now());
                let Ok(next) = task::timeout(left, requests.next()).await else { break };
                next
            };
            let Some((node, answer)) = next else { break };
            if answer.connection != 0 {
                round.sending(node, answer.connection);
            }
            let more = round.answered(&mut self.quorum(), clock::now(), node, &answer);
            if let Some(request) = more {
                launch(round, &mut requests, request);
            }
        }
        let now = clock::now();
        let was_sent = sent.close();
        for number in round.pending().iter().filter(|number| !was_sent(*number)) {
            let told = not_sent(now, no_connection_in_time(self.members[number].name())).answer;
            round.answered(&mut self.quorum(), now, number, &told);
        }
        let answer = round.conclude(&mut self.quorum(), now);
        late_replies::repairs(&mut call, now).into_iter().for_each(late_replies::Repair::spawn);
        // requests in flight have been sent; only for a renewal are their answers still read
        if !call.round.late_nodes().is_empty() {
            task::spawn(late_replies::read_late_replies(call, requests));
        }
        answer
    }
}

impl Store for RedlockStore {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let inner = self.inner.clone();
        Box::pin(inner.call(op, until))
    }

    #[cfg(not(target_family = "wasm"))]
    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        if let Err(failure) = self.inner.check_open() {
            return not_sent(clock::now(), failure).answer;
        }
        if self.inner.is_mixed() {
            return on_runtime::wait(|| self.call(op.clone(), until), until, interrupt);
        }
        blocking::call(&self.inner, op, until, interrupt).0
    }

    #[cfg(not(target_family = "wasm"))]
    fn renew_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> (Answer, Option<Boxed<()>>) {
        if let Err(failure) = self.inner.check_open() {
            return (not_sent(clock::now(), failure).answer, None);
        }
        if self.inner.is_mixed() {
            return (self.call_blocking(op, until, interrupt), None);
        }
        let (answer, call) = blocking::call(&self.inner, op, until, interrupt);
        (answer, late_replies::background_work(call, op))
    }

    fn over(&self, claim: &Claim) {
        self.inner.quorum().hold_ended(claim);
    }

    fn connection(&self) -> u64 {
        self.inner.members.iter().map(QuorumMember::connection).sum()
    }

    fn subscribe(&self, kind: Kind, key: &Key, client: ClientTag) -> Subscription {
        let subscriptions = self.inner.members.iter().map(|member| member.subscribe(kind, key, client)).collect();
        subscription::merge(subscriptions)
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move { server_info::query(&inner, until).await })
    }

    fn scan(&self, scan: Scan, until: Time) -> Boxed<Result<Scanned, Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move { scan::step(&inner, &scan, until).await })
    }

    fn listening(&self, locks: Vec<(Kind, Key)>, until: Time) -> Boxed<Vec<Option<u64>>> {
        let inner = self.inner.clone();
        Box::pin(async move { scan::listening(&inner, &locks, until).await })
    }

    fn stats(&self) -> StoreStats {
        let mut stats = StoreStats::default();
        let servers = self.inner.store_states.iter().map(|common| common.stats());
        for member in servers.chain(self.inner.members.iter().map(QuorumMember::stats)) {
            stats.commands_sent += member.commands_sent;
            stats.reconnects += member.reconnects;
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

impl RedlockState {
    fn close(&self) {
        for common in &self.store_states {
            common.close();
        }
        self.members.iter().for_each(QuorumMember::close);
    }
}

impl Drop for RedlockStore {
    fn drop(&mut self) {
        self.inner.close();
    }
}
