//! Every scenario of `tests/scenarios`, with every driver, on every server: one line for each.
//!
//! `cargo test --test scenarios -- WORDS` runs those whose line contains all the words.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "this is its own test runner")]

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use onelock_tests::etcd::Etcd;
use onelock_tests::memcached::Memcached;
use onelock_tests::postgres::Postgres;
use onelock_tests::scenario::{self, EtcdNamespace, Failed, PostgresTable, Scenario, Store};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::supervisor::{DriverKind, kinds};
use onelock_tests::topology::{Cluster, Group, Mixed, Several};

/// How many run at once. They mostly wait.
const LANES: usize = 6;

#[derive(Clone, Copy)]
enum Place {
    On(Flavor),
    InMemory,
    InFiles,
    InPostgres,
    InMemcached,
    InEtcd,
    BehindSentinels,
    InCluster,
    OnSeveral,
    OnMixture,
}

struct Case {
    name: String,
    scenario: Scenario,
    cast: Vec<DriverKind>,
    place: Place,
}

/// Every scenario alone with each driver on the main server, in memory and in files, and on the main server and in files with
/// each pair of neighbours in the list of drivers, so that every language meets another one. On the other servers, behind
/// Sentinels, in a cluster, on a mixture of stores, in memcached, in PostgreSQL and in etcd, which differ for the core and not for a
/// language, the drivers take turns; on the other servers and in PostgreSQL two at a time.
fn cases() -> Vec<Case> {
    let kinds = kinds();
    let mut casts: Vec<Vec<DriverKind>> = kinds.iter().map(|kind| vec![kind.clone()]).collect();
    casts.extend((0..kinds.len()).map(|at| vec![kinds[at].clone(), kinds[(at + 1) % kinds.len()].clone()]));
    let mut all = Vec::new();
    for (turn, scenario) in scenario::load().into_iter().enumerate() {
        for (place, place_name) in
            [(Place::BehindSentinels, "sentinel"), (Place::InCluster, "cluster"), (Place::OnSeveral, "redlock")]
        {
            if scenario.one_server || matches!(place, Place::OnSeveral) && !scenario.redlock {
                continue;
            }
            let kind = kinds[turn % kinds.len()].clone();
            let name = format!("{place_name} {} {}: {}", kind.name, scenario.group, scenario.name);
            all.push(Case { name, scenario: scenario.clone(), cast: vec![kind], place });
        }
        if scenario.runs_on_a_mixture() {
            // not the driver that plays it on several servers
            let kind = kinds[(turn + 2) % kinds.len()].clone();
            let name = format!("mixture {} {}: {}", kind.name, scenario.group, scenario.name);
            all.push(Case { name, scenario: scenario.clone(), cast: vec![kind], place: Place::OnMixture });
        }
        for kind in
            [turn, turn + 3].map(|at| &kinds[at % kinds.len()]).into_iter().filter(|_| scenario.runs_in_postgres())
        {
            let name = format!("postgres {} {}: {}", kind.name, scenario.group, scenario.name);
            all.push(Case { name, scenario: scenario.clone(), cast: vec![kind.clone()], place: Place::InPostgres });
        }
        let anywhere: Vec<_> = kinds.iter().filter(|kind| !kind.main_server_only).collect();
        let others = Flavor::ALL.into_iter().filter(|&flavor| flavor != Flavor::Valkey91);
        for (number, flavor) in others.enumerate() {
            for at in [turn + number, turn + number + 2] {
                let kind = anywhere[at % anywhere.len()].clone();
                let name = format!("{} {} {}: {}", flavor.program(), kind.name, scenario.group, scenario.name);
                all.push(Case { name, scenario: scenario.clone(), cast: vec![kind], place: Place::On(flavor) });
            }
        }
        if scenario.runs_in_memcached() {
            let kind = &kinds[(turn + 1) % kinds.len()];
            let name = format!("memcached {} {}: {}", kind.name, scenario.group, scenario.name);
            all.push(Case { name, scenario: scenario.clone(), cast: vec![kind.clone()], place: Place::InMemcached });
        }
        if scenario.runs_in_etcd() {
            let kind = &kinds[(turn + 4) % kinds.len()];
            let name = format!("etcd {} {}: {}", kind.name, scenario.group, scenario.name);
            all.push(Case { name, scenario: scenario.clone(), cast: vec![kind.clone()], place: Place::InEtcd });
        }
        for cast in &casts {
            let mixed = cast.len() > 1;
            for place in [Place::On(Flavor::Valkey91), Place::InMemory, Place::InFiles] {
                let (place_name, wanted) = match place {
                    Place::On(flavor) => (flavor.program(), true),
                    Place::BehindSentinels
                    | Place::InCluster
                    | Place::OnSeveral
                    | Place::OnMixture
                    | Place::InPostgres
                    | Place::InMemcached
                    | Place::InEtcd => {
                        unreachable!("not in this list")
                    }
                    Place::InMemory => ("memory", !mixed && scenario.runs_in_memory()),
                    Place::InFiles => ("file", scenario.runs_in_files()),
                };
                if wanted {
                    let cast_name = cast.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>().join("+");
                    let name = format!("{place_name} {cast_name} {}: {}", scenario.group, scenario.name);
                    all.push(Case { name, scenario: scenario.clone(), cast: cast.clone(), place });
                }
            }
        }
    }
    all
}

/// One for all: each scenario has a table there.
static POSTGRES: LazyLock<Postgres> = LazyLock::new(Postgres::start);
/// The same: a namespace.
static ETCD: LazyLock<Etcd> = LazyLock::new(Etcd::start);
/// Another one, for a majority of stores.
static SECOND: LazyLock<Postgres> = LazyLock::new(Postgres::start);

/// Groups and clusters take seconds until they stand: what a scenario has left as it was serves the next one, without data.
struct Standing {
    groups: Mutex<Vec<Group>>,
    clusters: Mutex<Vec<Cluster>>,
}

static STANDING: Standing = Standing { groups: Mutex::new(Vec::new()), clusters: Mutex::new(Vec::new()) };

impl Standing {
    fn group(&self) -> Group {
        let known = self.groups.lock().unwrap().pop();
        known.unwrap_or_else(|| Group::start(Flavor::Valkey91))
    }

    fn cluster(&self) -> Cluster {
        let known = self.clusters.lock().unwrap().pop();
        known.unwrap_or_else(|| Cluster::patient(Flavor::Valkey91))
    }

    /// Keeps it for the next one: nothing is left in it, not even a script.
    fn keep(&self, store: Store) {
        let empty = |server: &Server| {
            server.cmd(&["FLUSHALL"]);
            server.cmd(&["SCRIPT", "FLUSH"]);
        };
        match store {
            Store::Group(group) => {
                group.servers[1..].iter().for_each(|server| drop(server.cmd(&["SCRIPT", "FLUSH"])));
                empty(group.master());
                self.groups.lock().unwrap().push(*group);
            }
            Store::Cluster(cluster) => {
                cluster.nodes.iter().for_each(empty);
                self.clusters.lock().unwrap().push(*cluster);
            }
            _ => {}
        }
    }
}

/// How often a scenario is tried that did all it must, and took longer than it may.
const TRIES: usize = 5;

/// Runs it, and says how often it was late before it was in time: a busy machine delays some tries, what is wrong delays each.
fn run(number: usize, case: &Case) -> (usize, Result<(), String>) {
    let mut late = 0;
    loop {
        match run_once(number * TRIES + late, case) {
            Ok(()) => return (late, Ok(())),
            Err(failed) if failed.only_late && late + 1 < TRIES => late += 1,
            Err(failed) => return (late, Err(failed.why)),
        }
    }
}

fn run_once(number: usize, case: &Case) -> Result<(), Failed> {
    let store = match case.place {
        Place::On(flavor) => Store::Server(Box::new(Server::start(flavor))),
        Place::BehindSentinels => Store::Group(Box::new(STANDING.group())),
        Place::InCluster => Store::Cluster(Box::new(STANDING.cluster())),
        Place::OnSeveral => Store::Several(Box::new(Several::start(Flavor::Valkey91, 3))),
        Place::InMemory => Store::Memory(format!("scenario-{number}")),
        Place::InFiles => Store::Files(tempfile::tempdir().unwrap()),
        Place::InPostgres => Store::Postgres(PostgresTable::new(&POSTGRES, number)),
        Place::InMemcached => Store::Memcached(Box::new(Memcached::start())),
        Place::InEtcd => Store::Etcd(EtcdNamespace::new(&ETCD, number)),
        Place::OnMixture => Store::Mixed(Box::new(Mixed::start(1, &[&POSTGRES, &SECOND]))),
    };
    let done = catch_unwind(AssertUnwindSafe(|| scenario::run(&case.scenario, &case.cast, &store)));
    let done = done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned().into())
    });
    if done.is_ok() && case.scenario.is_gentle() {
        STANDING.keep(store);
    }
    done
}

fn main() -> ExitCode {
    // a part of them, for a language that has no time for all
    let every = std::env::var("ONELOCK_EVERY").map_or(Ok(NonZeroUsize::MIN), |every| every.parse());
    let Ok(every) = every else {
        println!("ONELOCK_EVERY is not a number from 1 on");
        return ExitCode::FAILURE;
    };
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let listing = std::env::args().any(|word| word == "--list");
    let (wanted, others): (Vec<_>, Vec<_>) =
        cases().into_iter().partition(|case| words.iter().all(|word| case.name.contains(word.as_str())));
    let left_out = wanted.len() - wanted.len().div_ceil(every.get());
    let wanted: Vec<_> = wanted.into_iter().step_by(every.get()).collect();
    if listing {
        for case in &wanted {
            println!("{}: test", case.name);
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", wanted.len());
    let start = Instant::now();
    let queue = Mutex::new(wanted.iter().enumerate());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some((number, case)) = next else { break };
                    let begun = Instant::now();
                    let (late, result) = run(number, case);
                    let word = if result.is_ok() { "ok" } else { "FAILED" };
                    let late = if late == 0 { String::new() } else { format!(", late {late} times before") };
                    println!("test {} ... {word} ({:.2} s{late})", case.name, begun.elapsed().as_secs_f64());
                    if let Err(why) = result {
                        failures.lock().unwrap().push((case.name.clone(), why));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    if !failures.is_empty() {
        println!("\nfailures:");
    }
    for (name, why) in &failures {
        println!("\n{name}\n    {why}");
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failures.is_empty() { "ok" } else { "FAILED" },
        wanted.len() - failures.len(),
        failures.len(),
        others.len() + left_out,
        start.elapsed().as_secs_f64()
    );
    // they are in a static, which nobody drops
    STANDING.groups.lock().unwrap().clear();
    STANDING.clusters.lock().unwrap().clear();
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
