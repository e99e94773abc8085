//! Passes the library's events to the log of another language, line by line. Programs in Rust use a `tracing`
//! subscriber of their own instead.
//!
//! Levels are numbers that never change: 0 is nothing, and each one includes those below it.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Given every line, with its level; on the thread that has something to say, which may be that of the renewal: it must
/// be quick.
pub type Sink = fn(level: u32, line: &str);

/// Defects.
pub const ERROR: u32 = 1;
/// What somebody should look at: losses, missed renewals, servers that break locks.
pub const WARN: u32 = 2;
/// What is worth a line in normal use.
pub const INFO: u32 = 3;
/// Connections, retries.
pub const DEBUG: u32 = 4;
/// Everything.
pub const TRACE: u32 = 5;

static SINK: OnceLock<Sink> = OnceLock::new();
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Gives `sink` what is said from now on, up to `level`; 0 is nothing, and more than 5 is everything. Any number of calls
/// may change the level; the first one's sink is kept.
///
/// It becomes the subscriber of the process, so that it has no effect in a program in Rust that has one already.
///
/// ```
/// onelock::log::forward(2, |_, line| eprintln!("{line}"));
/// ```
pub fn forward(level: u32, sink: Sink) {
    let _ = SINK.set(sink);
    LEVEL.store(level.min(TRACE), Ordering::Relaxed);
    // only the first time
    let _ = tracing::subscriber::set_global_default(Forward);
    tracing_core::callsite::rebuild_interest_cache();
}

fn number(level: Level) -> u32 {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => WARN,
        Level::INFO => INFO,
        Level::DEBUG => DEBUG,
        Level::TRACE => TRACE,
    }
}

fn filter(level: u32) -> LevelFilter {
    match level {
        0 => LevelFilter::OFF,
        ERROR => LevelFilter::ERROR,
        WARN => LevelFilter::WARN,
        INFO => LevelFilter::INFO,
        DEBUG => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    // what other crates have to say is not for the users of a lock
    metadata.is_event() && metadata.target().starts_with("onelock")
}

/// Hands events on. No spans: a line says all that it has to say.
struct Forward;

impl Subscriber for Forward {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_ours(metadata) { Interest::sometimes() } else { Interest::never() }
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_ours(metadata) && number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
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
        let Some(sink) = SINK.get() else { return };
        let mut line = LogLine::default();
        event.record(&mut line);
        sink(number(*event.metadata().level()), &(line.message + &line.fields));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct LogLine {
    message: String,
    fields: String,
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
