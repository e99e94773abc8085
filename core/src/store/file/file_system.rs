//! Which file systems keep a lock: those that are known to be on this machine alone.

use std::path::Path;

use rustix::io::Errno;

use super::lock_file::{Settings, failure};
use crate::ErrorKind;
use crate::machine::Failure;

/// The file system of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// Its name for people.
    pub(super) name: String,
    /// Whether what was written is there after a restart of the machine, if it was synced.
    pub(super) keeps: bool,
    /// Whether it is known to be on this machine alone.
    pub(super) is_local: bool,
}

/// Types as `statfs` tells them: name, whether it keeps what is written, whether it is local for certain.
#[cfg(target_os = "linux")]
const KNOWN: [(u32, &str, bool, bool); 12] = [
    (0xef53, "ext4", true, true),
    (0x5846_5342, "xfs", true, true),
    (0x9123_683e, "btrfs", true, true),
    (0x2fc1_2fc1, "zfs", true, true),
    (0xf2f5_2010, "f2fs", true, true),
    (0x0102_1994, "tmpfs", false, true),
    // what lies below it is not told
    (0x794c_7630, "overlay", true, false),
    (0x6969, "nfs", true, false),
    (0xfe53_4d42, "smb", true, false),
    (0xff53_4d42, "cifs", true, false),
    (0x6573_5546, "fuse", true, false),
    (0x0102_1997, "9p", true, false),
];
const OVERLAY: &str = "overlay";

#[cfg(target_os = "linux")]
fn look(path: &Path) -> Result<FileSystem, Errno> {
    let found = rustix::fs::statfs(path)?.f_type as u32;
    let known = KNOWN.iter().find(|(number, ..)| *number == found);
    Ok(match known {
        Some((_, name, keeps, is_local)) => FileSystem { name: (*name).to_owned(), keeps: *keeps, is_local: *is_local },
        None => FileSystem { name: format!("type {found:#x}"), keeps: true, is_local: false },
    })
}

#[cfg(not(target_os = "linux"))]
fn look(path: &Path) -> Result<FileSystem, Errno> {
    rustix::fs::stat(path)?;
    Ok(FileSystem { name: "a file system of an unknown type".to_owned(), keeps: true, is_local: false })
}

/// The file system of this directory, if it will do.
pub(super) fn check(directory: &Path, settings: Settings) -> Result<FileSystem, Failure> {
    let found = look(directory).map_err(|error| failure(&directory.join("*"), "look at", error))?;
    let kind = rustix::fs::stat(directory).map(|found| rustix::fs::FileType::from_raw_mode(found.st_mode));
    if kind != Ok(rustix::fs::FileType::Directory) {
        let detail = format!(
            "{} is no directory: name the directory in which the files of the locks are to be",
            directory.display()
        );
        return Err(Failure::lasting(ErrorKind::InvalidArgument, detail));
    }
    if found.is_local || found.name == OVERLAY || settings.any_file_system {
        return Ok(found);
    }
    let detail = format!(
        "{} is on {}, which is not known to be local: other machines may see the directory and not its locks; use a \
         directory on a local disk, or write ?fs=any if this machine alone uses it",
        directory.display(),
        found.name
    );
    Err(Failure::lasting(ErrorKind::Unsupported, detail))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SETTINGS: Settings = Settings { mode: 0o660, sync: false, any_file_system: false };

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_no_local_file_system_is_refused_unless_the_address_says_so() {
        let proc = Path::new("/proc");
        let refused = check(proc, SETTINGS).unwrap_err();
        assert_eq!((refused.kind, refused.transient), (ErrorKind::Unsupported, false));
        assert!(refused.detail.contains("type 0x9fa0") && refused.detail.contains("?fs=any"), "{}", refused.detail);
        assert!(!check(proc, Settings { any_file_system: true, ..SETTINGS }).unwrap().is_local);
    }

    #[test]
    fn a_file_and_nothing_are_no_directory() {
        let here = std::env::current_exe().unwrap();
        assert_eq!(check(&here, SETTINGS).unwrap_err().kind, ErrorKind::InvalidArgument);
        let missing = check(&here.with_file_name("missing"), SETTINGS).unwrap_err();
        assert_eq!(missing.kind, ErrorKind::Unavailable);
        assert!(missing.detail.contains("missing does not exist: make it"), "{}", missing.detail);
    }
}
