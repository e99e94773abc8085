//! The programs in other languages, as child processes that carry out one block of cycles at a time: the C programs on
//! hiredis and on the C library, and those of Redlock in Node.js and Python.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use onelock_tests::servers::spawn;

use crate::raw::{self, Requests};

/// The running program.
pub(crate) struct Floor {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    child: Child,
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Floor {
    /// Starts it; it connects once to each of these servers, and writes every request to all of them.
    ///
    /// # Panics
    /// When it was not built (`bench/setup.sh` does that).
    pub(crate) fn start(ports: &[u16], requests: &Requests) -> Floor {
        let program = std::env::current_exe().expect("a program has a path").with_file_name("onelock-bench-hiredis");
        assert!(program.exists(), "{} is missing; `make bench` builds it", program.display());
        let mut command = Command::new(program);
        command.arg(comma_separated(ports)).arg(&requests.lock);
        command.args([&requests.fence, &requests.channel].map(|bytes| std::ffi::OsStr::from_bytes(bytes)));
        command.args([requests.ttl_ms, requests.fence_ttl_ms].map(|ms| ms.to_string()));
        command.args([&requests.acquire, &requests.release, &raw::sha(raw::DELETE)]);
        Floor::run(command)
    }

    /// Starts the same loop on the C library.
    ///
    /// # Panics
    /// When it was not built (`bench/setup.sh` does that).
    pub(crate) fn start_c(port: u16, lock: &str) -> Floor {
        let program = std::env::current_exe().expect("a program has a path").with_file_name("onelock-bench-c");
        assert!(program.exists(), "{} is missing; `make bench` builds it", program.display());
        let mut command = Command::new(program);
        command.arg(port.to_string()).arg(lock);
        Floor::run(command)
    }

    /// Starts a program that takes orders as the C programs do.
    ///
    /// # Panics
    /// When there is no such program.
    pub(crate) fn run(mut command: Command) -> Floor {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).expect("the program starts");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Floor { orders, answers, child }
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs `cycles` cycles of one kind (`scripts`, `plain`, `cycles`, or the name of a side) and tells their median; for
    /// `threads` the time of one cycle of all.
    ///
    /// # Panics
    /// When it ended; it has said why on standard error.
    pub(crate) fn block(&mut self, kind: &str, cycles: usize) -> Duration {
        writeln!(self.orders, "{kind} {cycles}").expect("the program runs");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the program answers");
        let median = line.split(' ').next().and_then(|word| word.parse().ok());
        Duration::from_nanos(median.expect("the program has said why it ended"))
    }
}

/// Ports as these programs take them.
pub(crate) fn comma_separated(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}
