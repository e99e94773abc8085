//! Who logs in on a new connection: what its address says, or what the credentials provider answers.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::RedisOptions;
use super::endpoint::{Endpoint, wrong};
use super::line::{Patience, SLICE};
use super::socket::{NO_REPLY, broken, no_thread, not_connected};
use crate::backend::credentials::{Credentials, CredentialsRequest, CredentialsSource, Given};
use crate::driver::clock;
use crate::error::Error;
use crate::machine::{Failure, Time};

/// What every failure of a provider begins with, behind the name of the server.
const PROVIDER: &str = ": the credentials provider ";

/// Whether there is no connection because of the provider: that says nothing about the server.
pub(super) fn is_at_fault(failure: &Failure) -> bool {
    failure.detail.contains(PROVIDER)
}

impl Endpoint {
    /// With the provider of `options`, if there is one.
    pub(super) fn asking(mut self, options: &RedisOptions) -> Result<Endpoint, Error> {
        if options.credentials.is_some() && self.has_credentials() {
            return Err(wrong(
                "the address has a user name or password, and the option credentials is set too; give one of them",
            ));
        }
        self.asks = options.credentials.is_some();
        Ok(self)
    }
}

/// Whom to ask; nobody where the address says it all.
fn source<'a>(options: &'a RedisOptions, endpoint: &Endpoint) -> Option<&'a Arc<CredentialsSource>> {
    options.credentials.as_ref().filter(|_| endpoint.asks)
}

/// The credentials of a new connection to `endpoint` that must be ready by `until`; `None` where the address says it all.
pub(super) async fn ask(
    options: &RedisOptions,
    endpoint: &Endpoint,
    until: Time,
) -> Result<Option<Credentials>, Failure> {
    let Some(source) = source(options, endpoint) else { return Ok(None) };
    let (asker, (sender, answer)) = (Arc::new(()), oneshot::channel());
    // a little less than all the time there is, so that it can be said what took so long
    let limit = until.since(clock::now()) / 8 * 7;
    let request = CredentialsRequest::new(clock::now() + limit, &asker, |given| drop(sender.send(given)));
    source.ask(request).map_err(|error| not_connected(endpoint, &no_thread(&error)))?;
    match timeout(limit, answer).await {
        Ok(given) => read(endpoint, given.ok()).map(Some),
        Err(_) => Err(late(endpoint)),
    }
}

/// The same from a thread.
pub(super) fn ask_blocking(
    options: &RedisOptions,
    endpoint: &Endpoint,
    patience: Patience<'_>,
) -> Result<Option<Credentials>, Failure> {
    let Some(source) = source(options, endpoint) else { return Ok(None) };
    let (asker, (sender, answer)) = (Arc::new(()), mpsc::channel());
    let request = CredentialsRequest::new(patience.until, &asker, move |given| drop(sender.send(given)));
    source.ask(request).map_err(|error| not_connected(endpoint, &no_thread(&error)))?;
    loop {
        let left =
            patience.check().map_err(|why| if why == NO_REPLY { late(endpoint) } else { broken(endpoint, why) })?;
        match answer.recv_timeout(left.min(SLICE)) {
            Ok(given) => return read(endpoint, Some(given)).map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return read(endpoint, None).map(Some),
        }
    }
}

/// A failure of the provider passes: the next connection asks it again.
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
