//! The open file of a lock, and the kernel's lock on it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::record;
use crate::ErrorKind;
use crate::machine::Failure;
use crate::sys::fork_close::ProcessFd;
use crate::sys::random;

/// How the files are made, from the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Who may open a new file.
    pub(super) mode: u32,
    /// Whether a fencing token is on the disk before it is handed out.
    pub(super) sync: bool,
    /// Whether any file system will do.
    pub(super) any_file_system: bool,
}

/// Tells files apart, also those that had the same name one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    #[allow(clippy::unnecessary_cast, reason = "its types differ between systems")]
    fn of(found: &fs::Stat) -> FileId {
        FileId { device: found.st_dev as u64, inode: found.st_ino as u64 }
    }
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(super) enum Refused {
    /// What stands there is no file of a lock.
    WrongKind(String),
    Failed(Failure),
}

/// The open file of a lock. Closed in a forked child.
#[derive(Debug)]
pub(super) struct LockFile {
    fd: ProcessFd,
    pub(super) id: FileId,
}

const OPEN: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// The file that has this name now.
pub(super) fn at(path: &Path) -> Result<Option<FileId>, Errno> {
    match fs::lstat(path) {
        Ok(found) => Ok(Some(FileId::of(&found))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a failed system call means.
pub(super) fn failure(path: &Path, what: &str, error: Errno) -> Failure {
    let folder = || path.parent().unwrap_or(path).display().to_string();
    let shown = path.display();
    match error {
        Errno::NOENT | Errno::NOTDIR => {
            let detail = format!("the directory {} does not exist: make it, or correct the address", folder());
            Failure::lasting(ErrorKind::Unavailable, detail)
        }
        Errno::ACCESS | Errno::PERM => {
            let detail = format!(
                "{what} {shown}: {error}; this user must be able to write to the directory and to its *.lock files (new ones \
                 have the mode= of the address)"
            );
            Failure::lasting(ErrorKind::NotPermitted, detail)
        }
        Errno::ROFS => {
            Failure::lasting(ErrorKind::NotPermitted, format!("{what} {shown}: it is on a read-only file system"))
        }
        Errno::NAMETOOLONG => {
            Failure::lasting(ErrorKind::InvalidArgument, format!("{what} {shown}: the path is too long"))
        }
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOLCK => {
            Failure::transient(ErrorKind::SystemLimit, format!("{what} {shown}: {error}"))
        }
        _ => Failure::transient(ErrorKind::ServerRefused, format!("{what} {shown}: {error}")),
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if !self.is_open() {
            self.fd.abandon();
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl LockFile {
    /// Opens the file of a lock, and makes it if it is not there.
    pub(super) fn open(path: &Path, settings: Settings) -> Result<LockFile, Refused> {
        // nobody but an operator removes files: whoever loses against one twice finds it at the third time
        for _ in 0..8 {
            match LockFile::open_present(path, OFlags::RDWR) {
                Err(Refused::Failed(Failure { kind: ErrorKind::Unavailable, .. })) => {}
                other => return other,
            }
            match LockFile::make(path, settings) {
                Err(Errno::EXIST) => {}
                Ok(file) => return Ok(file),
                Err(error) => return Err(Refused::Failed(failure(path, "make", error))),
            }
        }
        let detail = format!("{} is removed again and again", path.display());
        Err(Refused::Failed(Failure::transient(ErrorKind::ServerRefused, detail)))
    }

    /// Opens a file that only is looked at; `None` if it is not there.
    pub(super) fn look(path: &Path) -> Result<Option<LockFile>, Refused> {
        match LockFile::open_present(path, OFlags::RDONLY) {
            Ok(file) => Ok(Some(file)),
            Err(Refused::Failed(Failure { kind: ErrorKind::Unavailable, .. })) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    fn open_present(path: &Path, access: OFlags) -> Result<LockFile, Refused> {
        // without O_CREAT: in a directory that is everybody's, Linux refuses it for a stranger's file
        let fd =
            ProcessFd::open(|| Ok(fs::open(path, OPEN | access, Mode::empty())?)).map_err(|error| {
                match errno(&error) {
                    Errno::LOOP => Refused::WrongKind("a symbolic link".to_owned()),
                    Errno::ISDIR => Refused::WrongKind("a directory".to_owned()),
                    error => Refused::Failed(failure(path, "open", error)),
                }
            })?;
        let found = fs::fstat(&fd).map_err(|error| Refused::Failed(failure(path, "look at", error)))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Refused::WrongKind("something that is no file".to_owned()));
        }
        Ok(LockFile { fd, id: FileId::of(&found) })
    }

    fn make(path: &Path, settings: Settings) -> Result<LockFile, Errno> {
        let mode = Mode::from_raw_mode(settings.mode as fs::RawMode);
        let flags = OPEN | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = ProcessFd::open(|| Ok(fs::open(path, flags, mode)?)).map_err(|error| errno(&error))?;
        // what the mask of the process took away
        fs::fchmod(&fd, mode)?;
        let id = FileId::of(&fs::fstat(&fd)?);
        if settings.sync
            && let Some(folder) = path.parent()
        {
            fs::fsync(fs::open(folder, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?)?;
        }
        Ok(LockFile { fd, id })
    }

    /// Takes the lock, for this open file alone or shared. False if somebody else has it.
    fn lock(&self, operation: FlockOperation) -> Result<bool, Errno> {
        loop {
            match fs::flock(self.fd.as_fd(), operation) {
                Ok(()) => return Ok(true),
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the lock. False if somebody else has it.
    pub(super) fn try_lock(&self) -> Result<bool, Errno> {
        for turn in 0..4 {
            if self.lock(FlockOperation::NonBlockingLockExclusive)? {
                return Ok(true);
            }
            if !self.is_shared()? {
                return Ok(false);
            }
            // somebody looks whether it is held, and leaves at once
            std::thread::park_timeout(std::time::Duration::from_micros(50 * (turn + 1)));
        }
        Ok(false)
    }

    /// Whether nobody has the lock for himself. To be asked with an open file that has no lock.
    pub(super) fn is_shared(&self) -> Result<bool, Errno> {
        let shared = self.lock(FlockOperation::NonBlockingLockShared)?;
        if shared {
            self.unlock()?;
        }
        Ok(shared)
    }

    /// Releases the lock, also one that a forked child shares.
    pub(super) fn unlock(&self) -> Result<(), Errno> {
        fs::flock(self.fd.as_fd(), FlockOperation::Unlock)
    }

    /// Lets those use it who may use the other one. Who may not give a file away keeps it, for the same group.
    fn share_as(&self, other: &LockFile) -> Result<(), Errno> {
        let found = fs::fstat(&other.fd)?;
        let (owner, group) = (fs::Uid::from_raw(found.st_uid), Some(fs::Gid::from_raw(found.st_gid)));
        if fs::fchown(&self.fd, Some(owner), group).is_err() {
            let _ = fs::fchown(&self.fd, None, group);
        }
        // permissions only: a file that stays one's own must not become one that runs as its owner
        fs::fchmod(&self.fd, Mode::from_raw_mode(found.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO))
    }

    /// Puts another file in the place of this one, with this text and for the same users.
    pub(super) fn replace(&self, path: &Path, text: &[u8], settings: Settings) -> Result<(), Failure> {
        let random = random::random().map_err(|error| Failure::transient(error.kind(), error.detail()))?;
        // no lock's file has such a name
        let beside = path.with_file_name(format!(".%t{:032x}.tmp", u128::from_ne_bytes(random)));
        let made = LockFile::make(&beside, settings).and_then(|file| {
            file.share_as(self)?;
            file.write(text, 0)?;
            if settings.sync { file.sync() } else { Ok(()) }
        });
        made.and_then(|()| fs::rename(&beside, path)).map_err(|error| {
            let _ = fs::unlink(&beside);
            failure(path, "replace", error)
        })
    }

    /// Whether the descriptor is still that of this file. A program may close whatever it has open, and the number is
    /// another file's then: the kernel's lock has ended, and nothing may be written there.
    pub(super) fn is_open(&self) -> bool {
        fs::fstat(&self.fd).is_ok_and(|found| FileId::of(&found) == self.id)
    }

    /// Whether this file is still open, and the name still leads to it.
    pub(super) fn is_at(&self, path: &Path) -> Result<bool, Errno> {
        Ok(self.is_open() && at(path)? == Some(self.id))
    }

    /// The beginning of the file, as far as it says something.
    pub(super) fn read(&self) -> Result<Vec<u8>, Errno> {
        let mut text = vec![0; 1024];
        loop {
            let mut filled = 0;
            while filled < text.len() {
                match rustix::io::pread(self.fd.as_fd(), &mut text[filled..], filled as u64) {
                    // shorter than what was asked for: the end
                    Ok(read) if filled + read < text.len() && read < 1024 => {
                        filled += read;
                        break;
                    }
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            let wanted = record::length(&text[..filled]).min(record::LENGTH_MAX);
            if wanted <= text.len() {
                text.truncate(filled);
                return Ok(text);
            }
            text.resize(wanted, 0);
        }
    }

    /// Writes at a place, all of it.
    pub(super) fn write(&self, text: &[u8], at: u64) -> Result<(), Errno> {
        let mut written = 0;
        while written < text.len() {
            match rustix::io::pwrite(self.fd.as_fd(), &text[written..], at + written as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until what was written is on the disk.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        #[cfg(target_vendor = "apple")]
        return fs::fcntl_fullfsync(self.fd.as_fd());
        #[cfg(not(target_vendor = "apple"))]
        fs::fdatasync(self.fd.as_fd())
    }
}
