//! The protected resource: a counter in a file, with the highest fencing token that it has seen beside it.
//!
//! A single read or write is atomic, as a row of a database would be. Nothing guards the way from a read to the write
//! that follows: only the lock does. The token check is the resource's half of fencing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onelock::{FenceGate, Stale};
use rustix::fs::{FlockOperation, flock};

/// `<counter> <highest token>\n`, both with leading zeros.
const RECORD: usize = 42;

pub(crate) struct Ledger {
    file: File,
}

impl Ledger {
    /// A new ledger that stands at zero and has seen no token.
    pub(crate) fn create(path: &Path) -> io::Result<Ledger> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let ledger = Ledger { file };
        ledger.put(0, 0)?;
        Ok(ledger)
    }

    pub(crate) fn open(path: &Path) -> io::Result<Ledger> {
        Ok(Ledger { file: OpenOptions::new().read(true).write(true).open(path)? })
    }

    /// The counter as it stands, without showing a token.
    pub(crate) fn counter(&self) -> io::Result<u64> {
        let _row = self.row()?;
        Ok(self.get()?.0)
    }

    /// Reads the counter. From here on every lower token is refused, so that what was read stays true until this
    /// holder writes.
    pub(crate) fn read(&self, token: u64) -> io::Result<Result<u64, Stale>> {
        let _row = self.row()?;
        let (counter, highest) = self.get()?;
        if let Err(stale) = FenceGate::starting_at(highest).admit(token) {
            return Ok(Err(stale));
        }
        self.put(counter, token)?;
        Ok(Ok(counter))
    }

    /// Writes the counter, unless a higher token was seen.
    pub(crate) fn write(&self, token: u64, counter: u64) -> io::Result<Result<(), Stale>> {
        let _row = self.row()?;
        let (_, highest) = self.get()?;
        if let Err(stale) = FenceGate::starting_at(highest).admit(token) {
            return Ok(Err(stale));
        }
        self.put(counter, token)?;
        Ok(Ok(()))
    }

    /// Makes one read or write atomic. The kernel lets go of it when the process dies.
    fn row(&self) -> io::Result<Row<'_>> {
        flock(&self.file, FlockOperation::LockExclusive)?;
        Ok(Row(&self.file))
    }

    fn get(&self) -> io::Result<(u64, u64)> {
        let mut record = [0; RECORD];
        self.file.read_exact_at(&mut record, 0)?;
        let text = String::from_utf8_lossy(&record);
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(counter)), Some(Ok(highest))) => Ok((counter, highest)),
            _ => Err(io::Error::other(format!("the ledger is damaged: {text:?}"))),
        }
    }

    fn put(&self, counter: u64, highest: u64) -> io::Result<()> {
        self.file.write_all_at(format!("{counter:020} {highest:020}\n").as_bytes(), 0)
    }
}

struct Row<'a>(&'a File);

impl Drop for Row<'_> {
    fn drop(&mut self) {
        // fails only for a file that is not open
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}
