//! TLS files that change while a client lives.

use std::path::Path;

use onelock::ErrorKind::InvalidArgument;
use onelock::machine::{Op, Outcome};
use onelock::store::redis::RedisOptions;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::wait::wait_for;

use crate::asker::{Asker, LONG, WAYS, key};

/// Certificates are rotated, and a file that is missing today is there tomorrow: each new connection takes what is there.
#[test]
fn tls_files_are_read_again_for_a_new_connection() {
    let server = Server::builder(Flavor::Redis70).tls().config("tls-auth-clients", "yes").start();
    let stranger = Server::builder(Flavor::Redis70).tls().start();
    let ((files, _), (others, _)) = (server.tls().unwrap(), stranger.tls().unwrap());
    for way in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let [ca, cert, private] = ["ca", "cert", "key"].map(|name| folder.path().join(name));
        let options = RedisOptions {
            ca_file: Some(ca.clone()),
            cert_file: Some(cert.clone()),
            key_file: Some(private.clone()),
            ..RedisOptions::default()
        };
        let asker = Asker::with(&server.tls_url(), way, options);
        let put = |from: &Path, to: &Path| assert!(std::fs::copy(from, to).is_ok());
        let op = || Op::Inspect { key: key("a") };
        // a connection that is closed is replaced when it is noticed
        let again = || {
            server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            wait_for(LONG, "another connection", || match asker.answer(&op()).outcome {
                Outcome::Applied(_) => Some(Ok(())),
                Outcome::NotApplied(failure) => Some(Err(failure)),
                Outcome::Indeterminate(_) => None,
            })
        };
        assert_eq!(asker.refusal(&op()).kind, InvalidArgument, "{way:?}: there are no files yet");
        put(&files.ca, &ca);
        put(&others.client_cert, &cert);
        put(&others.client_key, &private);
        assert!(again().is_err(), "{way:?}: a certificate that the server does not know");
        put(&files.client_cert, &cert);
        // in the middle of it they don't fit, and what was read before serves
        assert!(again().is_err(), "{way:?}: half a rotation");
        put(&files.client_key, &private);
        again().unwrap_or_else(|failure| panic!("{way:?}: the new certificate is not used: {failure:?}"));
        put(&others.ca, &ca);
        let failure = again().unwrap_err();
        assert!(failure.detail.contains("certificate"), "{way:?}: {failure:?}");
        put(&files.ca, &ca);
        again().unwrap_or_else(|failure| panic!("{way:?}: {failure:?}"));
    }
}
