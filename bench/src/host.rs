//! The machine: what it is, what else it does, and which processor does what.

use std::process::Command;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps a process (all its threads), or the calling thread, on one processor.
///
/// # Panics
/// When the system refuses.
pub(crate) fn pin(pid: Option<u32>, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let Some(pid) = pid else {
        sched_setaffinity(None, &set).expect("a thread may choose its processor");
        return;
    };
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process has threads") {
        let name = task.expect("a process has threads").file_name();
        let tid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // a thread that has ended meanwhile needs no processor
        let _ = sched_setaffinity(tid, &set);
    }
}

/// The machine in one line.
pub(crate) fn describe() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpus} x {}, Linux {}", model.trim_start_matches(['\t', ':', ' ']), kernel.trim())
}

/// Today's date.
pub(crate) fn today() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// How many tasks have wanted to run lately: the load of the last minute.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}
