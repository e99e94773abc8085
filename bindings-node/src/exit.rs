//! The end of a thread of JavaScript, or of the process: what is held is given back, within one second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onelock::{Client, Stats};

use crate::pump::Pump;

/// How long the end waits.
const BOUND: Duration = Duration::from_secs(1);

fn is_busy(stats: &Stats) -> bool {
    stats.held + stats.cleaning + stats.waiting > 0
}

/// Every client of one session that something may be left of.
pub(crate) struct Clients {
    pump: Arc<Pump>,
    known: Mutex<Vec<(Client, Weak<()>)>>,
}

impl Clients {
    pub(crate) fn new(pump: Arc<Pump>) -> Clients {
        Clients { pump, known: Mutex::default() }
    }

    /// Remembers a client, for as long as `alive` lives or something is left of it.
    pub(crate) fn remember(&self, client: &Client, alive: &Arc<()>) {
        self.sweep();
        self.known().push((client.clone(), Arc::downgrade(alive)));
    }

    /// Forgets clients that JavaScript let go of and that have nothing left to do: their connections end.
    pub(crate) fn sweep(&self) {
        let done = |(client, alive): &mut (Client, Weak<()>)| alive.strong_count() == 0 && !is_busy(&client.stats());
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
        let busy: Vec<Client> =
            known.into_iter().map(|(client, _)| client).filter(|client| is_busy(&client.stats())).collect();
        if busy.is_empty() {
            return;
        }
        let Ok(runtime) = onelock::runtime::handle() else { return };
        let closings: Vec<_> =
            busy.into_iter().map(|client| runtime.spawn(async move { client.close().await })).collect();
        runtime.block_on(async {
            let all = async {
                for closing in closings {
                    let _ = closing.await;
                }
            };
            let _ = tokio::time::timeout(BOUND, all).await;
        });
    }
}
