//! A schedule as drawn from its seed, and the bugs that can be planted.

use std::time::Duration;

use super::super::clock::ProcessClock;
use super::super::dice::Dice;

super::super::bug::planted_bugs! {
/// A bug planted on purpose, to see that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The fencing token is the highest of the counters that were seen, and nobody is told.
    MaxWithoutWriteBack,
    /// A node that lost its data votes at once.
    NoQuarantine,
    /// A node whose data was replaced by other data votes at once, since it says that it keeps it.
    IdentityIgnored,
    /// The lease is believed to its last moment.
    NoDrift,
    /// Only nodes that are known to have granted are asked to release it.
    UndoWhereGranted,
    /// The deadline counts from when the votes were counted.
    DeadlineFromCount,
    /// A renewal is believed as soon as one node confirmed it.
    RenewedByOne,
    /// One node less than a majority will do.
    HalfIsEnough,
    /// The token of a failed round is used for the next one, whose undo then hits it.
    TokenReused,
    /// A node that takes the token that it is told has acknowledged whatever the token is by now.
    WrittenIsEqual,
    /// A node that lost a hold is given it again, though no majority confirmed the renewal.
    SeedsRegardless,
    /// A node whose late answer says that it lost a hold is given it again, though the hold may be over by then.
    LateSeedsRegardless,
    /// A release does not know that a node is just being given the hold again.
    SeedsUntold,
    /// Whoever exchanged the token on one node has the hold.
    AttachedByOne,
    /// A hold goes on with the lowest of the counters that were told.
    AttachedLowest,
}
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 15] = [
        Bug::HalfIsEnough,
        Bug::TokenReused,
        Bug::MaxWithoutWriteBack,
        Bug::NoQuarantine,
        Bug::IdentityIgnored,
        Bug::NoDrift,
        Bug::UndoWhereGranted,
        Bug::DeadlineFromCount,
        Bug::RenewedByOne,
        Bug::WrittenIsEqual,
        Bug::SeedsRegardless,
        Bug::LateSeedsRegardless,
        Bug::SeedsUntold,
        Bug::AttachedByOne,
        Bug::AttachedLowest,
    ];
}

/// What can happen at moments of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Crash(usize),
    Freeze(usize),
    Pause(usize),
    Kill(usize),
    /// A client and a node that don't hear each other.
    Cut(usize, usize),
    /// A client that hears no node but this one.
    Stranded(usize, usize),
    /// A node that nobody hears.
    Isolate(usize),
    Break(usize, usize),
    /// The key is deleted on one node.
    Forget(usize),
    /// The time of day of a client is set to so many microseconds beside the truth.
    SetClient(usize, i64),
}

/// What clients propose as fencing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wall {
    /// Nothing: the counters of the nodes are all there is.
    None,
    /// Clocks that are far apart.
    Skewed,
    /// Clocks within the bound that is needed when nodes lose their counters.
    Bounded,
}

impl Wall {
    /// How far a clock may be beside the truth, in microseconds.
    fn reach(self, quarantine: Duration) -> u64 {
        match self {
            Wall::None => 0,
            Wall::Skewed => 3_600_000_000_u64 / 4,
            Wall::Bounded => quarantine.as_micros() as u64 / 6,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    pub(super) clock: ProcessClock,
    pub(super) wall_skew_us: i64,
    /// Each request goes its own way instead of one ordered connection.
    pub(super) unordered: bool,
    pub(super) tasks: usize,
}

#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) ppm: i64,
    /// It keeps its data over a restart.
    pub(super) keeps: bool,
    /// It says so, but other data stands there after a restart.
    pub(super) replaced: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: Vec<NodePlan>,
    pub(super) clients: Vec<ClientPlan>,
    pub(super) ttl: Duration,
    pub(super) quarantine: Duration,
    pub(super) node_timeout: Duration,
    pub(super) wall: Wall,
    pub(super) delay: (u64, u64),
    /// Lost messages, per mille.
    pub(super) loss: u64,
    /// Late messages, per mille.
    pub(super) late: u64,
    /// Lost requests to write a token, per mille.
    pub(super) lost_write_backs: u64,
    /// A node whose messages take this many times as long.
    pub(super) far: Option<(usize, u64)>,
    pub(super) cancel: u64,
    pub(super) auto_renew: u64,
    pub(super) rounds: u32,
    pub(super) hold: u64,
    /// How often a holder hands its hold to others, per mille.
    pub(super) hands: u64,
    pub(super) calm_at: u64,
    pub(super) events: Vec<(u64, Fault)>,
}

pub(super) const MS: u64 = 1_000_000;

impl Plan {
    pub(super) fn draw(dice: &mut Dice) -> Plan {
        let ttl_ms = dice.pick(&[300, 1000, 1000, 3000]);
        let ttl = Duration::from_millis(ttl_ms);
        let quarantine_s = (2 * ttl_ms).div_ceil(1000) + 1;
        let quarantine = Duration::from_secs(quarantine_s);
        // two clocks within 45 % of the allowance of the truth are within it of each other
        let ppm = |dice: &mut Dice| dice.below(9000).cast_signed() - 4500;
        let wall = dice.pick(&[Wall::None, Wall::Skewed, Wall::Bounded, Wall::Bounded]);
        let number = dice.pick(&[3, 3, 3, 5]);
        let nodes = (0..number)
            .map(|_| NodePlan { ppm: ppm(dice), keeps: wall != Wall::Bounded || dice.chance(400), replaced: false })
            .collect::<Vec<_>>();
        let skew = wall.reach(quarantine);
        let clients = (0..dice.range(2, 4))
            .map(|_| ClientPlan {
                clock: ProcessClock { origin: dice.range(1, 1000) * 1_000_000_007, ppm: ppm(dice) },
                wall_skew_us: dice.below(2 * skew + 1).cast_signed() - skew.cast_signed(),
                unordered: dice.chance(300),
                tasks: dice.range(1, 2) as usize,
            })
            .collect::<Vec<_>>();
        let calm_at = dice.range(3 * ttl_ms, 10 * ttl_ms + 3000) * MS;
        let mut events = Vec::new();
        if !dice.chance(150) {
            let most = dice.pick(&[2, 5, 10]);
            for _ in 0..dice.range(0, most) {
                let (client, node) = (dice.below(clients.len() as u64) as usize, dice.below(number as u64) as usize);
                let fault = match dice.below(11) {
                    0..=3 => Fault::Crash(node),
                    4 => Fault::Freeze(node),
                    5 => Fault::Pause(client),
                    6 => Fault::Kill(client),
                    7 => Fault::Cut(client, node),
                    8 => Fault::Isolate(node),
                    9 => Fault::Stranded(client, node),
                    _ => Fault::Break(client, node),
                };
                events.push((dice.below(calm_at), fault));
            }
        }
        let delay_max = dice.pick(&[MS / 2, 2 * MS, 10 * MS]);
        Plan {
            nodes,
            clients,
            ttl,
            quarantine,
            node_timeout: Duration::from_millis(dice.range(ttl_ms / 20, ttl_ms / 4).max(30)),
            wall,
            delay: (delay_max / 10, delay_max),
            loss: dice.pick(&[0, 0, 20, 100]),
            late: dice.pick(&[0, 0, 20, 60]),
            lost_write_backs: 0,
            far: None,
            cancel: dice.pick(&[0, 0, 200]),
            auto_renew: dice.pick(&[0, 500, 1000]),
            rounds: dice.range(2, 6) as u32,
            hold: dice.pick(&[ttl_ms / 20, ttl_ms / 2, ttl_ms * 2]) * MS,
            hands: 0,
            calm_at,
            events,
        }
    }

    /// What makes rare orders of messages common in some of the schedules. The dice are its own, so that all other
    /// schedules stay what they were.
    pub(super) fn twist(&mut self, dice: &mut Dice) {
        if dice.chance(300) {
            // counters that differ, and nodes that are not told of each other's
            self.wall = if self.wall == Wall::Skewed { Wall::None } else { self.wall };
            self.lost_write_backs = dice.pick(&[500, 700]);
            self.far = Some((dice.below(self.nodes.len() as u64) as usize, 2));
            (self.loss, self.rounds, self.hold) = (0, 8, self.ttl.as_nanos() as u64 / 20);
        }
        let reach = self.wall.reach(self.quarantine);
        if reach > 0 && dice.chance(300) {
            for _ in 0..dice.range(1, 6) {
                let client = dice.below(self.clients.len() as u64) as usize;
                let beside = dice.below(2 * reach + 1).cast_signed() - reach.cast_signed();
                self.events.push((dice.below(self.calm_at), Fault::SetClient(client, beside)));
            }
        }
        if dice.chance(300) {
            self.hands = dice.pick(&[300, 700]);
        }
    }

    /// A node that is slower than the others and forgets its keys now and then, and holds that are renewed. Dice of its own
    /// again.
    pub(super) fn slow_down(&mut self, dice: &mut Dice) {
        if !dice.chance(250) {
            return;
        }
        let node = dice.below(self.nodes.len() as u64) as usize;
        let ttl = self.ttl.as_nanos() as u64;
        // from a moment behind the others to the end of its patience
        let limit = self.node_timeout.as_nanos() as u64;
        let longest = (limit / 2 / self.delay.1).max(2);
        self.far = Some((node, dice.range(2, longest)));
        (self.auto_renew, self.hold) = (1000, dice.pick(&[ttl, ttl * 2]));
        for _ in 0..dice.range(5, 25) {
            self.events.push((dice.below(self.calm_at), Fault::Forget(node)));
        }
    }

    /// Nodes that forget their data, and only show it by its name. Dice of its own again.
    pub(super) fn replace_data(&mut self, dice: &mut Dice) {
        for node in self.nodes.iter_mut().filter(|node| !node.keeps) {
            node.replaced = dice.chance(500);
        }
    }
}
