//! Lease timing, model-checked: two clients, one server, and messages that take any time or never arrive. Every
//! interleaving within the bounds is looked at.
//!
//! The server is the library's own model, the deadline the library's own arithmetic and the lease its own state word.
//! The design that counts the deadline from the request holds; two plausible others are refuted.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use std::time::Duration;

use onelock::Kind;
use onelock::machine::model::Model as Server;
use onelock::machine::{Claim, LeaseState, Op, Outcome, Phase, Renewal, Reply, Terms, Time};
use stateright::{Checker, Model, Property};

const TICK_MS: u64 = 10;
/// Just under four ticks: the key lives through three ticks after the one it was written in.
const TTL: Duration = Duration::from_millis(39);
const TICKS: u64 = 7;
/// How often each client acquires. The first one renews, too.
const ACQUIRES: [u8; 2] = [2, 1];
/// As many states as are generated at most; reaching it means that not all of them were seen.
const STATES_MAX: usize = 3_000_000;

/// When a lease is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    /// From the moment the confirmed request was sent.
    FromSend,
    /// From the moment the reply was received.
    FromReceive,
    /// A renewal is believed as soon as it is sent.
    OptimisticRenew,
}

/// What travels. All of one client's messages of one acquisition carry its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    Acquire { client: usize, number: u8, sent: u64 },
    Renew { client: usize, number: u8, sent: u64 },
    Release { client: usize, number: u8 },
    Confirmed { client: usize, number: u8, sent: u64, first: bool },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// Counts its acquisitions; 0 before the first.
    number: u8,
    waiting: bool,
    /// The deadline while it believes in a lease, in nanoseconds.
    held_until: Option<u64>,
    renewed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    tick: u64,
    server: Server,
    clients: [Client; 2],
    /// Sorted: which of two messages was sent first does not matter to the network.
    network: Vec<Message>,
    /// A lease was renewed and then outlived its first deadline.
    prolonged: bool,
    /// Both have held in turn.
    holders: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Acquire(usize),
    Renew(usize),
    Release(usize),
    /// A message that is never delivered is a lost one.
    Deliver(Message),
}

struct Timing {
    design: Design,
}

fn now(tick: u64) -> Time {
    Time::from_millis(tick * TICK_MS)
}

fn terms() -> Terms {
    Terms { ttl: TTL, ..Terms::default() }
}

fn claim(client: usize, number: u8) -> Claim {
    Claim {
        kind: Kind::Mutex,
        key: b"lease".as_slice().into(),
        token: format!("onelock1:{client:016x}{number:016x}").into(),
    }
}

/// The lease of a client as the library keeps it, made from what the state says of it.
fn cell(held_until: u64) -> LeaseState {
    let cell = LeaseState::new();
    cell.grant(Time::from_nanos(held_until));
    cell
}

impl State {
    fn believes(&self, client: usize) -> bool {
        self.clients[client].held_until.is_some_and(|until| cell(until).is_held(now(self.tick)))
    }

    fn server_us(&self) -> u64 {
        self.tick * TICK_MS * 1000
    }

    fn send(&mut self, message: Message) {
        self.network.push(message);
        self.network.sort_unstable();
    }

    fn take(&mut self, message: Message) {
        let index = self.network.iter().position(|other| *other == message);
        self.network.remove(index.expect("only what is there is delivered"));
    }

    /// Forgets replies that nobody waits for any more: whether they arrive makes no difference.
    fn tidy(&mut self) {
        let clients = &self.clients;
        self.network.retain(|message| match message {
            Message::Confirmed { client, number, first, .. } => {
                let me = &clients[*client];
                me.number == *number && if *first { me.waiting } else { me.held_until.is_some() }
            }
            _ => true,
        });
    }

    /// A confirmation for a client that waits, or holds this very acquisition.
    fn confirm(&mut self, client: usize, number: u8, counted_from: u64, first: bool) {
        let (tick, terms) = (self.tick, terms());
        let me = &mut self.clients[client];
        if me.number != number {
            return;
        }
        let deadline = terms.deadline(now(counted_from), TTL);
        if first {
            // a late grant is not a grant
            if std::mem::take(&mut me.waiting) && now(tick) < deadline {
                me.held_until = Some(deadline.as_nanos() & !7);
                self.holders[client] = true;
            }
        } else if let Some(until) = me.held_until {
            let cell = cell(until);
            me.renewed |= cell.confirm(now(tick), deadline);
            me.held_until = (cell.phase() == Phase::Held).then(|| cell.deadline().as_nanos());
        }
    }

    fn execute(&mut self, message: Message) {
        let us = self.server_us();
        let ttl_ms = terms().server_ttl_ms(TTL);
        match message {
            Message::Acquire { client, number, sent } => {
                let op = Op::Acquire { claim: claim(client, number), ttl_ms, fence_ttl_ms: None, info: None };
                if let Outcome::Applied(Reply::Granted { .. }) = self.server.apply(us, &op).outcome {
                    self.send(Message::Confirmed { client, number, sent, first: true });
                }
            }
            Message::Renew { client, number, sent } => {
                let op = Op::Renew { holds: vec![(claim(client, number), ttl_ms)] };
                if self.server.apply(us, &op).outcome == Outcome::Applied(Reply::Renewed(vec![Renewal::Renewed])) {
                    self.send(Message::Confirmed { client, number, sent, first: false });
                }
            }
            Message::Release { client, number } => {
                self.server.apply(us, &Op::Release { claim: claim(client, number) });
            }
            Message::Confirmed { .. } => {}
        }
    }
}

impl Model for Timing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tick: 0,
            server: Server::new(),
            clients: [Client::default(), Client::default()],
            network: Vec::new(),
            prolonged: false,
            holders: [false; 2],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.tick < TICKS {
            actions.push(Action::Tick);
        }
        for (client, me) in state.clients.iter().enumerate() {
            let believes = state.believes(client);
            let under_way = state.network.iter().filter(|message| {
                matches!(message, Message::Renew { client: of, .. } | Message::Confirmed { client: of, .. } if *of == client)
            });
            if !believes && me.number < ACQUIRES[client] {
                actions.push(Action::Acquire(client));
            }
            if believes {
                actions.push(Action::Release(client));
                if client == 0 && under_way.count() == 0 {
                    actions.push(Action::Renew(client));
                }
            }
        }
        let mut last = None;
        for message in &state.network {
            if last.replace(*message) != Some(*message) {
                actions.push(Action::Deliver(*message));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => {
                next.tick += 1;
                next.prolonged |= (0..2).any(|client| next.clients[client].renewed && next.believes(client));
            }
            Action::Acquire(client) => {
                let me = &mut next.clients[client];
                me.number += 1;
                *me = Client { number: me.number, waiting: true, held_until: None, renewed: false };
                let number = me.number;
                next.send(Message::Acquire { client, number, sent: state.tick });
            }
            Action::Renew(client) => {
                let number = next.clients[client].number;
                next.send(Message::Renew { client, number, sent: state.tick });
                if self.design == Design::OptimisticRenew {
                    next.confirm(client, number, state.tick, false);
                }
            }
            Action::Release(client) => {
                let number = next.clients[client].number;
                next.clients[client].held_until = None;
                next.send(Message::Release { client, number });
            }
            Action::Deliver(message) => {
                next.take(message);
                if let Message::Confirmed { client, number, sent, first } = message {
                    let from = if self.design == Design::FromReceive { state.tick } else { sent };
                    next.confirm(client, number, from, first);
                } else {
                    next.execute(message);
                }
            }
        }
        next.tidy();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Timing>> {
        vec![
            Property::always("exclusion", |_, state: &State| !(state.believes(0) && state.believes(1))),
            Property::always("what is held is on the server", |_, state: &State| {
                (0..2).filter(|client| state.believes(*client)).all(|client| {
                    let claim = claim(client, state.clients[client].number);
                    let holder = state.server.holder_of(state.server_us(), &claim.key);
                    holder.is_some_and(|(_, token)| *token == *claim.token.as_bytes())
                })
            }),
            Property::sometimes("both hold in turn", |_, state: &State| state.holders == [true; 2]),
            Property::sometimes("a renewal prolongs a lease", |_, state: &State| state.prolonged),
        ]
    }
}

fn check(design: Design) -> impl Checker<Timing> {
    Timing { design }.checker().threads(2).target_state_count(STATES_MAX).spawn_bfs().join()
}

#[test]
fn a_deadline_from_the_send_holds() {
    let checker = check(Design::FromSend);
    assert!(checker.is_done());
    for property in ["exclusion", "what is held is on the server"] {
        if let Some(path) = checker.discovery(property) {
            panic!("{property} is violated: {path:?}");
        }
    }
    for property in ["both hold in turn", "a renewal prolongs a lease"] {
        assert!(checker.discovery(property).is_some(), "never: {property}");
    }
    let (seen, different) = (checker.state_count(), checker.unique_state_count());
    println!("{seen} states, {different} of them different, to a depth of {}", checker.max_depth());
    assert!(seen < STATES_MAX, "{seen} states: not exhausted");
    assert!(different > 100_000, "{different} states are too few to prove anything");
}

#[test]
fn a_deadline_from_the_reply_is_refuted() {
    let checker = check(Design::FromReceive);
    assert!(checker.discovery("exclusion").is_some());
}

#[test]
fn believing_in_a_renewal_that_was_only_sent_is_refuted() {
    let checker = check(Design::OptimisticRenew);
    assert!(checker.discovery("exclusion").is_some());
}
