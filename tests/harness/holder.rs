//! A process that holds a lock, for tests that stop it, kill it, or change its time of day. See `src/bin/holder.rs` for
//! what it understands.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::face::Face;
use crate::servers::spawn;

/// A holder process. Killed when dropped.
pub struct Holder {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What a holder that looks all the time has seen. Times are nanoseconds since boot.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// When the last look began that said "held".
    pub last_held_ns: u64,
    /// When the first look began that said "not held"; 0 when none did.
    pub first_lost_ns: u64,
    /// Whether "held" was said after "not held".
    pub revived: bool,
    /// How often the loss was told.
    pub told: u64,
}

impl Holder {
    /// Starts the program with a client for `url`; nothing is connected yet.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(program: impl AsRef<Path>, face: Face, url: &str) -> Holder {
        let mut command = Command::new(program.as_ref());
        command.arg(format!("{face:?}")).arg(url);
        Holder::of(command)
    }

    /// The same by a command that ends up as the program.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn of(mut command: Command) -> Holder {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).expect("the holder can be started");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Holder { child, orders, answers }
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order without waiting for the answer.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the holder runs");
    }

    /// Waits for the next answer.
    ///
    /// # Panics
    /// When the process has ended, or says that something went wrong.
    pub fn answer(&mut self) -> String {
        let line = self.any_answer();
        assert!(!line.starts_with("error"), "{line}");
        line
    }

    /// The same, also when something went wrong.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn any_answer(&mut self) -> String {
        let mut line = String::new();
        let count = self.answers.read_line(&mut line).expect("an answer");
        assert!(count > 0, "the holder has ended: {:?}", self.child.try_wait());
        line.trim_end().to_owned()
    }

    /// Gives an order and waits for the answer.
    pub fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Acquires a lock and returns its fencing token.
    ///
    /// # Panics
    /// When it is not granted.
    pub fn acquire(&mut self, name: &str, ttl: Duration, auto_renew: bool) -> u64 {
        let answer = self.ask(&format!("acquire {name} {} {auto_renew}", ttl.as_millis()));
        answer.parse().unwrap_or_else(|_| panic!("{answer}"))
    }

    /// What it has seen since `look` was ordered.
    ///
    /// # Panics
    /// When the answer is not understood.
    pub fn looks(&mut self) -> Looks {
        let answer = self.ask("looks");
        let words: Vec<u64> = answer.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [last_held_ns, first_lost_ns, revived, told] = words[..] else { panic!("{answer}") };
        Looks { last_held_ns, first_lost_ns, revived: revived != 0, told }
    }

    /// Waits for its end and returns its exit status.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("a child can be waited for")
    }

    /// Ends it as a power cut would.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
