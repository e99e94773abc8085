//! Which connections of one server event loops read: one for each loop, made in the background when it is first wanted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use super::berth::Berth;
use super::line::Patience;
use super::lines::Lines;
use super::shared::Shared;
use crate::backend::Uninterrupted;
use crate::driver::clock;
use crate::machine::Time;
use crate::port;

/// After a connection could not be made, or was lost, another one is not tried for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// The connections of one server that event loops read.
#[derive(Default)]
pub(crate) struct Berths(Mutex<Vec<Slot>>);

/// What there is for one loop.
struct Slot {
    port: u64,
    /// Kept by the loop.
    berth: Weak<Berth>,
    opening: bool,
    /// Not tried before.
    again_at: Time,
}

impl Berths {
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of the loop whose work this thread is at, if it takes another request. If there is none at all, one
    /// is made in the background, for later.
    pub(crate) fn of_this_loop(self: &Arc<Self>, shared: &Arc<Shared>, lines: &Arc<Lines>) -> Option<Arc<Berth>> {
        let port = port::current()?;
        shared.common.check_open().ok()?;
        let mut slots = self.slots();
        let slot = if let Some(place) = slots.iter().position(|slot| slot.port == port.number) {
            &mut slots[place]
        } else {
            slots.retain(|slot| slot.opening || slot.berth.strong_count() > 0);
            slots.push(Slot { port: port.number, berth: Weak::new(), opening: false, again_at: Time::ZERO });
            slots.last_mut()?
        };
        if let Some(berth) = slot.berth.upgrade() {
            return berth.has_room(shared).then_some(berth);
        }
        let now = clock::now();
        if slot.opening || now < slot.again_at || !cfg!(unix) {
            return None;
        }
        if slot.again_at != Time::ZERO {
            lines.mourn();
        }
        slot.opening = true;
        slot.again_at = now + PAUSE;
        drop(slots);
        self.open(port, shared.clone(), lines.clone());
        None
    }

    /// On a thread of its own: connecting blocks.
    fn open(self: &Arc<Self>, port: Arc<port::Inner>, shared: Arc<Shared>, lines: Arc<Lines>) {
        let until = clock::now() + shared.options.connect_timeout;
        let (berths, number, runtime) = (self.clone(), port.number, Handle::try_current());
        let work = move || {
            // why not is said by whoever needs a connection
            let line = lines.open(Patience { until, interrupt: &Uninterrupted });
            let berth = line.ok().zip(runtime.ok()).and_then(|(line, runtime)| {
                let _context = runtime.enter();
                Berth::new(line, number).ok()
            });
            berths.opened(&port, &shared, berth);
        };
        if thread::Builder::new().name("onelock-berth".to_owned()).spawn(work).is_err() {
            self.forget(number);
        }
    }

    fn opened(&self, port: &port::Inner, shared: &Shared, berth: Option<Arc<Berth>>) {
        let mut slots = self.slots();
        let Some(slot) = slots.iter_mut().find(|slot| slot.port == port.number) else { return };
        slot.opening = false;
        // asked under the lock, so that `close` misses none
        if let Some(berth) = berth.filter(|_| shared.common.check_open().is_ok()) {
            slot.berth = Arc::downgrade(&berth);
            port.moor(berth);
        }
    }

    fn forget(&self, port: u64) {
        self.slots().retain(|slot| slot.port != port);
    }

    /// Ends them all. `Common` must be closed before, so that no new ones are used.
    pub(crate) fn close(&self) {
        let berths: Vec<_> = self.slots().iter().filter_map(|slot| slot.berth.upgrade()).collect();
        for berth in berths {
            berth.lose();
        }
    }
}
