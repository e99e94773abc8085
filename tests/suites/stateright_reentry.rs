//! Re-entry under lost replies, model-checked: one owner that enters and leaves, a network that loses requests and
//! replies and delivers old copies late, and somebody else who wants the lock. Every interleaving is looked at.
//!
//! The server is the library's own model. A fresh name for every outermost acquisition and an absolute count hold; two
//! plausible other designs are refuted.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use onelock::Kind;
use onelock::machine::model::Model as Server;
use onelock::machine::{Claim, Key, Op, Outcome, Reply};
use stateright::{Checker, Model, Property};

const TTL_MS: u64 = 1000;
/// What the owner does, one call after the other: it enters three deep, leaves, and comes back.
const CALLS: [Call; 10] = [
    Call::Acquire,
    Call::Enter(2),
    Call::Enter(3),
    Call::Leave(2),
    Call::Leave(1),
    Call::Release,
    Call::Acquire,
    Call::Enter(2),
    Call::Leave(1),
    Call::Release,
];
/// How often one call is sent at most, and how many are sent again in all.
const SENDS: u8 = 2;
const RESENDS: u8 = 3;
/// As many states as are generated at most; reaching it means that not all of them were seen.
const STATES_MAX: usize = 4_000_000;

/// How re-entry is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    /// `HINCRBY` up and down, sent again when the reply is lost.
    Increments,
    /// Absolute counts under a name that the owner has for all time.
    OwnerOnly,
    /// Absolute counts under a fresh name for every outermost acquisition.
    FreshAndAbsolute,
}

/// One call with the count that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Call {
    Acquire,
    Enter(u64),
    Leave(u64),
    Release,
}

/// A request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    /// Which call of the owner's list.
    step: usize,
    /// Which outermost acquisition it belongs to.
    round: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    server: Server,
    /// The next call, or the one that is under way.
    step: usize,
    /// How often the present call was sent; 0 before.
    sends: u8,
    resends: u8,
    /// Which outermost acquisition it is.
    round: u8,
    /// How deep the owner is inside, as it believes.
    inside: u64,
    network: Vec<Request>,
    /// The latest call that was carried out.
    latest: usize,
    /// An old copy came later than that. The next count puts it right.
    stale: bool,
    /// A release was answered, and the owner held the lock on the server all the same.
    leaked: bool,
    /// The other one has had the lock.
    shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Send,
    /// Carried out, and the reply comes back.
    Deliver(Request),
    /// Carried out, and the reply is lost or belongs to a call that has been answered.
    DeliverUnheard(Request),
    Lose(Request),
    OtherAcquires,
    OtherReleases,
    /// What nobody owns dies in time.
    Expire,
}

struct Reentry {
    design: Design,
}

const UUID: &str = "6f1d2c8e-0b1a-4c55-9e11-2a7f3b9c0d42";

fn key() -> Key {
    b"reentry".as_slice().into()
}

fn other() -> Claim {
    Claim { kind: Kind::Reentrant, key: key(), token: format!("{UUID}:99").into() }
}

impl Reentry {
    fn claim(&self, round: u8) -> Claim {
        let token = match self.design {
            Design::FreshAndAbsolute => format!("{UUID}:{round}"),
            Design::OwnerOnly | Design::Increments => format!("{UUID}:0"),
        };
        Claim { kind: Kind::Reentrant, key: key(), token: token.into() }
    }

    /// Whether the server says that this acquisition holds the lock.
    fn holds(&self, state: &State, round: u8) -> bool {
        let holder = state.server.holder_of(0, &key());
        holder.is_some_and(|(_, token)| *token == *self.claim(round).token.as_bytes())
    }

    /// Carries a request out. True when the reply says that it is done.
    fn execute(&self, state: &mut State, request: Request) -> bool {
        let call = CALLS[request.step];
        let claim = self.claim(request.round);
        state.stale = request.step < state.latest;
        state.latest = state.latest.max(request.step);
        if self.design == Design::Increments && call != Call::Acquire {
            return self.count(state, request, call);
        }
        let op = match call {
            Call::Acquire => Op::Acquire { claim, ttl_ms: TTL_MS, fence_ttl_ms: None, info: None },
            Call::Enter(count) | Call::Leave(count) => Op::SetCount { claim, count, ttl_ms: TTL_MS },
            Call::Release => Op::Release { claim },
        };
        match state.server.apply(0, &op).outcome {
            Outcome::Applied(Reply::Granted { .. } | Reply::Released(_)) => true,
            Outcome::Applied(Reply::Counted(there)) => there,
            _ => false,
        }
    }

    /// The design that counts on the server.
    fn count(&self, state: &mut State, request: Request, call: Call) -> bool {
        if !self.holds(state, request.round) {
            return call == Call::Release;
        }
        let present = state.server.count_of(0, &key()).unwrap_or(0);
        let next = if matches!(call, Call::Enter(_)) { present + 1 } else { present - 1 };
        let claim = self.claim(request.round);
        if next == 0 {
            state.server.apply(0, &Op::Release { claim });
        } else {
            state.server.apply(0, &Op::SetCount { claim, count: next, ttl_ms: TTL_MS });
        }
        true
    }

    /// The owner hears that its present call is done.
    fn answered(&self, state: &mut State) {
        match CALLS[state.step] {
            Call::Acquire => state.inside = 1,
            Call::Enter(count) | Call::Leave(count) => state.inside = count,
            Call::Release => state.leaked |= self.holds(state, state.round),
        }
        state.step += 1;
        state.sends = 0;
    }
}

impl State {
    fn take(&mut self, request: Request) {
        let index = self.network.iter().position(|other| *other == request);
        self.network.remove(index.expect("only what is there is delivered or lost"));
    }
}

impl Model for Reentry {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            server: Server::new(),
            step: 0,
            sends: 0,
            resends: 0,
            round: 0,
            inside: 0,
            network: Vec::new(),
            latest: 0,
            stale: false,
            leaked: false,
            shared: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let again = state.sends > 0;
        if state.step < CALLS.len() && state.sends < SENDS && !(again && state.resends == RESENDS) {
            actions.push(Action::Send);
        }
        let mut last = None;
        for request in &state.network {
            if last.replace(*request) == Some(*request) {
                continue;
            }
            if request.step == state.step {
                actions.push(Action::Deliver(*request));
            }
            actions.extend([Action::DeliverUnheard(*request), Action::Lose(*request)]);
        }
        match state.server.holder_of(0, &key()) {
            None => actions.push(Action::OtherAcquires),
            Some((_, token)) if *token == *other().token.as_bytes() => actions.push(Action::OtherReleases),
            Some(_) if state.inside == 0 => actions.push(Action::Expire),
            Some(_) => {}
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Send => {
                if state.sends == 0 {
                    match CALLS[state.step] {
                        Call::Acquire => next.round += 1,
                        // from here on the owner believes in nothing
                        Call::Release => next.inside = 0,
                        Call::Enter(_) | Call::Leave(_) => {}
                    }
                } else {
                    next.resends += 1;
                }
                next.sends += 1;
                next.network.push(Request { step: state.step, round: next.round });
                next.network.sort_unstable();
            }
            Action::Deliver(request) => {
                next.take(request);
                // a refusal is told too, and the owner asks again
                if self.execute(&mut next, request) {
                    self.answered(&mut next);
                }
            }
            Action::DeliverUnheard(request) => {
                next.take(request);
                self.execute(&mut next, request);
            }
            Action::Lose(request) => next.take(request),
            Action::OtherAcquires => {
                let op = Op::Acquire { claim: other(), ttl_ms: TTL_MS, fence_ttl_ms: None, info: None };
                next.server.apply(0, &op);
                next.shared = true;
            }
            Action::OtherReleases => {
                next.server.apply(0, &Op::Release { claim: other() });
            }
            Action::Expire => {
                next.server.del(0, &key());
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Reentry>> {
        vec![
            Property::always("who believes to be inside holds the lock", |model: &Reentry, state: &State| {
                state.inside == 0 || model.holds(state, state.round)
            }),
            Property::always("the counts agree when nothing is under way", |_, state: &State| {
                let quiet = state.inside > 0 && state.sends == 0 && state.network.is_empty() && !state.stale;
                !quiet || state.server.count_of(0, &key()) == Some(state.inside)
            }),
            Property::always("as many exits as entries free the lock", |_, state: &State| !state.leaked),
            Property::sometimes("the owner gets through", |_, state: &State| state.step == CALLS.len()),
            Property::sometimes("the other one gets it, too", |_, state: &State| state.shared && state.step > 6),
        ]
    }
}

const SAFETY: [&str; 3] = [
    "who believes to be inside holds the lock",
    "the counts agree when nothing is under way",
    "as many exits as entries free the lock",
];

fn check(design: Design) -> impl Checker<Reentry> {
    Reentry { design }.checker().threads(2).target_state_count(STATES_MAX).spawn_bfs().join()
}

/// Which of the properties a design violates.
fn violated(design: Design) -> Vec<&'static str> {
    let checker = check(design);
    SAFETY.into_iter().filter(|property| checker.discovery(property).is_some()).collect()
}

#[test]
fn fresh_names_and_absolute_counts_hold() {
    let checker = check(Design::FreshAndAbsolute);
    for property in SAFETY {
        if let Some(path) = checker.discovery(property) {
            panic!("violated: {property}: {path:?}");
        }
    }
    for property in ["the owner gets through", "the other one gets it, too"] {
        assert!(checker.discovery(property).is_some(), "never: {property}");
    }
    let (seen, different) = (checker.state_count(), checker.unique_state_count());
    println!("{seen} states, {different} of them different, to a depth of {}", checker.max_depth());
    assert!(checker.is_done() && seen < STATES_MAX, "{seen} states: not exhausted");
    assert!(different > 10_000, "{different} states are too few to prove anything");
}

#[test]
fn counting_on_the_server_is_refuted() {
    let violated = violated(Design::Increments);
    assert!(violated.contains(&"the counts agree when nothing is under way"), "{violated:?}");
    assert!(violated.contains(&"as many exits as entries free the lock"), "{violated:?}");
}

#[test]
fn a_name_for_all_time_is_refuted() {
    let violated = violated(Design::OwnerOnly);
    assert!(violated.contains(&"who believes to be inside holds the lock"), "{violated:?}");
}
