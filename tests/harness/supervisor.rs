//! Driver processes: each speaks one language's API on behalf of a test. The protocol is in `tests/drivers/README.md`.

mod kinds;

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::boot_ns;
use crate::servers;

pub use kinds::{DriverKind, kinds};

/// The version of the protocol that this supervisor speaks.
const PROTOCOL: u64 = 1;
/// How long a driver may take to say hello: an interpreter has to start, on a machine that is busy.
const HELLO: Duration = Duration::from_secs(60);

/// What a driver answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Just before the library was entered, on the clock of [`boot_ns`].
    pub from_ns: u64,
    /// Just after it was left.
    pub to_ns: u64,
    /// The value, or the error.
    pub result: Result<Value, Failure>,
}

/// An error that a driver answered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Failure {
    /// The row of `tests/spec/errors.toml`; `Body` for the error of a scope's body; `Driver` for a defect of the test.
    pub kind: String,
    /// For people.
    pub message: String,
}

/// Something that a driver told unasked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// `lost` or `jeopardy`.
    pub event: String,
    /// The lease that it is about.
    pub lease: String,
    /// Why it was lost.
    #[serde(default)]
    pub reason: Option<String>,
    /// When the driver was told.
    pub at_ns: u64,
}

/// Why no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The process has ended.
    Ended,
    /// The limit has passed.
    Silent,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoAnswer::Ended => "the driver has ended",
            NoAnswer::Silent => "no answer in time",
        })
    }
}

#[derive(Default)]
struct State {
    answers: HashMap<u64, Answer>,
    events: Vec<Event>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A driver process. Killed when dropped, and by the kernel when the test process ends in any other way.
pub struct Driver {
    name: String,
    child: Mutex<Child>,
    pid: u32,
    input: Mutex<Option<ChildStdin>>,
    shared: Arc<Shared>,
    requests: AtomicU64,
}

impl Driver {
    /// Starts one and waits for its hello.
    ///
    /// # Panics
    /// When it does not start, speaks another version, or has another clock.
    pub fn start(kind: &DriverKind) -> Driver {
        let driver = Driver::spawn(kind);
        driver.greet();
        driver
    }

    /// Starts another library's client that speaks the same lines (`tests/peers`), and waits for its hello: its name
    /// and version. Its answers carry no instants.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_peer(kind: &DriverKind) -> Driver {
        let driver = Driver::spawn(kind);
        match driver.call("hello", &json!({}), HELLO) {
            Ok(Answer { result: Ok(Value::String(_)), .. }) => driver,
            other => panic!("{} did not say hello: {other:?}", kind.command.join(" ")),
        }
    }

    fn spawn(kind: &DriverKind) -> Driver {
        let mut command = Command::new(&kind.command[0]);
        command.args(&kind.command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = servers::spawn(command).unwrap_or_else(|error| panic!("{}: {error}", kind.command.join(" ")));
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let shared = Arc::new(Shared::default());
        let reader = shared.clone();
        let name = kind.name.clone();
        std::thread::Builder::new()
            .name(format!("reads {name}"))
            .spawn(move || read(&name, &reader, output))
            .expect("a thread can be started");
        let pid = child.id();
        let (child, input) = (Mutex::new(child), Mutex::new(input));
        Driver { name: kind.name.clone(), child, pid, input, shared, requests: AtomicU64::new(0) }
    }

    fn greet(&self) {
        let before = boot_ns();
        let (hello, stamps) = match self.call("hello", &json!({}), HELLO) {
            Ok(Answer { result: Ok(hello), from_ns, to_ns }) => (hello, from_ns..=to_ns),
            other => panic!("{} did not say hello: {other:?}", self.name),
        };
        assert_eq!(hello["protocol"], PROTOCOL, "{} speaks another version: {hello}", self.name);
        let now = hello["now_ns"].as_u64().unwrap_or_default();
        let window = before..=boot_ns();
        for instant in [now, *stamps.start(), *stamps.end()] {
            assert!(window.contains(&instant), "{} has another clock than CLOCK_BOOTTIME: {hello}", self.name);
        }
    }

    /// Which kind it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a request without waiting and returns its number. Nothing happens when the process has ended.
    pub fn send(&self, op: &str, args: &Value) -> u64 {
        let id = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = json!({"id": id, "op": op, "args": args}).to_string();
        line.push('\n');
        if let Some(input) = self.input.lock().unwrap().as_mut() {
            let _ = input.write_all(line.as_bytes());
        }
        id
    }

    /// Waits for the answer to a request. What a process said before it ended is still delivered.
    pub fn wait(&self, id: u64, limit: Duration) -> Result<Answer, NoAnswer> {
        let until = Instant::now() + limit;
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(answer) = state.answers.remove(&id) {
                return Ok(answer);
            }
            if state.ended {
                return Err(NoAnswer::Ended);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoAnswer::Silent);
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Sends a request and waits for its answer.
    pub fn call(&self, op: &str, args: &Value, limit: Duration) -> Result<Answer, NoAnswer> {
        self.wait(self.send(op, args), limit)
    }

    /// Whether a request has been answered, the answer not yet taken by [`wait`](Self::wait).
    pub fn has_answer(&self, id: u64) -> bool {
        self.shared.state.lock().unwrap().answers.contains_key(&id)
    }

    /// Everything that it told unasked so far.
    pub fn events(&self) -> Vec<Event> {
        self.shared.state.lock().unwrap().events.clone()
    }

    /// Waits until it tells, or has told, something that `wanted` likes.
    pub fn wait_event(&self, limit: Duration, wanted: impl Fn(&Event) -> bool) -> Result<Event, NoAnswer> {
        let until = Instant::now() + limit;
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(event) = state.events.iter().find(|event| wanted(event)) {
                return Ok(event.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.ended || left.is_zero() {
                return Err(if state.ended { NoAnswer::Ended } else { NoAnswer::Silent });
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Freezes the process (SIGSTOP). False when it has ended.
    pub fn stop(&self) -> bool {
        // Held, so that nobody reaps it meanwhile and its number stays its own.
        let mut child = self.child.lock().unwrap();
        let lives = matches!(child.try_wait(), Ok(None));
        if lives {
            servers::stop(self.pid);
        }
        lives
    }

    /// Lets it run on.
    pub fn cont(&self) {
        let mut child = self.child.lock().unwrap();
        if matches!(child.try_wait(), Ok(None)) {
            servers::cont(self.pid);
        }
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        // Ended by itself already: then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Closes its input, which tells it to end, and waits for that.
    pub fn end(&self, limit: Duration) -> Result<(), String> {
        *self.input.lock().unwrap() = None;
        let start = Instant::now();
        loop {
            match self.child.lock().unwrap().try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(None) if start.elapsed() < limit => {}
                other => return Err(format!("{} did not end well: {other:?}", self.name)),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(name: &str, shared: &Shared, output: impl std::io::Read) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let mut state = shared.state.lock().unwrap();
        match parse(&line) {
            Some((Some(id), answer, _)) => {
                state.answers.extend(answer.map(|answer| (id, answer)));
            }
            Some((None, _, event)) => state.events.extend(event),
            // Not the protocol: a stray print. Shown, because it is a defect of the driver.
            None => eprintln_line(name, &line),
        }
        shared.changed.notify_all();
    }
    shared.state.lock().unwrap().ended = true;
    shared.changed.notify_all();
}

#[allow(clippy::print_stderr, reason = "the output of a broken driver must be seen")]
fn eprintln_line(name: &str, line: &str) {
    eprintln!("{name} said: {line}");
}

fn parse(line: &str) -> Option<(Option<u64>, Option<Answer>, Option<Event>)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let Some(id) = value.get("id") else {
        return Some((None, None, Some(serde_json::from_value(value).ok()?)));
    };
    let result = match value.get("error") {
        Some(error) => Err(serde_json::from_value(error.clone()).ok()?),
        None => Ok(value.get("ok")?.clone()),
    };
    let stamp = |name: &str| value[name].as_u64().unwrap_or_default();
    let answer = Answer { from_ns: stamp("from_ns"), to_ns: stamp("to_ns"), result };
    Some((Some(id.as_u64()?), Some(answer), None))
}
