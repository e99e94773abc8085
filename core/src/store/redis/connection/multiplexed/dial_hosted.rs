//! Reaching a server through the host, which knows of names, addresses and TLS.

use std::path::PathBuf;
use std::time::Duration;

use super::stream::AsyncStream;
use crate::machine::Failure;
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};
use crate::store::redis::connection::context::StoreState;
use crate::store::redis::connection::socket::not_connected;
use crate::sys::hosted::stream::HostStream;
use crate::sys::hosted::{Certificates, Target};

/// A stream to the server, encrypted if its address asks for that. The caller watches the clock.
pub(crate) async fn connect_stream(
    _: &StoreState,
    endpoint: &Endpoint,
    _: Duration,
) -> Result<Box<dyn AsyncStream>, Failure> {
    fn text(path: Option<&PathBuf>) -> Option<&str> {
        path.and_then(|path| path.to_str())
    }
    let target = match &endpoint.addr {
        ConnectionAddr::Unix(path) => Target::Path(path.to_str().unwrap_or_default()),
        ConnectionAddr::Tcp { host, port } => Target::Server {
            host,
            port: *port,
            tls: endpoint.tls.as_ref().map(|files| Certificates {
                authorities: text(files.ca_file.as_ref()),
                certificate: text(files.cert_file.as_ref()),
                key: text(files.key_file.as_ref()),
                any_certificate: files.insecure,
                any_name: files.any_name,
            }),
        },
    };
    let stream = HostStream::dial(&target).await.map_err(|error| not_connected(endpoint, &error))?;
    Ok(Box::new(stream))
}
