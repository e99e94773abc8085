//! Schedules with one theme each, for people who look at them; and those of the tests, as they are.
//!
//! A story leaves to the dice what a schedule of the tests does, but for who takes part and what may go wrong.

use onelock::machine::Kind;

use super::cast::{cast, group};
use super::dice::Dice;
use super::json::Json;
use super::plan::{Fault, Plan};
use super::trace::Trace;
use super::world::World;
use super::{Bug, Scope, Violation, quorum};

/// What a schedule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// Requests and replies are lost.
    LostReply,
    /// Holders are stopped, and go on when their time is over.
    FrozenHolder,
    /// Messages come late and twice.
    LateCopies,
    /// Clocks run apart, and the server's is set.
    Clocks,
    /// One server forgets everything.
    ForgetfulServer,
    /// A fair queue with waiters that die.
    FairQueue,
    /// Several locks at once.
    SeveralLocks,
    /// Redlock, with servers that forget everything.
    Redlock,
    /// The schedules of the suite `simulation` with this seed.
    TestsPlain,
    /// Those of the suite `kind_schedules` for fair locks.
    TestsQueues,
    /// Those of the suite `kind_schedules` for several locks at once.
    TestsSeveral,
    /// Those of the suite `simulation` for several servers.
    TestsRedlock,
}

/// The bugs of the story of Redlock.
const REDLOCK: [quorum::Bug; 8] = [
    quorum::Bug::NoQuarantine,
    quorum::Bug::HalfIsEnough,
    quorum::Bug::MaxWithoutWriteBack,
    quorum::Bug::UndoWhereGranted,
    quorum::Bug::TokenReused,
    quorum::Bug::RenewedByOne,
    quorum::Bug::SeedsRegardless,
    quorum::Bug::LateSeedsRegardless,
];

/// A bug that can be planted in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In a schedule with one server.
    One(Bug),
    /// In one with several.
    Majority(quorum::Bug),
}

impl Planted {
    /// Its name in the source.
    pub fn name(self) -> String {
        match self {
            Planted::One(bug) => format!("{bug:?}"),
            Planted::Majority(bug) => format!("{bug:?}"),
        }
    }

    /// What is done wrongly, in a sentence.
    pub fn explain(self) -> &'static str {
        match self {
            Planted::One(bug) => bug.explain(),
            Planted::Majority(bug) => bug.explain(),
        }
    }
}

impl Story {
    /// All of them.
    pub const ALL: [Story; 12] = [
        Story::LostReply,
        Story::FrozenHolder,
        Story::LateCopies,
        Story::Clocks,
        Story::ForgetfulServer,
        Story::FairQueue,
        Story::SeveralLocks,
        Story::Redlock,
        Story::TestsPlain,
        Story::TestsQueues,
        Story::TestsSeveral,
        Story::TestsRedlock,
    ];

    /// Its name in addresses.
    pub fn name(self) -> &'static str {
        match self {
            Story::LostReply => "lost-reply",
            Story::FrozenHolder => "frozen-holder",
            Story::LateCopies => "late-copies",
            Story::Clocks => "clocks",
            Story::ForgetfulServer => "forgetful-server",
            Story::FairQueue => "fair-queue",
            Story::SeveralLocks => "several-locks",
            Story::Redlock => "redlock",
            Story::TestsPlain => "tests-plain",
            Story::TestsQueues => "tests-queues",
            Story::TestsSeveral => "tests-several",
            Story::TestsRedlock => "tests-redlock",
        }
    }

    /// The story of this name.
    pub fn named(name: &str) -> Option<Story> {
        Story::ALL.into_iter().find(|story| story.name() == name)
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Story::LostReply => "Lost requests and replies",
            Story::FrozenHolder => "A holder is stopped and goes on",
            Story::LateCopies => "Late and doubled messages",
            Story::Clocks => "Clocks that disagree",
            Story::ForgetfulServer => "A server that forgets everything",
            Story::FairQueue => "A fair queue with dead waiters",
            Story::SeveralLocks => "Several locks at once",
            Story::Redlock => "Redlock with restarted servers",
            Story::TestsPlain => "Any schedule of the tests",
            Story::TestsQueues => "Any schedule of the tests, fair locks",
            Story::TestsSeveral => "Any schedule of the tests, several locks at once",
            Story::TestsRedlock => "Any schedule of the tests, Redlock",
        }
    }

    /// What to look for, in a few sentences.
    pub fn about(self) -> &'static str {
        match self {
            Story::LostReply => {
                "A client that hears nothing cannot know whether it has the lock. It asks again with the same token, and the \
                 server answers that it has it already. What nobody wants any more is undone."
            }
            Story::FrozenHolder => {
                "A process can be stopped at any moment: for a garbage collection, by a debugger, with its virtual machine. \
                 Its lease ends meanwhile, somebody else gets the lock, and the stopped process goes on without having noticed. \
                 Only the fencing token turns its write away."
            }
            Story::LateCopies => {
                "A request arrives after its caller gave up, or twice. It must take nothing that nobody releases, and bring \
                 nothing back that was released."
            }
            Story::Clocks => {
                "All clocks run at rates of their own, within the allowance, and the server's is set forward. A lease ends for \
                 its holder before it ends on the server; a jump that was seen ends it earlier."
            }
            Story::ForgetfulServer => {
                "One server without persistence dies and comes back empty while somebody holds the lock. For a moment two \
                 believe that they hold it: no client can prevent that, and fencing tokens keep growing all the same."
            }
            Story::FairQueue => {
                "First come, first served, with a queue on the server. Waiters are killed and cannot say so; their places must \
                 not block those behind them."
            }
            Story::SeveralLocks => {
                "All or none: each client wants two or three locks at once. They are taken in one order, so nobody waits for \
                 somebody who waits for it; and if one is lost, all are."
            }
            Story::Redlock => {
                "Three servers that keep nothing on disk; a majority of them gives the lock. One that was restarted must not \
                 vote until all leases that it may have forgotten are over."
            }
            Story::TestsPlain | Story::TestsQueues | Story::TestsSeveral | Story::TestsRedlock => {
                "Exactly what the project's tests run for this seed: everything is drawn from it, who takes part and what goes \
                 wrong. Some schedules are long."
            }
        }
    }

    fn scope(self) -> Option<Scope> {
        match self {
            Story::Redlock | Story::TestsRedlock => None,
            Story::FairQueue | Story::TestsQueues => Some(Scope::Queues),
            Story::SeveralLocks | Story::TestsSeveral => Some(Scope::Several),
            _ => Some(Scope::Plain),
        }
    }

    /// The bugs that can be planted in it.
    pub fn bugs(self) -> Vec<Planted> {
        let one = |bugs: &[Bug]| bugs.iter().copied().map(Planted::One).collect();
        match self {
            Story::LostReply => {
                one(&[Bug::ReleaseForgotten, Bug::DeadlineFromReceive, Bug::OwnerIdOnly, Bug::NotDisarmed])
            }
            Story::FrozenHolder => {
                one(&[Bug::LateGrantHandedOut, Bug::DeadlineFromReceive, Bug::TokenReused, Bug::NotDisarmed])
            }
            Story::LateCopies => {
                one(&[Bug::CancelForgets, Bug::RenewRecreates, Bug::OptimisticRenew, Bug::UndoOnce, Bug::OwnerIdOnly])
            }
            Story::Clocks => one(&[Bug::DeadlineFromReceive, Bug::RenewRecreates, Bug::OwnerIdOnly]),
            Story::ForgetfulServer => one(&[Bug::CountingFence, Bug::DeadlineFromReceive, Bug::OwnerIdOnly]),
            Story::FairQueue => one(&[
                Bug::DeadGranted,
                Bug::PlaceLeftBehind,
                Bug::PlaceNotKept,
                Bug::ToldFromArrival,
                Bug::GrantKeyShort,
                Bug::CancelForgets,
                Bug::ListensSaid,
            ]),
            Story::SeveralLocks => one(&[
                Bug::CallersOrder,
                Bug::HalfTaken,
                Bug::FirstLookedAt,
                Bug::TokensMixedUp,
                Bug::MemberLossUntold,
                Bug::ReleasesUncompared,
                Bug::UndoForgetsOne,
                Bug::AllResentAnew,
            ]),
            Story::TestsPlain => one(&Bug::ALL),
            Story::TestsQueues => one(&Bug::OF_QUEUES),
            Story::TestsSeveral => one(&Bug::OF_SEVERAL),
            Story::Redlock => REDLOCK.into_iter().map(Planted::Majority).collect(),
            Story::TestsRedlock => quorum::Bug::ALL.into_iter().map(Planted::Majority).collect(),
        }
    }

    /// The bug of this name.
    pub fn bug(self, name: &str) -> Option<Planted> {
        self.bugs().into_iter().find(|bug| bug.name() == name)
    }

    fn world(self, seed: u64, bug: Option<Bug>) -> World {
        let scope = self.scope().unwrap_or(Scope::Plain);
        if matches!(self, Story::TestsPlain | Story::TestsQueues | Story::TestsSeveral) {
            return World::new(scope, seed, bug, false);
        }
        let mut dice = Dice::new(seed ^ 0x5707_10CC);
        let plan = self.plan(&mut dice);
        World::with(plan, dice, bug, false)
    }

    /// Plays it, and writes down what happens.
    pub fn play(self, seed: u64, bug: Option<Planted>) -> Trace {
        let bug = match bug {
            Some(Planted::Majority(bug)) => return quorum::play(self == Story::TestsRedlock, seed, Some(bug)),
            Some(Planted::One(bug)) => Some(bug),
            None if self.scope().is_none() => return quorum::play(self == Story::TestsRedlock, seed, None),
            None => None,
        };
        let mut world = self.world(seed, bug);
        world.begin_recording();
        let outcome = world.run();
        world.recorder.take().map(|recorder| recorder.finish(&outcome)).unwrap_or_default()
    }

    /// Plays it without writing anything down.
    pub fn run(self, seed: u64, bug: Option<Planted>) -> Result<(), Violation> {
        match (self.scope(), bug) {
            (None, bug) => {
                let bug = bug.and_then(|bug| if let Planted::Majority(bug) = bug { Some(bug) } else { None });
                quorum::run_story(self == Story::TestsRedlock, seed, bug)
            }
            (Some(_), bug) => {
                let bug = bug.and_then(|bug| if let Planted::One(bug) = bug { Some(bug) } else { None });
                self.world(seed, bug).run()
            }
        }
    }

    /// The first of `count` seeds from `first` on with which this bug is caught.
    pub fn search(self, bug: Planted, first: u64, count: u64) -> Option<u64> {
        (first..first.saturating_add(count)).find(|seed| self.run(*seed, Some(bug)).is_err())
    }

    fn plan(self, dice: &mut Dice) -> Plan {
        match self {
            Story::LostReply => {
                let plan = cast(dice, 2, Kind::Mutex).with(dice, &[Fault::ReplyLoss, Fault::RequestLoss], 0);
                Plan { odds: 250, ..plan }
            }
            Story::FrozenHolder => {
                let plan = cast(dice, 3, Kind::Mutex).with(dice, &[Fault::Pause, Fault::Sluggish], 4);
                Plan { odds: 40, ..plan }
            }
            Story::LateCopies => {
                let faults = [Fault::LongDelay, Fault::Duplicates, Fault::Cancel];
                let plan = cast(dice, 3, Kind::Mutex).with(dice, &faults, 0);
                Plan { odds: 200, ..plan }
            }
            Story::Clocks => {
                let faults = [Fault::ClockForward, Fault::ClockBackward, Fault::LongDelay];
                let plan = cast(dice, 2, Kind::Mutex).with(dice, &faults, 1);
                Plan { odds: 60, ..plan }
            }
            Story::ForgetfulServer => cast(dice, 2, Kind::Mutex).with(dice, &[Fault::DataLoss], 2),
            Story::FairQueue => {
                let faults = [Fault::Kill, Fault::MessageLoss, Fault::Cancel];
                let mut plan = cast(dice, 4, Kind::Fair).with(dice, &faults, 3);
                plan.tasks.iter_mut().for_each(|task| task.rounds = 2);
                plan
            }
            _ => {
                let mut plan = cast(dice, 2, Kind::Mutex).with(dice, &[Fault::ReplyLoss, Fault::Pause], 1);
                plan.names = vec![Kind::Mutex; 3];
                plan.groups = std::mem::take(&mut plan.tasks).into_iter().map(|task| group(dice, task)).collect();
                plan
            }
        }
    }
}

/// All stories with their bugs, as JSON: a list, in the order of [`Story::ALL`].
pub fn catalog() -> String {
    let mut json = Json::default();
    json.list(&Story::ALL, |json, story| {
        json.object(|json| {
            json.entry("name", story.name()).entry("title", story.title()).entry("about", story.about());
            json.objects("bugs", &story.bugs(), |json, bug| {
                json.entry("name", &bug.name()).entry("text", bug.explain());
            });
        });
    });
    json.into_text()
}
