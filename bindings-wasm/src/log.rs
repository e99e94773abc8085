//! Log lines of the core, queued as messages.

use crate::bridge;
use crate::records::Message;

/// Takes log lines up to this level: 1 is errors only, 5 is everything, 0 is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_set_log_level(level: u32) {
    onelock::log::forward(level, |level, line| bridge::push(Message::LogLine { level, text: line.to_owned() }));
}
