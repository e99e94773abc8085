//! Many threads at once share a few connections, without anybody in the background: see [`Car`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::car::Car;
use super::line::Patience;
use super::lines::Lines;
use super::shared::Shared;
use crate::machine::{Failure, Time};

/// With fewer, replies wait for each other; with more, fewer of them travel together. Measured with 16 and 32 threads on
/// two processors.
const CARS: usize = 3;

/// The shared connections of one server.
pub(crate) struct Carpool {
    shared: Arc<Shared>,
    lines: Arc<Lines>,
    cars: [Mutex<Option<Arc<Car>>>; CARS],
}

static THREADS: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Counts the threads, so that they spread evenly. Each keeps to one car: those who left together come back together.
    static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl Carpool {
    pub(crate) fn new(shared: Arc<Shared>, lines: Arc<Lines>) -> Carpool {
        Carpool { shared, lines, cars: Default::default() }
    }

    /// The car of this thread, made of a pooled connection or of a new one when there is none; `None` when connections
    /// to this server cannot be shared.
    pub(crate) fn car(&self, now: Time, patience: Patience<'_>) -> Result<Option<Arc<Car>>, Failure> {
        // a thread that is ending has no number any more
        let place = NUMBER.try_with(|number| *number).unwrap_or_default() % CARS;
        if let Some(car) = self.running(&mut self.place(place), now) {
            return Ok(Some(car));
        }
        let line = self.lines.pooled(now).map_or_else(|| self.lines.open(patience), Ok)?;
        let mut here = self.place(place);
        // another thread may have made one meanwhile; asked under the lock, so that `close` misses none
        let made = self.running(&mut here, now);
        let exit = if made.is_none() && self.shared.common.check_open().is_ok() { line.wire().twin() } else { None };
        let Some(exit) = exit else {
            drop(here);
            self.lines.give(line, now);
            return Ok(made);
        };
        let car = Arc::new(Car::of(line, exit, &self.shared));
        *here = Some(car.clone());
        Ok(Some(car))
    }

    /// The car in this place. One that takes no more callers is removed.
    fn running(&self, here: &mut Option<Arc<Car>>, now: Time) -> Option<Arc<Car>> {
        let car = here.take()?;
        if car.runs(now) {
            *here = Some(car.clone());
            return Some(car);
        }
        self.lines.mourn();
        None
    }

    /// Takes no more callers. Who waits for a reply still gets it.
    pub(crate) fn close(&self) {
        for place in 0..CARS {
            *self.place(place) = None;
        }
    }

    fn place(&self, place: usize) -> MutexGuard<'_, Option<Arc<Car>>> {
        self.cars[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
