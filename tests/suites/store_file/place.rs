//! A directory for the files of locks, and clients of it.

use std::path::PathBuf;

use onelock::ClientBuilder;
use onelock_tests::face::{Client, Face};
use onelock_tests::holder::Holder;
use onelock_tests::stage::unhurried;

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.directory.path().display())
    }

    pub(crate) fn client(&self, face: Face) -> Client {
        self.client_with(face, unhurried())
    }

    pub(crate) fn client_with(&self, face: Face, options: ClientBuilder) -> Client {
        Client::build(face, options, &self.url()).unwrap()
    }

    /// Another process with a client.
    pub(crate) fn holder(&self, face: Face) -> Holder {
        Holder::start(env!("CARGO_BIN_EXE_onelock-holder"), face, &self.url())
    }
}

/// Whether nobody has the lock.
pub(crate) fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some_and(|lease| lease.release().is_ok())
}
