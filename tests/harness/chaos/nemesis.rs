//! Breaks one thing after another, and puts everything right at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::dice::Dice;
use super::ground::{Ground, Place};
use super::{Plan, Shared, TTL};
use crate::clock::boot_ns;
use crate::history::Record;
use crate::proxy::Proxy;
use crate::servers::Server;
use crate::supervisor::Driver;

type Fault = fn(&mut Nemesis<'_>) -> String;

/// Faults of the workers, each so many times in the urn. They lose nothing, and play everywhere.
const WORKERS_FAULTS: [Fault; 7] = [
    kill_worker,
    kill_worker,
    stop_worker_past_its_lease,
    stop_worker_past_its_lease,
    stop_worker_shortly,
    kill_connections,
    forget_scripts,
];
/// Faults of one server and its network that keep what it has acknowledged.
const KEEPING: [Fault; 7] =
    [restart_server, stop_server, pause_clients, cut_network, black_hole, lose_replies, refuse_connections];
/// Faults that lose data.
const LOSING: [Fault; 6] = [flush, flush, delete_lock, delete_counter, restart_server, delete_lock];
/// Faults of a group. A failover by votes may lose what no replica has heard.
const KEEPING_GROUP: [Fault; 4] = [fail_over, fail_over, pause_clients, stop_server_shortly];
const LOSING_GROUP: [Fault; 3] = [kill_master, kill_master, flush];
/// Faults of a cluster.
const KEEPING_CLUSTER: [Fault; 6] = [move_slots, move_slots, move_slots, fail_over, pause_clients, stop_server_shortly];
const LOSING_CLUSTER: [Fault; 2] = [kill_master, delete_lock];
/// Faults of one of several independent servers. A killed one comes back empty, and its quarantine has to see to it that
/// nothing is lost by that; so there is nothing that a run with loss of data could add.
const SEVERAL: [Fault; 9] = [
    restart_server,
    restart_server,
    stop_server,
    stop_server,
    pause_clients,
    cut_network,
    black_hole,
    lose_replies,
    refuse_connections,
];

fn faults(plan: &Plan) -> Vec<Fault> {
    if plan.believes_for_ever {
        return vec![stop_worker_past_its_lease];
    }
    let (keeping, losing): (&[Fault], &[Fault]) = match plan.place {
        Place::Single => (&KEEPING, &LOSING),
        Place::Sentinel => (&KEEPING_GROUP, &LOSING_GROUP),
        Place::Cluster => (&KEEPING_CLUSTER, &LOSING_CLUSTER),
        Place::Redlock => (&SEVERAL, &[]),
    };
    [WORKERS_FAULTS.as_slice(), keeping, if plan.loses_data { losing } else { &[] }].concat()
}

struct Nemesis<'a> {
    shared: &'a Shared,
    dice: Dice,
    pauses: Vec<Record>,
}

/// Works until the plan's time is over. Returns the pauses of processes, for the history, and what was done.
pub(super) fn run(shared: &Shared) -> (Vec<Record>, Vec<String>) {
    let mut nemesis = Nemesis { shared, dice: Dice::new(shared.plan.seed, 0), pauses: Vec::new() };
    let urn = faults(&shared.plan);
    let (start, mut done) = (Instant::now(), Vec::new());
    let mut left: Vec<Fault> = Vec::new();
    std::thread::sleep(Duration::from_millis(300));
    while start.elapsed() < shared.plan.faults {
        // Without putting back, so that each kind has its turn.
        if left.is_empty() {
            left.clone_from(&urn);
        }
        let at = nemesis.dice.pick(0..left.len() as u64) as usize;
        let fault = left.swap_remove(at);
        let begun = start.elapsed();
        let what = fault(&mut nemesis);
        done.push(format!("{:6.2} s: {what}", begun.as_secs_f64()));
        std::thread::sleep(nemesis.dice.ms(100..500));
    }
    shared.ground.heal();
    (nemesis.pauses, done)
}

impl Nemesis<'_> {
    /// A holder if one can be found, since that is where it hurts.
    fn victim(&mut self) -> (usize, Option<Arc<Driver>>) {
        let first = self.dice.pick(0..self.shared.slots.len() as u64) as usize;
        let start = Instant::now();
        let mut number = first;
        while start.elapsed() < Duration::from_millis(300) && !self.shared.holding[number].load(Ordering::Acquire) {
            number = (number + 1) % self.shared.slots.len();
            std::thread::sleep(Duration::from_micros(200));
        }
        (number, self.shared.slots[number].lock().unwrap().clone())
    }

    fn stop_worker(&mut self, span: Duration) -> String {
        let (number, driver) = self.victim();
        let Some(driver) = driver else { return "nothing: the victim is just being born".to_owned() };
        let process = self.shared.names[number].lock().unwrap().clone();
        let from_ns = boot_ns();
        if !driver.stop() {
            return format!("nothing: {process} is dead already");
        }
        std::thread::sleep(span);
        driver.cont();
        self.pauses.push(Record::Paused { process: process.clone(), from_ns, to_ns: boot_ns() });
        format!("{process} stopped for {span:?}")
    }

    fn for_a_while(&mut self, what: &str, begin: impl FnOnce(), end: impl FnOnce()) -> String {
        let span = self.dice.ms(100..1000);
        begin();
        std::thread::sleep(span);
        end();
        format!("{what} for {span:?}")
    }
}

impl<'a> Nemesis<'a> {
    /// The server that keeps one of the locks, or one of those that keep both.
    fn server(&mut self) -> &'a Server {
        let (name, _) = *self.dice.one_of(self.shared.plan.locks());
        match &self.shared.ground {
            Ground::Several(several) => self.dice.one_of(&several.servers),
            ground => ground.keeper(name),
        }
    }

    fn proxy(&mut self) -> &'a Proxy {
        match &self.shared.ground {
            Ground::Single { proxy, .. } => proxy,
            Ground::Several(several) => self.dice.one_of(&several.proxies),
            _ => panic!("there is no proxy here"),
        }
    }
}

fn kill_worker(nemesis: &mut Nemesis<'_>) -> String {
    let (number, driver) = nemesis.victim();
    if let Some(driver) = driver {
        driver.kill();
    }
    format!("worker {number} killed")
}

fn stop_worker_past_its_lease(nemesis: &mut Nemesis<'_>) -> String {
    let span = TTL + nemesis.dice.ms(200..1200);
    nemesis.stop_worker(span)
}

fn stop_worker_shortly(nemesis: &mut Nemesis<'_>) -> String {
    let span = nemesis.dice.ms(50..600);
    nemesis.stop_worker(span)
}

fn restart_server(nemesis: &mut Nemesis<'_>) -> String {
    let server = nemesis.server();
    nemesis.for_a_while("server killed", || server.kill(), || server.restart())
}

fn stop_server(nemesis: &mut Nemesis<'_>) -> String {
    let server = nemesis.server();
    nemesis.for_a_while("server stopped", || server.stop(), || server.cont())
}

fn kill_connections(nemesis: &mut Nemesis<'_>) -> String {
    let kind = *nemesis.dice.one_of(&["normal", "pubsub"]);
    let killed = nemesis.server().text(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    format!("{killed} connections killed: {kind}")
}

fn pause_clients(nemesis: &mut Nemesis<'_>) -> String {
    let span = nemesis.dice.ms(100..1000);
    let kind = *nemesis.dice.one_of(&["WRITE", "ALL"]);
    nemesis.server().cmd(&["CLIENT", "PAUSE", &span.as_millis().to_string(), kind]);
    std::thread::sleep(span);
    format!("clients paused for {span:?}: {kind}")
}

fn cut_network(nemesis: &mut Nemesis<'_>) -> String {
    nemesis.proxy().cut_all();
    "all connections cut".to_owned()
}

fn black_hole(nemesis: &mut Nemesis<'_>) -> String {
    let proxy = nemesis.proxy();
    nemesis.for_a_while("black hole", || proxy.pause(), || proxy.resume())
}

fn lose_replies(nemesis: &mut Nemesis<'_>) -> String {
    let proxy = nemesis.proxy();
    nemesis.for_a_while(
        "replies held, then lost",
        || proxy.pause_replies(),
        || {
            proxy.cut_all();
            proxy.resume();
        },
    )
}

fn refuse_connections(nemesis: &mut Nemesis<'_>) -> String {
    let proxy = nemesis.proxy();
    let begin = || {
        proxy.refuse();
        proxy.cut_all();
    };
    nemesis.for_a_while("connections cut and refused", begin, || proxy.admit())
}

fn forget_scripts(nemesis: &mut Nemesis<'_>) -> String {
    nemesis.server().cmd(&["SCRIPT", "FLUSH"]);
    "scripts forgotten".to_owned()
}

fn flush(nemesis: &mut Nemesis<'_>) -> String {
    nemesis.server().cmd(&["FLUSHALL"]);
    "flushed".to_owned()
}

fn delete_lock(nemesis: &mut Nemesis<'_>) -> String {
    let (name, _) = *nemesis.dice.one_of(nemesis.shared.plan.locks());
    format!("{name} deleted: {}", nemesis.shared.ground.keeper(name).text(&["DEL", name]))
}

fn delete_counter(nemesis: &mut Nemesis<'_>) -> String {
    let (name, _) = *nemesis.dice.one_of(nemesis.shared.plan.locks());
    let key = format!("onelock_fence:{{{name}}}");
    format!("{key} deleted: {}", nemesis.shared.ground.keeper(name).text(&["DEL", &key]))
}

/// Too short for anybody to take its place.
fn stop_server_shortly(nemesis: &mut Nemesis<'_>) -> String {
    let server = nemesis.server();
    server.stop();
    std::thread::sleep(Duration::from_millis(200));
    server.cont();
    "a master stopped for 200 ms".to_owned()
}

/// In good order: the replica has everything before it takes over.
fn fail_over(nemesis: &mut Nemesis<'_>) -> String {
    match &nemesis.shared.ground {
        Ground::Single { .. } | Ground::Several(_) => panic!("there is nobody else"),
        Ground::Group(group) => {
            group.wait_calm();
            group.fail_over();
            "handed over to a replica".to_owned()
        }
        Ground::Cluster(cluster) => {
            cluster.wait_agreed();
            let (name, _) = *nemesis.dice.one_of(nemesis.shared.plan.locks());
            let slot = cluster.slot(name);
            let (from, to) = cluster.hand_over(slot);
            format!("node {from} handed over to its replica {to}")
        }
    }
}

/// What it has acknowledged and its replicas have not heard is lost.
fn kill_master(nemesis: &mut Nemesis<'_>) -> String {
    let server = nemesis.server();
    match &nemesis.shared.ground {
        Ground::Single { .. } | Ground::Several(_) => panic!("there is nobody else"),
        Ground::Group(group) => group.wait_calm(),
        Ground::Cluster(cluster) => cluster.wait_agreed(),
    }
    server.kill();
    std::thread::sleep(nemesis.dice.ms(2000..4000));
    server.restart();
    "a master killed, its replica takes over".to_owned()
}

fn move_slots(nemesis: &mut Nemesis<'_>) -> String {
    let Ground::Cluster(cluster) = &nemesis.shared.ground else { panic!("there are no slots here") };
    cluster.wait_agreed();
    let (name, _) = *nemesis.dice.one_of(nemesis.shared.plan.locks());
    let slot = cluster.slot(name);
    let from = cluster.owner(slot);
    let others: Vec<usize> = (0..cluster.nodes.len()).filter(|at| *at != from && cluster.is_master(*at)).collect();
    let to = *nemesis.dice.one_of(&others);
    cluster.begin_move(slot, from, to);
    std::thread::sleep(nemesis.dice.ms(0..400));
    let keys = cluster.move_keys(slot, from, to);
    std::thread::sleep(nemesis.dice.ms(0..100));
    let more = cluster.move_keys(slot, from, to);
    cluster.end_move(slot, to);
    format!("{keys} and {more} keys of slot {slot} moved from node {from} to {to}")
}
