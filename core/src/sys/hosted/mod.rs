//! A host that is an event loop and brings what a system would: clocks, random bytes, one timer, and byte streams.
//!
//! | file | is |
//! |---|---|
//! | `clock` | the clock of the host |
//! | `executor` | tasks, run when the host gives this code a turn |
//! | `timers` | all timers, on the host's one |
//! | `stream` | a byte stream of the host as one of the library |

pub(crate) mod clock;
pub(crate) mod executor;
pub(crate) mod stream;
pub(crate) mod timers;

use std::sync::OnceLock;
use std::time::Duration;

use crate::{Error, ErrorKind};

/// What a host brings. None of these functions may call back into this library before it has returned; what it has to tell
/// is told later, by [`opened`], [`received`], [`closed`], [`rang`] and [`turn`].
pub trait HostFunctions: Send + Sync + 'static {
    /// Nanoseconds on a clock that never goes back, from any beginning. Whether it counts suspend does not matter.
    fn monotonic_ns(&self) -> u64;

    /// The wall clock: microseconds since 1970.
    fn wall_us(&self) -> u64;

    /// Fills `bytes` from the host's generator for keys; false where it cannot.
    fn random(&self, bytes: &mut [u8]) -> bool;

    /// What people know this machine by; for inspection.
    fn name(&self) -> String;

    /// A number of the process; for inspection.
    fn process_id(&self) -> u32;

    /// Asks for a [`turn`], as soon as the code that runs now has returned.
    fn ask_for_turn(&self);

    /// Asks for [`rang`] after so long. Replaces what was asked before.
    fn set_alarm(&self, after: Duration);

    /// Makes a connection, and tells [`opened`] or [`closed`].
    fn dial(&self, connection: u32, target: &Target<'_>);

    /// Sends these bytes behind the ones before.
    fn write(&self, connection: u32, bytes: &[u8]);

    /// Ends a connection, opened or not. Nothing more is told of it.
    fn close(&self, connection: u32);
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A socket in the file system.
    Path(&'a str),
    /// A server by its name or its IP address.
    Server {
        /// Its name or address.
        host: &'a str,
        /// Its port.
        port: u16,
        /// Files with certificates, if the connection is to be encrypted.
        tls: Option<Certificates<'a>>,
    },
}

/// What certificates TLS is to believe and to show: paths of PEM files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Certificates<'a> {
    /// The authorities to trust, in place of the host's own.
    pub authorities: Option<&'a str>,
    /// A certificate to show.
    pub certificate: Option<&'a str>,
    /// Its key.
    pub key: Option<&'a str>,
    /// Any certificate is believed. For experiments only.
    pub any_certificate: bool,
    /// So is one of another host, if a trusted authority signed it.
    pub any_name: bool,
}

/// Why a connection was not made or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed it.
    Closed,
    /// It was reset.
    Reset,
    /// Nothing listens there.
    Refused,
    /// No answer in time.
    TimedOut,
    /// There is no such socket in the file system.
    NotFound,
    /// The host has no connections of this kind.
    Unsupported,
    /// The machine is at a limit.
    Limit,
    /// The server's certificate, or a file with certificates, is not good.
    Certificate,
    /// Anything else; the text says what.
    Other,
}

static HOST: OnceLock<Box<dyn HostFunctions>> = OnceLock::new();

/// The host of this program; to be called first, and once: later calls change nothing.
pub fn install(host: impl HostFunctions) {
    let _ = HOST.set(Box::new(host));
}

/// The host.
pub(crate) fn host() -> &'static dyn HostFunctions {
    HOST.get().map_or(&NoHost, |host| &**host)
}

/// Sixteen random bytes.
pub(crate) fn random() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    if host().random(&mut bytes) {
        return Ok(bytes);
    }
    Err(Error::new(ErrorKind::Internal, "make a token", "the host gave no random bytes"))
}

/// A task, which goes on without this handle.
#[derive(Debug)]
pub struct HostedTask(executor::AbortHandle);

impl HostedTask {
    /// Drops what it still has to do.
    pub fn abort(&self) {
        self.0.abort();
    }
}

/// Starts a task: it begins with the next [`turn`].
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> HostedTask {
    HostedTask(executor::spawn(work).abort_handle())
}

/// Runs what is ready to run. The host calls it when it was asked to by [`HostFunctions::ask_for_turn`].
pub fn turn() {
    timers::wake_due();
    executor::run();
    timers::set_alarm();
}

/// The time that [`HostFunctions::set_alarm`] told is over; some hosts come early.
pub fn rang() {
    timers::rang();
    turn();
}

/// A connection was made.
pub fn opened(connection: u32) {
    stream::opened(connection);
    turn();
}

/// Bytes have arrived.
pub fn received(connection: u32, bytes: &[u8]) {
    stream::received(connection, bytes);
    turn();
}

/// A connection was not made, or has ended; `why` is for people.
pub fn closed(connection: u32, end: End, why: &str) {
    stream::closed(connection, end, why);
    turn();
}

/// Before a host was installed.
struct NoHost;

impl HostFunctions for NoHost {
    fn monotonic_ns(&self) -> u64 {
        0
    }
    fn wall_us(&self) -> u64 {
        0
    }
    fn random(&self, _: &mut [u8]) -> bool {
        false
    }
    fn name(&self) -> String {
        String::new()
    }
    fn process_id(&self) -> u32 {
        0
    }
    fn ask_for_turn(&self) {}
    fn set_alarm(&self, _: Duration) {}
    fn dial(&self, _: u32, _: &Target<'_>) {}
    fn write(&self, _: u32, _: &[u8]) {}
    fn close(&self, _: u32) {}
}
