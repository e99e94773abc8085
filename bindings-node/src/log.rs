//! What the core has to say, on its way to the logger of a thread of JavaScript. It is said on any thread, the renewal's
//! too, so it is queued like everything else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use onelock::log;

use crate::pump::{Message, Pump};

/// Who wants to hear, and up to which level: 1 is errors only, 5 is everything.
static LISTENERS: Mutex<Vec<(Weak<Pump>, u32)>> = Mutex::new(Vec::new());

fn listeners() -> MutexGuard<'static, Vec<(Weak<Pump>, u32)>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells this pump what is said, up to this level; 0 is nothing.
pub(crate) fn listen(pump: &Arc<Pump>, level: u32) {
    let highest = {
        let mut listeners = listeners();
        listeners.retain(|(known, _)| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(pump)));
        if level > 0 {
            listeners.push((Arc::downgrade(pump), level));
        }
        listeners.iter().map(|(_, level)| *level).max().unwrap_or(0)
    };
    log::forward(highest, say);
}

fn say(level: u32, line: &str) {
    let told = |(pump, wanted): &(Weak<Pump>, u32)| if level <= *wanted { pump.upgrade() } else { None };
    // told outside the lock: the last share of a pump may end here, and what it holds may have something to say
    let pumps: Vec<Arc<Pump>> = listeners().iter().filter_map(told).collect();
    for pump in pumps {
        pump.tell(Message::Said { level, text: line.to_owned() });
    }
}
