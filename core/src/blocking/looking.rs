//! Who holds a lock, asked from a thread.

use super::{Client, ended, wait_for};
use crate::Error;
use crate::driver::lock_spec::LockSpec;
use crate::inspect::{self, Inspection};
use crate::machine::{Op, Time};
use crate::store::Uninterrupted;

impl Client {
    /// Who holds the lock of this name; `None` when nobody does; see [`crate::Client::inspect`].
    ///
    /// # Errors
    /// As [`crate::Client::inspect`]; `Unsupported` inside an async runtime.
    pub fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Option<Inspection>, Error> {
        let what = self.description(name.as_ref());
        what.check("inspect")?;
        let engine = self.engine("inspect")?;
        let until = inspect::limit(&engine);
        let Some(found) = self.held(&what, until)? else { return Ok(None) };
        let worker = engine.clone();
        let work = async move { Ok(Some(inspect::with_waiters(&worker, what.key, found, until).await)) };
        wait_for(&engine, &Uninterrupted, work).unwrap_or_else(|_| Err(ended("inspect")))
    }

    /// Who holds the lock of a name that was checked, without who waits.
    pub(super) fn held(&self, what: &LockSpec, until: Time) -> Result<Option<Inspection>, Error> {
        let engine = self.engine("inspect")?;
        let op = Op::Inspect { key: what.key.clone() };
        let answer = engine.store.call_blocking(&op, until, &Uninterrupted);
        if !inspect::is_semaphore(&answer) {
            return inspect::looked(&engine, &what.name, (answer, None));
        }
        let (worker, name, key) = (engine.clone(), what.name.clone(), what.key.clone());
        let work = async move { inspect::held(&worker, &name, key, until).await };
        wait_for(&engine, &Uninterrupted, work).unwrap_or_else(|_| Err(ended("inspect")))
    }
}
