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

/// A bit for each descriptor in the table.
struct Table(Vec<u64>);

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
    fn place(fd: i32) -> (usize, u64) {
        let fd = fd.unsigned_abs();
        ((fd / 64) as usize, 1 << (fd % 64))
    }

    fn set(&mut self, fd: i32) {
        let (word, bit) = Table::place(fd);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    fn clear(&mut self, fd: i32) {
        let (word, bit) = Table::place(fd);
        if let Some(bits) = self.0.get_mut(word) {
            *bits &= !bit;
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
        for (word, bits) in table.0.iter_mut().enumerate() {
            while *bits != 0 {
                let fd = (word as u32 * 64 + bits.trailing_zeros()).cast_signed();
                *bits &= *bits - 1;
                // SAFETY: nothing in this process uses the descriptor: its owner belongs to the parent, and neither
                // uses nor closes it here.
                unsafe { libc::close(fd) };
            }
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
        table.set(raw);
        Ok(ProcessFd { fd: Some(fd), raw, stamp })
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
        if self.stamp.is_here() {
            let mut table = lock(&TABLE);
            table.clear(self.raw);
            drop(self.fd.take());
        } else {
            // closed before; the number may be another file's by now
            std::mem::forget(self.fd.take());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_in_table(fd: i32) -> bool {
        let (word, bit) = Table::place(fd);
        lock(&TABLE).0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    #[test]
    fn a_descriptor_is_in_the_table_while_it_is_open() {
        let held = ProcessFd::open(|| Ok(std::fs::File::open("/dev/null")?.into())).unwrap();
        let raw = held.as_fd().as_raw_fd();
        assert!(is_in_table(raw));
        assert!(ProcessFd::open(|| Err(io::ErrorKind::NotFound.into())).is_err());
        drop(held);
        let mut table = Table(Vec::new());
        for fd in [0, 63, 64, 1000] {
            table.set(fd);
        }
        assert_eq!(table.0[0], 1 | 1 << 63);
        table.clear(63);
        table.clear(5000);
        assert_eq!((table.0[0], table.0[1]), (1, 1));
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
