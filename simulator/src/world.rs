//! The world of one schedule: everything that takes part, and the queue of what happens next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use onelock::machine::{GrantNotice, Phase, Time};

use super::Scope;
use super::bug::Bug;
use super::clock::ServerClock;
use super::dice::Dice;
use super::groups::Group;
use super::plan::{Fault, Plan};
use super::process::Process;
use super::recorder::Recorder;
use super::server::Server;
use super::stats::{Count, Stats};
use super::task::Task;
use super::truth::{Deed, Name};
use super::wire::{Conn, Request, ServerReply};

/// How many lines of the trace are kept.
const TRACE_LINES: usize = 80;

/// Adds a line to the trace, if there is one.
macro_rules! note {
    ($world:expr, $($part:tt)*) => {
        if $world.trace.is_some() {
            $world.record(&format!($($part)*));
        }
    };
}
pub(super) use note;

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A request reaches the server; `true` for a copy that something on the way made.
    Arrive(u32, bool),
    /// A reply reaches the client.
    Reply(u32),
    /// A request's time is up.
    Limit(u32),
    /// A connection is made, or refused.
    Connected(u32),
    /// A connection that is not made by now is given up.
    ConnectLimit(u32),
    /// A client notices that a connection is broken.
    Broken(u32),
    /// The timer of a task.
    Task(u32, u32),
    /// A hold is lost whose group is still acquiring.
    MemberLost(u32),
    /// The timer of a group.
    Group(u32, u32),
    /// A caller stops waiting.
    Cancel(u32, u32),
    /// A caller stops waiting for its attach of this deed.
    GiveUp(u32, u32),
    /// The watchdog of a client.
    Watchdog(u32, u32),
    /// The cleanup queue of a client.
    Janitor(u32, u32),
    /// The subscription connection of a client is made, or cannot be.
    LinkUp(u32, u32),
    /// A client notices that its subscription connection is gone.
    LinkBroken(u32, u32),
    /// A SUBSCRIBE reaches the server: link, name, number.
    Subscribe(u32, u8, u16),
    /// An UNSUBSCRIBE reaches the server.
    Unsubscribe(u32, u8),
    /// The confirmation of a SUBSCRIBE reaches the client.
    Subscribed(u32, u8, u16),
    /// A message reaches the client: link, name, and what it says of a grant.
    Message(u32, u8, Option<u32>),
    /// Somebody publishes on the channel of this name, for nothing, and so many times again.
    Storm(u8, u32),
    /// A fault begins.
    Fault(Fault),
    /// A stopped client goes on.
    Resume(u32),
    /// A killed client is started again.
    Revive(u32),
    /// A stopped server goes on.
    Thaw,
    /// A dead server is started again.
    Restart,
    /// The server takes everything again.
    Accept,
    /// A foreign client releases its lock.
    ForeignDone(u8),
    /// Faults stop.
    Calm,
    /// Time to look around.
    Tick,
    /// A waiter should have looked at this name by now; the number of attempts when it was published.
    HandOver(u8, u32),
    /// Nothing may be left.
    End,
}

struct Queued {
    at: u64,
    seq: u32,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
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
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The property, in a word or two.
    pub property: &'static str,
    /// What was seen.
    pub detail: String,
}

/// Everything that takes part in one schedule.
pub(super) struct World {
    pub(super) now: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    seq: u32,
    pub(super) plan: Plan,
    pub(super) bug: Option<Bug>,
    pub(super) dice: Dice,
    pub(super) server: Server,
    pub(super) names: Vec<Name>,
    pub(super) clients: Vec<Process>,
    pub(super) tasks: Vec<Task>,
    pub(super) groups: Vec<Group>,
    pub(super) deeds: Vec<Deed>,
    pub(super) conns: Vec<Conn>,
    pub(super) requests: Vec<Request>,
    pub(super) replies: Vec<Option<ServerReply>>,
    pub(super) links: Vec<usize>,
    /// What messages say of grants.
    pub(super) notices: Vec<GrantNotice>,
    pub(super) calm: bool,
    pub(super) ending: bool,
    pub(super) over: bool,
    /// Clocks may be further apart than the allowance.
    pub(super) loose: bool,
    /// The server's clock was ever set, so that clients may see an anomaly.
    pub(super) clock_was_set: bool,
    pub(super) set_back_by: u64,
    pub(super) trouble_at: u64,
    /// When a client last noticed that its subscription connection was gone.
    pub(super) links_changed_at: u64,
    pub(super) longest_ttl_ms: u64,
    pub(super) violation: Option<Violation>,
    pub(super) stats: Stats,
    pub(super) trace: Option<VecDeque<String>>,
    /// What is written down for whoever draws it.
    pub(super) recorder: Option<Box<Recorder>>,
}

impl World {
    pub(super) fn new(scope: Scope, seed: u64, bug: Option<Bug>, traced: bool) -> World {
        let mut dice = Dice::new(seed);
        let plan = World::plan_of(scope, &mut dice);
        World::with(plan, dice, bug, traced)
    }

    fn plan_of(scope: Scope, dice: &mut Dice) -> Plan {
        let mut plan = Plan::draw(dice);
        // long leases mean many keeps: most schedules of queues are of shorter ones
        while scope != Scope::Plain && plan.ttl > Duration::from_secs(3) && dice.chance(900) {
            plan = Plan::draw(dice);
        }
        match scope {
            Scope::Plain => plan,
            Scope::Queues => plan.with_queues(&mut dice.aside()),
            Scope::Several => plan.with_groups(&mut dice.aside()),
        }
    }

    /// The world of a plan.
    pub(super) fn with(plan: Plan, mut dice: Dice, bug: Option<Bug>, traced: bool) -> World {
        let origin = 1_700_000_000_000_000_000 + dice.below(1_000_000_000);
        let server = Server::new(ServerClock { origin, ppm: plan.server_ppm, stepped: 0 });
        let names = plan.names.iter().enumerate().map(|(index, kind)| Name::new(index, *kind)).collect();
        let mut world = World {
            now: 0,
            queue: BinaryHeap::with_capacity(256),
            seq: 0,
            loose: plan.faults.has(Fault::DriftBeyond),
            plan,
            bug,
            dice,
            server,
            names,
            clients: Vec::new(),
            tasks: Vec::new(),
            groups: Vec::new(),
            deeds: Vec::with_capacity(64),
            conns: Vec::with_capacity(32),
            requests: Vec::with_capacity(512),
            replies: Vec::with_capacity(512),
            links: Vec::new(),
            notices: Vec::new(),
            calm: false,
            ending: false,
            over: false,
            clock_was_set: false,
            set_back_by: 0,
            trouble_at: 0,
            links_changed_at: 0,
            longest_ttl_ms: 0,
            violation: None,
            stats: Stats::default(),
            trace: traced.then(VecDeque::new),
            recorder: None,
        };
        world.server.splits_batches = world.plan.faults.has(Fault::BatchRefusals);
        world.populate();
        world
    }

    fn populate(&mut self) {
        for index in 0..self.plan.clients.len() {
            let process = Process::new(index, 1, &self.plan, &mut self.dice);
            self.clients.push(process);
        }
        for index in 0..self.plan.tasks.len() {
            self.tasks.push(Task::new(self.plan.tasks[index].clone()));
            let delay = self.dice.below(self.plan.ttl.as_nanos() as u64 / 2);
            self.push(delay, Event::Task(index as u32, 0));
        }
        self.form_groups();
        for (at, fault) in self.plan.events.clone() {
            self.push(at, Event::Fault(fault));
        }
        self.push(self.plan.calm_at, Event::Calm);
        self.push(self.tick(), Event::Tick);
    }

    /// The longest a schedule may take to come to rest after faults have stopped.
    fn cap(&self) -> u64 {
        self.plan.calm_at + nanos(self.plan.ttl) * 250 + 300_000_000_000
    }

    pub(super) fn tick(&self) -> u64 {
        (nanos(self.plan.ttl) / 8).max(500_000_000)
    }

    pub(super) fn push(&mut self, at: u64, event: Event) {
        if at == u64::MAX {
            return;
        }
        self.seq += 1;
        self.queue.push(Reverse(Queued { at: at.max(self.now), seq: self.seq, event }));
    }

    /// Runs the schedule to its end or to the first violation.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        let cap = self.cap();
        while let Some(Reverse(Queued { at, event, .. })) = self.queue.pop() {
            self.now = at;
            self.stats.add(Count::Events);
            if let Some(recorder) = &mut self.recorder {
                recorder.now = at;
            }
            self.handle(event);
            self.observe();
            if self.now > cap && self.violation.is_none() {
                let stages = self.tasks.iter().map(|task| format!("{:?}", task.stage)).collect::<Vec<_>>();
                self.violate("P8 bounded waiting", format!("not at rest long after faults stopped: {stages:?}"));
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

    /// Events of a stopped process wait for it.
    fn client_of(&self, event: Event) -> Option<usize> {
        match event {
            Event::Reply(reply) => {
                let request = self.replies[reply as usize].as_ref()?.request;
                Some(self.requests[request as usize].client)
            }
            Event::Limit(request) => Some(self.requests[request as usize].client),
            Event::Connected(conn) | Event::ConnectLimit(conn) | Event::Broken(conn) => {
                Some(self.conns[conn as usize].client)
            }
            Event::Task(task, _) | Event::Cancel(task, _) | Event::GiveUp(task, _) => {
                Some(self.tasks[task as usize].plan.client)
            }
            Event::MemberLost(deed) => Some(self.deeds[deed as usize].client),
            Event::Group(group, _) => Some(self.groups[group as usize].plan.client),
            Event::Watchdog(client, _)
            | Event::Janitor(client, _)
            | Event::LinkUp(client, _)
            | Event::LinkBroken(client, _) => Some(client as usize),
            Event::Subscribed(link, ..) | Event::Message(link, ..) => Some(self.links[link as usize]),
            _ => None,
        }
    }

    pub(super) fn handle(&mut self, event: Event) {
        if let Some(client) = self.client_of(event)
            && self.clients[client].paused
        {
            self.clients[client].deferred.push(event);
            return;
        }
        match event {
            Event::Arrive(request, copy) => self.arrive(request as usize, copy),
            Event::Reply(reply) => self.reply(reply as usize),
            Event::Limit(request) => self.limit(request as usize),
            Event::Connected(conn) => self.connected(conn as usize),
            Event::ConnectLimit(conn) => self.connect_limit(conn as usize),
            Event::Broken(conn) => self.close(conn as usize),
            Event::Task(task, turn) => self.task_timer(task as usize, turn),
            Event::MemberLost(deed) => self.entering_after_loss(deed as usize),
            Event::Group(group, turn) => self.group_timer(group as usize, turn),
            Event::Cancel(task, call) => self.cancel(task as usize, call),
            Event::GiveUp(task, deed) => self.give_up_attach(task as usize, deed as usize),
            Event::Watchdog(client, epoch) => self.watchdog_timer(client as usize, epoch),
            Event::Janitor(client, epoch) => self.janitor_timer(client as usize, epoch),
            Event::LinkUp(client, link) => self.link_up(client as usize, link),
            Event::LinkBroken(client, link) => self.link_broken(client as usize, link),
            Event::Subscribe(link, name, number) => self.subscribe_at_server(link, name as usize, number),
            Event::Unsubscribe(link, name) => self.unsubscribe_at_server(link, name as usize),
            Event::Subscribed(link, name, number) => self.subscribed(link, name as usize, number),
            Event::Message(link, name, told) => self.message(link, name as usize, told),
            Event::Storm(name, left) => self.storm(name as usize, left),
            Event::Fault(fault) => self.fault(fault),
            Event::Resume(client) => self.resume(client as usize),
            Event::Revive(client) => self.revive(client as usize),
            Event::Thaw => self.thaw(),
            Event::Restart => self.restart(),
            Event::Accept => self.accept(),
            Event::ForeignDone(name) => self.foreign_done(name as usize),
            Event::Calm => self.calm_down(),
            Event::Tick => self.look_around(),
            Event::HandOver(name, attempts) => self.check_hand_over(name as usize, attempts),
            Event::End => self.check_end(),
        }
    }

    pub(super) fn local(&self, client: usize) -> Time {
        self.clients[client].plan.clock.local(self.now)
    }

    pub(super) fn world_time(&self, client: usize, local: Time) -> u64 {
        self.clients[client].plan.clock.world(local)
    }

    /// A network delay, one way, in nanoseconds.
    pub(super) fn delay(&mut self) -> u64 {
        let (low, high) = self.plan.delay;
        self.dice.range(low, high)
    }

    /// Whether a single message meets with this fault now.
    pub(super) fn strikes(&mut self, fault: Fault) -> bool {
        !self.calm && self.plan.faults.has(fault) && self.dice.chance(self.plan.odds)
    }

    /// Something went wrong that may delay waiters.
    pub(super) fn trouble(&mut self) {
        self.trouble_at = self.trouble_at.max(self.now);
    }

    pub(super) fn violate(&mut self, property: &'static str, detail: String) {
        note!(self, "VIOLATED {property}: {detail}");
        if self.violation.is_none() {
            self.violation = Some(Violation { property, detail });
        }
    }

    pub(super) fn record(&mut self, line: &str) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_LINES {
                trace.pop_front();
            }
            trace.push_back(format!("{:>13.6} {line}", now as f64 / 1e6));
        }
    }

    /// Whether the process of this deed believes in its lease at this instant. Looks, and changes nothing.
    pub(super) fn believes(&self, deed: usize) -> bool {
        let deed = &self.deeds[deed];
        !deed.gone && deed.cell.phase() == Phase::Held && self.local(deed.client) < deed.cell.deadline()
    }

    /// An assumption is broken for what stands on the server now.
    pub(super) fn taint(&mut self, name: Option<usize>) {
        for deed in &mut self.deeds {
            if deed.granted && name.is_none_or(|name| name == deed.name) {
                deed.tainted = true;
            }
        }
    }
}

/// A span in nanoseconds.
pub(super) fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}
