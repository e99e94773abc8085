//! One blocking connection, driven by the calling thread: write, read, nothing else.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use redis::{Cmd, Value};
use rustls::ClientConfig;

use super::endpoint::{Endpoint, Place};
use super::handshake::{Handshake, Step};
use super::replies::{NoReply, Replies};
use super::socket::{NO_REPLY, NO_RESP, broken, no_connection_in_time, no_thread, not_connected, reason};
use super::wire::Wire;
use super::{RedisOptions, login, tls};
use crate::backend::Interrupt;
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Outcome, Time};

/// A caller is looked after this often while it waits.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// One read of a posted request's reply blocks for no longer than this: it is only made when there is something to read.
const POSTED_SLICE: Duration = Duration::from_millis(2);
/// A server that owes more replies than this is not just a little slower than the others.
const OWED_MAX: usize = 4;
/// A pooled connection that was idle for longer is looked at before it is used.
const SURELY_FRESH: Duration = Duration::from_secs(1);

/// Shared connections are counted from 1 on.
const NUMBERS_FROM: u64 = 1 << 48;
static OPENED: AtomicU64 = AtomicU64::new(0);

/// How long a caller waits, and what may end it early.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) until: Time,
    pub(crate) interrupt: &'a dyn Interrupt,
}

impl Patience<'_> {
    /// `Err` with the reason when there is none left.
    pub(crate) fn check(&self) -> Result<Duration, &'static str> {
        if self.interrupt.interrupted() {
            return Err("the caller was interrupted");
        }
        match self.until.since(clock::now()) {
            Duration::ZERO => Err(NO_REPLY),
            left => Ok(left),
        }
    }
}

/// A connection after its handshake.
pub(crate) struct Line {
    endpoint: Arc<Endpoint>,
    /// Counts the lines of the process, apart from all numbers of shared connections.
    pub(crate) number: u64,
    /// Of the time when it was made; see [`Shared::epoch`](super::shared::Shared::epoch).
    pub(crate) epoch: u64,
    wire: Wire,
    replies: Replies,
    /// Whether reading and writing wait.
    blocks: bool,
    /// How long one system call may block, as the socket knows it.
    slice: Duration,
    idle_since: Time,
    /// Something is left over or missing: not to be used again.
    spoilt: bool,
    /// Replies that are still to come and that nobody waits for.
    owed: usize,
    /// All that was written is on its way.
    flushed: bool,
}

/// Why bytes could not be exchanged.
enum Trouble {
    Io(io::Error),
    GaveUp(&'static str),
    Garbage,
}

impl Trouble {
    fn failure(&self, endpoint: &Endpoint) -> Failure {
        match self {
            Trouble::Io(error) => broken(endpoint, &reason(error)),
            Trouble::GaveUp(why) => broken(endpoint, why),
            Trouble::Garbage => broken(endpoint, NO_RESP),
        }
    }
}

impl Line {
    /// Connects and shakes hands within the caller's patience. Nothing of the caller's was sent if it fails.
    pub(crate) fn open(
        place: Arc<Endpoint>,
        epoch: u64,
        config: Option<Arc<ClientConfig>>,
        options: &RedisOptions,
        patience: Patience<'_>,
    ) -> Result<Line, Failure> {
        let endpoint = &*place;
        let mut wire = connect(endpoint, patience)?;
        wire.set_slice(SLICE).map_err(|error| not_connected(endpoint, &error))?;
        if let (Some(config), Place::Tcp { host, .. }) = (config, &endpoint.place) {
            wire = wire
                .encrypt(config, tls::server_name(host)?)
                .map_err(|error| tls::handshake_failure(endpoint, &error))?;
            encrypted(&mut wire, endpoint, patience)?;
        }
        let (replies, slice) = (Replies::new(), SLICE);
        let number = NUMBERS_FROM + OPENED.fetch_add(1, Ordering::Relaxed);
        let mut line = Line {
            endpoint: place,
            number,
            epoch,
            wire,
            replies,
            blocks: true,
            slice,
            idle_since: Time::ZERO,
            spoilt: false,
            owed: 0,
            flushed: true,
        };
        line.introduce(options, patience)?;
        Ok(line)
    }

    fn introduce(&mut self, options: &RedisOptions, patience: Patience<'_>) -> Result<(), Failure> {
        let endpoint = self.endpoint.clone();
        let credentials = login::ask_blocking(options, &endpoint, patience)?;
        let client_name = options.client_name.as_deref();
        let mut handshake = Handshake::new(&endpoint, client_name).logging_in(credentials.as_ref());
        let mut step = handshake.begin();
        while let Step::Send(bytes, expected) = step {
            // a peer that hangs up at once may have said why; so what can be read counts before what could not be sent
            let unsent = self.send(&bytes, patience).err().map(|(_, trouble)| trouble);
            let mut replies = Vec::with_capacity(expected);
            while replies.len() < expected {
                match self.receive(patience) {
                    Ok(reply) => replies.push(reply),
                    Err(trouble) => {
                        let said = Handshake::last_words(&replies);
                        let told = || handshake.unanswered(&replies, unsent.unwrap_or(trouble).failure(&endpoint));
                        return Err(said.unwrap_or_else(told));
                    }
                }
            }
            step = handshake.replies(&replies)?;
        }
        Ok(())
    }

    /// Sends one command, behind `before` if there is one, and waits for its reply; `now` is when it is sent.
    pub(crate) fn exchange(
        &mut self,
        before: Option<&Cmd>,
        request: &Cmd,
        now: Time,
        patience: Patience<'_>,
    ) -> Outcome<Value> {
        // until proven otherwise
        self.spoilt = true;
        self.set_slice(patience.until.since(now));
        let mut bytes = before.map(Cmd::get_packed_command).unwrap_or_default();
        if bytes.is_empty() {
            bytes = request.get_packed_command();
        } else {
            request.write_packed_command(&mut bytes);
        }
        match self.send(&bytes, patience) {
            Ok(()) => {}
            Err((0, trouble)) => return Outcome::NotApplied(trouble.failure(&self.endpoint)),
            Err((_, trouble)) => return Outcome::Indeterminate(trouble.failure(&self.endpoint)),
        }
        let received = before.map_or(Ok(Value::Okay), |_| self.receive(patience));
        match received.and_then(|_| self.receive(patience)) {
            Ok(value) => {
                // a reply too many would be taken for the next request's
                self.spoilt = !self.replies.is_empty();
                Outcome::Applied(value)
            }
            Err(trouble) => Outcome::Indeterminate(trouble.failure(&self.endpoint)),
        }
    }

    /// Sends a request without waiting for its reply: the first half of an exchange with several servers at once.
    pub(crate) fn post(&mut self, bytes: &[u8], patience: Patience<'_>) -> Result<(), Outcome<Value>> {
        self.spoilt = true;
        self.set_slice(POSTED_SLICE);
        self.send(bytes, patience).map_err(|(left, trouble)| {
            let failure = trouble.failure(&self.endpoint);
            if left == 0 { Outcome::NotApplied(failure) } else { Outcome::Indeterminate(failure) }
        })
    }

    /// The second half: the reply to what was posted, once the socket has something to read; `None` if it is not all
    /// there yet.
    pub(crate) fn collect(&mut self) -> Option<Outcome<Value>> {
        loop {
            match self.read()? {
                Outcome::Applied(_) if self.owed > 0 => self.owed -= 1,
                Outcome::Applied(value) => {
                    self.spoilt = !self.replies.is_empty();
                    return Some(Outcome::Applied(value));
                }
                broken => return Some(broken),
            }
        }
    }

    /// The next reply of several, if all of it is there. Only replies are "applied".
    pub(crate) fn read(&mut self) -> Option<Outcome<Value>> {
        self.wire.begin();
        let next = self.replies.next(&mut self.wire);
        self.one_of_several(next)
    }

    /// The next reply of several, if it came along with the one before: without looking at the socket.
    pub(crate) fn reply_at_hand(&mut self) -> Option<Outcome<Value>> {
        let next = self.replies.at_hand();
        self.one_of_several(next)
    }

    fn one_of_several(&self, next: Result<Value, NoReply>) -> Option<Outcome<Value>> {
        match next {
            Ok(value) => Some(Outcome::Applied(value)),
            Err(NoReply::Source(error)) if is_pause(&error) => None,
            Err(NoReply::Source(error)) => Some(Outcome::Indeterminate(broken(&self.endpoint, &reason(&error)))),
            Err(NoReply::Garbage) => Some(Outcome::Indeterminate(broken(&self.endpoint, NO_RESP))),
        }
    }

    /// The next reply of several, if all of it comes within `left`, or a part of it.
    pub(crate) fn await_reply(&mut self, left: Duration) -> Option<Outcome<Value>> {
        self.set_slice(left);
        self.read()
    }

    /// What comes in within `left`, or a part of it; pushes too, from now on.
    pub(crate) fn hear(&mut self, left: Duration) -> Option<Outcome<Value>> {
        self.replies.take_pushes();
        self.set_slice(left);
        self.read()
    }

    /// Whether nothing is left of what was read; for those who use [`Line::read`].
    pub(crate) fn is_clean(&mut self) -> bool {
        self.replies.is_empty()
    }

    /// How many of these bytes the connection took, without waiting; `None` when it takes none any more.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        self.wire.begin();
        let mut written = 0;
        while written < bytes.len() {
            match self.wire.write(&bytes[written..]) {
                Ok(more) if more > 0 => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_pause(&error) => break,
                // what becomes of what was written before is for the reader to find out
                _ if written > 0 => break,
                _ => return None,
            }
        }
        // what goes wrong here is heard by whoever reads
        self.flushed = self.wire.flush().is_ok();
        Some(written)
    }

    /// Whether nothing of what was written is kept back.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// Nobody waits for the reply to what was posted; it is passed over when the next one is read.
    pub(crate) fn owe(&mut self) {
        self.owed += 1;
        self.spoilt = self.owed > OWED_MAX;
    }

    /// The failure of a request whose reply did not come in time.
    pub(crate) fn silence(&self) -> Failure {
        broken(&self.endpoint, NO_REPLY)
    }

    /// The failure of a request whose connection was given up.
    pub(crate) fn gone(&self) -> Failure {
        broken(&self.endpoint, "the connection is gone")
    }

    /// Reading never waits any more: somebody watches the socket, which has this number.
    pub(crate) fn unblock(&mut self) -> io::Result<i32> {
        self.blocks = false;
        self.wire.unblock()
    }

    /// The server at the other end.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// What to ask whether there is something to read.
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Marks the start of idleness.
    pub(crate) fn rest(&mut self, now: Time) {
        self.idle_since = now;
    }

    /// Whether it can carry another request. Only a connection that has been idle for a while is asked.
    pub(crate) fn is_usable(&self, now: Time) -> bool {
        let fresh = now.since(self.idle_since) <= SURELY_FRESH;
        // a reply that is owed looks like one that nobody asked for
        !self.spoilt && (fresh || (self.owed == 0 && !self.wire.is_stale(self.blocks)))
    }

    /// Whether the last exchange left it in order.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    /// On failure, how many bytes may have left.
    fn send(&mut self, mut bytes: &[u8], patience: Patience<'_>) -> Result<(), (usize, Trouble)> {
        let total = bytes.len();
        self.wire.begin();
        while !bytes.is_empty() {
            // a peer that takes a little now and then is paused for, too
            match self.wire.write(bytes) {
                Ok(0) => return Err((total - bytes.len(), Trouble::Io(io::ErrorKind::WriteZero.into()))),
                Ok(written) => bytes = &bytes[written..],
                Err(error) => self.bear(error, patience).map_err(|trouble| (total - bytes.len(), trouble))?,
            }
        }
        loop {
            match self.wire.flush() {
                Ok(()) => return Ok(()),
                Err(error) => self.bear(error, patience).map_err(|trouble| (total, trouble))?,
            }
        }
    }

    fn receive(&mut self, patience: Patience<'_>) -> Result<Value, Trouble> {
        self.wire.begin();
        loop {
            match self.replies.next(&mut self.wire) {
                // of a request that nobody waits for any more
                Ok(_) if self.owed > 0 => self.owed -= 1,
                Ok(value) => return Ok(value),
                Err(NoReply::Garbage) => return Err(Trouble::Garbage),
                Err(NoReply::Source(error)) => self.bear(error, patience)?,
            }
        }
    }

    /// A system call came back empty-handed: go on if there is patience left.
    fn bear(&mut self, error: io::Error, patience: Patience<'_>) -> Result<(), Trouble> {
        if !is_pause(&error) {
            return Err(Trouble::Io(error));
        }
        let left = patience.check().map_err(Trouble::GaveUp)?;
        self.set_slice(left);
        self.wire.begin();
        Ok(())
    }

    /// Lets a system call block for no longer than is left. Touches the socket only when the value changes.
    fn set_slice(&mut self, left: Duration) {
        // whole milliseconds, so that a shrinking rest doesn't cost a system call each time
        let slice = Duration::from_millis((left.as_millis() as u64).clamp(1, SLICE.as_millis() as u64));
        if slice != self.slice && self.wire.set_slice(slice).is_ok() {
            self.slice = slice;
        }
    }
}

/// A slice ran out, or a signal came in.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Resolving and connecting can't be interrupted, so a thread of their own does it; the caller watches the clock. A
/// thread that nobody waits for any longer ends by itself.
fn connect(endpoint: &Endpoint, patience: Patience<'_>) -> Result<Wire, Failure> {
    let give_up = |why: &str| match why {
        NO_REPLY => no_connection_in_time(endpoint),
        why => Failure::transient(ErrorKind::Unavailable, format!("{endpoint}: {why}")),
    };
    let left = patience.check().map_err(give_up)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let place = endpoint.place.clone();
    let work = move || {
        let _ = sender.send(Wire::connect(&place, left));
    };
    if let Err(error) = thread::Builder::new().name("onelock-connect".to_owned()).spawn(work) {
        return Err(not_connected(endpoint, &no_thread(&error)));
    }
    loop {
        let left = patience.check().map_err(give_up)?;
        match receiver.recv_timeout(left.min(SLICE)) {
            Ok(connected) => return connected.map_err(|error| not_connected(endpoint, &error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(not_connected(endpoint, &io::Error::other("the connecting thread ended")));
            }
        }
    }
}

fn encrypted(wire: &mut Wire, endpoint: &Endpoint, patience: Patience<'_>) -> Result<(), Failure> {
    loop {
        match wire.shake_hands() {
            Ok(()) => return Ok(()),
            Err(error) if is_pause(&error) => {
                if patience.check().is_err() {
                    return Err(tls::no_handshake_in_time(endpoint));
                }
            }
            Err(error) => return Err(tls::handshake_failure(endpoint, &error)),
        }
    }
}
