//! A blocking socket that returns to its caller within a time limit, also when a caller repeats short reads.
//!
//! The system limits one read or write. Code that calls several of them in a row, until a reply or a TLS record is
//! complete, would run for as long as single bytes arrive or signals interrupt each call.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::machine::Time;
use crate::sys::clock;

/// A socket, and how long it may be used in a row.
pub(crate) struct BoundedSocket<S> {
    pub(crate) socket: S,
    /// Each read and write blocks for this long at most, and so do several in a row, the last one aside; `None` if they
    /// never block.
    limit: Option<Duration>,
    /// Reads and writes since the caller checked its deadline.
    calls: u32,
    deadline: Time,
}

impl<S> BoundedSocket<S> {
    pub(crate) fn new(socket: S) -> BoundedSocket<S> {
        BoundedSocket { socket, limit: None, calls: 0, deadline: Time::ZERO }
    }

    /// The caller has checked its deadline.
    pub(crate) fn begin_calls(&mut self) {
        self.calls = 0;
    }

    pub(crate) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// `WouldBlock` when the caller must check its deadline. The clock is read from the second call on: a reply usually
    /// arrives in one piece.
    fn check_limit(&mut self) -> io::Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let now = if self.calls > 0 { clock::now() } else { Time::ZERO };
        match self.calls {
            0 => {}
            1 => self.deadline = now + limit,
            _ if now >= self.deadline => return Err(io::ErrorKind::WouldBlock.into()),
            _ => {}
        }
        self.calls = self.calls.saturating_add(1);
        Ok(())
    }
}

/// Turns an interruption into `WouldBlock`: layers in between would only repeat the call.
fn interrupted_as_would_block<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => io::ErrorKind::WouldBlock.into(),
        _ => error,
    })
}

impl<S: Read> Read for BoundedSocket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check_limit()?;
        interrupted_as_would_block(self.socket.read(buffer))
    }
}

impl<S: Write> Write for BoundedSocket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_limit()?;
        interrupted_as_would_block(self.socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Always has a byte, or is always interrupted.
    struct Endless(bool);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            buffer[0] = b'1';
            Ok(1)
        }
    }

    fn read_on(socket: &mut impl Read) -> io::ErrorKind {
        loop {
            if let Err(error) = socket.read(&mut [0; 8]) {
                return error.kind();
            }
        }
    }

    #[test]
    fn whoever_reads_on_and_on_is_stopped_and_may_go_on() {
        let mut socket = BoundedSocket::new(Endless(false));
        socket.set_limit(Some(Duration::from_millis(1)));
        for _ in 0..3 {
            socket.begin_calls();
            assert_eq!(read_on(&mut socket), io::ErrorKind::WouldBlock);
            // until `begin_calls`
            assert!(socket.read(&mut [0; 8]).is_err());
        }
    }

    #[test]
    fn an_interruption_is_a_reason_to_look_up() {
        let mut socket = BoundedSocket::new(Endless(true));
        assert_eq!(read_on(&mut socket), io::ErrorKind::WouldBlock);
    }
}
