//! One worker: a thread here and a driver process, which is replaced when the nemesis has killed it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::dice::Dice;
use super::resource::Verdict;
use super::{Shared, TTL};
use crate::clock::boot_ns;
use crate::history::{Call, Record, Return, Sample};
use crate::supervisor::{Answer, Driver, DriverKind, NoAnswer};

/// Longer than any call takes, also in a process that is stopped for a while.
const LIMIT: Duration = Duration::from_secs(30);
/// The limits of a client by default, which the workers do not change.
const CONNECT: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(1);
/// How much of its lease a holder must have left to touch the unguarded counter from another process.
const MARGIN_NS: u64 = 200_000_000;
/// Two readings of one deadline differ by what passes between a look at the clock and a look at the lease.
const BLUR_NS: u64 = 50_000_000;
/// How a call may end under faults.
const EXPECTED: [&str; 8] = ["ok", "Busy", "Timeout", "Cancelled", "Unavailable", "NoQuorum", "ServerRefused", "Lost"];

/// What became of a worker.
pub(super) struct Worker {
    pub(super) records: Vec<Record>,
    pub(super) problems: Vec<String>,
    pub(super) recovered_in: Duration,
}

/// The process has ended in the middle of it.
struct Died;

struct Life<'a> {
    shared: &'a Shared,
    driver: Arc<Driver>,
    number: usize,
    process: String,
    dice: &'a mut Dice,
    records: Vec<Record>,
    problems: Vec<String>,
    calls: u64,
    leases: u64,
}

/// A lease that a worker has.
struct Held {
    number: u64,
    token: u64,
    lock: (&'static str, &'static str),
    valid_until_ns: u64,
}

/// Works until the run is calm, then takes every lock once more.
pub(super) fn run(shared: &Shared, number: usize, kind: &DriverKind) -> Worker {
    let mut dice = Dice::new(shared.plan.seed, number as u64 + 1);
    let mut worker = Worker { records: Vec::new(), problems: Vec::new(), recovered_in: Duration::ZERO };
    for birth in 1.. {
        let driver = Arc::new(Driver::start(kind));
        let process = format!("{}-{number}.{birth}", kind.name);
        shared.names[number].lock().unwrap().clone_from(&process);
        *shared.slots[number].lock().unwrap() = Some(driver.clone());
        let mut life = Life {
            shared,
            driver,
            number,
            process,
            dice: &mut dice,
            records: Vec::new(),
            problems: Vec::new(),
            calls: 0,
            leases: 0,
        };
        let end = life.live();
        *shared.slots[number].lock().unwrap() = None;
        life.holds(false);
        life.tell_losses();
        worker.records.append(&mut life.records);
        worker.problems.append(&mut life.problems);
        if let Ok(recovered_in) = end {
            worker.recovered_in = recovered_in;
            break;
        }
    }
    worker
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Life<'_> {
    fn live(&mut self) -> Result<Duration, Died> {
        self.connect()?;
        while !self.shared.is_calm() {
            let lock = *self.dice.one_of(self.shared.plan.locks());
            if let Some(held) = self.take(lock)? {
                self.holds(true);
                self.work(held)?;
                self.holds(false);
            }
            std::thread::sleep(self.dice.ms(0..30));
        }
        for lock in self.shared.plan.locks().iter().copied() {
            let limit = RECOVER_WAIT;
            if let Some(held) = self.acquire(lock, "acquire", Some(limit), None, None)? {
                self.release(&held)?;
            } else {
                self.problems.push(format!("{} did not get {} in the end", self.process, lock.0));
            }
        }
        let recovered_in = boot_ns() - self.shared.calm_since_ns.load(Ordering::Acquire);
        self.ask("close", &json!({"client": "c"}))?;
        self.tell_losses();
        self.records.push(Record::End { process: self.process.clone(), at_ns: boot_ns() });
        self.driver.end(Duration::from_secs(5)).unwrap_or_else(|why| self.problems.push(why));
        Ok(Duration::from_nanos(recovered_in))
    }

    fn holds(&self, something: bool) {
        self.shared.holding[self.number].store(something, Ordering::Release);
    }

    /// The server may be away at this moment.
    fn connect(&mut self) -> Result<(), Died> {
        let args = json!({"client": "c", "url": self.shared.ground.url(), "ttl_ms": TTL.as_millis() as u64});
        let patience = Instant::now() + Duration::from_secs(10);
        while Instant::now() < patience {
            if self.ask("client", &args)?.result.is_ok() {
                return Ok(());
            }
            // a refusal comes at once: not again before the server can have come back
            std::thread::sleep(Duration::from_millis(20));
        }
        self.problems.push(format!("{} could not connect", self.process));
        Err(Died)
    }

    fn ask(&self, op: &str, args: &Value) -> Result<Answer, Died> {
        self.answer(op, self.driver.send(op, args))
    }

    fn answer(&self, op: &str, id: u64) -> Result<Answer, Died> {
        match self.driver.wait(id, LIMIT) {
            Ok(answer) => Ok(answer),
            Err(NoAnswer::Ended) => Err(Died),
            Err(NoAnswer::Silent) => panic!("{}: {op} did not return within {LIMIT:?}", self.process),
        }
    }

    /// One way or another of getting the lock, some of which don't.
    fn take(&mut self, lock: (&'static str, &'static str)) -> Result<Option<Held>, Died> {
        match self.dice.pick(0..100) {
            0..15 => self.acquire(lock, "try_acquire", Some(Duration::ZERO), None, None),
            15..30 => {
                let after = self.dice.ms(0..400);
                self.acquire(lock, "acquire", None, Some(after), None)
            }
            30..60 => {
                let wait = self.dice.ms(1..500);
                self.acquire(lock, "acquire", Some(wait), None, None)
            }
            _ => self.acquire(lock, "acquire", Some(Duration::from_secs(4)), None, None),
        }
    }

    fn acquire(
        &mut self,
        lock: (&'static str, &'static str),
        op: &str,
        wait: Option<Duration>,
        cancel_after: Option<Duration>,
        within: Option<u64>,
    ) -> Result<Option<Held>, Died> {
        self.leases += 1;
        let number = self.leases;
        let mut args = json!({"client": "c", "name": lock.0, "kind": lock.1, "lease": number.to_string()});
        if lock.1 == "reentrant_lock" {
            args["owner"] = json!(self.process);
        }
        if let Some(wait) = wait.filter(|_| op == "acquire") {
            args["wait_ms"] = json!(wait.as_millis() as u64);
        }
        let limit =
            cancel_after.map(|after| after + Duration::from_secs(1)).or(wait.map(|wait| wait + CONNECT + 2 * REQUEST));
        let call = self.begin(op, lock.0, None, limit);
        let id = self.driver.send(op, &args);
        if let Some(after) = cancel_after {
            std::thread::sleep(after);
            self.ask("cancel", &json!({"request": id}))?;
        }
        let answer = self.answer(op, id)?;
        let mut end = self.end(call, &answer);
        let view = answer.result.ok().filter(|view| !view.is_null());
        let held = view.map(|view| {
            let (token, valid_until_ns) = (view["token"].as_u64().unwrap_or_default(), valid_until(&view));
            (end.lease, end.token, end.valid_until_ns) =
                (Some(number), Some(token), valid_until_ns.or(Some(answer.to_ns)));
            end.within = within;
            Held { number, token, lock, valid_until_ns: end.valid_until_ns.unwrap_or_default() }
        });
        if held.is_none() && end.outcome == "ok" {
            "Busy".clone_into(&mut end.outcome);
        }
        self.records.push(Record::Return(end));
        Ok(held)
    }

    /// Uses what the lock protects, looking at the lease all the time, and releases it.
    fn work(&mut self, mut held: Held) -> Result<(), Died> {
        let nested = if held.lock.1 == "reentrant_lock" && self.dice.chance(50) {
            let wait = Some(Duration::from_secs(1));
            self.acquire(held.lock, "acquire", wait, None, Some(held.number))?
        } else {
            None
        };
        let long = self.dice.chance(if self.shared.plan.believes_for_ever { 60 } else { 5 });
        let (looks, rest) = if long { (9, 100..250) } else { (self.dice.pick(1..4), 0..25) };
        for _ in 0..looks {
            self.touch(&mut held)?;
            if self.shared.is_calm() {
                break;
            }
            std::thread::sleep(self.dice.ms(rest.clone()));
        }
        if self.dice.chance(10) {
            self.extend(&mut held)?;
        }
        if let Some(nested) = nested {
            self.release(&nested)?;
        }
        self.release(&held)
    }

    fn look(&mut self, held: &mut Held) -> Result<bool, Died> {
        let view = match self.ask("check", &json!({"lease": held.number.to_string()}))?.result {
            Ok(view) => view,
            Err(failure) => panic!("{}: {}", self.process, failure.message),
        };
        let mut is_held = view["held"] == true;
        let at_ns = view["at_ns"].as_u64().unwrap_or_default();
        let mut valid_until_ns = valid_until(&view).map(|until| sharpen(held.valid_until_ns, until));
        if self.shared.plan.believes_for_ever && !is_held {
            (is_held, valid_until_ns) = (true, Some(at_ns + nanos(TTL)));
        }
        held.valid_until_ns = held.valid_until_ns.max(valid_until_ns.unwrap_or_default());
        let process = self.process.clone();
        self.records.push(Record::Sample(Sample { process, lease: held.number, at_ns, held: is_held, valid_until_ns }));
        Ok(is_held)
    }

    fn touch(&mut self, held: &mut Held) -> Result<(), Died> {
        let name = held.lock.0;
        let is_held = self.look(held)?;
        let before_ns = boot_ns();
        let verdict = self.shared.resource.write(name, held.token);
        // A late write may be let through or refused. One by a holder must be let through: nobody has come after it.
        if let Verdict::Refused { highest } = verdict
            && is_held
            && before_ns < held.valid_until_ns
            && !self.shared.plan.loses_data
        {
            let text = format!("{} held {name} with token {} when {highest} had been seen", self.process, held.token);
            self.problems.push(text);
        }
        if is_held && before_ns + MARGIN_NS < held.valid_until_ns {
            let read = self.shared.resource.read_counter(name);
            if self.look(held)? && boot_ns() + MARGIN_NS < held.valid_until_ns {
                self.shared.resource.increment(name, read);
            }
        }
        Ok(())
    }

    fn extend(&mut self, held: &mut Held) -> Result<(), Died> {
        let call = self.begin("extend", held.lock.0, Some(held.number), Some(CONNECT + 2 * REQUEST));
        let ttl_ms = self.dice.pick(900..1500);
        let answer = self.ask("extend", &json!({"lease": held.number.to_string(), "ttl_ms": ttl_ms}))?;
        let mut end = self.end(call, &answer);
        let until = answer.result.ok().and_then(|view| valid_until(&view));
        end.valid_until_ns = until.map(|until| sharpen(held.valid_until_ns, until));
        held.valid_until_ns = held.valid_until_ns.max(end.valid_until_ns.unwrap_or_default());
        self.records.push(Record::Return(end));
        Ok(())
    }

    fn release(&mut self, held: &Held) -> Result<(), Died> {
        // An inner release and its hold can have to wait for each other.
        let limit = if held.lock.1 == "lock" { REQUEST } else { 2 * REQUEST };
        let call = self.begin("release", held.lock.0, Some(held.number), Some(limit));
        let answer = self.ask("release", &json!({"lease": held.number.to_string()}))?;
        let mut end = self.end(call, &answer);
        match &answer.result {
            Ok(Value::String(outcome)) if outcome != "already_released" => end.outcome.clone_from(outcome),
            other => self.problems.push(format!("{}: a release answered {other:?}", self.process)),
        }
        self.records.push(Record::Return(end));
        self.ask("drop", &json!({"lease": held.number.to_string()}))?;
        Ok(())
    }

    /// Writes the beginning of a call. Its instant is put right by the answer.
    fn begin(&mut self, op: &str, lock: &str, lease: Option<u64>, limit: Option<Duration>) -> usize {
        self.calls += 1;
        self.records.push(Record::Call(Call {
            process: self.process.clone(),
            call: self.calls,
            op: op.to_owned(),
            lock: lock.to_owned(),
            lease,
            at_ns: boot_ns(),
            limit_ns: limit.map(nanos),
        }));
        self.records.len() - 1
    }

    fn end(&mut self, call: usize, answer: &Answer) -> Return {
        let Record::Call(call) = &mut self.records[call] else { unreachable!("begin writes a call") };
        call.at_ns = answer.from_ns;
        let outcome = answer.result.as_ref().map_or_else(|failure| failure.kind.clone(), |_| "ok".to_owned());
        if !EXPECTED.contains(&outcome.as_str()) {
            self.problems.push(format!("{}: {} ended with {:?}", self.process, call.op, answer.result));
        }
        Return { process: self.process.clone(), call: call.call, at_ns: answer.to_ns, outcome, ..Return::default() }
    }

    /// Adds the loss events. Those of leases that were never handed over concern nobody.
    fn tell_losses(&mut self) {
        let known: BTreeSet<u64> = self
            .records
            .iter()
            .filter_map(|record| if let Record::Return(end) = record { end.lease } else { None })
            .collect();
        let told: BTreeSet<u64> = self
            .records
            .iter()
            .filter_map(|record| if let Record::Lost { lease, .. } = record { Some(*lease) } else { None })
            .collect();
        for event in self.driver.events().into_iter().filter(|event| event.event == "lost") {
            let lease = event.lease.parse().expect("leases have numbers here");
            if event.reason.as_deref() == Some("clock_anomaly") {
                self.problems.push(format!("{} saw the clock jump, which it did not", self.process));
            }
            if known.contains(&lease) && !told.contains(&lease) {
                self.records.push(Record::Lost { process: self.process.clone(), lease, at_ns: event.at_ns });
            }
        }
    }
}

/// How long a worker waits for its locks in the end: longer than it may take.
const RECOVER_WAIT: Duration = Duration::from_secs(10);

/// Until when a view says that the lease may be believed.
fn valid_until(view: &Value) -> Option<u64> {
    let left_ms = view["remaining_ms"].as_f64()?;
    let at_ns = view["at_ns"].as_u64()?;
    (left_ms > 0.0).then(|| at_ns + (left_ms * 1e6) as u64)
}

/// A reading that is a little below what is known already is the same deadline, seen through blurred glasses.
const fn sharpen(known_ns: u64, read_ns: u64) -> u64 {
    if read_ns < known_ns && read_ns + BLUR_NS > known_ns { known_ns } else { read_ns }
}
