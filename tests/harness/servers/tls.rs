//! Certificates for one server, made on the spot: an authority of its own, one for the server, one for a client.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// The files of a server that speaks TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The authority that signed both certificates; what a client must trust.
    pub ca: PathBuf,
    /// A certificate that the server accepts from a client.
    pub client_cert: PathBuf,
    /// The key of that certificate.
    pub client_key: PathBuf,
    pub(crate) server_cert: PathBuf,
    pub(crate) server_key: PathBuf,
}

impl Tls {
    /// Makes the files in `folder`. The server's certificate is valid for `names` only.
    pub(crate) fn create(folder: &Path, names: &[String]) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "onelock tests");
        let key = KeyPair::generate().unwrap();
        let ca = save(folder, "ca.crt", &authority.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(authority, key);
        let (server_cert, server_key) = signed(folder, "server", names, &issuer);
        let (client_cert, client_key) = signed(folder, "client", &[], &issuer);
        Self { ca, client_cert, client_key, server_cert, server_key }
    }
}

fn signed(folder: &Path, who: &str, names: &[String], issuer: &Issuer<'_, KeyPair>) -> (PathBuf, PathBuf) {
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, who);
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let cert = save(folder, &format!("{who}.crt"), &certificate.pem());
    (cert, save(folder, &format!("{who}.key"), &key.serialize_pem()))
}

fn save(folder: &Path, name: &str, pem: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, pem).unwrap();
    path
}
