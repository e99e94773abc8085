//! A few connections that many threads share, without a background thread: see [`SharedConnection`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pool::ConnectionPool;
use super::shared::SharedConnection;
use crate::machine::{Failure, Time};
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::deadline::Deadline;

/// With fewer, replies wait for each other; with more, fewer of them travel together. Measured with 16 and 32 threads
/// on two processors.
const CONNECTIONS: usize = 3;

/// The shared connections of one server.
pub(crate) struct SharedPool {
    shared: Arc<NodeContext>,
    pool: Arc<ConnectionPool>,
    connections: [Mutex<Option<Arc<SharedConnection>>>; CONNECTIONS],
}

static THREAD_COUNT: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Numbers the threads, so that they spread evenly. Each thread keeps to one connection: requests sent together are
    /// answered together.
    static THREAD_NUMBER: usize = THREAD_COUNT.fetch_add(1, Ordering::Relaxed);
}

impl SharedPool {
    pub(crate) fn new(shared: Arc<NodeContext>, lines: Arc<ConnectionPool>) -> SharedPool {
        SharedPool { shared, pool: lines, connections: Default::default() }
    }

    /// The connection of this thread: the shared one, or a new one made of an idle or a fresh connection. `None` when
    /// connections to this server cannot be shared.
    pub(crate) fn get(&self, now: Time, deadline: Deadline<'_>) -> Result<Option<Arc<SharedConnection>>, Failure> {
        // a thread that is ending has no number any more
        let index = THREAD_NUMBER.try_with(|number| *number).unwrap_or_default() % CONNECTIONS;
        if let Some(connection) = self.live(&mut self.slot(index), now) {
            return Ok(Some(connection));
        }
        let connection = self.pool.get_idle(now).map_or_else(|| self.pool.open(deadline), Ok)?;
        let mut slot = self.slot(index);
        // another thread may have made one meanwhile; checked under the lock, so that `close` misses none
        let existing = self.live(&mut slot, now);
        let writer = if existing.is_none() && self.shared.store_state.check_open().is_ok() {
            connection.socket.stream.try_clone()
        } else {
            None
        };
        let Some(writer) = writer else {
            drop(slot);
            self.pool.put(connection, now);
            return Ok(existing);
        };
        let connection = Arc::new(SharedConnection::new(connection, writer, &self.shared));
        *slot = Some(connection.clone());
        Ok(Some(connection))
    }

    /// The connection in this slot. One that accepts no more requests is removed.
    fn live(&self, slot: &mut Option<Arc<SharedConnection>>, now: Time) -> Option<Arc<SharedConnection>> {
        let connection = slot.take()?;
        if connection.accepts(now) {
            *slot = Some(connection.clone());
            return Some(connection);
        }
        self.pool.note_broken();
        None
    }

    /// Accepts no more requests. Outstanding replies are still delivered.
    pub(crate) fn close(&self) {
        for index in 0..CONNECTIONS {
            *self.slot(index) = None;
        }
    }

    fn slot(&self, index: usize) -> MutexGuard<'_, Option<Arc<SharedConnection>>> {
        self.connections[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
