//! What the core has to say, on its way to the logger of a thread of JavaScript. It is said on any thread, the renewal's
//! too, so it is queued like everything else.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::pump::{Message, Pump};

/// Who wants to hear, and up to which level: 1 is errors only, 5 is everything.
static LISTENERS: Mutex<Vec<(Weak<Pump>, u32)>> = Mutex::new(Vec::new());
/// The highest level that anybody wants; 0 when nobody does.
static LEVEL: AtomicU32 = AtomicU32::new(0);

fn number(level: Level) -> u32 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

fn filter(level: u32) -> LevelFilter {
    match level {
        0 => LevelFilter::OFF,
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

fn listeners() -> MutexGuard<'static, Vec<(Weak<Pump>, u32)>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells this pump what is said, up to this level; 0 is nothing.
pub(crate) fn listen(pump: &Arc<Pump>, level: u32) {
    {
        let mut listeners = listeners();
        listeners.retain(|(known, _)| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(pump)));
        if level > 0 {
            listeners.push((Arc::downgrade(pump), level));
        }
        LEVEL.store(listeners.iter().map(|(_, level)| *level).max().unwrap_or(0), Ordering::Relaxed);
    }
    // only the first time; this copy of the library has no other subscriber
    let _ = tracing::subscriber::set_global_default(ToPumps);
    tracing_core::callsite::rebuild_interest_cache();
}

/// Hands the events of the core on. No spans: a line says all that it has to say.
struct ToPumps;

impl Subscriber for ToPumps {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_event() { Interest::sometimes() } else { Interest::never() }
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("onelock")
            && number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(filter(LEVEL.load(Ordering::Relaxed)))
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let level = number(*event.metadata().level());
        let mut line = Line::default();
        event.record(&mut line);
        let text = line.message + &line.fields;
        let told = |(pump, wanted): &(Weak<Pump>, u32)| if level <= *wanted { pump.upgrade() } else { None };
        // told outside the lock: the last share of a pump may end here, and what it holds may have something to say
        let pumps: Vec<Arc<Pump>> = listeners().iter().filter_map(told).collect();
        for pump in pumps {
            pump.tell(Message::Said { level, text: text.clone() });
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
