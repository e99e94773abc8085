//! What every kind of connection shares: socket options, the order of addresses, and the failures of a connection.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::error::ErrorKind;
use crate::machine::Failure;
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};

/// A connection on which nothing has arrived for this long is probed …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// … this often …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// … and bytes that are not acknowledged for this long end it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Sets the options of a TCP socket. An option that the system does not have is skipped.
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

/// The address, if the host is an IP address and needs no resolver.
pub(crate) fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port))
}

/// Tries one address after the other. Each gets its share of what is left of the limit, so that an address that does
/// not answer leaves time for the next.
pub(crate) struct AddressAttempts {
    addresses: std::vec::IntoIter<SocketAddr>,
    last: io::Error,
}

impl AddressAttempts {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> AddressAttempts {
        let last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        AddressAttempts { addresses: addresses.into_iter(), last }
    }

    /// The next address and its share of `left`.
    pub(crate) fn next(&mut self, left: Duration) -> Option<(SocketAddr, Duration)> {
        let share = left / u32::try_from(self.addresses.len()).unwrap_or(u32::MAX).max(1);
        let address = self.addresses.next()?;
        // the system refuses a time limit of zero
        Some((address, share.max(Duration::from_millis(1))))
    }

    pub(crate) fn failed(&mut self, error: io::Error) {
        self.last = error;
    }

    pub(crate) fn give_up(self) -> io::Error {
        self.last
    }
}

/// The system gave no thread for a blocking call.
pub(crate) fn no_thread(error: &io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, format!("this machine gave no thread: {error}"))
}

/// Whether this machine lacks a resource (descriptors, memory, threads), and neither the network nor the server failed.
pub(crate) fn is_limit(error: &io::Error) -> bool {
    use rustix::io::Errno;
    #[cfg(unix)]
    const LIMITS: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC];
    #[cfg(not(unix))]
    const LIMITS: [Errno; 2] = [Errno::MFILE, Errno::NOBUFS];
    let known = |limit: &Errno| error.raw_os_error() == Some(limit.raw_os_error());
    error.kind() == io::ErrorKind::OutOfMemory || LIMITS.iter().any(known)
}

/// The failure to connect: nothing was sent.
pub(crate) fn not_connected(endpoint: &Endpoint, error: &io::Error) -> Failure {
    if is_limit(error) {
        return Failure::transient(ErrorKind::SystemLimit, format!("{endpoint}: {error}"));
    }
    let reason = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
        io::ErrorKind::NotFound if matches!(endpoint.addr, ConnectionAddr::Unix(_)) => {
            "there is no such socket".to_owned()
        }
        _ => error.to_string(),
    };
    Failure::transient(ErrorKind::Unavailable, format!("{endpoint}: {reason}"))
}

/// The failure to connect within the limit.
pub(crate) fn no_connection_in_time(server: &(impl Display + ?Sized)) -> Failure {
    Failure::transient(ErrorKind::Unavailable, format!("{server}: no answer in time"))
}

/// A connection broke, or the bytes on it were no reply.
pub(crate) fn broken(server: &(impl Display + ?Sized), reason: &str) -> Failure {
    Failure::transient(ErrorKind::Unavailable, format!("{server}: {reason}"))
}

/// The reason in words, for [`broken`].
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => HANG_UP_WORDS[0].to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => HANG_UP_WORDS[1].to_owned(),
        io::ErrorKind::TimedOut => "the connection is dead".to_owned(),
        _ => format!("the connection broke: {error}"),
    }
}

/// The words for a peer that closes the connection.
pub(crate) const HANG_UP_WORDS: [&str; 2] = ["the server closed the connection", "the connection was reset"];
/// The words for a reply that did not come in time.
pub(crate) const NO_REPLY: &str = "no reply in time";
/// The words for bytes that are no reply.
pub(crate) const NO_RESP: &str = "what answers there does not speak the Redis protocol (if it is TLS, write rediss://)";
