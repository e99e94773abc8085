//! The TLS configurations of a store, reloaded when their files change: certificates are rotated, and a missing file
//! may appear later.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;

use super::tls::{self, TlsFiles};
use crate::machine::{Failure, Time};
use crate::sys::clock;

/// The certificate authorities of the system are read again for a new connection after this time: nothing tells when
/// they change.
const SYSTEM_STORE_MAX_AGE: Duration = Duration::from_secs(300);

/// The configuration that was loaded last.
#[derive(Default)]
pub(crate) struct TlsConfigs(Mutex<Option<LoadedConfig>>);

struct LoadedConfig {
    files: TlsFiles,
    /// The state of the files just before they were read.
    stamps: FileStamps,
    read_at: Time,
    config: Arc<ClientConfig>,
}

/// Identifies a version of a file; `None` for one that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    number: (u64, i64, i64),
}

type FileStamps = [Option<FileStamp>; 3];

impl TlsConfigs {
    /// The configuration for a new connection. Reads the files if they have changed since they were read; if that fails
    /// in the middle of a rotation, the earlier configuration is used once more.
    pub(crate) fn config(&self, files: &TlsFiles) -> Result<Arc<ClientConfig>, Failure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stamps, now) = (stamps(files), clock::now());
        let of_these = known.as_ref().filter(|known| known.files == *files);
        if let Some(known) = of_these.filter(|known| known.stamps == stamps && known.is_fresh(now)) {
            return Ok(known.config.clone());
        }
        match tls::config(files) {
            Ok(config) => {
                *known = Some(LoadedConfig { files: files.clone(), stamps, read_at: now, config: config.clone() });
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

impl LoadedConfig {
    fn is_fresh(&self, now: Time) -> bool {
        self.files.ca_file.is_some() || self.files.insecure || now.since(self.read_at) < SYSTEM_STORE_MAX_AGE
    }
}

fn stamps(files: &TlsFiles) -> FileStamps {
    [&files.ca_file, &files.cert_file, &files.key_file].map(|path| path.as_deref().and_then(stamp))
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let file = std::fs::metadata(path).ok()?;
    Some(FileStamp { modified: file.modified().ok(), length: file.len(), number: number(&file) })
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
        let certificates = TlsConfigs::default();
        let files = TlsFiles { ca_file: Some("/no/such/file".into()), ..TlsFiles::default() };
        assert!(certificates.config(&files).is_err());
        assert!(certificates.0.lock().unwrap().is_none(), "a failure was remembered");
        let insecure = TlsFiles { insecure: true, ..TlsFiles::default() };
        let first = certificates.config(&insecure).unwrap();
        assert!(Arc::ptr_eq(&first, &certificates.config(&insecure).unwrap()));
        assert!(certificates.config(&files).is_err(), "those of other files are of no use");
    }
}
