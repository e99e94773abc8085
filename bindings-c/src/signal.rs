//! A file descriptor that becomes readable once, for event loops.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use onelock::ErrorKind;

use crate::error::Failure;

/// Not raised, then raised; closed when dropped.
pub(crate) struct Signal {
    read: OwnedFd,
    /// The other end where there is no eventfd.
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

fn refused(error: rustix::io::Errno, tried: &str) -> Failure {
    Failure::new(ErrorKind::SystemLimit, tried, &format!("the system gave no file descriptor: {error}"))
}

impl Signal {
    #[cfg(target_os = "linux")]
    pub(crate) fn new(tried: &str) -> Result<Signal, Failure> {
        use rustix::event::{EventfdFlags, eventfd};
        let read = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| refused(error, tried))?;
        Ok(Signal { read })
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn raise(&self) {
        let _ = rustix::io::write(&self.read, &1_u64.to_ne_bytes());
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(tried: &str) -> Result<Signal, Failure> {
        let (read, write) = rustix::pipe::pipe().map_err(|error| refused(error, tried))?;
        for end in [&read, &write] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC).map_err(|error| refused(error, tried))?;
            rustix::io::ioctl_fionbio(end, true).map_err(|error| refused(error, tried))?;
        }
        Ok(Signal { read, write })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn raise(&self) {
        let _ = rustix::io::write(&self.write, &[1]);
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}
