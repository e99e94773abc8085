//! Making an async connection: resolve, connect, encrypt, shake hands. Nothing of a caller's is sent here.

use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::endpoint::{Endpoint, Place};
use super::handshake::{Handshake, Step, Terms};
use super::pipe::Stream;
use super::resp::{Value, decode};
use super::shared::Shared;
use super::socket::{NO_RESP, Tries, broken, literal, no_connection_in_time, not_connected, reason, tune};
use super::tls;
use crate::driver::clock;
use crate::machine::Failure;

/// A connection after its handshake.
pub(crate) struct Dialled {
    pub(crate) stream: Box<dyn Stream>,
    /// What arrived behind the handshake.
    pub(crate) received: Vec<u8>,
    pub(crate) terms: Terms,
}

/// Makes a connection within the store's connect limit.
pub(crate) async fn dial(shared: &Shared) -> Result<Dialled, Failure> {
    let limit = shared.options.connect_timeout;
    match timeout(limit, open(shared, limit)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(no_connection_in_time(&shared.endpoint)),
    }
}

async fn open(shared: &Shared, limit: Duration) -> Result<Dialled, Failure> {
    let endpoint = &*shared.endpoint;
    let stream: Box<dyn Stream> = match &endpoint.place {
        Place::Unix(path) => unix(path).await.map_err(|error| not_connected(endpoint, &error))?,
        Place::Tcp { host, port } => {
            let stream = tcp(host, *port, limit).await.map_err(|error| not_connected(endpoint, &error))?;
            match shared.tls()? {
                None => Box::new(stream),
                Some(config) => {
                    let name: ServerName<'static> = tls::server_name(host)?;
                    let tls = TlsConnector::from(config).connect(name, stream).await;
                    Box::new(tls.map_err(|error| tls::handshake_failure(endpoint, &error))?)
                }
            }
        }
    };
    introduce(shared, stream).await
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
        None => tokio::net::lookup_host((host, port)).await?.collect(),
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

async fn introduce(shared: &Shared, mut stream: Box<dyn Stream>) -> Result<Dialled, Failure> {
    let endpoint: &Endpoint = &shared.endpoint;
    let mut handshake = Handshake::new(endpoint, shared.options.client_name.as_deref());
    let mut received = Vec::with_capacity(1024);
    let mut step = handshake.begin();
    loop {
        match step {
            Step::Done(terms) => return Ok(Dialled { stream, received, terms }),
            Step::Send(bytes, expected) => {
                // a peer that hangs up at once may have said why; so what can be read counts before what could not be sent
                let unsent = send(&mut stream, &bytes).await.err();
                let mut replies = Vec::with_capacity(expected);
                while replies.len() < expected {
                    match receive(&mut stream, &mut received).await {
                        Ok(reply) => replies.push(reply),
                        Err(why) => {
                            let why = unsent.as_ref().map_or(why, reason);
                            return Err(Handshake::last_words(&replies).unwrap_or_else(|| broken(endpoint, &why)));
                        }
                    }
                }
                step = handshake.replies(&replies)?;
            }
        }
    }
}

async fn send(stream: &mut Box<dyn Stream>, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The next reply, or in words why there is none.
async fn receive(stream: &mut Box<dyn Stream>, received: &mut Vec<u8>) -> Result<Value, String> {
    loop {
        while let Some((value, length)) = decode(received).map_err(|_| NO_RESP.to_owned())? {
            received.drain(..length);
            if !matches!(value, Value::Push(_)) {
                return Ok(value);
            }
        }
        match stream.read_buf(received).await {
            Ok(0) => return Err(reason(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) => return Err(reason(&error)),
        }
    }
}
