//! The client, from the options that all subcommands share.

use onelock::ClientBuilder;
use onelock::blocking::Client;

use crate::arguments::Server;
use crate::status::Failure;

/// The builder with what the options say. `patient`: the time limits are the library's.
pub(crate) fn builder(server: &Server) -> ClientBuilder {
    let mut builder = Client::builder().prefix(server.prefix.as_deref().unwrap_or_default());
    if let Some(path) = &server.ca_file {
        builder = builder.ca_file(path);
    }
    if let (Some(cert), Some(key)) = (&server.cert_file, &server.key_file) {
        builder = builder.client_certificate(cert, key);
    }
    if server.tls_insecure {
        builder = builder.tls_insecure(true);
    }
    match &server.label {
        Some(label) => builder.label(label),
        None => builder.label("onelock"),
    }
}

/// A client that connects when it is first used.
pub(crate) fn client(server: &Server) -> Result<Client, Failure> {
    Ok(builder(server).build_blocking(address(server))?)
}

/// An empty address is what the library reads from `$ONELOCK_URL`.
pub(crate) fn address(server: &Server) -> &str {
    server.url.as_deref().unwrap_or_default()
}
