//! What both ways to the socket share: socket options, the order of addresses, and the words for what went wrong.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::endpoint::{Endpoint, Place};
use crate::error::ErrorKind;
use crate::machine::Failure;

/// A connection over which nothing has come for this long is asked whether it is still there …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// … this often …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// … and bytes that nobody acknowledges for this long end it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Sets what a lock client wants of a TCP socket. An option that the system doesn't have is done without.
pub(crate) fn tune(socket: &SockRef<'_>) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    set_user_timeout(socket);
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn set_user_timeout(socket: &SockRef<'_>) {
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set_user_timeout(_: &SockRef<'_>) {
    let _ = UNACKNOWLEDGED; // the request limits do the work alone
}

/// The address, if the host is written as one and no resolver is needed.
pub(crate) fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port))
}

/// Tries one address after the other. Each gets its share of what is left of `limit`, so that one black hole doesn't
/// use up the time of the next.
pub(crate) struct Tries {
    addresses: std::vec::IntoIter<SocketAddr>,
    last: io::Error,
}

impl Tries {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Tries {
        let last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        Tries { addresses: addresses.into_iter(), last }
    }

    /// The next address and its share of `left`.
    pub(crate) fn next(&mut self, left: Duration) -> Option<(SocketAddr, Duration)> {
        let share = left / u32::try_from(self.addresses.len()).unwrap_or(u32::MAX).max(1);
        let address = self.addresses.next()?;
        // a share of nothing is refused by the system
        Some((address, share.max(Duration::from_millis(1))))
    }

    pub(crate) fn failed(&mut self, error: io::Error) {
        self.last = error;
    }

    pub(crate) fn give_up(self) -> io::Error {
        self.last
    }
}

/// The system gave no thread for what blocks.
pub(crate) fn no_thread(error: &io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, format!("this machine gave no thread: {error}"))
}

/// Whether this machine is to blame, and not the network or the server: no descriptor, no memory, no thread.
pub(crate) fn is_limit(error: &io::Error) -> bool {
    use rustix::io::Errno;
    #[cfg(unix)]
    const LIMITS: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC];
    #[cfg(not(unix))]
    const LIMITS: [Errno; 2] = [Errno::MFILE, Errno::NOBUFS];
    let known = |limit: &Errno| error.raw_os_error() == Some(limit.raw_os_error());
    error.kind() == io::ErrorKind::OutOfMemory || LIMITS.iter().any(known)
}

/// No connection came about, so nothing was sent.
pub(crate) fn not_connected(endpoint: &Endpoint, error: &io::Error) -> Failure {
    if is_limit(error) {
        return Failure::transient(ErrorKind::SystemLimit, format!("{endpoint}: {error}"));
    }
    let reason = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
        io::ErrorKind::NotFound if matches!(endpoint.place, Place::Unix(_)) => "there is no such socket".to_owned(),
        _ => error.to_string(),
    };
    Failure::transient(ErrorKind::Unavailable, format!("{endpoint}: {reason}"))
}

/// No connection to this server came about within the limit.
pub(crate) fn no_connection_in_time(server: &(impl Display + ?Sized)) -> Failure {
    Failure::transient(ErrorKind::Unavailable, format!("{server}: no answer in time"))
}

/// A connection broke, or what came over it was no reply.
pub(crate) fn broken(server: &(impl Display + ?Sized), reason: &str) -> Failure {
    Failure::transient(ErrorKind::Unavailable, format!("{server}: {reason}"))
}

/// The reason in words, for [`broken`].
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => HANG_UPS[0].to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => HANG_UPS[1].to_owned(),
        io::ErrorKind::TimedOut => "the connection is dead".to_owned(),
        _ => format!("the connection broke: {error}"),
    }
}

/// The words for a peer that hangs up.
pub(crate) const HANG_UPS: [&str; 2] = ["the server closed the connection", "the connection was reset"];
/// The words for a reply that did not come in time.
pub(crate) const NO_REPLY: &str = "no reply in time";
/// The words for bytes that are no reply.
pub(crate) const NO_RESP: &str = "what answers there does not speak the Redis protocol (if it is TLS, write rediss://)";
