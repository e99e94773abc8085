//! Who logs in: the user of the address, or what the credentials provider gives for this connection.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::Secret;
use crate::config::credentials::{CredentialsRequest, CredentialsSource};
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::net;
use crate::sys::clock;

/// A user and perhaps a password.
#[derive(PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Option<String>,
}

/// The login of a new connection that must be ready by `until`. A failure of the provider is transient: the next
/// connection asks it again.
pub(crate) async fn login(
    (user, password): (&str, Option<&Secret>),
    credentials: Option<&Arc<CredentialsSource>>,
    until: Time,
    place: &str,
) -> Result<Login, Failure> {
    let Some(source) = credentials else {
        let password = password.map(|password| password.reveal().to_owned());
        return Ok(Login { user: user.to_owned(), password });
    };
    let failed = |kind, why: &str| Failure::transient(kind, format!("{place}: {why}"));
    let (asker, (sender, answer)) = (Arc::new(()), oneshot::channel());
    // less than the whole limit, so that the failure can name what took so long
    let limit = until.since(clock::now()) / 8 * 7;
    let request = CredentialsRequest::new(clock::now() + limit, &asker, |given| drop(sender.send(given)));
    source.ask(request).map_err(|error| failed(ErrorKind::SystemLimit, &net::no_thread(&error).to_string()))?;
    let unavailable = |why: &str| failed(ErrorKind::Unavailable, why);
    let given = match timeout(limit, answer).await {
        Ok(Ok(Ok(given))) => given,
        Ok(Ok(Err(reason))) => return Err(unavailable(&format!("the credentials provider failed: {reason}"))),
        Ok(Err(_)) => return Err(unavailable("the credentials provider ended without an answer")),
        Err(_) => return Err(unavailable("the credentials provider did not answer in time")),
    };
    let (given_user, password) = given.reveal();
    let user = given_user.unwrap_or(user).to_owned();
    if user.is_empty() {
        let detail = format!("{place}: neither the address nor the credentials provider names a user");
        return Err(Failure::lasting(ErrorKind::AuthFailed, detail));
    }
    Ok(Login { user, password: Some(password.to_owned()) })
}
