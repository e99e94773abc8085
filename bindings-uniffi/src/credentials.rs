//! Credentials of new connections, from a function of the other language: the request is queued, and answered by its number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use onelock::{Credentials, CredentialsProvider, CredentialsRequest};

use crate::events::Queue;

/// What the thread for credentials is told.
#[derive(Clone, Copy, Debug, uniffi::Enum)]
pub enum NativeCredentialsEvent {
    /// A new connection wants credentials from a provider.
    Wanted { provider: i64, request: i64 },
    /// A provider will not be asked any more.
    Gone { provider: i64 },
}

static EVENTS: Queue<NativeCredentialsEvent> = Queue::new();
static REQUESTS: LazyLock<Mutex<HashMap<i64, CredentialsRequest>>> = LazyLock::new(Mutex::default);
static NUMBERS: AtomicI64 = AtomicI64::new(1);

/// A function that the other language keeps under a number, for as long as connections may call it.
pub(crate) struct Provider(pub(crate) i64);

impl CredentialsProvider for Provider {
    fn ask(&self, request: CredentialsRequest) {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        REQUESTS.lock().unwrap_or_else(PoisonError::into_inner).insert(number, request);
        EVENTS.push(NativeCredentialsEvent::Wanted { provider: self.0, request: number });
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        EVENTS.push(NativeCredentialsEvent::Gone { provider: self.0 });
    }
}

/// Waits for the next one, for ever. For one thread of the process.
#[uniffi::export]
pub fn next_credentials_event() -> NativeCredentialsEvent {
    EVENTS.next()
}

/// Answers a request, or fails it with a reason. Does nothing if it was answered before.
#[uniffi::export]
pub fn answer_credentials(request: i64, username: String, password: String, refused: Option<String>) {
    let asked = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner).remove(&request);
    let Some(asked) = asked else { return };
    match refused {
        None => asked.answer(Ok::<_, String>(Credentials::new(username, password))),
        Some(reason) => asked.answer(Err(reason)),
    }
}
