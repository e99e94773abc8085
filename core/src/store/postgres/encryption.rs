//! TLS, as `sslmode` asks for it: whether the server is asked for it, and which certificates are good enough.

use std::io;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::database::{Host, SslMode};
use crate::error::ErrorKind;
use crate::machine::Failure;
use crate::store::net::Stream;
use crate::store::tls::{self, TlsFiles};
use crate::store::tls_configs::TlsConfigs;

/// What a client sends before the startup packet where it wants TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Why a connection was not made, and whether another way with or without TLS may do.
pub(super) struct RefusedWay {
    pub(super) failure: Failure,
    pub(super) other_way: bool,
}

/// One way to make a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Plain,
    TlsIfThere,
    Tls,
}

/// The ways that are tried one after the other. A socket in the file system needs no TLS.
pub(super) fn ways(mode: SslMode, host: &Host) -> &'static [Way] {
    match (mode, host) {
        (SslMode::Disable, _) | (_, Host::Socket(..)) => &[Way::Plain],
        (SslMode::Allow, _) => &[Way::Plain, Way::Tls],
        (SslMode::Prefer, _) => &[Way::TlsIfThere, Way::Plain],
        _ => &[Way::Tls],
    }
}

/// Asks for TLS and makes the handshake. Tells whether the stream is encrypted now.
pub(super) async fn encrypted(
    mut stream: Box<dyn Stream>,
    way: Way,
    host: &Host,
    (files, configs): (&TlsFiles, &TlsConfigs),
    place: &str,
) -> Result<(Box<dyn Stream>, bool), RefusedWay> {
    let Host::Tcp(name, _) = host else { return Ok((stream, false)) };
    if way == Way::Plain {
        return Ok((stream, false));
    }
    // nothing of the server's certificate matters before it has one to show
    let mut answer = [0];
    let asked = async {
        stream.write_all(&SSL_REQUEST).await?;
        stream.flush().await?;
        stream.read_exact(&mut answer).await
    };
    if let Err(error) = asked.await {
        let detail = format!("{place}: no answer to the question for TLS: {error}");
        return Err(RefusedWay { failure: Failure::transient(ErrorKind::Unavailable, detail), other_way: false });
    }
    match (answer[0], way) {
        (b'S', _) => {}
        (b'N', Way::TlsIfThere) => return Ok((stream, false)),
        (other, _) => {
            let detail = format!("{place}: the server does not speak TLS; if that is right, write sslmode=disable");
            let failure = if other == b'N' {
                Failure::lasting(ErrorKind::Unavailable, detail)
            } else {
                // an error message without TLS, such as that it has no process to spare
                Failure::transient(ErrorKind::Unavailable, format!("{place}: no TLS at the moment"))
            };
            return Err(RefusedWay { failure, other_way: true });
        }
    }
    let lasting = |failure| RefusedWay { failure, other_way: true };
    let config = configs.config(files).map_err(lasting)?;
    let name: ServerName<'static> = tls::server_name(name).map_err(lasting)?;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok((Box::new(stream), true)),
        Err(error) => Err(RefusedWay { failure: handshake_failure(place, &error), other_way: true }),
    }
}

/// What rustls rejects is lasting; a broken connection is transient.
fn handshake_failure(place: &str, error: &io::Error) -> Failure {
    let detail = format!("{place}: TLS failed: {error}");
    if error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some() {
        return Failure::lasting(ErrorKind::Unavailable, format!("{detail}{}", tls::advice(&detail)));
    }
    Failure::transient(ErrorKind::Unavailable, detail)
}
