//! The story of Redlock, for people who look at it.

use std::time::Duration;

use super::super::Violation;
use super::super::clock::ProcessClock;
use super::super::dice::Dice;
use super::super::trace::Trace;
use super::Bug;
use super::plan::{ClientPlan, Fault, MS, NodePlan, Plan, Wall};
use super::world::World;

/// The world of a schedule: one of the tests, or the story.
fn world(is_test: bool, seed: u64, bug: Option<Bug>) -> World {
    if is_test {
        return World::new(seed, bug, false);
    }
    let mut dice = Dice::new(seed ^ 0x5707_4EED);
    let plan = plan(&mut dice);
    World::with(plan, dice, bug, false)
}

/// Plays a schedule, and writes down what happens.
pub(crate) fn play(is_test: bool, seed: u64, bug: Option<Bug>) -> Trace {
    let mut world = world(is_test, seed, bug);
    world.begin_recording();
    let outcome = world.run();
    world.recorder.take().map(|recorder| recorder.finish(&outcome)).unwrap_or_default()
}

/// Plays a schedule without writing anything down.
pub(crate) fn run_story(is_test: bool, seed: u64, bug: Option<Bug>) -> Result<(), Violation> {
    world(is_test, seed, bug).run()
}

/// Three servers that keep nothing, two clients, and a server that is restarted while somebody holds the lock.
fn plan(dice: &mut Dice) -> Plan {
    let ppm = |dice: &mut Dice| dice.below(9001).cast_signed() - 4500;
    let nodes = (0..3).map(|_| NodePlan { ppm: ppm(dice), keeps: false, replaced: false }).collect::<Vec<_>>();
    let clients = (0..2)
        .map(|_| ClientPlan {
            clock: ProcessClock { origin: dice.range(1, 1000) * 1_000_000_007, ppm: ppm(dice) },
            wall_skew_us: dice.below(200_000).cast_signed() - 100_000,
            unordered: false,
            tasks: 1,
        })
        .collect::<Vec<_>>();
    let mut events = Vec::new();
    let node = dice.below(3) as usize;
    for _ in 0..dice.range(1, 2) {
        events.push((dice.below(2_000 * MS), Fault::Crash(node)));
    }
    if dice.chance(300) {
        let client = dice.below(clients.len() as u64) as usize;
        events.push((dice.below(3_000 * MS), Fault::Cut(client, dice.below(3) as usize)));
    }
    Plan {
        nodes,
        clients,
        ttl: Duration::from_secs(1),
        quarantine: Duration::from_secs(3),
        node_timeout: Duration::from_millis(100),
        wall: Wall::Bounded,
        delay: (MS, 8 * MS),
        loss: 0,
        late: 0,
        lost_write_backs: 0,
        far: None,
        cancel: 0,
        auto_renew: 1000,
        rounds: 3,
        hold: 900 * MS,
        hands: 0,
        calm_at: 5_000 * MS,
        events,
    }
}
