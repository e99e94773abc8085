//! The first steps of a connection: name, TCP, TLS.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::ErrorKind;
use crate::store::diagnosis::FindingList;
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};
use crate::store::redis::connection::context::StoreState;
use crate::store::redis::connection::multiplexed::connect::AsyncStream;
use crate::store::redis::connection::multiplexed::dial::{resolve, tcp_to, unix};
use crate::store::redis::connection::socket::{literal, not_connected};
use crate::store::redis::connection::tls;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::value::printable;
use crate::sys::clock;
use crate::sys::task::timeout;

/// A stream, and both its ends.
type OpenStream = (Box<dyn AsyncStream>, Option<(SocketAddr, SocketAddr)>);

/// Opens a stream; `None` where a step has failed.
pub(super) async fn open(endpoint: &Endpoint, options: &RedisOptions, found: &mut FindingList) -> Option<OpenStream> {
    let (host, port) = match &endpoint.addr {
        ConnectionAddr::Unix(path) => {
            return match unix(path).await {
                Ok(stream) => {
                    found.passed("name", format!("{} is a socket", path.display()));
                    Some((stream, None))
                }
                Err(error) => {
                    found.failure("name", &not_connected(endpoint, &error));
                    None
                }
            };
        }
        ConnectionAddr::Tcp { host, port } => (host, *port),
    };
    let addresses = find(endpoint, host, port, options.connect_timeout, found).await?;
    let begun = clock::now();
    let stream = match tcp_to(addresses, options.connect_timeout).await {
        Ok(stream) => stream,
        Err(error) => {
            let failure = not_connected(endpoint, &error);
            let todo =
                format!("check that the server runs, listens on port {port}, and that no firewall is in between");
            let detail = failure.detail.strip_prefix(&format!("{endpoint}: ")).unwrap_or(&failure.detail).to_owned();
            found.failed("tcp", failure.kind, detail, todo);
            return None;
        }
    };
    let ends = stream.local_addr().ok().zip(stream.peer_addr().ok());
    let peer = ends.map_or_else(String::new, |(_, peer)| format!("connected to {peer} "));
    let took = clock::now().since(begun).as_secs_f64() * 1e3;
    found.passed("tcp", format!("{peer}in {took:.1} ms"));
    found.measured(&[("connect_ms", took)]);
    encrypt(endpoint, host, options, stream, found).await.map(|stream| (stream, ends))
}

async fn find(
    endpoint: &Endpoint,
    host: &str,
    port: u16,
    limit: Duration,
    found: &mut FindingList,
) -> Option<Vec<SocketAddr>> {
    if let Some(address) = literal(host, port) {
        found.passed("name", format!("{} needs no lookup", address.ip()));
        return Some(vec![address]);
    }
    let name = printable(host);
    let todo = "check the host name in the address, and the resolver of this machine";
    match timeout(limit, resolve(host, port)).await {
        Ok(Ok(addresses)) if !addresses.is_empty() => {
            let mut ips: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
            ips.dedup();
            found.passed("name", format!("{name} is {}", ips.join(", ")));
            Some(addresses)
        }
        Ok(Ok(_)) => {
            found.failed("name", ErrorKind::Unavailable, format!("{name} has no address"), todo);
            None
        }
        Ok(Err(error)) => {
            let kind = not_connected(endpoint, &error).kind;
            found.failed("name", kind, format!("{name} is not found: {error}"), todo);
            None
        }
        Err(_) => {
            let detail = format!("{name}: the resolver did not answer in time");
            found.failed("name", ErrorKind::Unavailable, detail, todo);
            None
        }
    }
}

async fn encrypt(
    endpoint: &Endpoint,
    host: &str,
    options: &RedisOptions,
    stream: TcpStream,
    found: &mut FindingList,
) -> Option<Box<dyn AsyncStream>> {
    if endpoint.tls.is_none() {
        found.skipped("tls", "plain text: the address does not ask for TLS");
        return Some(Box::new(stream));
    }
    let made = async {
        let Some(config) = StoreState::default().tls(endpoint.tls.as_ref())? else { return Ok(None) };
        let name = tls::server_name(host)?;
        match timeout(options.connect_timeout, TlsConnector::from(config).connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Some(stream)),
            Ok(Err(error)) => Err(tls::handshake_failure(endpoint, &error)),
            Err(_) => Err(tls::no_handshake_in_time(endpoint)),
        }
    };
    match made.await {
        Ok(Some(stream)) => {
            let (_, session) = stream.get_ref();
            let version = session.protocol_version().map_or_else(String::new, |version| format!("{version:?}"));
            let insecure = endpoint.tls.as_ref().is_some_and(|files| files.insecure);
            let shown = version.replace("TLSv1_", "TLS 1.");
            if insecure {
                let todo = "name the certificate authority with ca_file, and leave tls_insecure out";
                found.warning("tls", format!("{shown}; any certificate is believed (tls_insecure)"), todo);
            } else {
                found.passed("tls", format!("{shown}; the certificate is valid for {}", printable(host)));
            }
            Some(Box::new(stream))
        }
        Ok(None) => None,
        Err(failure) => {
            let detail = failure.detail.strip_prefix(&format!("{endpoint}: ")).unwrap_or(&failure.detail).to_owned();
            let todo =
                "use the port that speaks TLS, a certificate for this host, and ca_file for an authority of your own";
            found.failed("tls", failure.kind, detail, todo);
            None
        }
    }
}
