//! Carries a scenario out with drivers against a store, and looks afterwards that nothing was left behind.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use redis::Value as Reply;
use serde_json::{Map, Value, json};

use super::expect::{Known, compare, resolve};
use super::{Scenario, Step};
use crate::clock::boot_ns;
use crate::etcd::Etcd;
use crate::memcached::Memcached;
use crate::postgres::{Postgres, Session};
use crate::resp::text;
use crate::servers::Server;
use crate::supervisor::{Answer, Driver, DriverKind, Failure};
use crate::topology::{Cluster, Group, Mixed, Several};

/// Longer than any call of a scenario takes.
const LIMIT: Duration = Duration::from_secs(30);
/// How long what is left behind may take to go away: a lost hold stays until its time to live has passed.
const CLEAN: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(2);

/// Where the locks are kept.
pub enum Store {
    /// On a server of one's own.
    Server(Box<Server>),
    /// On the master of a group of one's own.
    Group(Box<Group>),
    /// In a cluster of one's own.
    Cluster(Box<Cluster>),
    /// On several independent servers of one's own.
    Several(Box<Several>),
    /// In the memory of the one driver process, under this name.
    Memory(String),
    /// In the files of a directory of one's own.
    Files(tempfile::TempDir),
    /// In a table of one's own.
    Postgres(PostgresTable),
    /// In a cache of one's own.
    Memcached(Box<Memcached>),
    /// In a namespace of one's own.
    Etcd(EtcdNamespace),
    /// On a majority of stores of several kinds.
    Mixed(Box<Mixed>),
}

/// A table of a server that many share, and a user with the same name.
pub struct PostgresTable {
    url: String,
    name: String,
    session: Session,
}

impl PostgresTable {
    /// The table with this number.
    pub fn new(server: &Postgres, number: usize) -> PostgresTable {
        let (session, name) = (server.session(), format!("scenario_{number}"));
        session.run(&format!("CREATE USER {name} SUPERUSER"));
        PostgresTable { url: server.url_of(&name, &format!("table={name}")), name, session }
    }

    /// Locks that are still held by somebody, and connections.
    fn leftovers(&self) -> Vec<String> {
        let held = format!(
            "SELECT encode(name, 'escape') FROM {} WHERE owner <> 'onelock1:released' AND expires_us > \
             extract(epoch FROM clock_timestamp()) * 1000000",
            self.name
        );
        // there is no table when nothing was done
        let mut left = self.session.query(&held).unwrap_or_default();
        let connections =
            format!("SELECT 'connection ' || query FROM pg_stat_activity WHERE usename = '{}'", self.name);
        left.extend(self.session.query(&connections).unwrap());
        left
    }
}

/// A namespace of a server that many share.
pub struct EtcdNamespace {
    server: &'static Etcd,
    name: String,
}

impl EtcdNamespace {
    /// The namespace with this number.
    pub fn new(server: &'static Etcd, number: usize) -> EtcdNamespace {
        EtcdNamespace { server, name: format!("scenario-{number}/") }
    }
}

impl Store {
    fn url(&self) -> String {
        match self {
            Store::Server(server) => server.url(),
            Store::Group(group) => group.url(),
            Store::Cluster(cluster) => cluster.url(),
            Store::Several(several) => several.url("quarantine_ms=0"),
            Store::Memory(name) => format!("memory://{name}"),
            Store::Files(directory) => format!("file://{}", directory.path().display()),
            Store::Postgres(table) => table.url.clone(),
            Store::Memcached(server) => server.url(),
            Store::Etcd(place) => place.server.url(&format!("/{}", place.name)),
            Store::Mixed(mixed) => mixed.url(),
        }
    }

    /// The server that keeps a key.
    fn server(&self, key: &str) -> Result<&Server, String> {
        match self {
            Store::Server(server) => Ok(server),
            Store::Group(group) => Ok(group.master()),
            Store::Cluster(cluster) => Ok(cluster.keeper(key)),
            Store::Several(several) => Ok(&several.servers[0]),
            Store::Memory(_)
            | Store::Files(_)
            | Store::Postgres(_)
            | Store::Memcached(_)
            | Store::Etcd(_)
            | Store::Mixed(_) => Err("there is no one server of Redis behind this address".to_owned()),
        }
    }

    /// Every server on which something may have been left.
    fn servers(&self) -> Vec<&Server> {
        match self {
            Store::Server(server) => vec![server],
            Store::Group(group) => vec![group.master()],
            Store::Cluster(cluster) => cluster.nodes.iter().collect(),
            Store::Several(several) => several.servers.iter().collect(),
            Store::Mixed(mixed) => mixed.servers.iter().collect(),
            Store::Memory(_) | Store::Files(_) | Store::Postgres(_) | Store::Memcached(_) | Store::Etcd(_) => {
                Vec::new()
            }
        }
    }

    /// Carries a command out where it belongs.
    fn command(&self, words: &[String]) -> Result<Reply, String> {
        let key = match words[0].as_str() {
            "EVAL" => words.get(3),
            _ => words.get(1),
        };
        match self {
            Store::Cluster(cluster) => cluster.command(words),
            Store::Group(group) => group.command(words),
            Store::Several(several) => several.command(words),
            _ => self.server(key.map_or("", String::as_str))?.try_cmd(words),
        }
    }
}

struct Pending {
    driver: usize,
    id: u64,
    sent_ns: u64,
}

struct Run<'a> {
    scenario: &'a Scenario,
    store: &'a Store,
    drivers: Vec<Driver>,
    /// In the order of their first use, with their drivers.
    clients: Vec<(String, usize)>,
    /// Which driver knows a lease.
    leases: HashMap<String, usize>,
    pending: HashMap<String, Pending>,
    marks: HashMap<String, u64>,
    known: Known,
}

/// Why a scenario failed.
pub struct Failed {
    /// Which step did not do what it must.
    pub why: String,
    /// Whether it did all that and took longer than it may, or a lease ended since its renewal came too late: on a busy machine
    /// both happen now and then.
    pub only_late: bool,
}

/// Whether an answer says that a lease has ended by its time.
fn has_expired(value: &Value) -> bool {
    [value, &value["loss"]]
        .iter()
        .any(|it| it.as_str().is_some_and(|word| ["expired", "already_expired"].contains(&word)))
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed { why, only_late: false }
    }
}

/// Runs a scenario. The clients are spread over the drivers of the cast, in the order of their first use.
///
/// # Errors
/// The first thing that was not as it must be.
pub fn run(scenario: &Scenario, cast: &[DriverKind], store: &Store) -> Result<(), Failed> {
    let mut run = Run {
        scenario,
        store,
        drivers: cast.iter().map(Driver::start).collect(),
        clients: Vec::new(),
        leases: HashMap::new(),
        pending: HashMap::new(),
        marks: HashMap::new(),
        known: HashMap::from([("url".to_owned(), json!(store.url()))]),
    };
    for (number, step) in (1..).zip(&scenario.steps) {
        let done = run.step(step);
        done.map_err(|failed| Failed { why: format!("step {number} {{ {step} }}: {}", failed.why), ..failed })?;
    }
    Ok(run.finish()?)
}

fn answered(from_ns: u64, value: Value) -> Answer {
    Answer { from_ns, to_ns: boot_ns(), result: Ok(value) }
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Failed> {
        if let Some(mark) = &step.mark {
            self.marks.insert(mark.clone(), boot_ns());
        }
        let start = Instant::now();
        loop {
            let answer = self.act(step)?;
            let Some(answer) = answer else { return Ok(()) };
            match self.judge(step, &answer) {
                Ok(()) => {
                    if let (Some(name), Ok(value)) = (&step.save, answer.result) {
                        self.known.insert(name.clone(), value);
                    }
                    return Ok(());
                }
                Err(_) if step.within.is_some_and(|within| start.elapsed() < Duration::from_millis(within)) => {
                    std::thread::sleep(LOOK);
                }
                Err(why) => return Err(why),
            }
        }
    }

    /// Carries the step out; `None` when there is no answer to judge.
    fn act(&mut self, step: &Step) -> Result<Option<Answer>, String> {
        if let Some(act) = &step.act {
            let (driver, id, lease) = self.send(act, step)?;
            return self.answer(driver, id, lease.as_deref()).map(Some);
        }
        if let Some(act) = &step.start {
            let sent_ns = boot_ns();
            let (driver, id, lease) = self.send(act, step)?;
            let lease = lease.ok_or("what is started has the name of a lease")?;
            self.pending.insert(lease, Pending { driver, id, sent_ns });
            return Ok(None);
        }
        if let Some(lease) = &step.wait {
            let pending = self.pending.remove(lease).ok_or("nothing was started under this name")?;
            let answer = self.answer(pending.driver, pending.id, Some(lease))?;
            return Ok(Some(Answer { from_ns: pending.sent_ns, ..answer }));
        }
        if let Some(lease) = &step.pending {
            let pending = self.pending.get(lease).ok_or("nothing was started under this name")?;
            let early = self.drivers[pending.driver].has_answer(pending.id);
            return if early { Err("it has been answered".to_owned()) } else { Ok(None) };
        }
        if let Some(lease) = &step.cancel {
            let pending = self.pending.get(lease).ok_or("nothing was started under this name")?;
            let id = self.drivers[pending.driver].send("cancel", &json!({"request": pending.id}));
            return self.answer(pending.driver, id, None).map(Some);
        }
        if let Some((lease, event)) =
            step.lost.as_ref().map(|it| (it, "lost")).or(step.jeopardy.as_ref().map(|it| (it, "jeopardy")))
        {
            let from_ns = boot_ns();
            let driver = &self.drivers[*self.leases.get(lease).ok_or("no such lease")?];
            let told = driver.wait_event(LIMIT, |it| it.lease == *lease && it.event == event);
            let told = told.map_err(|why| format!("{event} was not told: {why}"))?;
            return Ok(Some(Answer { from_ns, to_ns: told.at_ns, result: Ok(json!(told.reason)) }));
        }
        if let Some(lease) = &step.not_lost {
            let driver = &self.drivers[*self.leases.get(lease).ok_or("no such lease")?];
            return match driver.events().iter().find(|it| it.lease == *lease && it.event == "lost") {
                Some(event) => Err(format!("it was lost: {event:?}")),
                None => Ok(None),
            };
        }
        if let Some(ms) = step.pass_ms {
            std::thread::sleep(Duration::from_millis(ms));
            return Ok(None);
        }
        self.serve(step.server.as_ref().ok_or("the step does nothing")?).map(Some)
    }

    /// Sends what `client.operation lease` or `lease.operation` says.
    fn send(&mut self, act: &str, step: &Step) -> Result<(usize, u64, Option<String>), String> {
        let (act, lease) = act.split_once(' ').map_or((act, None), |(act, lease)| (act, Some(lease.to_owned())));
        let (subject, op) = act.split_once('.').ok_or("an action is written subject.operation")?;
        let mut args = self.arguments(step)?;
        let of_lease = ["release", "extend", "downgrade", "detach", "check", "wait_lost", "drop"].contains(&op);
        let (driver, lease) = if of_lease {
            (*self.leases.get(subject).ok_or("no such lease")?, Some(subject.to_owned()))
        } else if op == "connect" {
            let (driver, options) = self.client(subject)?;
            return Ok((driver, self.drivers[driver].send("client", &options), None));
        } else {
            let driver = self.connected(subject)?;
            args.insert("client".to_owned(), json!(subject));
            (driver, lease)
        };
        if let Some(lease) = &lease {
            self.leases.insert(lease.clone(), driver);
            args.insert("lease".to_owned(), json!(lease));
        }
        Ok((driver, self.drivers[driver].send(op, &Value::Object(args)), lease))
    }

    fn arguments(&self, step: &Step) -> Result<Map<String, Value>, String> {
        let mut args = Map::new();
        for (name, value) in &step.args {
            let value = resolve(value, &self.known)?;
            match name.as_str() {
                "lock" | "reentrant" | "fair" | "read" | "write" | "semaphore" => {
                    let kind = match name.as_str() {
                        "reentrant" => "reentrant_lock",
                        "fair" => "fair_lock",
                        "read" => "read_lock",
                        "write" => "write_lock",
                        other => other,
                    };
                    args.insert("kind".to_owned(), json!(kind));
                    args.insert("name".to_owned(), value);
                }
                _ => drop(args.insert(name.clone(), value)),
            }
        }
        Ok(args)
    }

    /// The driver that plays a client, and the options to make it with. Notes that it is there.
    fn client(&mut self, name: &str) -> Result<(usize, Value), String> {
        let known = self.clients.iter().find(|(known, _)| known == name).map(|&(_, driver)| driver);
        let driver = known.unwrap_or(self.clients.len() % self.drivers.len());
        if known.is_none() {
            self.clients.push((name.to_owned(), driver));
        }
        let mut options = json!({"client": name, "url": self.store.url()});
        if let Store::Mixed(_) = self.store {
            // its servers are fresh
            options["quarantine_ms"] = json!(0);
        }
        for (option, value) in self.scenario.clients.get(name).into_iter().flatten() {
            options[option] = resolve(value, &self.known)?;
        }
        Ok((driver, options))
    }

    fn connected(&mut self, name: &str) -> Result<usize, String> {
        if let Some(&(_, driver)) = self.clients.iter().find(|(known, _)| known == name) {
            return Ok(driver);
        }
        let (driver, options) = self.client(name)?;
        let id = self.drivers[driver].send("client", &options);
        match self.answer(driver, id, None)?.result {
            Ok(_) => Ok(driver),
            Err(failure) => Err(format!("client {name}: {}: {}", failure.kind, failure.message)),
        }
    }

    fn answer(&mut self, driver: usize, id: u64, lease: Option<&str>) -> Result<Answer, String> {
        let answer = self.drivers[driver].wait(id, LIMIT).map_err(|why| why.to_string())?;
        if let Err(Failure { kind, message }) = &answer.result
            && kind == "Driver"
        {
            return Err(message.clone());
        }
        if let (Some(lease), Ok(value)) = (lease, &answer.result)
            && value.is_object()
        {
            self.known.insert(lease.to_owned(), value.clone());
        }
        Ok(answer)
    }

    fn serve(&self, what: &toml::Value) -> Result<Answer, String> {
        // the locks of scenarios are mostly called x
        let servers = match &self.store {
            // what happens to a lock there happens to all of them
            Store::Several(several) => several.servers.iter().collect(),
            store => vec![store.server("x")?],
        };
        let from_ns = boot_ns();
        let each = |deed: fn(&Server)| servers.iter().for_each(|server| deed(server));
        match what.as_str() {
            Some("stop") => each(Server::stop),
            Some("cont") => each(Server::cont),
            Some("kill") => each(Server::kill),
            Some("restart") => each(Server::restart),
            _ => {
                let words = match resolve(what, &self.known)? {
                    Value::Array(words) => words,
                    other => return Err(format!("{other} is nothing that a server can do")),
                };
                let words: Vec<String> =
                    words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned)).collect();
                return Ok(answered(from_ns, plain(&self.store.command(&words)?)));
            }
        }
        Ok(answered(from_ns, Value::Null))
    }

    /// By how much others wait longer than a short hold lasts: leases of etcd have two seconds at least, and end late.
    fn lease_surplus_ms(&self) -> u64 {
        if matches!(self.store, Store::Etcd(_)) && self.scenario.has_short_holds() { 3000 } else { 0 }
    }

    fn judge(&self, step: &Step, answer: &Answer) -> Result<(), Failed> {
        let error = match &self.store {
            Store::Several(_) | Store::Mixed(_) => step.error_of_several.as_ref().or(step.error.as_ref()),
            _ => step.error.as_ref(),
        };
        match (error, &answer.result) {
            (Some(kind), Err(failure)) if *kind == failure.kind => {}
            (Some(kind), result) => return Err(format!("{result:?}, not {kind}").into()),
            (None, Err(failure)) => return Err(format!("{}: {}", failure.kind, failure.message).into()),
            (None, Ok(value)) => {
                if let Some(pattern) = &step.is {
                    compare(pattern, value, &self.known).map_err(|why| Failed {
                        why: format!("{why} (the answer was {value})"),
                        only_late: has_expired(value),
                    })?;
                }
            }
        }
        let from_ns = match &step.since {
            Some(mark) => *self.marks.get(mark).ok_or_else(|| format!("there is no mark {mark}"))?,
            None => answer.from_ns,
        };
        let took_ms = answer.to_ns.saturating_sub(from_ns) as f64 / 1e6;
        let most = step.at_most.map(|ms| ms + self.lease_surplus_ms());
        let (early, late) =
            (step.at_least.is_some_and(|ms| took_ms < ms as f64), most.is_some_and(|ms| took_ms > ms as f64));
        if early || late {
            return Err(Failed { why: format!("took {took_ms:.1} ms"), only_late: late });
        }
        Ok(())
    }

    /// Closes everything and looks that nothing is left.
    fn finish(mut self) -> Result<(), String> {
        for (client, driver) in std::mem::take(&mut self.clients) {
            let id = self.drivers[driver].send("close", &json!({"client": client}));
            // A client that could not be made cannot be closed, and the driver says so.
            let _ = self.drivers[driver].wait(id, LIMIT).map_err(|why| format!("close: {why}"))?;
        }
        for server in self.store.servers() {
            self.look_around(server)?;
        }
        if let Store::Files(directory) = self.store {
            nothing_locked(directory.path())?;
        }
        if let Store::Postgres(table) = self.store {
            until_nothing_is_left(|| table.leftovers())?;
        }
        if let Store::Memcached(server) = self.store {
            until_nothing_is_left(|| server.leftovers())?;
        }
        if let Store::Etcd(place) = self.store {
            until_nothing_is_left(|| place.server.keys(&place.name))?;
        }
        if let Store::Mixed(mixed) = self.store {
            mixed.tables.iter().try_for_each(|table| until_nothing_is_left(|| table.leftovers()))?;
        }
        for driver in &self.drivers {
            driver.end(Duration::from_secs(30))?;
        }
        Ok(())
    }

    fn look_around(&self, server: &Server) -> Result<(), String> {
        until_nothing_is_left(|| leftovers(server, &self.scenario.leaves).into_iter().collect())
    }
}

fn until_nothing_is_left(left: impl Fn() -> Vec<String>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let left = left();
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() > CLEAN {
            return Err(format!("at the end there is still {left:?}"));
        }
        std::thread::sleep(LOOK);
    }
}

/// No process has a file in this directory locked.
fn nothing_locked(directory: &Path) -> Result<(), String> {
    let start = Instant::now();
    let is_locked = |path: &Path| {
        let free = std::process::Command::new("flock").args(["-n", "-s"]).arg(path).arg("true").status();
        !free.expect("flock(1) is there").success()
    };
    loop {
        let files = std::fs::read_dir(directory).map_err(|error| error.to_string())?;
        let left: Vec<_> = files.flatten().map(|file| file.path()).filter(|path| is_locked(path)).collect();
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() > CLEAN {
            return Err(format!("at the end there is still {left:?}"));
        }
        std::thread::sleep(LOOK);
    }
}

/// What clients have left on a server: keys without a fencing counter's name, subscriptions, connections.
pub(crate) fn leftovers(server: &Server, allowed: &[String]) -> BTreeSet<String> {
    let keys = strings(&server.cmd(&["KEYS", "*"]));
    let channels = strings(&server.cmd(&["PUBSUB", "CHANNELS"]));
    let mut left: BTreeSet<String> =
        keys.into_iter().filter(|key| !key.starts_with("onelock_fence:") && !allowed.contains(key)).collect();
    // on this one Sentinels find each other
    let channels = channels.into_iter().filter(|channel| channel != "__sentinel__:hello");
    left.extend(channels.map(|channel| format!("subscription of {channel}")));
    let clients = server.text(&["CLIENT", "LIST"]);
    // replicas, their masters and Sentinels are at home here; a client of another library looks for a server that was at this
    // port before
    let others = [
        "user=fixture",
        "flags=S",
        "flags=M",
        "name=sentinel-",
        "cmd=client|setname",
        "cmd=replconf",
        "cmd=restore",
        "lib-name=ioredis",
        "lib-name=redis-py",
    ];
    let ours = clients.lines().filter(|line| !others.iter().any(|word| line.contains(word)));
    left.extend(ours.map(|line| format!("connection {line}")));
    left
}

fn strings(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) => items.iter().map(text).collect(),
        _ => Vec::new(),
    }
}

/// A reply in the terms of a scenario.
fn plain(reply: &Reply) -> Value {
    match reply {
        Reply::Nil => Value::Null,
        Reply::Int(number) => json!(number),
        Reply::Array(items) => items.iter().map(plain).collect(),
        other => json!(text(other)),
    }
}
