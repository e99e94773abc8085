//! Connecting to a server over TCP, for the stores that have one: socket options, name resolution, the order of addresses.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::sys::clock;

/// A connection on which nothing has arrived for this long is probed …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// … this often …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// … and bytes that are not acknowledged for this long end it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Any async byte stream.
#[cfg(any(feature = "postgres", feature = "etcd", feature = "memcached"))]
pub(crate) trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
#[cfg(any(feature = "postgres", feature = "etcd", feature = "memcached"))]
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for S {}

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

/// Resolves the host and connects; `limit` is for both.
pub(crate) async fn tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let until = clock::now() + limit;
    let addresses = match literal(host, port) {
        Some(address) => vec![address],
        None => resolve(host, port).await?,
    };
    tcp_to(addresses, until.since(clock::now())).await
}

/// Connects to the first of these addresses that answers; `limit` is shared by all of them.
pub(crate) async fn tcp_to(addresses: Vec<SocketAddr>, limit: Duration) -> io::Result<TcpStream> {
    let until = clock::now() + limit;
    let mut tries = AddressAttempts::new(addresses);
    while let Some((address, share)) = tries.next(until.since(clock::now())) {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                tune(&SockRef::from(&stream));
                return Ok(stream);
            }
            Ok(Err(error)) => tries.failed(error),
            Err(_) => tries.failed(io::ErrorKind::TimedOut.into()),
        }
    }
    Err(tries.give_up())
}

/// Resolves on a separate thread, since the resolver blocks: the runtime's thread pool panics when the system gives it
/// no thread.
pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let (sender, found) = oneshot::channel();
    let host = host.to_owned();
    let work = move || {
        let _ = sender.send((host.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    };
    thread::Builder::new().name("onelock-lookup".to_owned()).spawn(work).map_err(|error| no_thread(&error))?;
    found.await.unwrap_or_else(|_| Err(io::Error::other("the lookup ended")))
}
