//! The TLS configuration of a store's connections, as its files are now: certificates are rotated, and a file that is missing
//! today may be there tomorrow.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;

use super::endpoint::TlsFiles;
use super::tls;
use crate::driver::clock;
use crate::machine::{Failure, Time};

/// The authorities of the system are read again for a new connection after so long: nobody tells when they change.
const SYSTEM_AGE: Duration = Duration::from_secs(300);

/// What was read last, whether or not that was of use.
#[derive(Default)]
pub(crate) struct Certificates(Mutex<Option<Known>>);

struct Known {
    files: TlsFiles,
    /// As the files were just before they were read.
    stamps: Stamps,
    read_at: Time,
    config: Arc<ClientConfig>,
}

/// What tells a file from its successor; `None` for one that can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    number: (u64, i64, i64),
}

type Stamps = [Option<Stamp>; 3];

impl Certificates {
    /// The configuration for a new connection. Reads the files if they have changed since they were read; if that fails
    /// in the middle of a rotation, what was read before serves once more.
    pub(crate) fn config(&self, files: &TlsFiles) -> Result<Arc<ClientConfig>, Failure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stamps, now) = (stamps(files), clock::now());
        let of_these = known.as_ref().filter(|known| known.files == *files);
        if let Some(known) = of_these.filter(|known| known.stamps == stamps && known.is_young(now)) {
            return Ok(known.config.clone());
        }
        match tls::config(files) {
            Ok(config) => {
                *known = Some(Known { files: files.clone(), stamps, read_at: now, config: config.clone() });
                Ok(config)
            }
            Err(failure) => match of_these {
                Some(known) => {
                    tracing::warn!(
                        cause = failure.detail,
                        "the TLS files have changed and can't be used; those read before serve until they can"
                    );
                    Ok(known.config.clone())
                }
                None => Err(failure),
            },
        }
    }
}

impl Known {
    fn is_young(&self, now: Time) -> bool {
        self.files.ca_file.is_some() || self.files.insecure || now.since(self.read_at) < SYSTEM_AGE
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    [&files.ca_file, &files.cert_file, &files.key_file].map(|path| path.as_deref().and_then(stamp))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    Some(Stamp { modified: file.modified().ok(), length: file.len(), number: number(&file) })
}

/// A file put in the place of another has a number of its own; and what is written at the same moment and as long as
/// before still moves the time of the change.
#[cfg(unix)]
fn number(file: &std::fs::Metadata) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (file.ino(), file.ctime(), file.ctime_nsec())
}

#[cfg(not(unix))]
fn number(_: &std::fs::Metadata) -> (u64, i64, i64) {
    (0, 0, 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_failed_is_tried_again_and_what_has_not_changed_is_not_read_again() {
        let certificates = Certificates::default();
        let files = TlsFiles { ca_file: Some("/no/such/file".into()), ..TlsFiles::default() };
        assert!(certificates.config(&files).is_err());
        assert!(certificates.0.lock().unwrap().is_none(), "a failure was remembered");
        let insecure = TlsFiles { insecure: true, ..TlsFiles::default() };
        let first = certificates.config(&insecure).unwrap();
        assert!(Arc::ptr_eq(&first, &certificates.config(&insecure).unwrap()));
        assert!(certificates.config(&files).is_err(), "those of other files are of no use");
    }
}
