//! The connections of one server that event loops read: one for each loop, made in the background when it is first
//! needed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use super::connection::EventLoopConnection;
use crate::event_loop;
use crate::machine::Time;
use crate::store::Uninterrupted;
use crate::store::redis::connection::blocking::pool::ConnectionPool;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::deadline::Deadline;
use crate::sys::clock;

/// After a connection failed or was lost, the next attempt is made after this time.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The connections of one server that event loops read.
#[derive(Default)]
pub(crate) struct EventLoopPool(Mutex<Vec<LoopSlot>>);

/// The connection of one loop.
struct LoopSlot {
    loop_id: u64,
    /// Owned by the loop.
    connection: Weak<EventLoopConnection>,
    connecting: bool,
    /// No attempt before this time.
    retry_at: Time,
}

impl EventLoopPool {
    fn slots(&self) -> MutexGuard<'_, Vec<LoopSlot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of the event loop that runs on this thread, if it accepts another request. If there is none, one
    /// is made in the background for later requests.
    pub(crate) fn for_current_loop(
        self: &Arc<Self>,
        shared: &Arc<NodeContext>,
        pool: &Arc<ConnectionPool>,
    ) -> Option<Arc<EventLoopConnection>> {
        let event_loop = event_loop::current()?;
        shared.store_state.check_open().ok()?;
        let mut slots = self.slots();
        let slot = if let Some(place) = slots.iter().position(|slot| slot.loop_id == event_loop.number) {
            &mut slots[place]
        } else {
            slots.retain(|slot| slot.connecting || slot.connection.strong_count() > 0);
            slots.push(LoopSlot {
                loop_id: event_loop.number,
                connection: Weak::new(),
                connecting: false,
                retry_at: Time::ZERO,
            });
            slots.last_mut()?
        };
        if let Some(connection) = slot.connection.upgrade() {
            return connection.accepts(shared).then_some(connection);
        }
        let now = clock::now();
        if slot.connecting || now < slot.retry_at || !cfg!(unix) {
            return None;
        }
        if slot.retry_at != Time::ZERO {
            pool.note_broken();
        }
        slot.connecting = true;
        slot.retry_at = now + RECONNECT_PAUSE;
        drop(slots);
        self.connect_in_background(event_loop, shared.clone(), pool.clone());
        None
    }

    /// On a separate thread, since connecting blocks.
    fn connect_in_background(
        self: &Arc<Self>,
        event_loop: Arc<event_loop::LoopState>,
        shared: Arc<NodeContext>,
        pool: Arc<ConnectionPool>,
    ) {
        let until = clock::now() + shared.options.connect_timeout;
        let (pool_of_loops, number, runtime) = (self.clone(), event_loop.number, Handle::try_current());
        let work = move || {
            // the next caller that needs a connection reports the failure
            let connection = pool.open(Deadline { until, interrupt: &Uninterrupted });
            let connection = connection.ok().zip(runtime.ok()).and_then(|(connection, runtime)| {
                let _context = runtime.enter();
                EventLoopConnection::new(connection, number).ok()
            });
            pool_of_loops.on_connected(&event_loop, &shared, connection);
        };
        if thread::Builder::new().name("onelock-connect".to_owned()).spawn(work).is_err() {
            self.remove(number);
        }
    }

    fn on_connected(
        &self,
        event_loop: &event_loop::LoopState,
        shared: &NodeContext,
        connection: Option<Arc<EventLoopConnection>>,
    ) {
        let mut slots = self.slots();
        let Some(slot) = slots.iter_mut().find(|slot| slot.loop_id == event_loop.number) else { return };
        slot.connecting = false;
        // checked under the lock, so that `close` misses none
        if let Some(connection) = connection.filter(|_| shared.store_state.check_open().is_ok()) {
            slot.connection = Arc::downgrade(&connection);
            event_loop.register(connection);
        }
    }

    fn remove(&self, event_loop: u64) {
        self.slots().retain(|slot| slot.loop_id != event_loop);
    }

    /// Closes them all. The store must be closed before, so that no new ones are used.
    pub(crate) fn close(&self) {
        let pool_of_loops: Vec<_> = self.slots().iter().filter_map(|slot| slot.connection.upgrade()).collect();
        for connection in pool_of_loops {
            connection.close();
        }
    }
}
