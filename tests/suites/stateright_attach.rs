//! Two who attach with one proof over three servers, model-checked: every order in which their requests, write-backs, undos
//! and the replies come, messages that are lost, and a hold that vanishes from a server. Every interleaving is looked at.
//!
//! The counting is the library's own ([`Quorum`]); the servers are its own model. At most one of the two has the hold, what
//! the other one releases is its own, and the fencing token is never lower than that of the former holder.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use onelock::Kind;
use onelock::machine::model::Model as Server;
use onelock::machine::quorum::{Quorum, QuorumRound, RoundStatus, Rules};
use onelock::machine::{Answer, Claim, Failure, Key, Op, Outcome, Proposal, Reply, Time};
use stateright::{Checker, Model, Property};

const NODES: usize = 3;
const MAJORITY: usize = 2;
const TTL_MS: u64 = 1000;
/// How many messages are lost in one behaviour.
const LOSSES: u8 = 1;
const STATES_MAX: usize = 8_000_000;
/// The token of the former holder, which a majority acknowledged.
const FORMER: u64 = 5;
const FORMER_TOKEN: &str = "onelock1:former";

/// How an attach goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The library's.
    Majority,
    /// The token stays what it is.
    KeptToken,
    /// Whoever exchanged it on one server has the hold.
    One,
    /// The lowest of the counters that were told is the token.
    Lowest,
    /// Who failed deletes the key, whoever holds it.
    CarelessUndo,
}

#[derive(Clone, Debug)]
struct Attach {
    began: bool,
    round: Option<QuorumRound>,
    quorum: Quorum,
    /// For each node, what is under way to it, in any order.
    requests: [Vec<Op>; NODES],
    replies: [Option<Reply>; NODES],
    exchanged: [Option<u64>; NODES],
    done: Option<u64>,
    failed: bool,
}

#[derive(Clone, Debug)]
struct State {
    servers: [Server; NODES],
    attaches: [Attach; 2],
    vanished: u8,
    lost: u8,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.servers.hash(hasher);
        for it in &self.attaches {
            (it.began, it.done, it.failed, it.exchanged).hash(hasher);
            format!("{:?}{:?}{:?}", it.round, it.requests, it.replies).hash(hasher);
        }
        (self.vanished, self.lost).hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        let digest = |state: &State| {
            let mut hasher = DefaultHasher::new();
            state.hash(&mut hasher);
            hasher.finish()
        };
        digest(self) == digest(other)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Begin(usize),
    /// The request of this place reaches its node.
    Deliver(usize, usize, usize),
    LoseRequest(usize, usize, usize),
    Reply(usize, usize),
    LoseReply(usize, usize),
    /// The hold of a node is gone.
    Vanish(usize),
}

struct Handing {
    rule: Rule,
    /// The counters of the servers; 0 for one that does not have the hold.
    counters: [u64; NODES],
    vanish: u8,
}

fn claim(token: &str) -> Claim {
    Claim { kind: Kind::Mutex, key: Key::from(&b"k"[..]), token: token.into() }
}

fn mine(who: usize) -> Claim {
    claim(["onelock1:one", "onelock1:other"][who])
}

/// A server's clock that stands still at nothing: the counters are all there is.
const NOW_US: u64 = 0;

impl Handing {
    fn claim(&self, who: usize) -> Claim {
        if self.rule == Rule::KeptToken { claim(FORMER_TOKEN) } else { mine(who) }
    }

    fn told(&self, state: &mut State, who: usize, node: usize, outcome: Outcome<Reply>) {
        let it = &mut state.attaches[who];
        if let Outcome::Applied(Reply::Granted { fence, .. } | Reply::Written(fence)) = &outcome {
            it.exchanged[node] = *fence;
        }
        let Some(round) = &mut it.round else { return };
        let answer =
            Answer { sent_at: Time::ZERO, received_at: Time::ZERO, connection: 0, server_time_us: None, outcome };
        if let Some(more) = round.answered(&mut it.quorum, Time::ZERO, node, &answer) {
            for node in more.nodes.iter() {
                it.requests[node].push(more.op.clone());
            }
        }
        let naive = self.rule == Rule::One && it.exchanged.iter().any(Option::is_some);
        if !naive && round.status(&it.quorum) == RoundStatus::Wait {
            return;
        }
        let concluded = round.conclude(&mut it.quorum, Time::ZERO).outcome;
        it.round = None;
        let told = it.exchanged.iter().flatten().copied();
        it.done = match concluded {
            _ if naive => told.max(),
            Outcome::Applied(Reply::Granted { .. }) if self.rule == Rule::Lowest => told.min(),
            Outcome::Applied(Reply::Granted { fence, .. }) => fence,
            _ => None,
        };
        it.failed = it.done.is_none();
        if it.failed {
            // whatever it may have taken, on all nodes; what is under way to them may come before or after
            for node in 0..NODES {
                it.requests[node].push(match self.rule {
                    Rule::CarelessUndo => Op::ForceRelease { key: mine(who).key, foreign: false },
                    _ => Op::Release { claim: mine(who) },
                });
            }
        }
    }
}

fn silence() -> Outcome<Reply> {
    Outcome::Indeterminate(Failure::transient(onelock::ErrorKind::Unavailable, "lost"))
}

impl Model for Handing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = |counter: u64| {
            let mut server = Server::new();
            if counter > 0 {
                let fence = Some(Proposal { base: counter, ttl_ms: 1_000_000 });
                server.apply(NOW_US, &Op::Vote { claim: claim(FORMER_TOKEN), ttl_ms: TTL_MS, fence, info: None });
            }
            assert_eq!(server.fence_of(NOW_US, b"k").unwrap_or(0), counter);
            server
        };
        let rules = Rules { quarantine: Some(std::time::Duration::ZERO), ..Rules::default() };
        let attach = || Attach {
            began: false,
            round: None,
            quorum: Quorum::new((0..NODES).map(|node| node.to_string()).collect(), rules),
            requests: [const { Vec::new() }; NODES],
            replies: [const { None }; NODES],
            exchanged: [None; NODES],
            done: None,
            failed: false,
        };
        vec![State { servers: self.counters.map(server), attaches: [attach(), attach()], vanished: 0, lost: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (who, it) in state.attaches.iter().enumerate() {
            // which of the two is the first makes no difference
            if !it.began && (who == 0 || state.attaches[0].began) {
                actions.push(Action::Begin(who));
            }
            for node in 0..NODES {
                for place in 0..it.requests[node].len() {
                    actions.push(Action::Deliver(who, node, place));
                    if state.lost < LOSSES {
                        actions.push(Action::LoseRequest(who, node, place));
                    }
                }
                if it.replies[node].is_some() {
                    actions.push(Action::Reply(who, node));
                    if state.lost < LOSSES {
                        actions.push(Action::LoseReply(who, node));
                    }
                }
            }
        }
        for node in 0..NODES {
            if state.vanished < self.vanish && state.servers[node].holder_of(NOW_US, b"k").is_some() {
                actions.push(Action::Vanish(node));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Begin(who) => {
                let from: Arc<str> = FORMER_TOKEN.into();
                let op = Op::Attach { claim: self.claim(who), from, ttl_ms: TTL_MS, info: None };
                let it = &mut next.attaches[who];
                let (round, send) = it.quorum.begin(Time::ZERO, 0, &op);
                (it.began, it.round) = (true, Some(round));
                it.requests = [const { Vec::new() }; NODES].map(|_: Vec<Op>| vec![send.op.clone()]);
            }
            Action::Deliver(who, node, place) => {
                let op = next.attaches[who].requests[node].remove(place);
                let done = next.servers[node].apply(NOW_US, &op);
                if let Outcome::Applied(reply) = done.outcome
                    && next.attaches[who].round.is_some()
                    && matches!(op, Op::Attach { .. } | Op::WriteBack { .. })
                {
                    next.attaches[who].replies[node] = Some(reply);
                }
            }
            Action::LoseRequest(who, node, place) => {
                let op = next.attaches[who].requests[node].remove(place);
                next.lost += 1;
                if matches!(op, Op::Attach { .. } | Op::WriteBack { .. }) {
                    self.told(&mut next, who, node, silence());
                }
            }
            Action::Reply(who, node) => {
                let reply = next.attaches[who].replies[node].take()?;
                self.told(&mut next, who, node, Outcome::Applied(reply));
            }
            Action::LoseReply(who, node) => {
                next.attaches[who].replies[node] = None;
                next.lost += 1;
                self.told(&mut next, who, node, silence());
            }
            Action::Vanish(node) => {
                next.servers[node].del(NOW_US, b"k");
                next.vanished += 1;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one attaches", |_, state: &State| {
                !state.attaches.iter().all(|it| it.done.is_some())
            }),
            Property::always("the token is never lower", |_, state: &State| {
                state.attaches.iter().filter_map(|it| it.done).all(|fence| fence >= FORMER)
            }),
            Property::always("the holder keeps a majority, and its counters", |model, state: &State| {
                let has = |who: usize, fence: u64| {
                    let token = model.claim(who).token;
                    let kept = |server: &&Server| {
                        let holder = server.holder_of(NOW_US, b"k");
                        holder.is_some_and(|(_, holder)| *holder == *token.as_bytes())
                            && server.fence_of(NOW_US, b"k") >= Some(fence)
                    };
                    state.servers.iter().filter(kept).count()
                };
                let enough = MAJORITY - usize::from(state.vanished);
                (0..2).all(|who| state.attaches[who].done.is_none_or(|fence| has(who, fence) >= enough))
            }),
            Property::sometimes("one attaches", |_, state: &State| state.attaches.iter().any(|it| it.done.is_some())),
            Property::sometimes("neither attaches", |_, state: &State| state.attaches.iter().all(|it| it.failed)),
            Property::sometimes("a write-back is needed", |_, state: &State| {
                let told = |op: &Op| matches!(op, Op::WriteBack { .. });
                state.attaches.iter().any(|it| it.requests.iter().flatten().any(told))
            }),
            Property::sometimes("an undo comes before what it undoes", |_, state: &State| {
                let late = |ops: &Vec<Op>| matches!(&ops[..], [Op::Attach { .. }]);
                state.attaches.iter().any(|it| it.failed && it.requests.iter().any(late))
            }),
        ]
    }
}

/// All behaviours of one start: which of the properties that always hold does not.
fn broken(rule: Rule, counters: [u64; NODES], vanish: u8) -> Option<&'static str> {
    let model = Handing { rule, counters, vanish };
    let checker = model.checker().threads(2).target_state_count(STATES_MAX).spawn_bfs().join();
    println!("{rule:?} from {counters:?}: {} states", checker.unique_state_count());
    if rule == Rule::Majority {
        assert!(checker.state_count() < STATES_MAX, "not all states were seen");
        for expected in ["one attaches", "neither attaches", "an undo comes before what it undoes"] {
            checker.assert_any_discovery(expected);
        }
    }
    let always = ["at most one attaches", "the token is never lower", "the holder keeps a majority, and its counters"];
    let found = checker.discoveries();
    if counters == [FORMER, FORMER + 4, 0] && rule == Rule::Majority {
        checker.assert_any_discovery("a write-back is needed");
    }
    always.into_iter().find(|property| found.contains_key(property))
}

#[test]
fn a_proof_attaches_at_most_once_and_keeps_its_token() {
    // all agree; one was given the hold again and is further on; the third does not have it
    for (counters, vanish) in [([FORMER; NODES], 1), ([FORMER, FORMER + 4, FORMER], 0), ([FORMER, FORMER + 4, 0], 0)] {
        assert_eq!(broken(Rule::Majority, counters, vanish), None, "{counters:?}");
    }
}

#[test]
fn what_an_attach_must_not_do_is_found() {
    assert!(broken(Rule::KeptToken, [FORMER; NODES], 0).is_some());
    assert!(broken(Rule::One, [FORMER; NODES], 0).is_some());
    assert!(broken(Rule::CarelessUndo, [FORMER; NODES], 0).is_some());
    // the third was left behind when the hold was granted
    assert_eq!(broken(Rule::Lowest, [FORMER, FORMER, FORMER - 2], 0), Some("the token is never lower"));
}
