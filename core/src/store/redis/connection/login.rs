//! The credentials of a new connection: those of its address, or those of the credentials provider.

use std::sync::Arc;
#[cfg(not(target_family = "wasm"))]
use std::sync::mpsc::{self, RecvTimeoutError};

use tokio::sync::oneshot;

#[cfg(not(target_family = "wasm"))]
use super::deadline::{Deadline, POLL_INTERVAL};
#[cfg(not(target_family = "wasm"))]
use super::socket::NO_REPLY;
use super::socket::{broken, no_thread, not_connected};
use crate::config::credentials::{Credentials, CredentialsRequest, CredentialsSource, Given};
use crate::error::{Error, ErrorKind};
use crate::machine::{Failure, Time};
use crate::store::redis::address::endpoint::{Endpoint, wrong};
use crate::store::redis::options::RedisOptions;
use crate::sys::clock;
use crate::sys::task::timeout;

/// Every failure of a provider contains this, after the name of the server.
const PROVIDER_WORDS: &str = ": the credentials provider ";

/// Whether the credentials provider failed: that says nothing about the server.
pub(crate) fn is_provider_failure(failure: &Failure) -> bool {
    failure.detail.contains(PROVIDER_WORDS)
}

/// Whether credentials that the server refused may have been replaced since the provider told them. A server keeps a
/// connection whose login it refused.
pub(crate) fn may_have_changed(refused: &Failure, credentials: Option<&Credentials>) -> bool {
    refused.kind == ErrorKind::AuthFailed && credentials.is_some()
}

impl Endpoint {
    /// With the provider of `options`, if there is one.
    pub(crate) fn with_provider(mut self, options: &RedisOptions) -> Result<Endpoint, Error> {
        if options.credentials.is_some() && self.has_credentials() {
            return Err(wrong(
                "the address has a user name or password, and the option credentials is set too; give one of them",
            ));
        }
        self.uses_provider = options.credentials.is_some();
        Ok(self)
    }
}

/// The provider; none where the address has the credentials.
fn source<'a>(options: &'a RedisOptions, endpoint: &Endpoint) -> Option<&'a Arc<CredentialsSource>> {
    options.credentials.as_ref().filter(|_| endpoint.uses_provider)
}

/// The credentials of a new connection to `endpoint` that must be ready by `until`; `None` where the address has them.
pub(crate) async fn credentials(
    options: &RedisOptions,
    endpoint: &Endpoint,
    until: Time,
) -> Result<Option<Credentials>, Failure> {
    let Some(source) = source(options, endpoint) else { return Ok(None) };
    let (asker, (sender, answer)) = (Arc::new(()), oneshot::channel());
    // less than the whole limit, so that the failure can name what took so long
    let limit = until.since(clock::now()) / 8 * 7;
    let request = CredentialsRequest::new(clock::now() + limit, &asker, |given| drop(sender.send(given)));
    source.ask(request).map_err(|error| not_connected(endpoint, &no_thread(&error)))?;
    match timeout(limit, answer).await {
        Ok(given) => read(endpoint, given.ok()).map(Some),
        Err(_) => Err(late(endpoint)),
    }
}

/// The same from a thread.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn credentials_blocking(
    options: &RedisOptions,
    endpoint: &Endpoint,
    deadline: Deadline<'_>,
) -> Result<Option<Credentials>, Failure> {
    let Some(source) = source(options, endpoint) else { return Ok(None) };
    let (asker, (sender, answer)) = (Arc::new(()), mpsc::channel());
    let request = CredentialsRequest::new(deadline.until, &asker, move |given| drop(sender.send(given)));
    source.ask(request).map_err(|error| not_connected(endpoint, &no_thread(&error)))?;
    loop {
        let left =
            deadline.check().map_err(|why| if why == NO_REPLY { late(endpoint) } else { broken(endpoint, why) })?;
        match answer.recv_timeout(left.min(POLL_INTERVAL)) {
            Ok(given) => return read(endpoint, Some(given)).map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return read(endpoint, None).map(Some),
        }
    }
}

/// A failure of the provider is transient: the next connection asks it again.
fn read(endpoint: &Endpoint, given: Option<Given>) -> Result<Credentials, Failure> {
    match given {
        Some(Ok(credentials)) => Ok(credentials),
        Some(Err(reason)) => Err(broken(endpoint, &format!("the credentials provider failed: {reason}"))),
        None => Err(broken(endpoint, "the credentials provider ended without an answer")),
    }
}

fn late(endpoint: &Endpoint) -> Failure {
    broken(endpoint, "the credentials provider did not answer in time")
}
