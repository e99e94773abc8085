//! Reaching a server: its address, TCP or a socket in the file system, TLS.

use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use super::stream::AsyncStream;
use crate::machine::Failure;
pub(crate) use crate::store::net::{resolve, tcp, tcp_to};
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};
use crate::store::redis::connection::context::StoreState;
use crate::store::redis::connection::socket::not_connected;
use crate::store::redis::connection::tls;
use crate::sys::clock;
use crate::sys::task::timeout;

/// A stream to the server, encrypted if its address asks for that. `limit` is shared by the server's addresses.
pub(super) async fn connect_stream(
    common: &StoreState,
    endpoint: &Endpoint,
    limit: Duration,
) -> Result<Box<dyn AsyncStream>, Failure> {
    let until = clock::now() + limit;
    match &endpoint.addr {
        ConnectionAddr::Unix(path) => unix(path).await.map_err(|error| not_connected(endpoint, &error)),
        ConnectionAddr::Tcp { host, port } => {
            let stream = tcp(host, *port, limit).await.map_err(|error| not_connected(endpoint, &error))?;
            match common.tls(endpoint.tls.as_ref())? {
                None => Ok(Box::new(stream)),
                Some(config) => {
                    let name: ServerName<'static> = tls::server_name(host)?;
                    // less than the whole limit, so that the failure can name what took so long
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
pub(crate) async fn unix(path: &std::path::Path) -> io::Result<Box<dyn AsyncStream>> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
pub(crate) async fn unix(_: &std::path::Path) -> io::Result<Box<dyn AsyncStream>> {
    Err(io::ErrorKind::Unsupported.into())
}
