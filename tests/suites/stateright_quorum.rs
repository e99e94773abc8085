//! Fencing tokens over three servers, model-checked: two acquisitions, every order in which votes, write-backs and their
//! replies come, requests and replies that are lost, locks that vanish at any time. Every interleaving is looked at.
//!
//! The counting is the library's own ([`Quorum`]); the servers are its own model. A token that a majority *acknowledged*,
//! owned and equal, grows; the highest counter that was seen does not, and owned alone is not enough.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use onelock::Kind;
use onelock::machine::model::{Model as Server, Value};
use onelock::machine::quorum::{Quorum, QuorumRound, RoundStatus, Rules};
use onelock::machine::{Answer, Claim, Failure, Key, Op, Outcome, Reply, Time, naming};
use stateright::{Checker, Model, Property};

const NODES: usize = 3;
const TTL_MS: u64 = 1000;
/// How many locks vanish, and how many messages are lost, in one behaviour.
const VANISH: u8 = 2;
const LOSSES: u8 = 1;
const STATES_MAX: usize = 6_000_000;

/// What counts as an acknowledgement of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Nothing: the highest of the counters that a majority told is the token.
    Highest,
    /// A node that was told the token, or told it itself, and is owned.
    Owned,
    /// Owned, and the counter equal to the token: the library's.
    Equal,
}

/// One acquisition.
#[derive(Clone, Debug)]
struct Acquisition {
    began: bool,
    round: Option<QuorumRound>,
    quorum: Quorum,
    /// For each node: a request under way (with the fence of a write-back), or a reply under way.
    requests: [Option<Op>; NODES],
    replies: [Option<Reply>; NODES],
    /// What each node said, for the naive rules.
    fences: [Option<u64>; NODES],
    owned: [bool; NODES],
    /// Its token, once it succeeded; the place in the order of successes.
    done: Option<(u64, u8)>,
    failed: bool,
}

/// Everything there is.
#[derive(Clone, Debug)]
struct State {
    servers: [Server; NODES],
    acquisitions: [Acquisition; 2],
    vanished: u8,
    lost: u8,
    /// How many succeeded before an acquisition began.
    before: [u8; 2],
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.servers.hash(hasher);
        for it in &self.acquisitions {
            (it.began, &it.done, it.failed, it.fences, it.owned).hash(hasher);
            format!("{:?}{:?}{:?}", it.round, it.requests, it.replies).hash(hasher);
        }
        (self.vanished, self.lost, self.before).hash(hasher);
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
    /// A request reaches its node; whether the reply gets through.
    Deliver(usize, usize),
    LoseRequest(usize, usize),
    Reply(usize, usize),
    LoseReply(usize, usize),
    /// The lock of a node ends: its time is up, or it was released.
    Vanish(usize),
}

struct Fencing {
    rule: Rule,
    counters: [u64; NODES],
}

fn claim(who: usize) -> Claim {
    Claim { kind: Kind::Mutex, key: Key::from(&b"k"[..]), token: format!("onelock1:{who}").into() }
}

fn answer(outcome: Outcome<Reply>) -> Answer {
    Answer { sent_at: Time::ZERO, received_at: Time::ZERO, connection: 0, server_time_us: None, outcome }
}

/// A server's clock that stands still at nothing: the counters are all there is.
const NOW_US: u64 = 0;

impl Fencing {
    fn told(&self, state: &mut State, who: usize, node: usize, outcome: Outcome<Reply>) {
        let it = &mut state.acquisitions[who];
        match &outcome {
            Outcome::Applied(Reply::Granted { fence, .. } | Reply::Written(fence)) => {
                it.fences[node] = it.fences[node].max(*fence);
                it.owned[node] = fence.is_some();
            }
            _ => it.owned[node] = false,
        }
        let Some(round) = &mut it.round else { return };
        let mut outcome = outcome;
        if self.rule == Rule::Owned
            && let Outcome::Applied(Reply::Written(Some(fence))) = &mut outcome
        {
            *fence = it.fences.iter().flatten().copied().max().unwrap_or(*fence);
        }
        let more = round.answered(&mut it.quorum, Time::ZERO, node, &answer(outcome));
        for (node, send) in more.iter().flat_map(|send| send.nodes.iter().map(move |node| (node, send))) {
            it.requests[node] = Some(send.op.clone());
        }
        let majority = NODES / 2 + 1;
        let naive = self.rule == Rule::Highest && it.owned.iter().filter(|owned| **owned).count() >= majority;
        if !naive && round.status(&it.quorum) == RoundStatus::Wait {
            return;
        }
        let concluded = round.conclude(&mut it.quorum, Time::ZERO).outcome;
        it.round = None;
        it.requests = [const { None }; NODES];
        let token = match concluded {
            _ if naive => it.fences.iter().flatten().copied().max(),
            Outcome::Applied(Reply::Granted { fence, .. }) => fence,
            _ => None,
        };
        it.failed = token.is_none();
        let place = state.acquisitions.iter().filter(|it| it.done.is_some()).count() as u8;
        state.acquisitions[who].done = token.map(|token| (token, place));
    }
}

impl Model for Fencing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = |counter: u64| {
            let mut server = Server::new();
            if counter > 0 {
                let value = Value::Text(Key::from(counter.to_string().as_bytes()));
                server.set_foreign(NOW_US, &naming::fence_key(b"k"), value, Some(1_000_000));
            }
            server
        };
        let names = || (0..NODES).map(|node| node.to_string()).collect();
        let rules = Rules { quarantine: Some(std::time::Duration::ZERO), ..Rules::default() };
        let acquisition = || Acquisition {
            began: false,
            round: None,
            quorum: Quorum::new(names(), rules),
            requests: [const { None }; NODES],
            replies: [const { None }; NODES],
            fences: [None; NODES],
            owned: [false; NODES],
            done: None,
            failed: false,
        };
        vec![State {
            servers: self.counters.map(server),
            acquisitions: [acquisition(), acquisition()],
            vanished: 0,
            lost: 0,
            before: [0; 2],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (who, it) in state.acquisitions.iter().enumerate() {
            // which of the two is the first makes no difference
            if !it.began && (who == 0 || state.acquisitions[0].began) {
                actions.push(Action::Begin(who));
            }
            for node in 0..NODES {
                if it.requests[node].is_some() && it.replies[node].is_none() {
                    actions.push(Action::Deliver(who, node));
                    if state.lost < LOSSES {
                        actions.push(Action::LoseRequest(who, node));
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
            if state.vanished < VANISH && state.servers[node].holder_of(NOW_US, b"k").is_some() {
                actions.push(Action::Vanish(node));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let silence = || Outcome::Indeterminate(Failure::transient(onelock::ErrorKind::Unavailable, "lost"));
        match action {
            Action::Begin(who) => {
                let op = Op::Acquire { claim: claim(who), ttl_ms: TTL_MS, fence_ttl_ms: Some(1_000_000), info: None };
                let it = &mut next.acquisitions[who];
                // clients that never heard of each other, and whose clocks say nothing
                let (round, send) = it.quorum.begin(Time::ZERO, 0, &op);
                (it.began, it.round) = (true, Some(round));
                it.requests = [const { None }; NODES].map(|_: Option<Op>| Some(send.op.clone()));
                next.before[who] = next.acquisitions.iter().filter(|it| it.done.is_some()).count() as u8;
            }
            Action::Deliver(who, node) => {
                let op = next.acquisitions[who].requests[node].take()?;
                let done = next.servers[node].apply(NOW_US, &op);
                if let Outcome::Applied(reply) = done.outcome
                    && next.acquisitions[who].round.is_some()
                {
                    next.acquisitions[who].replies[node] = Some(reply);
                }
            }
            Action::LoseRequest(who, node) => {
                next.acquisitions[who].requests[node] = None;
                next.lost += 1;
                self.told(&mut next, who, node, silence());
            }
            Action::Reply(who, node) => {
                let reply = next.acquisitions[who].replies[node].take()?;
                self.told(&mut next, who, node, Outcome::Applied(reply));
            }
            Action::LoseReply(who, node) => {
                next.acquisitions[who].replies[node] = None;
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
            Property::always("tokens differ, and grow", |_, state: &State| {
                let [one, other] = &state.acquisitions;
                let (Some((first, _)), Some((second, _))) = (one.done, other.done) else { return true };
                let after = |late: usize| state.before[late] > 0;
                first != second && (!after(1) || second > first) && (!after(0) || first > second)
            }),
            Property::sometimes("both succeed", |_, state: &State| {
                state.acquisitions.iter().all(|it| it.done.is_some())
            }),
            Property::sometimes("a write-back is needed", |_, state: &State| {
                let told = |op: &Option<Op>| matches!(op, Some(Op::WriteBack { .. }));
                state.acquisitions.iter().any(|it| it.requests.iter().any(told))
            }),
        ]
    }
}

/// The behaviours of one start, all of them: whether the property holds.
fn holds(rule: Rule, counters: [u64; NODES]) -> bool {
    let checker = Fencing { rule, counters }.checker().threads(2).target_state_count(STATES_MAX).spawn_bfs().join();
    println!("{rule:?} from {counters:?}: {} states", checker.unique_state_count());
    if rule == Rule::Equal {
        assert!(checker.state_count() < STATES_MAX, "not all states were seen");
        checker.assert_any_discovery("both succeed");
        if counters != [0; NODES] {
            checker.assert_any_discovery("a write-back is needed");
        }
    }
    checker.discovery("tokens differ, and grow").is_none()
}

#[test]
fn a_token_that_a_majority_acknowledged_grows() {
    for counters in [[0, 0, 2], [0, 1, 2]] {
        assert!(holds(Rule::Equal, counters), "{counters:?}");
    }
}

#[test]
fn the_highest_counter_that_was_seen_does_not_grow() {
    assert!(!holds(Rule::Highest, [0, 0, 2]));
}

#[test]
fn owned_is_not_acknowledged() {
    let starts = [[0, 1, 2], [0, 0, 2], [2, 0, 1], [0, 1, 3]];
    assert!(starts.into_iter().any(|counters| !holds(Rule::Owned, counters)));
}
