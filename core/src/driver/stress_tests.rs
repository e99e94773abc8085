//! A storm: many tasks of two clients take, enter, extend, hand over, release and walk away at random moments. Two
//! never hold at once, nobody waits for ever, and when it is over nothing is left.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::engine::Engine;
use super::lock_spec::LockSpec;
use super::metrics::Metrics;
use super::{attach, close, enter};
use crate::config::Options;
use crate::machine::{Answer, ClientTag, Failure, Jitter, Key, Kind, Op, Owner, Time};
use crate::store::memory::{CAPABILITIES, MemoryStore};
use crate::store::{Boxed, Capabilities, Facts, Interrupt, Scan, Scanned, Store, StoreStats, Subscription};
use crate::sys::{clock, lock};
use crate::{Error, Lease, inspect};

const KEYS: usize = 2;
const TASKS: u64 = 24;
const ROUNDS: u64 = 100;

/// A store in memory whose requests and answers take their time.
struct Slow(Arc<MemoryStore>, Mutex<Jitter>);

async fn dawdle(turns: u64) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

impl Store for Slow {
    fn capabilities(&self) -> &'static Capabilities {
        self.0.capabilities()
    }

    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let (store, mut dice) = (self.0.clone(), Jitter::new(lock(&self.1).next_u64()));
        Box::pin(async move {
            dawdle(dice.below(4)).await;
            let answer = store.call(op, until).await;
            dawdle(dice.below(4)).await;
            answer
        })
    }

    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        self.0.call_blocking(op, until, interrupt)
    }

    fn connection(&self) -> u64 {
        self.0.connection()
    }

    fn subscribe(&self, kind: Kind, key: &Key, client: ClientTag) -> Subscription {
        self.0.subscribe(kind, key, client)
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        self.0.facts(until)
    }

    fn scan(&self, scan: Scan, until: Time) -> Boxed<Result<Scanned, Failure>> {
        self.0.scan(scan, until)
    }

    fn stats(&self) -> StoreStats {
        self.0.stats()
    }

    fn address(&self) -> &str {
        self.0.address()
    }

    fn close(&self) {
        self.0.close();
    }
}

struct Storm {
    clients: [Arc<Engine>; 2],
    owner: Owner,
    /// Who believes to hold each mutex and each fair lock right now.
    inside: [[AtomicI64; KEYS]; 2],
    held: AtomicU64,
}

fn describe(kind: Kind, key: usize) -> LockSpec {
    LockSpec::new(&Options::default(), &CAPABILITIES, kind, format!("{}{key}", kind.as_str()).as_bytes())
}

/// The future's result, if it comes within so many turns; else it is dropped where it stands.
async fn in_turns<T>(turns: u64, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        result = future => Some(result),
        () = dawdle(turns) => None,
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("never {what}"))
}

impl Storm {
    async fn exclusive(&self, kind: Kind, dice: &mut Jitter) {
        let key = dice.below(KEYS as u64) as usize;
        let engine = &self.clients[dice.below(2) as usize];
        let what = describe(kind, key);
        let Some(lease) = self.take(engine, &what, dice).await else { return };
        let inside = &self.inside[usize::from(kind == Kind::Fair)][key];
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold {kind:?} {key}");
        tokio::task::yield_now().await;
        if dice.below(4) == 0 {
            lease.extend(Duration::from_secs(40)).await.unwrap();
        }
        assert!(lease.is_held());
        inside.fetch_sub(1, Ordering::SeqCst);
        if dice.below(8) == 0 {
            let proof = lease.detach().unwrap();
            let hold = attach::attach(engine, &what, &proof).await.unwrap();
            drop(Lease::new(engine.clone(), hold, what.name));
        } else {
            self.give(lease, dice).await;
        }
    }

    async fn reentrant(&self, dice: &mut Jitter) {
        let key = dice.below(KEYS as u64) as usize;
        let engine = &self.clients[dice.below(2) as usize];
        let mut what = describe(Kind::Reentrant, key);
        what.owner = Some(self.owner.clone());
        let mut leases = Vec::new();
        for _ in 0..=dice.below(3) {
            leases.extend(self.take(engine, &what, dice).await);
        }
        while !leases.is_empty() {
            let lease = leases.swap_remove(dice.below(leases.len() as u64) as usize);
            self.give(lease, dice).await;
        }
    }

    async fn take(&self, engine: &Arc<Engine>, what: &LockSpec, dice: &mut Jitter) -> Option<Lease> {
        let enter = |wait| async move {
            let hold = enter::enter(engine.clone(), what, wait).await?;
            Ok::<_, Error>(Lease::new(engine.clone(), hold, what.name.clone()))
        };
        let lease = match dice.below(4) {
            0 => enter(Some(Duration::ZERO)).await.ok(),
            1 => enter(Some(Duration::from_millis(dice.below(3)))).await.ok(),
            2 => in_turns(dice.below(8), enter(None)).await.and_then(Result::ok),
            _ => soon("acquired", enter(None)).await.ok(),
        };
        self.held.fetch_add(u64::from(lease.is_some()), Ordering::Relaxed);
        lease
    }

    async fn give(&self, lease: Lease, dice: &mut Jitter) {
        match dice.below(3) {
            0 => drop(lease),
            1 => drop(in_turns(dice.below(4), lease.release()).await),
            _ => drop(soon("released", lease.release()).await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_after_a_storm() {
    let clients = [1, 2].map(|seed| {
        let store = Slow(Arc::new(MemoryStore::named("storm")), Mutex::new(Jitter::new(seed)));
        Engine::start(Arc::new(Options::default()), Arc::new(store), Handle::current(), false, Metrics::default())
            .unwrap()
    });
    let owner = Owner::new();
    let storm = Arc::new(Storm { clients, owner, inside: Default::default(), held: AtomicU64::new(0) });
    let tasks: Vec<_> = (0..TASKS)
        .map(|seed| {
            let storm = storm.clone();
            tokio::spawn(async move {
                let mut dice = Jitter::new(seed);
                for _ in 0..ROUNDS {
                    match dice.below(4) {
                        0 => storm.exclusive(Kind::Mutex, &mut dice).await,
                        1 => storm.exclusive(Kind::Fair, &mut dice).await,
                        _ => storm.reentrant(&mut dice).await,
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(storm.held.load(Ordering::Relaxed) > TASKS, "it was no storm");
    for engine in &storm.clients {
        let calm = async {
            while engine.stats().held + engine.stats().cleaning > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), calm).await.unwrap_or_else(|_| panic!("{:?}", engine.stats()));
        assert_eq!((engine.stats().waiting, engine.wait_queues.len()), (0, 0));
        assert!(lock(&engine.registry).is_empty());
    }
    for key in 0..KEYS {
        for kind in [Kind::Mutex, Kind::Reentrant, Kind::Fair] {
            assert!(!inspect::is_locked(&storm.clients[0], &describe(kind, key)).await.unwrap());
        }
    }
    // nothing is under way any more, so there is nothing to wait for: a busy machine may delay some of them, but not all
    let mut fastest = Duration::MAX;
    for engine in &storm.clients {
        let begun = clock::now();
        close::close(engine, close::LossCallbacks::Run).await;
        fastest = fastest.min(clock::now().since(begun));
    }
    assert!(fastest < Duration::from_millis(900), "{fastest:?}");
}
