//! The credentials provider: asked for user and password of each new connection, for services whose passwords are
//! tokens that expire.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{io, thread};

use super::Secret;
use crate::machine::Time;
use crate::sys::clock;

/// So many calls of one client's provider run at a time at most; further ones wait for their turn.
const THREADS: usize = 16;
/// Of what a provider says about its failure so many characters are shown.
const SHOWN: usize = 300;

/// A user name, or none for the server's default user, and a password. `Debug` shows neither.
///
/// ```
/// let of_a_user = onelock::Credentials::new("billing", "a token");
/// let of_the_default_user = onelock::Credentials::password("a token");
/// assert_eq!(format!("{of_a_user:?}"), "Credentials(***)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: Secret,
}

impl Credentials {
    /// A user and a password. An empty name means the server's default user.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Credentials {
        let username = Some(username.into()).filter(|name| !name.is_empty());
        Credentials { username, password: Secret::new(password) }
    }

    /// A password of the server's default user.
    pub fn password(password: impl Into<String>) -> Credentials {
        Credentials { username: None, password: Secret::new(password) }
    }

    pub(crate) fn reveal(&self) -> (Option<&str>, &str) {
        (self.username.as_deref(), self.password.reveal())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// Gives the credentials of each new connection; see [`ClientBuilder::credentials`](crate::ClientBuilder::credentials).
///
/// Every closure that returns `Result<Credentials, E>` is one. Implement it for what answers later.
///
/// ```
/// use onelock::{Credentials, CredentialsProvider, CredentialsRequest};
///
/// /// Fetches tokens on the runtime of the program.
/// struct Tokens(tokio::runtime::Handle);
///
/// impl CredentialsProvider for Tokens {
///     fn ask(&self, request: CredentialsRequest) {
///         self.0.spawn(async move { request.answer(fetch().await) });
///     }
/// }
///
/// async fn fetch() -> Result<Credentials, std::io::Error> {
///     Ok(Credentials::new("billing", "a token"))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::Client::builder().credentials(Tokens(tokio::runtime::Handle::current())).build("redis://h")?;
/// # Ok(()) }
/// ```
pub trait CredentialsProvider: Send + Sync + 'static {
    /// Answers `request`, now or later, from any thread. Called on a thread kept for this, where it may block; by several
    /// threads at a time, 16 at most.
    fn ask(&self, request: CredentialsRequest);
}

impl<F, E> CredentialsProvider for F
where
    F: Fn() -> Result<Credentials, E> + Send + Sync + 'static,
    E: Display,
{
    fn ask(&self, request: CredentialsRequest) {
        request.answer(self());
    }
}

impl<P: CredentialsProvider + ?Sized> CredentialsProvider for Arc<P> {
    fn ask(&self, request: CredentialsRequest) {
        (**self).ask(request);
    }
}

/// What becomes of a request: credentials, or in words why there are none.
pub(crate) type Given = Result<Credentials, String>;

/// A connection waits for credentials. Dropped without an answer, it is not made.
pub struct CredentialsRequest {
    until: Time,
    asker: Weak<()>,
    give: Box<dyn FnOnce(Given) + Send>,
}

impl CredentialsRequest {
    /// The caller keeps `asker` alive while it waits, until `until` at most.
    pub(crate) fn new(until: Time, asker: &Arc<()>, give: impl FnOnce(Given) + Send + 'static) -> CredentialsRequest {
        CredentialsRequest { until, asker: Arc::downgrade(asker), give: Box::new(give) }
    }

    /// Answers with credentials, or with the reason why there are none, which stands in the error of the call. An answer
    /// that comes too late is dropped.
    pub fn answer<E: Display>(self, given: Result<Credentials, E>) {
        (self.give)(given.map_err(|error| shown(&error.to_string())));
    }

    /// How long the connection still waits; zero when it waits no more.
    pub fn time_left(&self) -> Duration {
        if self.asker.strong_count() == 0 { Duration::ZERO } else { self.until.since(clock::now()) }
    }
}

impl fmt::Debug for CredentialsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsRequest").field("time_left", &self.time_left()).finish_non_exhaustive()
    }
}

/// A foreign text on one line, cut to a length.
fn shown(text: &str) -> String {
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    let line: String = text.trim().chars().take(SHOWN).map(plain).collect();
    if text.trim().chars().nth(SHOWN).is_some() { line + "..." } else { line }
}

/// A provider as an option of a client.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn CredentialsProvider>);

impl Provider {
    pub(crate) fn new(provider: impl CredentialsProvider) -> Provider {
        Provider(Arc::new(provider))
    }

    /// For one store, and so for one process.
    pub(crate) fn source(&self) -> Arc<CredentialsSource> {
        Arc::new(CredentialsSource { provider: self.clone(), calls: Mutex::default() })
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsProvider")
    }
}

/// Where one store gets its credentials from: the provider, and the threads on which it is called.
#[derive(Debug)]
pub struct CredentialsSource {
    provider: Provider,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    waiting: VecDeque<CredentialsRequest>,
    threads: usize,
}

impl CredentialsSource {
    /// Asks `provider`.
    pub fn new(provider: impl CredentialsProvider) -> Arc<CredentialsSource> {
        Provider::new(provider).source()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // no code of the provider runs while it is locked
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the provider asked, on a thread that ends when nothing is left to ask. `Err` when the machine gave none.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn ask(self: &Arc<Self>, request: CredentialsRequest) -> io::Result<()> {
        {
            let mut calls = self.calls();
            calls.waiting.push_back(request);
            if calls.threads >= THREADS {
                return Ok(());
            }
            calls.threads += 1;
        }
        let source = self.clone();
        let spawned = thread::Builder::new().name("onelock-login".to_owned()).spawn(move || source.work());
        let Err(error) = spawned else { return Ok(()) };
        let mut calls = self.calls();
        calls.threads -= 1;
        if calls.threads > 0 {
            // another thread takes it
            return Ok(());
        }
        let left = std::mem::take(&mut calls.waiting);
        drop(calls);
        drop(left);
        Err(error)
    }

    /// Has the provider asked by a task of its own: there are no threads.
    #[cfg(target_family = "wasm")]
    #[allow(clippy::unnecessary_wraps)] // as where a machine may give no thread
    pub(crate) fn ask(self: &Arc<Self>, request: CredentialsRequest) -> io::Result<()> {
        let source = self.clone();
        crate::sys::task::spawn(async move { source.provider.0.ask(request) });
        Ok(())
    }

    fn work(&self) {
        while let Some(request) = self.next() {
            // the request is dropped on the way, which tells the caller
            if catch_unwind(AssertUnwindSafe(|| self.provider.0.ask(request))).is_err() {
                tracing::error!("a credentials provider panicked; the next connection asks it again");
            }
        }
    }

    /// The next request that somebody waits for; `None` ends the thread.
    fn next(&self) -> Option<CredentialsRequest> {
        let mut calls = self.calls();
        while let Some(request) = calls.waiting.pop_front() {
            if !request.time_left().is_zero() {
                return Some(request);
            }
        }
        calls.threads -= 1;
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Asks, and tells what came of it; nothing when the request was dropped.
    fn asked(source: &Arc<CredentialsSource>) -> (Arc<()>, mpsc::Receiver<Given>) {
        let (asker, (sender, receiver)) = (Arc::new(()), mpsc::channel());
        let give = move |given| drop(sender.send(given));
        source.ask(CredentialsRequest::new(clock::now() + LONG, &asker, give)).unwrap();
        (asker, receiver)
    }

    #[test]
    fn neither_name_nor_password_is_shown() {
        let credentials = Credentials::new("billing", "hunter2");
        let source = CredentialsSource::new(move || Ok::<_, String>(credentials.clone()));
        let (_asker, given) = asked(&source);
        let given = given.recv_timeout(LONG).unwrap();
        for text in [format!("{given:?}"), format!("{source:?}")] {
            assert!(!text.contains("hunter2") && !text.contains("billing"), "{text}");
        }
        assert_eq!(given.unwrap().reveal(), (Some("billing"), "hunter2"));
        assert_eq!(Credentials::new("", "x").reveal(), (None, "x"));
    }

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let source = CredentialsSource::new(|| Err(format!(" no\ntoken {}", "x".repeat(1000))));
        let (_asker, given) = asked(&source);
        let reason = given.recv_timeout(LONG).unwrap().unwrap_err();
        assert!(reason.starts_with("no token x") && reason.ends_with("x...") && reason.len() == SHOWN + 3, "{reason}");
    }

    #[test]
    fn a_provider_that_panics_is_asked_again() {
        let source = CredentialsSource::new(|| -> Result<Credentials, String> { panic!("planted") });
        for _ in 0..3 {
            let (_asker, given) = asked(&source);
            assert_eq!(given.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
        }
    }

    #[test]
    fn so_many_calls_at_a_time_and_none_for_those_who_went_away() {
        let (entered, entries) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let (entered, gate) = (Mutex::new(entered), Mutex::new(gate));
        let source = CredentialsSource::new(move || {
            entered.lock().unwrap().send(()).unwrap();
            gate.lock().unwrap().recv().map(|()| Credentials::password("x"))
        });
        let first: Vec<_> = (0..THREADS).map(|_| asked(&source)).collect();
        for _ in 0..THREADS {
            entries.recv_timeout(LONG).unwrap();
        }
        let gone = asked(&source);
        drop(gone);
        let waiting = asked(&source);
        assert_eq!(source.calls().threads, THREADS);
        for _ in 0..=THREADS {
            open.send(()).unwrap();
        }
        for (_asker, given) in first.iter().chain([&waiting]) {
            assert!(given.recv_timeout(LONG).unwrap().is_ok());
        }
        drop(open);
        assert_eq!(entries.try_iter().count(), 1, "whoever went away is not asked for");
        let end = clock::now() + LONG;
        while source.calls().threads > 0 && clock::now() < end {
            thread::yield_now();
        }
        assert_eq!(source.calls().threads, 0, "the threads have ended");
    }
}
