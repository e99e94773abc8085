//! What may happen while a lock is waited for and a command runs, in the order in which it does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use onelock::blocking::Interrupt;
use rustix::process::Pid;
use signal_hook::consts::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;

use crate::status::Status;

/// What is passed on.
const PASSED_ON: [i32; 10] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT];
/// What ends the waiting for the lock.
const ENDING: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2];

#[derive(Debug)]
pub(super) enum Event {
    /// Somebody sent us this signal.
    Signal(i32),
    /// The lock is not ours any more, and why.
    Lost(String),
    /// The guard has woken us: something has become of the command, which is told as well.
    Woken,
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command was stopped, and goes on.
    Continued,
    /// The command has ended, with this status.
    Ended(Status),
    /// Nothing is left of what it has started.
    Gone,
    /// Nobody watches over it any more: somebody has killed the guard, and the kernel the command with it.
    Unguarded,
}

/// What there is of what the command has started, after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Gone,
    Left,
    /// Something may be left, and nobody watches over it.
    Unguarded,
}

/// The line of events.
pub(super) struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    stage: Arc<Stage>,
}

/// Whether there is a command that signals are for, and the first signal that came before; and the number of the guard.
#[derive(Default)]
struct Stage(AtomicI32, AtomicI32);

/// There is a command.
const RUNNING: i32 = -1;

impl Events {
    /// From here on signals are events.
    pub(super) fn watch() -> io::Result<Events> {
        wait_for_children_ourselves();
        let (sender, receiver) = channel();
        let stage = Arc::new(Stage::default());
        let watched = PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = SignalsInfo::<WithRawSiginfo>::new(watched)?;
        let (to, watched) = (sender.clone(), stage.clone());
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let event = match signal.si_signo {
                    SIGCONT if watched.is_of_guard(&signal) => Event::Woken,
                    // for the others of our group: it has stopped us already
                    SIGTSTP if watched.is_of_guard(&signal) => continue,
                    number => Event::Signal(number),
                };
                if !watched.takes(signal.si_signo) && to.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Events { sender, receiver, stage })
    }

    pub(super) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// What ends the waiting for the lock.
    pub(super) fn cancel(&self) -> impl Interrupt + Send + Sync + 'static {
        Cancel(self.stage.clone())
    }

    /// The signal that came while there was no command.
    pub(super) fn ended_by(&self) -> Option<i32> {
        Some(self.stage.0.load(Ordering::SeqCst)).filter(|signal| *signal > 0)
    }

    /// There is a command now: signals are for it.
    pub(super) fn begin_passing_on(&self) {
        let before = self.stage.0.swap(RUNNING, Ordering::SeqCst);
        if before > 0 {
            let _ = self.sender.send(Event::Signal(before));
        }
    }

    /// There is a guard now, with this number.
    pub(super) fn guarded_by(&self, guard: Pid) {
        self.stage.1.store(guard.as_raw_nonzero().get(), Ordering::SeqCst);
    }

    /// The next event; `None` when there was none until then.
    pub(super) fn next(&self, until: Option<Instant>) -> Option<Event> {
        let Some(until) = until else { return self.receiver.recv().ok() };
        self.receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    /// What is left by then of what the command has started. `hurries`: who sends us what ends a command gives it no more time.
    /// What else happens meanwhile changes nothing any more.
    pub(super) fn rest_by(&self, until: Instant, hurries: bool) -> Rest {
        loop {
            match self.next(Some(until)) {
                Some(Event::Gone) => return Rest::Gone,
                Some(Event::Unguarded) => return Rest::Unguarded,
                Some(Event::Signal(SIGHUP | SIGINT | SIGQUIT | SIGTERM)) if hurries => return Rest::Left,
                Some(_) => {}
                None => return Rest::Left,
            }
        }
    }
}

/// Who has sent it, or a number that is no process's.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a member of it is there for signals that are sent alone")]
fn sender_of(signal: &libc::siginfo_t) -> i32 {
    // SAFETY: its place is there whatever is in it; it is read for what was sent by `kill` alone.
    if signal.si_code == libc::SI_USER { unsafe { signal.si_pid() } } else { -1 }
}

/// Here nothing tells: whoever wakes us wakes the command.
#[cfg(not(target_os = "linux"))]
fn sender_of(_: &libc::siginfo_t) -> i32 {
    -1
}

/// Whether a signal was ignored before we were started (by `nohup`, or a shell without job control for what it starts in the
/// background): it stays so, for us and for the command.
#[allow(unsafe_code, reason = "the call of the system for which the safe wrappers would be one more dependency")]
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks, and sets nothing; a place for the answer, which is numbers.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: it was written if the call says so, and zero is one of its values.
    asked == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

impl Stage {
    fn is_of_guard(&self, signal: &libc::siginfo_t) -> bool {
        self.1.load(Ordering::SeqCst) == sender_of(signal)
    }

    /// Takes a signal while there is no command that it could be for.
    fn takes(&self, signal: i32) -> bool {
        if ENDING.contains(&signal) {
            return self.0.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst) != Err(RUNNING);
        }
        let waiting = self.0.load(Ordering::SeqCst) != RUNNING;
        if waiting && signal == SIGTSTP {
            // as it would have been without us
            let _ = emulate_default_handler(signal);
        }
        waiting
    }
}

struct Cancel(Arc<Stage>);

impl Interrupt for Cancel {
    fn interrupted(&self) -> bool {
        self.0.0.load(Ordering::Acquire) > 0
    }
}

/// Where the end of a child is ignored, the kernel waits for it, and nobody learns the status. Whoever started us may have left
/// it so.
#[allow(unsafe_code, reason = "what is ignored can be changed by this call alone")]
fn wait_for_children_ourselves() {
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}
