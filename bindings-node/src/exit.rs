//! The end of a thread of JavaScript, or of the process: what is held is given back, within one second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onelock::Client;

use crate::pump::Pump;

/// How long the end waits.
const BOUND: Duration = Duration::from_secs(1);

/// Every client of one bridge that something may be left of.
pub(crate) struct Clients {
    pump: Arc<Pump>,
    known: Mutex<Vec<(Client, Weak<()>)>>,
}

impl Clients {
    pub(crate) fn new(pump: Arc<Pump>) -> Clients {
        onelock::runtime::leave_exit_to_caller();
        Clients { pump, known: Mutex::default() }
    }

    /// Remembers a client, for as long as `alive` lives or something is left of it.
    pub(crate) fn remember(&self, client: &Client, alive: &Arc<()>) {
        self.sweep();
        self.known().push((client.clone(), Arc::downgrade(alive)));
    }

    /// Forgets clients that JavaScript let go of and that have nothing left to do: their connections end.
    pub(crate) fn sweep(&self) {
        let done = |(client, alive): &mut (Client, Weak<()>)| alive.strong_count() == 0 && !client.stats().is_busy();
        let gone: Vec<_> = self.known().extract_if(.., done).collect();
        // outside the lock
        drop(gone);
    }

    fn known(&self) -> MutexGuard<'_, Vec<(Client, Weak<()>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back everything and waits for it. Idempotent, and quick when there is nothing.
    pub(crate) fn close(&self) {
        let known = std::mem::take(&mut *self.known());
        self.pump.close();
        onelock::runtime::close_all(known.into_iter().map(|(client, _)| client), BOUND);
    }
}
