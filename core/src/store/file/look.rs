//! Looking at the file of a lock: whether somebody has it, and what it says of him.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::holder;
use super::lock_file::{self, LockFile, Refused};
use super::record::{self, Content, Record};
use crate::machine::{InspectedKey, Kind, Outcome, Reply};
use crate::sys::clock;

/// How often to look again at what a locked file says.
const LOOKS: u32 = 4;
/// What stands for the holder that is no client of this library.
const FOREIGN: &[u8] = b"another program";

/// A file that somebody has locked, and its text.
pub(super) fn look(path: &Path) -> Result<Option<(LockFile, Vec<u8>)>, Refused> {
    let Some(file) = LockFile::look(path)? else { return Ok(None) };
    let text = settled(&file, |turn| std::thread::park_timeout(Duration::from_micros(50 << turn)));
    let text = text.map_err(|error| Refused::Failed(lock_file::failure(path, "look at", error)))?;
    Ok(text.map(|text| (file, text)))
}

/// The text of a file that somebody has locked. A holder writes down that he is one after he has locked it, and before he
/// unlocks it that he is none any more: another program is only who still has it after some looks.
fn settled(file: &LockFile, mut pause: impl FnMut(u32)) -> Result<Option<Vec<u8>>, Errno> {
    for turn in 0.. {
        if file.is_shared()? {
            break;
        }
        let text = file.read()?;
        if turn == LOOKS || holding(&record::read(&text)).is_some() {
            return Ok(Some(text));
        }
        pause(turn);
    }
    Ok(None)
}

pub(super) fn inspected(found: InspectedKey) -> Outcome<Reply> {
    Outcome::Applied(Reply::Inspected(Some(found)))
}

/// Who has the locked file in which this stands, unless it is another program: a record says `held` also when its holder was
/// killed.
pub(super) fn holding<'a, 'b>(content: &'b Content<'a>) -> Option<&'b Record<'a>> {
    content.record.as_ref().filter(|record| content.held && !holder::has_ended(record))
}

/// What the record of a locked file says of its holder.
pub(super) fn described(content: &Content<'_>) -> InspectedKey {
    let Some(record) = holding(content) else {
        let holder = FOREIGN.to_vec();
        return InspectedKey { kind: Ok(Kind::Mutex), holder, count: 1, ttl_left_ms: None, fence: None, info: None };
    };
    InspectedKey {
        kind: Ok(record.kind),
        holder: record.token.as_bytes().to_vec(),
        count: record.count,
        ttl_left_ms: Some(record.until_ms.saturating_sub(clock::wall_us() / 1000)),
        fence: record.fenced.then_some(record.fence),
        info: record.info.map(|info| info.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::file::lock_file::Settings;

    #[test]
    fn a_holder_that_is_about_to_write_or_to_unlock_is_no_other_program() {
        let place = std::env::temp_dir().join(format!("onelock-settled-{}", std::process::id()));
        let settings = Settings { mode: 0o600, sync: false, any_file_system: true };
        let (holder, looker) = (LockFile::open(&place, settings).unwrap(), LockFile::look(&place).unwrap().unwrap());
        let record = Record {
            fence: 1,
            kind: Kind::Mutex,
            count: 1,
            pid: std::process::id(),
            process: "",
            until_ms: 0,
            fenced: true,
            token: "t",
            info: None,
            key: "k",
        };
        // it has the lock, and writes while somebody looks
        assert!(holder.try_lock().unwrap());
        let text = settled(&looker, |turn| {
            if turn == 2 {
                holder.write(&record.file(), 0).unwrap();
            }
        });
        assert_eq!(text.unwrap().unwrap(), record.file());
        // it releases
        holder.write(record::FREE, record::STATE_AT).unwrap();
        assert!(settled(&looker, |_| holder.unlock().unwrap()).unwrap().is_none());
        // another program
        assert!(holder.try_lock().unwrap());
        let mut pauses = 0;
        let text = settled(&looker, |_| pauses += 1).unwrap().unwrap();
        assert!(holding(&record::read(&text)).is_none() && pauses == LOOKS);
        std::fs::remove_file(&place).unwrap();
    }
}
