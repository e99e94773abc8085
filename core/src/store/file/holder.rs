//! Which process holds a lock, so that others can tell whether it has ended: what stands in a file outlives a holder that was
//! killed, and another program may have locked the file since.
//!
//! A process id alone does not say it: it is used again, and means another process in another container. So a holder notes
//! with it the namespace of its process ids and when it was started. Where that is not known it counts as running.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::record::Record;

/// Where it stands among the fields behind the name of the program: state, number of threads, start.
const STATE: usize = 0;
const THREADS: usize = 17;
const STARTED: usize = 19;

/// The namespace of this process's ids, and when this process was started; `None` where the system does not tell.
pub(super) fn this_process() -> Option<String> {
    let status = Status::of("self")?;
    Some(format!("{}.{}", namespace()?, status.started))
}

fn namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// Whether the process that wrote this has certainly ended.
pub(super) fn has_ended(record: &Record<'_>) -> bool {
    let Some((space, started)) = record.process.split_once('.') else { return false };
    if namespace().map(|here| here.to_string()).as_deref() != Some(space) {
        return false;
    }
    match Status::of(&record.pid.to_string()) {
        Some(status) => status.started != started || status.has_ended,
        // of other users' processes some systems show nothing
        None => Pid::from_raw(record.pid.cast_signed()).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)),
    }
}

struct Status {
    started: String,
    has_ended: bool,
}

impl Status {
    fn of(process: &str) -> Option<Status> {
        Status::read(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    fn read(text: &str) -> Option<Status> {
        // the program's name may have anything in it
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let is_dead = matches!(*fields.get(STATE)?, "Z" | "X" | "x");
        // the first thread of a process may end before the others
        let has_ended = is_dead && matches!(*fields.get(THREADS)?, "0" | "1");
        Some(Status { started: (*fields.get(STARTED)?).to_owned(), has_ended })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::machine::Kind;

    fn record(pid: u32, process: &str) -> Record<'_> {
        Record {
            fence: 1,
            kind: Kind::Mutex,
            count: 1,
            pid,
            process,
            until_ms: 0,
            fenced: true,
            token: "t",
            info: None,
            key: "k",
        }
    }

    #[test]
    fn this_process_runs_and_an_earlier_one_with_its_number_does_not() {
        let (pid, here) = (std::process::id(), this_process().unwrap());
        assert!(!has_ended(&record(pid, &here)));
        let (space, started) = here.split_once('.').unwrap();
        assert!(has_ended(&record(pid, &format!("{space}.1"))));
        // nobody knows
        for other in [format!("1.{started}"), String::new(), "x".to_owned()] {
            assert!(!has_ended(&record(pid, &other)), "{other}");
        }
    }

    #[test]
    fn a_process_has_ended_before_somebody_asks_for_its_status() {
        let here = this_process().unwrap();
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let started = Status::of(&child.id().to_string()).unwrap().started;
        let process = format!("{}.{started}", here.split_once('.').unwrap().0);
        assert!(!has_ended(&record(child.id(), &process)));
        child.kill().unwrap();
        while !has_ended(&record(child.id(), &process)) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(&record(child.id(), &process)));
    }

    #[test]
    fn the_first_thread_may_end_before_the_process() {
        let text = |state: &str, threads: u32| {
            format!("7 (a) b (c) {state} 1 7 7 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 {threads} 0 4711 1 1 1")
        };
        for (state, threads, ended) in [("S", 1, false), ("Z", 3, false), ("Z", 1, true), ("X", 0, true)] {
            let status = Status::read(&text(state, threads)).unwrap();
            assert_eq!((status.has_ended, status.started.as_str()), (ended, "4711"), "{state} {threads}");
        }
        assert!(Status::read("7 (a)").is_none());
    }
}
