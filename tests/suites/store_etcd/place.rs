//! A namespace of its own for each test, on one server for all that do not break it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use onelock::ClientBuilder;
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, Face};
use onelock_tests::stage::unhurried;
use onelock_tests::wire::Rules;

/// One for all tests that do not break it; each has a namespace of its own.
pub(crate) static SERVER: LazyLock<Etcd> = LazyLock::new(Etcd::start);
static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Place {
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { namespace: format!("test-{}/", NUMBER.fetch_add(1, Ordering::Relaxed)) }
    }

    pub(crate) fn url(&self, query: &str) -> String {
        SERVER.url(&format!("/{}?{query}", self.namespace))
    }

    /// The same through a wire that listens on this port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        format!("etcd://127.0.0.1:{port}/{}", self.namespace)
    }

    pub(crate) fn client(&self, face: Face) -> Client {
        self.client_with(face, unhurried())
    }

    pub(crate) fn client_with(&self, face: Face, options: ClientBuilder) -> Client {
        Client::build(face, options, &self.url("")).unwrap()
    }

    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        SERVER.keys(&format!("{}{name}", self.namespace))
    }
}

pub(crate) fn losing_reply_to(text: &str) -> Rules {
    Rules { lose_reply_to: Some(text.to_owned()), ..Rules::default() }
}

pub(crate) fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some_and(|lease| lease.release().is_ok())
}
