//! A blocking socket of any kind: TCP, TLS over TCP, or a socket in the file system.

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

use super::endpoint::Place;
use super::paced::Paced;
use super::socket::{Tries, literal, tune};
use crate::driver::clock;

/// A blocking connection.
pub(crate) enum Wire {
    Tcp(Paced<TcpStream>),
    #[cfg(unix)]
    Unix(Paced<UnixStream>),
    Tls(Box<StreamOwned<ClientConnection, Paced<TcpStream>>>),
}

impl Wire {
    /// Resolves and connects; takes as long as the resolver does, and `limit` for the rest.
    pub(crate) fn connect(place: &Place, limit: Duration) -> io::Result<Wire> {
        match place {
            #[cfg(unix)]
            Place::Unix(path) => UnixStream::connect(path).map(|stream| Wire::Unix(Paced::new(stream))),
            #[cfg(not(unix))]
            Place::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
            Place::Tcp { host, port } => {
                let addresses = match literal(host, *port) {
                    Some(address) => vec![address],
                    None => (host.as_str(), *port).to_socket_addrs()?.collect(),
                };
                let until = clock::now() + limit;
                let mut tries = Tries::new(addresses);
                while let Some((address, share)) = tries.next(until.since(clock::now())) {
                    match TcpStream::connect_timeout(&address, share) {
                        Ok(stream) => {
                            tune(&SockRef::from(&stream));
                            return Ok(Wire::Tcp(Paced::new(stream)));
                        }
                        Err(error) => tries.failed(error),
                    }
                }
                Err(tries.give_up())
            }
        }
    }

    /// Puts TLS on a TCP connection. The handshake happens with the first bytes.
    pub(crate) fn encrypt(self, config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Wire> {
        match self {
            Wire::Tcp(stream) => {
                let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
                Ok(Wire::Tls(Box::new(StreamOwned::new(connection, stream))))
            }
            other => Ok(other),
        }
    }

    /// Another way to the same socket, so that one thread writes while another one reads; none where both take turns.
    pub(crate) fn twin(&self) -> Option<Wire> {
        match self {
            Wire::Tcp(stream) => stream.socket.try_clone().ok().map(|twin| Wire::Tcp(Paced::new(twin))),
            #[cfg(unix)]
            Wire::Unix(stream) => stream.socket.try_clone().ok().map(|twin| Wire::Unix(Paced::new(twin))),
            Wire::Tls(_) => None,
        }
    }

    /// Sends all of this, or fails, within `limit` or little more; for a [`Wire::twin`].
    pub(crate) fn send(&self, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
        // looked at only when it is not sent at once
        let mut until = None;
        while !bytes.is_empty() {
            let written = match self {
                Wire::Tcp(stream) => (&mut &stream.socket).write(bytes),
                #[cfg(unix)]
                Wire::Unix(stream) => (&mut &stream.socket).write(bytes),
                Wire::Tls(_) => return Err(io::ErrorKind::Unsupported.into()),
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

    /// Ends the connection for all who use it; whoever reads finds the end.
    pub(crate) fn hang_up(&self) {
        let _ = self.socket().shutdown(std::net::Shutdown::Both);
    }

    /// Drives the TLS handshake; `WouldBlock` as long as it isn't finished.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        self.begin();
        if let Wire::Tls(tls) = self {
            while tls.conn.is_handshaking() {
                tls.conn.complete_io(&mut tls.sock)?;
            }
        }
        Ok(())
    }

    /// How long one read or write may block, and several in a row.
    pub(crate) fn set_slice(&mut self, slice: Duration) -> io::Result<()> {
        let socket = self.socket();
        socket.set_read_timeout(Some(slice))?;
        socket.set_write_timeout(Some(slice))?;
        self.set_pace(Some(slice));
        Ok(())
    }

    fn set_pace(&mut self, slice: Option<Duration>) {
        match self {
            Wire::Tcp(stream) => stream.set_slice(slice),
            #[cfg(unix)]
            Wire::Unix(stream) => stream.set_slice(slice),
            Wire::Tls(tls) => tls.sock.set_slice(slice),
        }
    }

    /// The caller has looked whether it may go on; so reads and writes may block again.
    pub(crate) fn begin(&mut self) {
        match self {
            Wire::Tcp(stream) => stream.begin(),
            #[cfg(unix)]
            Wire::Unix(stream) => stream.begin(),
            Wire::Tls(tls) => tls.sock.begin(),
        }
    }

    /// Reads and writes never block any more. The number of the socket, for those who watch it.
    pub(crate) fn unblock(&mut self) -> io::Result<i32> {
        // what there is is read to its end: who watches is told only once
        self.set_pace(None);
        let socket = self.socket();
        socket.set_nonblocking(true)?;
        #[cfg(unix)]
        let fd = std::os::fd::AsRawFd::as_raw_fd(&*socket);
        #[cfg(not(unix))]
        let fd = -1;
        Ok(fd)
    }

    /// Whether the server has closed the connection, or sent something unasked. Looks without waiting.
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
            Ok(_) => !matches!(self, Wire::Tls(_)),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    pub(crate) fn socket(&self) -> SockRef<'_> {
        match self {
            Wire::Tcp(stream) => SockRef::from(&stream.socket),
            #[cfg(unix)]
            Wire::Unix(stream) => SockRef::from(&stream.socket),
            Wire::Tls(tls) => SockRef::from(&tls.sock.socket),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.read(buffer),
            #[cfg(unix)]
            Wire::Unix(stream) => stream.read(buffer),
            Wire::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.write(bytes),
            #[cfg(unix)]
            Wire::Unix(stream) => stream.write(bytes),
            Wire::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.flush(),
            #[cfg(unix)]
            Wire::Unix(stream) => stream.flush(),
            Wire::Tls(tls) => tls.flush(),
        }
    }
}
