//! A waiting thread's own ear: one subscription, on a connection that this thread reads itself. So a wake-up reaches the
//! waiter without a detour over another thread.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, PushKind, Value};

use super::line::{Line, Patience};
use super::lines::Lines;
use super::shared::Shared;
use crate::backend::{Heard, Interrupt, Lookout};
use crate::driver::clock;
use crate::machine::{Outcome, Time};

/// So many threads at a time have an ear of their own; any further ones share the subscriptions of the tasks.
const MOST: usize = 8;
/// How many connections are kept for the next waiters.
const KEPT: usize = 2;
/// Time limits of sockets are as coarse as the ticks of the kernel; shorter waits need a better clock.
const SHORT: Duration = Duration::from_millis(10);
/// So often at most a connection is read to pass over what came in; nobody keeps a caller busy by talking.
const PASSES: usize = 8;

/// The ears of one server's waiting threads.
pub(crate) struct Lookouts {
    shared: Arc<Shared>,
    lines: Arc<Lines>,
    idle: Mutex<Vec<Line>>,
    /// How many threads listen now.
    standing: AtomicUsize,
    closed: AtomicBool,
}

impl Lookouts {
    pub(crate) fn new(shared: Arc<Shared>, lines: Arc<Lines>) -> Lookouts {
        let (idle, standing, closed) = (Mutex::default(), AtomicUsize::new(0), AtomicBool::new(false));
        Lookouts { shared, lines, idle, standing, closed }
    }

    /// Subscribes to `channel`; `None` when it cannot be had within the caller's patience, or by no more threads.
    pub(crate) fn post(self: &Arc<Self>, channel: Vec<u8>, patience: Patience<'_>) -> Option<Posted> {
        if self.standing.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.standing.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut posted = Posted { lookouts: self.clone(), line: None, channel };
        loop {
            let kept = self.idle().pop();
            let reused = kept.is_some();
            let mut line = match kept {
                Some(line) if line.epoch == self.shared.epoch() => line,
                Some(stale) => {
                    self.lines.lose(stale);
                    continue;
                }
                None => self.lines.open(patience).ok()?,
            };
            let limit = Patience { until: self.shared.reply_until(patience.until, clock::now()), ..patience };
            match subscribe(&mut line, &posted.channel, limit) {
                Some(true) => {
                    posted.line = Some(line);
                    return Some(posted);
                }
                // closed by the server while it was idle
                None if reused => self.lines.lose(line),
                Some(false) | None => {
                    self.lines.lose(line);
                    return None;
                }
            }
        }
    }

    /// Closes what is idle; what is in use is closed when its waiter ends.
    pub(crate) fn close(&self) {
        let mut idle = self.idle();
        self.closed.store(true, Ordering::Release);
        let lines = std::mem::take(&mut *idle);
        drop(idle);
        drop(lines);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread on the lookout.
pub(crate) struct Posted {
    lookouts: Arc<Lookouts>,
    /// Until the connection is lost.
    line: Option<Line>,
    channel: Vec<u8>,
}

impl Lookout for Posted {
    fn hear(&mut self, until: Time, interrupt: &dyn Interrupt) -> Heard {
        let Some(line) = &mut self.line else { return Heard::Lost };
        if line.epoch != self.lookouts.shared.epoch() {
            return Heard::Lost;
        }
        let Ok(left) = (Patience { until, interrupt }).check() else { return Heard::Nothing };
        if left <= SHORT && !has_something(line, left) {
            return Heard::Nothing;
        }
        match line.hear(left) {
            Some(Outcome::Applied(value)) if is_about(&value, "message", &self.channel) => {
                // one attempt answers all that came along
                while let Some(Outcome::Applied(_)) = line.reply_at_hand() {}
                Heard::Message
            }
            // also the end of an earlier subscription, and what was said before it
            None | Some(Outcome::Applied(_)) => Heard::Nothing,
            Some(_) => Heard::Lost,
        }
    }

    fn pass_over(&mut self) {
        let Some(line) = &mut self.line else { return };
        for _ in 0..PASSES {
            if !has_something(line, Duration::ZERO) || !matches!(line.hear(SHORT), Some(Outcome::Applied(_))) {
                return;
            }
            while let Some(Outcome::Applied(_)) = line.reply_at_hand() {}
        }
    }
}

/// Whether there is something to read, at once or within `left`.
#[cfg(unix)]
fn has_something(line: &Line, left: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    poll(&mut [PollFd::new(&*line.wire().socket(), PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

/// Whether there may be something to read after `left`.
#[cfg(not(unix))]
fn has_something(_: &Line, left: Duration) -> bool {
    std::thread::park_timeout(left);
    !left.is_zero()
}

impl Drop for Posted {
    fn drop(&mut self) {
        self.lookouts.standing.fetch_sub(1, Ordering::Relaxed);
        let Some(mut line) = self.line.take() else { return };
        // the confirmation is passed over by the next one who uses the connection
        let patience = Patience { until: clock::now(), interrupt: &crate::backend::Uninterrupted };
        if line.post(&command("UNSUBSCRIBE", &self.channel), patience).is_err() {
            return self.lookouts.lines.lose(line);
        }
        let mut idle = self.lookouts.idle();
        // asked under the lock, so that `close` misses none
        if idle.len() < KEPT && !self.lookouts.closed.load(Ordering::Acquire) {
            idle.push(line);
        }
    }
}

fn command(word: &str, channel: &[u8]) -> Vec<u8> {
    let mut command = Cmd::new();
    command.arg(word).arg(channel);
    command.get_packed_command()
}

/// Whether it is confirmed; `None` when the connection is of no use.
fn subscribe(line: &mut Line, channel: &[u8], patience: Patience<'_>) -> Option<bool> {
    line.post(&command("SUBSCRIBE", channel), patience).ok()?;
    loop {
        match line.hear(patience.check().ok()?) {
            Some(Outcome::Applied(value)) if is_about(&value, "subscribe", channel) => return Some(true),
            Some(Outcome::Applied(Value::ServerError(_))) => return Some(false),
            None | Some(Outcome::Applied(_)) => {}
            Some(_) => return None,
        }
    }
}

/// Whether `value` says `what` about `channel`, in either protocol.
fn is_about(value: &Value, what: &str, channel: &[u8]) -> bool {
    let is = |value: Option<&Value>, text: &[u8]| matches!(value, Some(Value::BulkString(bytes)) if bytes == text);
    match value {
        Value::Push { kind, data } => {
            let kind = match kind {
                PushKind::Message => "message",
                PushKind::Subscribe => "subscribe",
                _ => return false,
            };
            kind == what && is(data.first(), channel)
        }
        Value::Array(words) => is(words.first(), what.as_bytes()) && is(words.get(1), channel),
        _ => false,
    }
}
