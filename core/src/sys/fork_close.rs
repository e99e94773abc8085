//! File descriptors that a forked child does not keep.
//!
//! A lock of the kernel belongs to the open file, which a forked child shares: a child that lives on would keep it after
//! its parent's death, and whoever unlocks it, unlocks it for both. `O_CLOEXEC` is about `exec` only. So the process keeps
//! a table of such descriptors, and the child closes them before `fork` returns in it. They are opened, entered, and closed
//! under one mutex, which the thread that forks takes: none is open but not in the table. A child that is made without
//! `fork` (the bare system call `clone`) keeps them.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::fork::ProcessStamp;
use super::sync::lock;

/// How many values own the descriptor with each number: two, if somebody else closed the first one's and the number was
/// used again.
struct Table(Vec<u8>);

static TABLE: Mutex<Table> = Mutex::new(Table(Vec::new()));
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// The table while a thread forks.
struct Forking(UnsafeCell<Option<MutexGuard<'static, Table>>>);

// SAFETY: it is touched only by the thread that has locked TABLE, between `prepare` and the handler behind the fork.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

thread_local! {
    /// How often this thread is between `prepare` and the handler behind it: twice if the handlers were registered twice.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

impl Table {
    fn place(fd: i32) -> usize {
        fd.unsigned_abs() as usize
    }

    fn enter(&mut self, fd: i32) {
        let place = Table::place(fd);
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] = self.0[place].saturating_add(1);
    }

    fn leave(&mut self, fd: i32) {
        if let Some(count) = self.0.get_mut(Table::place(fd)) {
            *count = count.saturating_sub(1);
        }
    }
}

extern "C" fn prepare() {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    if depth == 0 {
        let table = lock(&TABLE);
        // SAFETY: this thread has the lock.
        unsafe { *FORKING.0.get() = Some(table) };
    }
}

extern "C" fn in_parent() {
    behind(false);
}

extern "C" fn in_child() {
    behind(true);
}

fn behind(child: bool) {
    let depth = DEPTH.get();
    DEPTH.set(depth.saturating_sub(1));
    if depth != 1 {
        return;
    }
    // SAFETY: this thread, or the one of the parent that it is a copy of, has the lock since `prepare`.
    let table = unsafe { (*FORKING.0.get()).take() };
    let Some(mut table) = table else { return };
    if child {
        for (fd, count) in table.0.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            *count = 0;
            // SAFETY: nothing in this process uses the descriptor: its owner belongs to the parent, and neither
            // uses nor closes it here.
            unsafe { libc::close((fd as u32).cast_signed()) };
        }
    }
}

/// Has the handlers called from now on. No lock, which a forked child may find closed: that they are registered twice is
/// harmless.
fn register() -> io::Result<()> {
    if REGISTERED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: the functions have the right type and do not unwind; what they call may be called in a forked child.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) } {
        0 => {
            REGISTERED.store(true, Ordering::Release);
            Ok(())
        }
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A descriptor of this process alone: closed in a forked child, and when it is dropped.
#[derive(Debug)]
pub(crate) struct ProcessFd {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    raw: i32,
    stamp: ProcessStamp,
}

impl ProcessFd {
    /// What `open` opens. No fork happens meanwhile.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<ProcessFd> {
        register()?;
        let stamp = ProcessStamp::here();
        let mut table = lock(&TABLE);
        let fd = open()?;
        let raw = fd.as_raw_fd();
        table.enter(raw);
        Ok(ProcessFd { fd: Some(fd), raw, stamp })
    }

    /// Somebody else has closed it, and its number may be another file's: it is left alone.
    pub(crate) fn abandon(&mut self) {
        if self.stamp.is_here() {
            lock(&TABLE).leave(self.raw);
        }
        std::mem::forget(self.fd.take());
    }
}

impl AsFd for ProcessFd {
    #[allow(clippy::expect_used)] // it is there until drop, which nothing can outlive
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until drop").as_fd()
    }
}

impl Drop for ProcessFd {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        if self.stamp.is_here() {
            let mut table = lock(&TABLE);
            table.leave(self.raw);
            drop(fd);
        } else {
            // closed before; the number may be another file's by now
            std::mem::forget(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_in_table(fd: i32) -> bool {
        lock(&TABLE).0.get(Table::place(fd)).is_some_and(|count| *count > 0)
    }

    #[test]
    fn a_descriptor_is_in_the_table_while_it_is_open() {
        let held = ProcessFd::open(|| Ok(std::fs::File::open("/dev/null")?.into())).unwrap();
        let raw = held.as_fd().as_raw_fd();
        assert!(is_in_table(raw));
        assert!(ProcessFd::open(|| Err(io::ErrorKind::NotFound.into())).is_err());
        drop(held);
        let mut table = Table(Vec::new());
        for fd in [0, 3, 3] {
            table.enter(fd);
        }
        assert_eq!(table.0, [1, 0, 0, 2]);
        table.leave(3);
        table.leave(5000);
        assert_eq!(table.0, [1, 0, 0, 1]);
    }

    #[test]
    fn handlers_that_are_registered_twice_are_harmless() {
        register().unwrap();
        REGISTERED.store(false, Ordering::Release);
        register().unwrap();
        let held = ProcessFd::open(|| Ok(std::fs::File::open("/dev/null")?.into())).unwrap();
        let raw = held.as_fd().as_raw_fd();
        // SAFETY: the child does nothing but a system call and its end.
        let status = unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(libc::fcntl(raw, libc::F_GETFD) != -1)),
                child => {
                    let mut status = -1;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    status
                }
            }
        };
        assert_eq!(status, 0, "the child has it");
        assert!(is_in_table(raw));
        assert!(rustix::io::fcntl_getfd(&held).is_ok());
    }
}
