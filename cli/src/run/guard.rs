//! A small process beside the command: if `onelock` is killed, by whatever signal, it kills the process group of the command.
//!
//! The kernel alone (`PR_SET_PDEATHSIG`) ends one process, and what that one has started would go on without the lock. The
//! guard holds the reading end of a pipe and nothing else: no descriptor of the user's, no terminal, no folder; signals do
//! not reach it. The end of the pipe without a farewell means that `onelock` is gone.

#![allow(unsafe_code, reason = "a process that runs no other program is made by `fork` alone")]

use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What is written instead of a group's number at the end.
const FAREWELL: libc::pid_t = 0;
/// How long a message is; so short a one is written whole.
const LENGTH: usize = size_of::<libc::pid_t>();
/// Another name than ours: `killall onelock` ends us, and the guard is to outlive us. In `ps` it has our arguments.
#[cfg(target_os = "linux")]
const NAME: &std::ffi::CStr = c"lock-guard";

pub(super) struct Guard {
    id: libc::pid_t,
    pipe: Option<PipeWriter>,
}

impl Guard {
    pub(super) fn start() -> io::Result<Guard> {
        // no other program inherits either end
        let (reader, writer) = io::pipe()?;
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: two sets of our own, the first filled before it is read. In the child only `watch` runs, which does not
        // return, and makes system calls alone. Our handlers do not run there: everything is blocked before.
        let id = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let id = libc::fork();
            if id == 0 {
                watch(reader.as_raw_fd());
            }
            // of another call the error would be lost
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
            if id < 0 { Err(error) } else { Ok(id) }
        }?;
        Ok(Guard { id, pipe: Some(writer) })
    }

    /// From its first moment this command, the leader of a group, is one that is killed when we are.
    pub(super) fn over(&self, command: &mut Command) {
        let Some(pipe) = &self.pipe else { return };
        let pipe = pipe.as_raw_fd();
        // SAFETY: the closure makes two system calls and no more. The descriptor is open: `fork` has copied it.
        unsafe { command.pre_exec(move || tell(pipe, libc::getpid())) };
    }

    /// There is nothing to kill any more.
    pub(super) fn dismiss(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            let _ = tell(pipe.as_raw_fd(), FAREWELL);
        }
    }
}

impl Drop for Guard {
    /// It ends at once, and is waited for: there may be nobody else who does that.
    fn drop(&mut self) {
        if std::thread::panicking() {
            // without a farewell
            self.pipe = None;
        }
        self.dismiss();
        // SAFETY: a child of ours, and no place for its status.
        while unsafe { libc::waitpid(self.id, std::ptr::null_mut(), 0) } < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}

fn tell(pipe: RawFd, number: libc::pid_t) -> io::Result<()> {
    // SAFETY: so many bytes of a number.
    let written = unsafe { libc::write(pipe, (&raw const number).cast(), LENGTH) };
    if written == LENGTH.cast_signed() { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The life of the guard, in a child that has only this thread: it asks the system, and takes no lock and no memory.
///
/// # Safety
/// Only for a process that was just forked, with every signal blocked.
unsafe fn watch(reader: RawFd) -> ! {
    // SAFETY: system calls on descriptors of this process, which nobody else in it uses; texts that are constant; a number
    // to read into.
    unsafe {
        // the group and the terminal are not ours: what ends them does not end the guard
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::dup2(reader, 0);
        close_from(1);
        let mut group = 0;
        loop {
            let mut number: libc::pid_t = 0;
            match libc::read(0, (&raw mut number).cast(), LENGTH) {
                count if count == LENGTH.cast_signed() && number != FAREWELL => group = number,
                0 if group > 0 => {
                    libc::kill(-group, libc::SIGKILL);
                    libc::_exit(0);
                }
                count if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => libc::_exit(0),
            }
        }
    }
}

/// Closes every descriptor from this one on.
///
/// # Safety
/// Nothing in this process uses them.
unsafe fn close_from(first: RawFd) {
    #[cfg(target_os = "linux")]
    // SAFETY: three numbers. On a kernel that does not know it, an error.
    if unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // SAFETY: a number; of one that is not open, an error.
    let count = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(256, 65536) as RawFd;
    for descriptor in first..count {
        // SAFETY: as the function's.
        unsafe { libc::close(descriptor) };
    }
}
