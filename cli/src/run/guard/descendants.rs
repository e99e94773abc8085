//! What the command has started and what that has started, in its group or elsewhere, as Linux tells it in `/proc`.

use rustix::process::{Pid, Signal};

use super::Process;
#[cfg(target_os = "linux")]
use super::process::Found;

/// How often, at most, it is looked again for what is not stopped yet, and how long after.
#[cfg(target_os = "linux")]
const STOPPING: (u32, std::time::Duration) = (50, std::time::Duration::from_millis(1));

/// Sends a signal to every descendant of the guard that is not in this group. What another guard guards is left to the
/// `onelock` over it, which passes signals on: nothing is to get it twice.
#[cfg(target_os = "linux")]
pub(super) fn send_beyond(guard: Pid, group: Pid, signal: Signal) {
    for (found, is_guarded) in all(guard) {
        if found.group != group.as_raw_nonzero().get() && !is_guarded {
            found.process.send(signal);
        }
    }
}

/// Stops every descendant of the guard but the command and other guards: what those guard, too, since the `onelock` over it may
/// stand still. Gives, parents first, those that had not stopped before.
#[cfg(target_os = "linux")]
pub(super) fn stop_all_but(guard: Pid, command: Pid) -> Vec<Process> {
    let mut stopped = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    let (rounds, pause) = STOPPING;
    for _ in 0..rounds {
        let mut is_done = true;
        for (found, _) in all(guard) {
            if found.process.number() == command.as_raw_nonzero().get() || matches!(found.state, b'T' | b't') {
                continue;
            }
            found.process.send(Signal::STOP);
            if known.insert(found.process) {
                stopped.push(found.process);
            }
            // until it has stopped it may start another
            is_done &= matches!(found.state, b'Z' | b'X');
        }
        if is_done {
            break;
        }
        std::thread::sleep(pause);
    }
    stopped
}

/// Every descendant of the guard, parents first, and whether it is guarded by another one. Other guards are left out.
#[cfg(target_os = "linux")]
fn all(guard: Pid) -> Vec<(Found, bool)> {
    // one of another PID namespace (`nsenter` without its mounts) tells the numbers of others
    let ours = rustix::process::getpid().as_raw_nonzero().to_string();
    if !std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == ours.as_str()) {
        return Vec::new();
    }
    let mut numbers = std::collections::BTreeSet::from([guard.as_raw_nonzero().get()]);
    let mut parents = std::collections::VecDeque::from([(guard, None, false)]);
    let mut all = Vec::new();
    while let Some((parent, held, is_guarded)) = parents.pop_front() {
        let children = children(parent);
        // else they may be those of another process with its number
        if held.is_some_and(|held: Process| !held.is_there()) {
            continue;
        }
        for child in children {
            // it may be another one by now: one of ours has a parent among us
            let Some(found) = Found::of(child).filter(|found| numbers.contains(&found.parent)) else { continue };
            if numbers.insert(child.as_raw_nonzero().get()) {
                parents.push_back((child, Some(found.process), is_guarded || found.is_guard));
                if !found.is_guard {
                    all.push((found, is_guarded));
                }
            }
        }
    }
    all
}

/// Here nothing tells what has left the group.
#[cfg(not(target_os = "linux"))]
pub(super) fn send_beyond(_: Pid, _: Pid, _: Signal) {}

/// Here nothing tells what there is beside the command.
#[cfg(not(target_os = "linux"))]
pub(super) fn stop_all_but(_: Pid, _: Pid) -> Vec<Process> {
    Vec::new()
}

/// Those of every thread of a process.
#[cfg(target_os = "linux")]
pub(super) fn children(parent: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()));
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).ok();
    let texts: Vec<String> = threads.into_iter().flatten().flatten().filter_map(of_thread).collect();
    texts.iter().flat_map(|text| text.split_whitespace()).filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

/// Kills every child of this very process, which has one thread. What a child leaves behind becomes a child in its place.
#[cfg(target_os = "linux")]
pub(super) fn kill_children() {
    // SAFETY: system calls on a descriptor of ours, a constant text, and room for as many bytes as are named. A child that has
    // ended keeps its number until this very process waits for it, so nobody else is killed.
    unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list < 0 {
            return;
        }
        let mut bytes = [0_u8; 1024];
        let mut number: libc::pid_t = 0;
        while let count @ 1.. = libc::read(list, bytes.as_mut_ptr().cast(), bytes.len()) {
            for byte in bytes.iter().take(count.cast_unsigned()) {
                if byte.is_ascii_digit() {
                    number = number.saturating_mul(10).saturating_add(libc::pid_t::from(byte - b'0'));
                } else if number > 0 {
                    if is_child(number) {
                        libc::kill(number, libc::SIGKILL);
                    }
                    number = 0;
                }
            }
        }
        libc::close(list);
    }
}

/// Whether this is the number of a child of ours: a `/proc` of another PID namespace tells others.
#[cfg(target_os = "linux")]
pub(super) fn is_child(number: libc::pid_t) -> bool {
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let mut found = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: numbers, and a place for the answer; nobody is waited for.
    unsafe { libc::waitid(libc::P_PID, number.cast_unsigned(), found.as_mut_ptr(), how) == 0 }
}

/// Here nothing becomes a child but the command, which is killed with its group.
#[cfg(not(target_os = "linux"))]
pub(super) fn kill_children() {}
