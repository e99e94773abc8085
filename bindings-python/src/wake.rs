//! Wakes an event loop: a file descriptor that is readable from `raise` until `take`.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Readable or not; raising it again has no effect.
pub(crate) struct Wake {
    read: OwnedFd,
    /// The other end, on systems without eventfd.
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

impl Wake {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> std::io::Result<Wake> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Wake { read: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> std::io::Result<Wake> {
        let (read, write) = std::os::unix::net::UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        Ok(Wake { read: read.into(), write: write.into() })
    }

    /// Makes it readable. Never waits: when it cannot be written to, it is readable already.
    pub(crate) fn raise(&self) {
        #[cfg(target_os = "linux")]
        let to = &self.read;
        #[cfg(not(target_os = "linux"))]
        let to = &self.write;
        let _ = rustix::io::write(to, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(crate) fn take(&self) {
        let mut room = [0; 64];
        while rustix::io::read(&self.read, &mut room).is_ok_and(|count| count == room.len()) {}
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}
