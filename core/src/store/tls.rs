//! TLS by rustls, with an explicit crypto provider: another crate in the same process cannot change it.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

pub(crate) use super::tls_files::TlsFiles;
use crate::error::ErrorKind;
use crate::machine::Failure;

/// The configuration of one server's connections. Reads the named files.
pub(crate) fn config(files: &TlsFiles) -> Result<Arc<ClientConfig>, Failure> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = if files.insecure {
        Arc::new(AnyCertificate(provider.clone()))
    } else {
        let roots = Arc::new(roots(files.ca_file.as_deref())?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| broken(&error.to_string()))?;
        if files.any_name { Arc::new(AnyName(verifier)) } else { verifier }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| broken(&error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match (&files.cert_file, &files.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| unreadable(key_file, &error))?;
            builder
                .with_client_auth_cert(certificates(cert_file)?, key)
                .map_err(|error| broken(&format!("cert_file and key_file don't fit: {error}")))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// The name that the server's certificate must carry.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, Failure> {
    ServerName::try_from(host.to_owned()).map_err(|_| broken(&format!("\"{host}\" can't stand in a certificate")))
}

/// More than rustls says about why a handshake failed, where there is more.
pub(crate) fn advice(detail: &str) -> &'static str {
    if detail.contains("CaUsedAsEndEntity") {
        "; the server shows the certificate of an authority, give it one that the authority signed"
    } else {
        ""
    }
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    let certificates = match ca_file {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    // a system's store often holds a few that do not parse; the others still count
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(broken(&match ca_file {
            Some(path) => format!("{} holds no usable certificate", path.display()),
            None => "this system has no certificate authorities; name some with ca_file".to_owned(),
        }));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, &error))?.collect();
    let certificates = certificates.map_err(|error| unreadable(path, &error))?;
    if certificates.is_empty() {
        return Err(broken(&format!("{} holds no certificate", path.display())));
    }
    Ok(certificates)
}

fn unreadable(path: &Path, error: &rustls::pki_types::pem::Error) -> Failure {
    broken(&format!("{} can't be read: {error}", path.display()))
}

fn broken(detail: &str) -> Failure {
    Failure::lasting(ErrorKind::InvalidArgument, format!("TLS can't be set up: {detail}"))
}

/// Accepts any certificate: `tls_insecure`. The handshake itself is still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts a certificate of any host. Who signed it is checked, before its name would be.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        match self.0.verify_server_cert(cert, others, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
