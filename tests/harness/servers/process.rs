//! Child processes that never outlive the test process, whatever ends it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, mpsc};
use std::time::Duration;

use crate::wait::wait_until;

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The thread that starts all children. The kernel kills a child when the *thread* that made it ends, so the thread of
/// a single test will not do: a server may be shared between tests.
static STARTER: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    std::thread::Builder::new()
        .name("starts servers".into())
        .spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        })
        .expect("a thread can be started");
    Mutex::new(orders)
});

/// Starts `command` as a child that the kernel kills when this process ends, also by SIGKILL.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    // SAFETY: between fork and exec only async-signal-safe functions may run; prctl and getppid are system calls.
    #[allow(unsafe_code, reason = "the kernel's parent-death signal can only be set in the child")]
    unsafe {
        let parent = libc::getpid();
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the line above; then no signal would ever come.
            if libc::getppid() != parent {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        });
    }
    let (answer, result) = mpsc::channel();
    STARTER.lock().unwrap().send((command, answer)).map_err(io::Error::other)?;
    result.recv().map_err(io::Error::other)?
}

/// Sends a signal to a process of our own.
///
/// # Panics
/// When the process is gone.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: kill takes two numbers and touches no memory of ours.
    #[allow(unsafe_code, reason = "the standard library sends SIGKILL only")]
    let result = unsafe { libc::kill(pid.cast_signed(), signal) };
    assert_eq!(result, 0, "signal {signal} to process {pid}: {}", io::Error::last_os_error());
}

/// Freezes a process with SIGSTOP and returns once it stands still.
pub fn stop(pid: u32) {
    signal(pid, libc::SIGSTOP);
    wait_until(Duration::from_secs(30), "the process to stand still", || state(pid) == Some('T'));
}

/// Lets a frozen process run on.
pub fn cont(pid: u32) {
    signal(pid, libc::SIGCONT);
}

/// The state letter of a process (`R`, `S`, `T`, `Z` ...), or `None` when there is no such process.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything, so count from its end.
    stat.rsplit_once(") ")?.1.chars().next()
}
