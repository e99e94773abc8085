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

/// For what makes no sense in one process: an address of locks that no other process sees.
pub(crate) fn refuse_memory(server: &Server) -> Result<(), Failure> {
    if is_of_scheme(server, "memory:") {
        return Err(Failure::usage(
            "memory:// is within this process alone: nobody would be excluded. For the processes of one machine use \
             file:///FOLDER, for several machines the address of a server",
        ));
    }
    Ok(())
}

/// Whether a majority of several servers decides there.
pub(crate) fn is_a_majority(server: &Server) -> bool {
    is_of_scheme(server, "redlock") || whole_address(server).split_whitespace().nth(1).is_some()
}

fn is_of_scheme(server: &Server, scheme: &str) -> bool {
    let address = whole_address(server);
    address.trim_start().get(..scheme.len()).is_some_and(|front| front.eq_ignore_ascii_case(scheme))
}

/// What the options say, or the environment.
fn whole_address(server: &Server) -> String {
    let given = address(server);
    if given.is_empty() { std::env::var(onelock::URL_VARIABLE).unwrap_or_default() } else { given.to_owned() }
}

/// An empty address is what the library reads from `$ONELOCK_URL`.
pub(crate) fn address(server: &Server) -> &str {
    server.url.as_deref().unwrap_or_default()
}
