//! A blocking byte stream: TCP, TLS over TCP, or a Unix socket.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::SockRef;

use super::bounded_socket::BoundedSocket;
use crate::store::redis::address::endpoint::ConnectionAddr;
use crate::store::redis::connection::socket::{AddressAttempts, literal, tune};
use crate::sys::clock;

/// A blocking stream.
pub(crate) enum BlockingStream {
    Tcp(BoundedSocket<TcpStream>),
    #[cfg(unix)]
    Unix(BoundedSocket<UnixStream>),
    Tls(Box<StreamOwned<ClientConnection, BoundedSocket<TcpStream>>>),
}

impl BlockingStream {
    /// Resolves and connects; `limit` does not include name resolution.
    pub(crate) fn connect(place: &ConnectionAddr, limit: Duration) -> io::Result<BlockingStream> {
        match place {
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                UnixStream::connect(path).map(|stream| BlockingStream::Unix(BoundedSocket::new(stream)))
            }
            #[cfg(not(unix))]
            ConnectionAddr::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
            ConnectionAddr::Tcp { host, port } => {
                let addresses = match literal(host, *port) {
                    Some(address) => vec![address],
                    None => (host.as_str(), *port).to_socket_addrs()?.collect(),
                };
                let until = clock::now() + limit;
                let mut tries = AddressAttempts::new(addresses);
                while let Some((address, share)) = tries.next(until.since(clock::now())) {
                    match TcpStream::connect_timeout(&address, share) {
                        Ok(stream) => {
                            tune(&SockRef::from(&stream));
                            return Ok(BlockingStream::Tcp(BoundedSocket::new(stream)));
                        }
                        Err(error) => tries.failed(error),
                    }
                }
                Err(tries.give_up())
            }
        }
    }

    /// Wraps a TCP connection in TLS. The handshake happens with the first bytes.
    pub(crate) fn encrypt(self, config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<BlockingStream> {
        match self {
            BlockingStream::Tcp(stream) => {
                let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
                Ok(BlockingStream::Tls(Box::new(StreamOwned::new(connection, stream))))
            }
            other => Ok(other),
        }
    }

    /// A second handle of the same socket, so that one thread writes while another one reads; none for TLS, where both
    /// share a state.
    pub(crate) fn try_clone(&self) -> Option<BlockingStream> {
        match self {
            BlockingStream::Tcp(stream) => {
                stream.socket.try_clone().ok().map(|socket| BlockingStream::Tcp(BoundedSocket::new(socket)))
            }
            #[cfg(unix)]
            BlockingStream::Unix(stream) => {
                stream.socket.try_clone().ok().map(|socket| BlockingStream::Unix(BoundedSocket::new(socket)))
            }
            BlockingStream::Tls(_) => None,
        }
    }

    /// Sends all bytes, or fails, within `limit` or little more; for a handle from [`BlockingStream::try_clone`].
    pub(crate) fn write_all_within(&self, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
        // set only when the first write did not take all
        let mut until = None;
        while !bytes.is_empty() {
            let written = match self {
                BlockingStream::Tcp(stream) => (&mut &stream.socket).write(bytes),
                #[cfg(unix)]
                BlockingStream::Unix(stream) => (&mut &stream.socket).write(bytes),
                BlockingStream::Tls(_) => return Err(io::ErrorKind::Unsupported.into()),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if !bytes.is_empty() {
                let now = clock::now();
                if now >= *until.get_or_insert(now + limit) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        Ok(())
    }

    /// Shuts the connection down for all its handles; the reader finds the end.
    pub(crate) fn shutdown(&self) {
        let _ = self.socket().shutdown(std::net::Shutdown::Both);
    }

    /// Drives the TLS handshake; `WouldBlock` until it is complete.
    pub(crate) fn tls_handshake(&mut self) -> io::Result<()> {
        self.begin_calls();
        if let BlockingStream::Tls(tls) = self {
            while tls.conn.is_handshaking() {
                tls.conn.complete_io(&mut tls.sock)?;
            }
        }
        Ok(())
    }

    /// Limits how long one read or write blocks, and several in a row.
    pub(crate) fn set_io_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        let socket = self.socket();
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        self.set_call_limit(Some(timeout));
        Ok(())
    }

    fn set_call_limit(&mut self, timeout: Option<Duration>) {
        match self {
            BlockingStream::Tcp(stream) => stream.set_limit(timeout),
            #[cfg(unix)]
            BlockingStream::Unix(stream) => stream.set_limit(timeout),
            BlockingStream::Tls(tls) => tls.sock.set_limit(timeout),
        }
    }

    /// The caller has checked its deadline: reads and writes may block again.
    pub(crate) fn begin_calls(&mut self) {
        match self {
            BlockingStream::Tcp(stream) => stream.begin_calls(),
            #[cfg(unix)]
            BlockingStream::Unix(stream) => stream.begin_calls(),
            BlockingStream::Tls(tls) => tls.sock.begin_calls(),
        }
    }

    /// Makes reads and writes non-blocking. Returns the descriptor, for polling.
    pub(crate) fn set_nonblocking(&mut self) -> io::Result<i32> {
        // everything there is must be read: an edge-triggered poller reports it only once
        self.set_call_limit(None);
        let socket = self.socket();
        socket.set_nonblocking(true)?;
        #[cfg(unix)]
        let fd = std::os::fd::AsRawFd::as_raw_fd(&*socket);
        #[cfg(not(unix))]
        let fd = -1;
        Ok(fd)
    }

    /// Whether the server has closed the connection, or sent something unsolicited. Does not wait.
    pub(crate) fn is_stale(&self, blocks: bool) -> bool {
        let socket = self.socket();
        if blocks && socket.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = socket.peek(&mut [MaybeUninit::uninit()]);
        if blocks && socket.set_nonblocking(false).is_err() {
            return true;
        }
        match seen {
            Ok(0) => true,
            // TLS has messages of its own between replies
            Ok(_) => !matches!(self, BlockingStream::Tls(_)),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    pub(crate) fn socket(&self) -> SockRef<'_> {
        match self {
            BlockingStream::Tcp(stream) => SockRef::from(&stream.socket),
            #[cfg(unix)]
            BlockingStream::Unix(stream) => SockRef::from(&stream.socket),
            BlockingStream::Tls(tls) => SockRef::from(&tls.sock.socket),
        }
    }
}

impl Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            BlockingStream::Tcp(stream) => stream.read(buffer),
            #[cfg(unix)]
            BlockingStream::Unix(stream) => stream.read(buffer),
            BlockingStream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            BlockingStream::Tcp(stream) => stream.write(bytes),
            #[cfg(unix)]
            BlockingStream::Unix(stream) => stream.write(bytes),
            BlockingStream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            BlockingStream::Tcp(stream) => stream.flush(),
            #[cfg(unix)]
            BlockingStream::Unix(stream) => stream.flush(),
            BlockingStream::Tls(tls) => tls.flush(),
        }
    }
}
