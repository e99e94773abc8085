//! Making an async connection: resolve, connect, encrypt, shake hands. Nothing of a caller's is sent here.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redis::Value;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::endpoint::{Endpoint, Place};
use super::handshake::{Handshake, Step, Terms};
use super::replies::{Arrived, NoReply, Replies};
use super::shared::{Common, Shared};
use super::socket::{NO_RESP, Tries, broken, literal, no_connection_in_time, no_thread, not_connected, reason, tune};
use super::{RedisOptions, login, tls};
use crate::backend::Credentials;
use crate::driver::clock;
use crate::machine::Failure;

/// Anything that bytes go through.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection after its handshake, with nothing left to read.
pub(crate) struct Dialled {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) terms: Terms,
}

/// Makes a connection to the node's server within the store's connect limit, finding the server included.
pub(crate) async fn dial(shared: &Shared) -> Result<Dialled, Failure> {
    // a closed store connects no more, whoever asks
    shared.common.check_open()?;
    let (limit, epoch) = (shared.options.connect_timeout, shared.epoch());
    let until = clock::now() + limit;
    let made = timeout(limit, async {
        let endpoint = shared.locate().await?;
        open(&shared.common, &shared.options, endpoint, until.since(clock::now())).await
    });
    let made = made.await.unwrap_or_else(|_| Err(no_connection_in_time(&shared.name)));
    if made.as_ref().is_err_and(|failure| !login::is_at_fault(failure)) {
        shared.missed(epoch);
    }
    made
}

/// Makes a connection to this very server. The caller watches the clock; `limit` is what each of its addresses shares.
pub(crate) async fn open(
    common: &Common,
    options: &RedisOptions,
    endpoint: Arc<Endpoint>,
    limit: Duration,
) -> Result<Dialled, Failure> {
    let until = clock::now() + limit;
    let stream = connect(common, &endpoint, limit).await?;
    let credentials = login::ask(options, &endpoint, until).await?;
    introduce(endpoint, options.client_name.as_deref(), credentials, stream).await
}

async fn connect(common: &Common, endpoint: &Endpoint, limit: Duration) -> Result<Box<dyn Stream>, Failure> {
    let until = clock::now() + limit;
    match &endpoint.place {
        Place::Unix(path) => unix(path).await.map_err(|error| not_connected(endpoint, &error)),
        Place::Tcp { host, port } => {
            let stream = tcp(host, *port, limit).await.map_err(|error| not_connected(endpoint, &error))?;
            match common.tls(endpoint.tls.as_ref())? {
                None => Ok(Box::new(stream)),
                Some(config) => {
                    let name: ServerName<'static> = tls::server_name(host)?;
                    // a little less than all the time there is, so that it can be said what took so long
                    let left = until.since(clock::now());
                    let tls = timeout(left / 8 * 7, TlsConnector::from(config).connect(name, stream)).await;
                    let tls = tls.map_err(|_| tls::no_handshake_in_time(endpoint))?;
                    Ok(Box::new(tls.map_err(|error| tls::handshake_failure(endpoint, &error))?))
                }
            }
        }
    }
}

#[cfg(unix)]
async fn unix(path: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
async fn unix(_: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Err(io::ErrorKind::Unsupported.into())
}

async fn tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let until = clock::now() + limit;
    let addresses = match literal(host, port) {
        Some(address) => vec![address],
        None => resolve(host, port).await?,
    };
    let mut tries = Tries::new(addresses);
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

/// Asks the resolver, which blocks, on a thread of its own: the runtime's pool panics when it gets none.
async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let (sender, found) = oneshot::channel();
    let host = host.to_owned();
    let work = move || {
        let _ = sender.send((host.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    };
    thread::Builder::new().name("onelock-lookup".to_owned()).spawn(work).map_err(|error| no_thread(&error))?;
    found.await.unwrap_or_else(|_| Err(io::Error::other("the lookup ended")))
}

async fn introduce(
    endpoint: Arc<Endpoint>,
    client_name: Option<&str>,
    credentials: Option<Credentials>,
    mut stream: Box<dyn Stream>,
) -> Result<Dialled, Failure> {
    let mut handshake = Handshake::new(&endpoint, client_name).logging_in(credentials.as_ref());
    let (mut replies_in, mut arrived) = (Replies::new(), Arrived::default());
    let mut step = handshake.begin();
    loop {
        match step {
            Step::Done(terms) if replies_in.is_empty() && arrived.0.is_empty() => {
                return Ok(Dialled { endpoint, stream, terms });
            }
            Step::Done(_) => return Err(broken(&endpoint, NO_RESP)),
            Step::Send(bytes, expected) => {
                // a peer that hangs up at once may have said why; so what can be read counts before what could not be sent
                let unsent = send(&mut stream, &bytes).await.err();
                let mut replies = Vec::with_capacity(expected);
                while replies.len() < expected {
                    match receive(&mut stream, &mut replies_in, &mut arrived).await {
                        Ok(reply) => replies.push(reply),
                        Err(why) => {
                            let why = unsent.as_ref().map_or(why, reason);
                            let told = || handshake.unanswered(&replies, broken(&endpoint, &why));
                            return Err(Handshake::last_words(&replies).unwrap_or_else(told));
                        }
                    }
                }
                step = handshake.replies(&replies)?;
            }
        }
    }
}

pub(crate) async fn send(stream: &mut Box<dyn Stream>, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The next reply, or in words why there is none.
pub(crate) async fn receive(
    stream: &mut Box<dyn Stream>,
    replies: &mut Replies,
    arrived: &mut Arrived,
) -> Result<Value, String> {
    loop {
        match replies.next(arrived) {
            Ok(value) => return Ok(value),
            Err(NoReply::Garbage) => return Err(NO_RESP.to_owned()),
            Err(NoReply::Source(_)) => {}
        }
        match stream.read_buf(&mut arrived.0).await {
            Ok(0) => return Err(reason(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) => return Err(reason(&error)),
        }
    }
}
