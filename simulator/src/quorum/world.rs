//! Everything that takes part in one schedule, and the queue of what happens next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use onelock::machine::{Acquire, Claim, Key, Kind, LeaseState, Outcome, Reply, Terms, Time, Uncertainty};

use super::super::Violation;
use super::super::dice::Dice;
use super::super::recorder::Recorder;
use super::super::trace::{Fate, Lane, Way};
use super::Tally;
use super::client::Client;
use super::net::{Conn, Node, Request};
use super::plan::{Bug, Fault, MS, Plan, Wall};
use super::task::Stage;

macro_rules! note {
    ($world:expr, $($part:tt)*) => {
        if $world.trace.is_some() {
            $world.record(&format!($($part)*));
        }
    };
}
pub(super) use note;

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrive(usize),
    Reply(usize, Outcome<Reply>, u64),
    Limit(usize),
    Connected(usize),
    Broken(usize),
    Linger(usize, u32, u64),
    Task(usize, u32),
    Cancel(usize, u32),
    GiveUp { task: usize, deed: usize },
    Watchdog(usize, u32),
    Janitor(usize, u32),
    Hint(usize),
    Fault(Fault),
    Restart(usize),
    Thaw(usize),
    Resume(usize),
    Calm,
    End,
}

struct Queued(u64, u64, Event);

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Queued) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// One acquisition, and what is really so about it.
pub(super) struct Deed {
    pub(super) client: usize,
    pub(super) claim: Claim,
    pub(super) cell: Arc<LeaseState>,
    pub(super) terms: Arc<Terms>,
    pub(super) fence: Option<u64>,
    /// The deed whose hold it goes on with.
    pub(super) from: Option<usize>,
    /// What its requests may have left behind, as the client knows it.
    pub(super) uncertainty: Option<Uncertainty>,
    pub(super) quiet: bool,
    /// It is over for its client; what is left of it is in a cleanup queue.
    pub(super) ended: bool,
    /// Its process was killed.
    pub(super) gone: bool,
    /// Requests for it that are still under way.
    pub(super) in_air: u32,
    /// Rounds for it that are not concluded.
    pub(super) rounds: u32,
    /// For each node: when it was first asked to release the hold; a copy of the request came too late for that.
    pub(super) undone: Vec<Option<u64>>,
    pub(super) late_copy: Vec<bool>,
}

/// One user of the lock.
pub(super) struct Task {
    pub(super) client: usize,
    pub(super) stage: Stage,
    pub(super) turn: u32,
    pub(super) calls: u32,
    pub(super) call: Option<Acquire>,
    pub(super) deed: Option<usize>,
    pub(super) rounds_left: u32,
    pub(super) started: u64,
    /// The deed whose hold was handed to it, until it attaches.
    pub(super) proof: Option<usize>,
    /// How often it has asked to attach.
    pub(super) tries: u32,
}

impl Task {
    pub(super) fn new(client: usize, rounds_left: u32) -> Task {
        Task {
            client,
            stage: Stage::Idle,
            turn: 0,
            calls: 0,
            call: None,
            deed: None,
            rounds_left,
            started: 0,
            proof: None,
            tries: 0,
        }
    }
}

pub(super) struct World {
    pub(super) now: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    seq: u64,
    pub(super) plan: Plan,
    pub(super) bug: Option<Bug>,
    pub(super) dice: Dice,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) tasks: Vec<Task>,
    pub(super) deeds: Vec<Deed>,
    pub(super) conns: Vec<Conn>,
    pub(super) requests: Vec<Request>,
    /// Until when a client and a node don't hear each other.
    pub(super) cuts: BTreeMap<(usize, usize), u64>,
    pub(super) live: Vec<usize>,
    pub(super) ending: Vec<usize>,
    pub(super) next_check: u64,
    pub(super) handed_fence: u64,
    pub(super) calm: bool,
    pub(super) over: bool,
    pub(super) violation: Option<Violation>,
    pub(super) tally: Tally,
    pub(super) trace: Option<VecDeque<String>>,
    /// What is written down for whoever draws it.
    pub(super) recorder: Option<Box<Recorder>>,
}

impl World {
    pub(super) fn new(seed: u64, bug: Option<Bug>, traced: bool) -> World {
        let mut dice = Dice::new(seed ^ 0x4EED_10CC);
        let mut plan = Plan::draw(&mut dice);
        plan.twist(&mut Dice::new(seed ^ 0x7157_10CC));
        plan.slow_down(&mut Dice::new(seed ^ 0x51CE_10CC));
        plan.replace_data(&mut Dice::new(seed ^ 0xDA7A_10CC));
        World::with(plan, dice, bug, traced)
    }

    /// The world of a plan.
    pub(super) fn with(plan: Plan, mut dice: Dice, bug: Option<Bug>, traced: bool) -> World {
        let counters: Vec<u64> =
            plan.nodes.iter().map(|_| if plan.wall == Wall::None { dice.below(12) } else { 0 }).collect();
        let nodes =
            plan.nodes.iter().zip(counters).map(|(node, counter)| Node::new(node, counter, &mut dice)).collect();
        let clients = (0..plan.clients.len()).map(|index| Client::new(index, &plan, bug, &mut dice)).collect();
        let mut world = World {
            now: 0,
            queue: BinaryHeap::new(),
            seq: 0,
            plan,
            bug,
            dice,
            nodes,
            clients,
            tasks: Vec::new(),
            deeds: Vec::new(),
            conns: Vec::new(),
            requests: Vec::new(),
            cuts: BTreeMap::new(),
            live: Vec::new(),
            ending: Vec::new(),
            next_check: 0,
            handed_fence: 0,
            calm: false,
            over: false,
            violation: None,
            tally: Tally::default(),
            trace: traced.then(VecDeque::new),
            recorder: None,
        };
        for client in 0..world.plan.clients.len() {
            for _ in 0..world.plan.clients[client].tasks {
                let task = world.tasks.len();
                world.tasks.push(Task::new(client, world.plan.rounds));
                let begin = world.dice.below(world.plan.ttl.as_nanos() as u64 / 2);
                world.push(begin, Event::Task(task, 0));
            }
        }
        for (at, fault) in world.plan.events.clone() {
            world.push(at, Event::Fault(fault));
        }
        world.push(world.plan.calm_at, Event::Calm);
        world
    }

    pub(super) fn push(&mut self, at: u64, event: Event) {
        if at != u64::MAX {
            self.seq += 1;
            self.queue.push(Reverse(Queued(at.max(self.now), self.seq, event)));
        }
    }

    pub(super) fn run(&mut self) -> Result<(), Violation> {
        let cap = self.plan.calm_at + 400_000 * MS + self.plan.ttl.as_nanos() as u64 * 100;
        while let Some(Reverse(Queued(at, _, event))) = self.queue.pop() {
            self.now = at;
            if let Some(recorder) = &mut self.recorder {
                recorder.now = at;
            }
            self.handle(event);
            self.observe();
            self.check_exclusion();
            self.check_ended();
            if self.now > cap {
                let stages: Vec<_> = self.tasks.iter().map(|task| &task.stage).collect();
                let owed: Vec<_> =
                    self.clients.iter().map(|client| (client.cleanup.len(), client.rounds.len())).collect();
                let ending = &self.ending;
                let detail = format!("not at rest long after faults stopped: {stages:?}, {owed:?}, {ending:?}");
                self.violate("P8 bounded waiting", detail);
            }
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
            if self.over {
                return Ok(());
            }
        }
        Err(Violation { property: "simulator", detail: "ran out of events".to_owned() })
    }

    fn client_of(&self, event: &Event) -> Option<usize> {
        match event {
            Event::Reply(request, ..) | Event::Limit(request) => Some(self.requests[*request].client),
            Event::Connected(conn) | Event::Broken(conn) => Some(self.conns[*conn].client),
            Event::Task(task, _) | Event::Cancel(task, _) | Event::GiveUp { task, .. } => {
                Some(self.tasks[*task].client)
            }
            Event::Linger(client, ..)
            | Event::Watchdog(client, _)
            | Event::Janitor(client, _)
            | Event::Hint(client) => Some(*client),
            _ => None,
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some(client) = self.client_of(&event)
            && self.clients[client].paused
        {
            self.clients[client].deferred.push(event);
            return;
        }
        match event {
            Event::Arrive(request) => self.arrive(request),
            Event::Reply(request, outcome, us) => self.reply(request, outcome, us),
            Event::Limit(request) => self.limit(request),
            Event::Connected(conn) => self.connected(conn),
            Event::Broken(conn) => self.close(conn),
            Event::Linger(client, epoch, round) => self.linger_over(client, epoch, round),
            Event::Task(task, turn) => self.task_timer(task, turn),
            Event::Cancel(task, call) => self.cancel(task, call),
            Event::GiveUp { task, deed } => self.give_up_attach(task, deed),
            Event::Watchdog(client, epoch) => self.watchdog_timer(client, epoch),
            Event::Janitor(client, epoch) => self.janitor_timer(client, epoch),
            Event::Hint(client) => {
                self.mark(Way::Notice, client, Fate::Arrived);
                self.hint(client);
            }
            Event::Fault(fault) => self.fault(fault),
            Event::Restart(node) => self.restart(node),
            Event::Thaw(node) => {
                if self.nodes[node].frozen {
                    self.mark_runs(Lane::Server(node));
                }
                self.thaw(node);
            }
            Event::Resume(client) => {
                self.clients[client].paused = false;
                self.mark_runs(Lane::Client(client));
                self.write_late(client);
                for event in std::mem::take(&mut self.clients[client].deferred) {
                    self.handle(event);
                }
            }
            Event::Calm => {
                self.calm = true;
                self.cuts.clear();
                let tick = self.plan.ttl.as_nanos() as u64;
                self.push(self.now + tick, Event::End);
            }
            Event::End => self.try_to_end(),
        }
    }

    fn fault(&mut self, fault: Fault) {
        note!(self, "fault: {fault:?}");
        self.mark_fault(fault);
        let ttl = self.plan.ttl.as_nanos() as u64;
        let length = self.dice.range(ttl / 20, ttl * 2);
        let until = (self.now + length).min(self.plan.calm_at);
        match fault {
            Fault::Crash(node) => self.crash(node, length / 4),
            Fault::Freeze(node) => {
                self.nodes[node].frozen = true;
                self.push(until, Event::Thaw(node));
            }
            Fault::Pause(client) => {
                if !self.clients[client].paused {
                    self.clients[client].paused = true;
                    self.push(until, Event::Resume(client));
                }
            }
            Fault::Kill(client) => self.kill(client),
            Fault::Cut(client, node) => {
                self.cuts.insert((client, node), until);
            }
            Fault::Stranded(client, node) => {
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    self.cuts.insert((client, other), until);
                }
            }
            Fault::Isolate(node) => {
                for client in 0..self.clients.len() {
                    self.cuts.insert((client, node), until);
                }
            }
            Fault::SetClient(client, beside) => {
                self.tally.set_clocks += 1;
                self.plan.clients[client].wall_skew_us = beside;
            }
            Fault::Forget(node) => self.forget(node),
            Fault::Break(client, node) => {
                if let Some(conn) = self.clients[client].conns[node] {
                    self.push(self.now, Event::Broken(conn));
                }
            }
        }
    }

    /// A new claim, made before anything is sent.
    pub(super) fn claim(&mut self, client: usize, terms: Arc<Terms>) -> usize {
        let index = self.deeds.len();
        let token: Arc<str> = format!("onelock1:{index:032x}").into();
        let claim = Claim { kind: Kind::Mutex, key: Key::from(&b"sim"[..]), token };
        let nodes = self.nodes.len();
        self.deeds.push(Deed {
            client,
            claim,
            cell: Arc::new(LeaseState::new()),
            terms,
            fence: None,
            from: None,
            uncertainty: None,
            quiet: false,
            ended: false,
            gone: false,
            in_air: 0,
            rounds: 0,
            undone: vec![None; nodes],
            late_copy: vec![false; nodes],
        });
        index
    }

    pub(super) fn deed_of(claim: &Claim) -> usize {
        let number = claim.token.rsplit(':').next().unwrap_or_default();
        usize::from_str_radix(number, 16).expect("a token of the simulator")
    }

    pub(super) fn local(&self, client: usize) -> Time {
        self.plan.clients[client].clock.local(self.now)
    }

    pub(super) fn world_time(&self, client: usize, local: Time) -> u64 {
        self.plan.clients[client].clock.world(local)
    }

    pub(super) fn violate(&mut self, property: &'static str, detail: String) {
        self.violation.get_or_insert(Violation { property, detail });
    }

    pub(super) fn record(&mut self, line: &str) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            if trace.len() >= 4000 {
                trace.pop_front();
            }
            trace.push_back(format!("{:>12.6} ms  {line}", now as f64 / 1e6));
        }
    }
}
