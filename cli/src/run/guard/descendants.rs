//! What the command has started and what that has started, in its group or elsewhere, as Linux tells it in `/proc`.

use rustix::process::{Pid, Signal};

/// Sends a signal to every descendant of the guard that is not in this group. What another guard guards is left to the
/// `onelock` over it, which passes signals on: nothing is to get it twice.
#[cfg(target_os = "linux")]
pub(super) fn send_beyond(guard: Pid, group: Pid, signal: Signal) {
    use rustix::process::{getpgid, kill_process};
    // one of another PID namespace (`nsenter` without its mounts) tells the numbers of others
    let ours = rustix::process::getpid().as_raw_nonzero().to_string();
    if !std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == ours.as_str()) {
        return;
    }
    let mut parents = vec![guard];
    let mut all = Vec::new();
    while let Some(parent) = parents.pop() {
        let children = children(parent);
        parents.extend(children.iter().filter(|child| !is_guard(**child)));
        all.extend(children);
    }
    for process in all {
        if getpgid(Some(process)).is_ok_and(|its| its != group) && !is_guard(process) {
            // one that has ended meanwhile needs none, and one of another user gets none
            let _ = kill_process(process, signal);
        }
    }
}

/// Here nothing tells what has left the group.
#[cfg(not(target_os = "linux"))]
pub(super) fn send_beyond(_: Pid, _: Pid, _: Signal) {}

#[cfg(target_os = "linux")]
fn is_guard(process: Pid) -> bool {
    let name = std::fs::read(format!("/proc/{}/comm", process.as_raw_nonzero()));
    name.is_ok_and(|name| name.trim_ascii_end() == super::watch::NAME.to_bytes())
}

/// Those of every thread of a process.
#[cfg(target_os = "linux")]
fn children(parent: Pid) -> Vec<Pid> {
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
fn is_child(number: libc::pid_t) -> bool {
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let mut found = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: numbers, and a place for the answer; nobody is waited for.
    unsafe { libc::waitid(libc::P_PID, number.cast_unsigned(), found.as_mut_ptr(), how) == 0 }
}

/// Here nothing becomes a child but the command, which is killed with its group.
#[cfg(not(target_os = "linux"))]
pub(super) fn kill_children() {}
