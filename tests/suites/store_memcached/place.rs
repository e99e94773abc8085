//! A prefix of its own for each test, on one server for all that do not break it.

use std::sync::LazyLock;

use onelock::ClientBuilder;
use onelock_tests::face::{Client, Face};
use onelock_tests::memcached::Memcached;
use onelock_tests::stage::unhurried;

static SERVER: LazyLock<Memcached> = LazyLock::new(Memcached::start);

pub(crate) fn server() -> &'static Memcached {
    &SERVER
}

/// A client on the server of all.
pub(crate) fn client(face: Face, test: &str) -> Client {
    client_at(face, test, unhurried(), &server().url())
}

pub(crate) fn client_at(face: Face, test: &str, options: ClientBuilder, url: &str) -> Client {
    Client::build(face, options.prefix(format!("{test}{face:?}:")), url).unwrap()
}

/// The address of a port on this machine.
pub(crate) fn at(port: u16) -> String {
    format!("memcached://127.0.0.1:{port}")
}

/// Whether nobody has the lock.
pub(crate) fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some_and(|lease| lease.release().is_ok())
}

/// The key of the item of a short name.
pub(crate) fn item(name: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits: Vec<u8> = name.bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let letter = |six: &[u8]| {
        let number = (0..6).fold(0, |number, at| number << 1 | usize::from(six.get(at).copied().unwrap_or(0)));
        char::from(LETTERS[number])
    };
    bits.chunks(6).map(letter).collect()
}
