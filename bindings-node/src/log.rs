//! Log lines of the core for the loggers of JavaScript threads. They come from any thread, so they are queued as messages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use onelock::log;

use crate::pump::{Message, Pump};

/// The pumps that take log lines, each with its highest level: 1 is errors only, 5 is everything.
static LISTENERS: Mutex<Vec<(Weak<Pump>, u32)>> = Mutex::new(Vec::new());

fn listeners() -> MutexGuard<'static, Vec<(Weak<Pump>, u32)>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends log lines up to this level to this pump; 0 is none.
pub(crate) fn set_level(pump: &Arc<Pump>, level: u32) {
    let highest = {
        let mut listeners = listeners();
        listeners.retain(|(known, _)| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(pump)));
        if level > 0 {
            listeners.push((Arc::downgrade(pump), level));
        }
        listeners.iter().map(|(_, level)| *level).max().unwrap_or(0)
    };
    log::forward(highest, queue);
}

fn queue(level: u32, line: &str) {
    let wants = |(pump, wanted): &(Weak<Pump>, u32)| if level <= *wanted { pump.upgrade() } else { None };
    // outside the lock: the last reference to a pump may be dropped here, and that may log
    let pumps: Vec<Arc<Pump>> = listeners().iter().filter_map(wants).collect();
    for pump in pumps {
        pump.push(Message::LogLine { level, text: line.to_owned() });
    }
}
