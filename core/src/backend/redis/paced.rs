//! A blocking socket that never keeps its caller for long, whatever comes in and however often signals do.
//!
//! The system bounds one read or write. What calls several of them in a row, until a reply or a TLS record is whole, would
//! go on for as long as something comes in now and then, or a signal interrupts each of them.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::driver::clock;
use crate::machine::Time;

/// A socket, and how long it may be used in a row.
pub(crate) struct Paced<S> {
    pub(crate) socket: S,
    /// Each read and write blocks for this long at most, and so do several in a row, the last one aside; `None` if they
    /// never block at all.
    slice: Option<Duration>,
    /// Reads and writes since the caller was last at it.
    moves: u32,
    due: Time,
}

impl<S> Paced<S> {
    pub(crate) fn new(socket: S) -> Paced<S> {
        Paced { socket, slice: None, moves: 0, due: Time::ZERO }
    }

    /// The caller has looked at the clock, and is at it again.
    pub(crate) fn begin(&mut self) {
        self.moves = 0;
    }

    pub(crate) fn set_slice(&mut self, slice: Option<Duration>) {
        self.slice = slice;
    }

    /// `WouldBlock` when it is time for the caller to look up. The clock is read from the second time on: a reply usually
    /// comes in one piece.
    fn pace(&mut self) -> io::Result<()> {
        let Some(slice) = self.slice else { return Ok(()) };
        let now = if self.moves > 0 { clock::now() } else { Time::ZERO };
        match self.moves {
            0 => {}
            1 => self.due = now + slice,
            _ if now >= self.due => return Err(io::ErrorKind::WouldBlock.into()),
            _ => {}
        }
        self.moves = self.moves.saturating_add(1);
        Ok(())
    }
}

/// Interrupted means: look up. Whoever is in between would only try again.
fn looked_up<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => io::ErrorKind::WouldBlock.into(),
        _ => error,
    })
}

impl<S: Read> Read for Paced<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pace()?;
        looked_up(self.socket.read(buffer))
    }
}

impl<S: Write> Write for Paced<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pace()?;
        looked_up(self.socket.write(bytes))
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
        let mut socket = Paced::new(Endless(false));
        socket.set_slice(Some(Duration::from_millis(1)));
        for _ in 0..3 {
            socket.begin();
            assert_eq!(read_on(&mut socket), io::ErrorKind::WouldBlock);
            // until it has begun again
            assert!(socket.read(&mut [0; 8]).is_err());
        }
    }

    #[test]
    fn an_interruption_is_a_reason_to_look_up() {
        let mut socket = Paced::new(Endless(true));
        assert_eq!(read_on(&mut socket), io::ErrorKind::WouldBlock);
    }
}
