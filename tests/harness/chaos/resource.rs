//! What the locks protect: for each a register that checks fencing tokens, and a counter in a file that checks nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

/// What the register said to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Written.
    Accepted,
    /// Refused: a higher token was seen.
    Refused {
        /// The highest token seen.
        highest: u64,
    },
}

#[derive(Default)]
struct Register {
    highest: u64,
    /// Every token that was let through, in order.
    accepted: Vec<u64>,
}

/// The registers and counters of all locks.
pub struct Resource {
    registers: Mutex<HashMap<String, Register>>,
    increments: Mutex<HashMap<String, u64>>,
    half_written: AtomicU64,
    folder: TempDir,
}

impl Resource {
    /// One register and one counter for each lock.
    ///
    /// # Panics
    /// When the files cannot be made.
    pub fn new(locks: impl IntoIterator<Item = &'static str>) -> Resource {
        let folder = tempfile::Builder::new().prefix("onelock-chaos-").tempdir().unwrap();
        let names: Vec<&str> = locks.into_iter().collect();
        let resource = Resource {
            registers: Mutex::new(names.iter().map(|name| ((*name).to_owned(), Register::default())).collect()),
            increments: Mutex::new(names.iter().map(|name| ((*name).to_owned(), 0)).collect()),
            half_written: AtomicU64::new(0),
            folder,
        };
        for name in names {
            resource.store(name, 0);
        }
        resource
    }

    /// Writes under a fencing token.
    ///
    /// # Panics
    /// When the lock is not known.
    pub fn write(&self, lock: &str, token: u64) -> Verdict {
        let mut registers = self.registers.lock().unwrap();
        let register = registers.get_mut(lock).expect("the lock is known");
        if token < register.highest {
            return Verdict::Refused { highest: register.highest };
        }
        register.highest = token;
        register.accepted.push(token);
        Verdict::Accepted
    }

    fn path(&self, lock: &str) -> PathBuf {
        self.folder.path().join(lock.replace(':', "_"))
    }

    fn store(&self, lock: &str, number: u64) {
        std::fs::write(self.path(lock), number.to_string()).expect("the counter can be written");
    }

    /// Reads the counter, as a program would that trusts in its lock.
    ///
    /// # Panics
    /// When the file is not there.
    pub fn read_counter(&self, lock: &str) -> u64 {
        let text = std::fs::read_to_string(self.path(lock)).expect("the counter can be read");
        // Cut short by a writer at this very moment: two holders at once.
        text.parse().unwrap_or_else(|_| {
            self.half_written.fetch_add(1, Ordering::Relaxed);
            0
        })
    }

    /// Writes what was read before, plus one.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn increment(&self, lock: &str, read: u64) {
        self.store(lock, read + 1);
        *self.increments.lock().unwrap().get_mut(lock).expect("the lock is known") += 1;
    }

    /// How often the counters were incremented, and what the files say.
    ///
    /// # Panics
    /// When a file is gone.
    pub fn counted(&self) -> (u64, u64) {
        let increments = self.increments.lock().unwrap();
        (increments.values().sum(), increments.keys().map(|lock| self.read_counter(lock)).sum())
    }

    /// Everything that must not be; the counters are exact if they were always guarded.
    ///
    /// # Panics
    /// When a file is gone.
    pub fn problems(&self, exact: bool) -> Vec<String> {
        let mut found = Vec::new();
        for (lock, register) in &*self.registers.lock().unwrap() {
            if !register.accepted.is_sorted() {
                found.push(format!("the register of {lock} accepted a lower token"));
            }
            if register.accepted.is_empty() {
                found.push(format!("nobody wrote under {lock}"));
            }
        }
        let (increments, counted) = self.counted();
        let half_written = self.half_written.load(Ordering::Relaxed);
        if exact && (increments != counted || half_written > 0) {
            found.push(format!(
                "{increments} increments under the locks, and the counters say {counted}; {half_written} times one was half-written"
            ));
        }
        found
    }
}
