//! When a grant that a message tells is believed, model-checked: two clients and one lock, whose requests, replies and
//! messages come at any time, in any order, twice or never, while time goes on, the counter is lost, and who does not listen
//! is passed over. Every interleaving is looked at.
//!
//! The rule: the token is the present one; the last answer "it has a place" was given before the grant (its horizon is lower
//! than the number of the grant); and the end is counted from when *that* request was sent. Whoever believes has the lock on
//! the server, for as long as it believes.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test that says what it did")]

use stateright::{Checker, HasDiscoveries, Model, Property};

/// How long a place lasts, a hold that was asked for, and one that was not, at least.
const WINDOW: u8 = 2;
const TTL: u8 = 3;
const SHORTEST: u8 = 1;
/// So long a behaviour is, and so often a client asks and begins anew.
const END: u8 = 3;
const ASKS: u8 = 2;
const TOKENS: u8 = 2;
const STATES_MAX: usize = 12_000_000;

/// How a message is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The library's.
    Answered,
    /// The end is counted from when the message came.
    FromArrival,
    /// Any number will do.
    NoHorizon,
    /// The end is counted from the last request, answered or not.
    FromSending,
    /// The key of a grant ends before the place would have.
    ShortKey,
    /// The horizon is the counter alone.
    CounterOnly,
    /// One who is passed over is told as well.
    PassedOverIsTold,
    /// The end goes by the last answer, and the horizon by the first.
    MixedAnswers,
}

type Token = (usize, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    /// With the time of sending, unless nobody waits for the answer any more.
    Enter {
        token: Token,
        sent: Option<u8>,
    },
    Leave {
        token: Token,
    },
    Granted {
        who: usize,
        sent: u8,
    },
    Waiting {
        who: usize,
        sent: u8,
        horizon: u8,
    },
    Told {
        token: Token,
        number: u8,
    },
}

impl Message {
    fn enters(&self) -> Option<Token> {
        if let Message::Enter { token, .. } = self { Some(*token) } else { None }
    }
}

/// The lock, its queue and its counter. Every script has a time of its own, as on a server whose clock goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    us: u8,
    counter: u8,
    holder: Option<(Token, u8)>,
    /// The head first: token and end.
    queue: Vec<(Token, u8)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    token: u8,
    asks: u8,
    /// When it asked last; of no use to any rule but [`Rule::FromSending`].
    asked_at: u8,
    /// When the answered request was sent, and the horizon of the answer.
    answer: Option<(u8, u8)>,
    /// Until when it believes to hold the lock, and whether a message said so.
    until: Option<(u8, bool)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    server: Server,
    clients: [Client; 2],
    /// What is under way, sorted.
    messages: Vec<Message>,
    copies: u8,
    counter_lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Ask(usize),
    /// It releases what it holds, or gives up its place.
    End(usize),
    /// This message arrives. On the server the client that is named is not heard.
    Deliver(Message, Option<usize>),
    /// It arrives, and comes once more.
    Copy(Message),
    LoseCounter,
}

struct Grants {
    rule: Rule,
    /// How many messages come twice.
    copies: u8,
    /// Whether the counter may be lost.
    losing: bool,
    /// Whether somebody may be passed over.
    deaf: bool,
}

impl State {
    fn send(&mut self, message: Message) {
        self.messages.push(message);
        self.messages.sort_unstable();
    }

    /// Nobody waits for the answer to what a client has asked so far.
    fn ask_no_more(&mut self, who: usize) {
        self.messages.retain(|message| {
            !matches!(message, Message::Granted { who: of, .. } | Message::Waiting { who: of, .. } if *of == who)
        });
        for message in &mut self.messages {
            if let Message::Enter { token, sent } = message
                && token.0 == who
            {
                *sent = None;
            }
        }
        self.messages.sort_unstable();
    }

    /// Whether a client that waits may be told something now of which this is true: when its answered request was sent, the
    /// number that is told, and the horizon.
    fn told_to_waiting(&self, is_so: impl Fn(u8, u8, u8) -> bool) -> bool {
        self.messages.iter().any(|message| {
            let Message::Told { token, number } = *message else { return false };
            let client = &self.clients[token.0];
            let waits = client.token == token.1 && client.until.is_none();
            waits && client.answer.is_some_and(|(sent, horizon)| is_so(sent, number, horizon))
        })
    }

    /// Forgets what can change nothing any more: what has ended on the server, and what is said of a token that nobody has.
    fn forget(&mut self) {
        let now = self.now;
        self.server.holder = self.server.holder.filter(|(_, end)| *end > now);
        self.server.queue.retain(|(_, end)| *end > now);
        let (server, clients) = (&self.server, &self.clients);
        let entering: Vec<Token> = self.messages.iter().filter_map(Message::enters).collect();
        self.messages.retain(|message| {
            let (Message::Leave { token } | Message::Told { token, .. }) = message else { return true };
            let stands = server.holder.iter().chain(&server.queue).any(|(other, _)| other == token);
            stands || clients[token.0].token == token.1 || entering.contains(token)
        });
        self.messages.sort_unstable();
        self.messages.dedup();
    }

    /// Only the order of the numbers matters: they are numbered anew without gaps.
    fn renumber(&mut self) {
        let mut numbers = vec![0, self.server.counter, self.server.us];
        numbers.extend(self.clients.iter().filter_map(|client| client.answer).map(|(_, horizon)| horizon));
        numbers.extend(self.messages.iter().filter_map(|message| match message {
            Message::Waiting { horizon: number, .. } | Message::Told { number, .. } => Some(*number),
            _ => None,
        }));
        numbers.sort_unstable();
        numbers.dedup();
        let rank = |number: &mut u8| *number = numbers.binary_search(number).expect("it is there") as u8;
        rank(&mut self.server.counter);
        rank(&mut self.server.us);
        self.clients.iter_mut().filter_map(|client| client.answer.as_mut()).for_each(|(_, horizon)| rank(horizon));
        for message in &mut self.messages {
            if let Message::Waiting { horizon: number, .. } | Message::Told { number, .. } = message {
                rank(number);
            }
        }
        self.messages.sort_unstable();
    }
}

impl Grants {
    fn draw(state: &mut State) -> u8 {
        let number = (state.server.counter + 1).max(state.server.us);
        state.server.counter = number;
        number
    }

    fn hand_over(&self, state: &mut State, asker: Option<Token>, deaf: Option<usize>) {
        let now = state.now;
        let is_heard = |token: &Token| Some(*token) == asker || Some(token.0) != deaf;
        let next = state.server.queue.iter().position(|(token, _)| is_heard(token));
        let Some(at) = next else {
            state.server.holder = None;
            return;
        };
        let (token, end) = state.server.queue.remove(at);
        let number = Grants::draw(state);
        if at > 0 && self.rule == Rule::PassedOverIsTold {
            let passed = state.server.queue[0].0;
            state.send(Message::Told { token: passed, number });
        }
        let end = if self.rule == Rule::ShortKey { now + SHORTEST } else { end.max(now + SHORTEST) };
        state.server.holder = Some((token, end));
        if Some(token) != asker {
            state.send(Message::Told { token, number });
        }
    }

    /// A script runs.
    fn run(&self, state: &mut State, message: Message, deaf: Option<usize>) {
        let now = state.now;
        state.server.us += 1;
        let holder = state.server.holder;
        match message {
            Message::Leave { token } if holder.is_some_and(|(holder, _)| holder == token) => {
                self.hand_over(state, None, deaf);
            }
            Message::Leave { token } => state.server.queue.retain(|(other, _)| *other != token),
            Message::Enter { token, sent } => {
                if let Some((holder, end)) = &mut state.server.holder
                    && *holder == token
                {
                    *end = (*end).max(now + TTL);
                } else if holder.is_none() && state.server.queue.is_empty() {
                    Grants::draw(state);
                    state.server.holder = Some((token, now + TTL));
                } else {
                    match state.server.queue.iter_mut().find(|(other, _)| *other == token) {
                        Some((_, end)) => *end = (*end).max(now + WINDOW),
                        None => state.server.queue.push((token, now + WINDOW)),
                    }
                    if holder.is_none() {
                        self.hand_over(state, Some(token), deaf);
                    }
                    if let Some((holder, end)) = &mut state.server.holder
                        && *holder == token
                    {
                        *end = now + TTL;
                    }
                }
                let Some(sent) = sent else { return };
                let (who, counter) = (token.0, state.server.counter);
                if state.server.holder.is_some_and(|(holder, _)| holder == token) {
                    return state.send(Message::Granted { who, sent });
                }
                let horizon = if self.rule == Rule::CounterOnly { counter } else { counter.max(state.server.us) };
                state.send(Message::Waiting { who, sent, horizon });
            }
            _ => {}
        }
    }

    /// It gives up its token: whatever that is on the server, it leaves.
    fn begin_anew(state: &mut State, who: usize) {
        let client = &mut state.clients[who];
        let token = (who, client.token);
        *client = Client { token: client.token + 1, asks: client.asks, ..Client::default() };
        state.ask_no_more(who);
        state.send(Message::Leave { token });
    }

    fn told(&self, state: &mut State, token: Token, number: u8) {
        let now = state.now;
        let client = &mut state.clients[token.0];
        if client.token != token.1 {
            // nobody waits with it any more
            return state.send(Message::Leave { token });
        }
        let Some((sent, horizon)) = client.answer else { return };
        if client.until.is_some() {
            return;
        }
        if number <= horizon && self.rule != Rule::NoHorizon {
            return;
        }
        let from = match self.rule {
            Rule::FromArrival => now,
            Rule::FromSending => client.asked_at,
            _ => sent,
        };
        if now < from + WINDOW {
            client.until = Some((from + WINDOW, true));
            state.ask_no_more(token.0);
        }
    }

    fn deliver(&self, state: &mut State, message: Message, deaf: Option<usize>) {
        match message {
            Message::Enter { .. } | Message::Leave { .. } => self.run(state, message, deaf),
            Message::Told { token, number } => self.told(state, token, number),
            Message::Granted { who, sent } => {
                if state.now < sent + TTL {
                    state.clients[who].until = Some((sent + TTL, false));
                } else {
                    Grants::begin_anew(state, who);
                }
            }
            Message::Waiting { who, sent, horizon } => {
                let answer = &mut state.clients[who].answer;
                let first = answer.filter(|_| self.rule == Rule::MixedAnswers).map(|(_, horizon)| horizon);
                *answer = Some((sent, first.unwrap_or(horizon)));
            }
        }
    }
}

impl Model for Grants {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            actions.push(Action::Tick);
        }
        for (who, client) in state.clients.iter().enumerate() {
            if client.token < TOKENS && client.until.is_none() && client.asks < ASKS {
                // which of the two is the first makes no difference
                if who == 0 || state.clients[0].asks > 0 || state.clients[0].token > 0 {
                    actions.push(Action::Ask(who));
                }
            }
            if client.token < TOKENS && (client.until.is_some() || client.answer.is_some()) {
                actions.push(Action::End(who));
            }
        }
        let mut last = None;
        for message in &state.messages {
            if last.replace(*message) == Some(*message) {
                continue;
            }
            actions.push(Action::Deliver(*message, None));
            if state.copies < self.copies && matches!(message, Message::Told { .. }) {
                actions.push(Action::Copy(*message));
            }
            if self.deaf && matches!(message, Message::Enter { .. } | Message::Leave { .. }) {
                actions.extend((0..2).map(|who| Action::Deliver(*message, Some(who))));
            }
        }
        if self.losing && !state.counter_lost && state.server.counter > 0 {
            actions.push(Action::LoseCounter);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => {
                next.now += 1;
                for who in 0..2 {
                    if next.clients[who].until.is_some_and(|(until, _)| until <= next.now) {
                        Grants::begin_anew(&mut next, who);
                    }
                }
            }
            Action::Ask(who) => {
                next.ask_no_more(who);
                let client = &mut next.clients[who];
                client.asks += 1;
                if self.rule == Rule::FromSending {
                    client.asked_at = state.now;
                }
                let token = (who, client.token);
                next.send(Message::Enter { token, sent: Some(state.now) });
            }
            Action::End(who) => Grants::begin_anew(&mut next, who),
            Action::Deliver(message, deaf) => {
                let at = next.messages.iter().position(|other| *other == message)?;
                next.messages.remove(at);
                self.deliver(&mut next, message, deaf);
            }
            Action::Copy(message) => {
                next.copies += 1;
                self.deliver(&mut next, message, None);
            }
            Action::LoseCounter => {
                next.server.counter = 0;
                next.counter_lost = true;
            }
        }
        next.forget();
        next.renumber();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holder", |_, state: &State| {
                !state.clients.iter().all(|client| client.until.is_some())
            }),
            Property::always("who believes has it on the server", |_, state: &State| {
                state.clients.iter().enumerate().all(|(who, client)| {
                    client.until.is_none_or(|(until, _)| {
                        let holder = state.server.holder;
                        holder.is_some_and(|(token, end)| token == (who, client.token) && end >= until)
                    })
                })
            }),
            Property::sometimes("a message is believed", |_, state: &State| {
                state.clients.iter().any(|client| client.until.is_some_and(|(_, told)| told))
            }),
            Property::sometimes("a message of an older grant comes", |_, state: &State| {
                state.told_to_waiting(|_, number, horizon| number <= horizon)
            }),
            Property::sometimes("a message comes too late", |_, state: &State| {
                state.told_to_waiting(|sent, number, horizon| number > horizon && state.now >= sent + WINDOW)
            }),
        ]
    }
}

fn model(rule: Rule) -> Grants {
    Grants { rule, copies: 0, losing: rule == Rule::CounterOnly, deaf: rule == Rule::PassedOverIsTold }
}

const ALWAYS: [&str; 2] = ["one holder", "who believes has it on the server"];

#[test]
fn a_grant_is_believed_only_while_it_lasts() {
    for (copies, losing, deaf) in [(1, false, false), (0, true, false), (0, false, true)] {
        let model = Grants { rule: Rule::Answered, copies, losing, deaf };
        let checker = model.checker().threads(2).target_state_count(STATES_MAX).spawn_bfs().join();
        println!("copies {copies}, losing {losing}, deaf {deaf}: {} states", checker.unique_state_count());
        assert!(checker.state_count() < STATES_MAX, "not all states were seen");
        for property in ALWAYS {
            checker.assert_no_discovery(property);
        }
        for property in ["a message is believed", "a message of an older grant comes", "a message comes too late"] {
            checker.assert_any_discovery(property);
        }
    }
}

#[test]
fn every_other_rule_is_refuted() {
    for rule in [
        Rule::FromArrival,
        Rule::NoHorizon,
        Rule::FromSending,
        Rule::ShortKey,
        Rule::CounterOnly,
        Rule::PassedOverIsTold,
        Rule::MixedAnswers,
    ] {
        let first = HasDiscoveries::AnyOf(ALWAYS.into());
        let checker =
            model(rule).checker().threads(2).finish_when(first).target_state_count(STATES_MAX).spawn_bfs().join();
        println!("{rule:?}: {} states, {:?}", checker.unique_state_count(), checker.discoveries().keys());
        assert!(ALWAYS.iter().any(|property| checker.discovery(property).is_some()), "{rule:?}");
    }
}
