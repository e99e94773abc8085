//! A subscription that a waiting thread reads itself, from an inotify instance of its own, so that a wake-up reaches it
//! without a switch to another thread. Linux only.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::directory::Listener;
use super::process::{ECHOES, Process};
use super::watcher::{Heard, Inotify, WatchId};
use crate::machine::Time;
use crate::store::{BlockingSubscription, Interrupt, Notification};
use crate::sys::{clock, lock};

/// At most so many threads at a time have an instance of their own: a user has 128 by default. Further ones share that of
/// the process.
const MAX_THREADS: usize = 4;
/// A waiting thread returns after so long, so that its caller asks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The subscription of one thread.
pub(super) struct ThreadSubscription {
    /// There until it is dropped.
    inotify: Option<Inotify>,
    watch: WatchId,
    /// When to look again though nothing was heard, and how many of [`ECHOES`] are over.
    echo: Option<(Time, usize)>,
    process: Arc<Process>,
    _listener: Listener,
}

impl ThreadSubscription {
    /// Hears what happens to this file; `None` where that is not possible, or for no more threads.
    pub(super) fn new(path: &Path, process: &Arc<Process>, listener: Listener) -> Option<ThreadSubscription> {
        let instances = &process.threads;
        if instances.active.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
            instances.active.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut subscription =
            ThreadSubscription { inotify: None, watch: 0, echo: None, process: process.clone(), _listener: listener };
        let kept = lock(&instances.idle).take();
        let inotify = kept.map_or_else(|| Inotify::new(false), Ok).ok()?;
        subscription.watch = inotify.add(path).ok()?;
        subscription.inotify = Some(inotify);
        Some(subscription)
    }
}

impl BlockingSubscription for ThreadSubscription {
    fn recv(&mut self, until: Time, _interrupt: &dyn Interrupt) -> Notification {
        let Some(inotify) = &self.inotify else { return Notification::Lost };
        let now = clock::now();
        let echo_at = self.echo.map_or(Time::MAX, |(at, _)| at);
        let left = until.min(now + LOOK_EVERY).min(echo_at).since(now);
        let limit = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let readable = poll(&mut [PollFd::new(inotify.fd(), PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0);
        let heard = if readable { inotify.read(self.watch) } else { Heard::default() };
        if heard.gone {
            // the shared subscription watches the file that has the name now
            return Notification::Lost;
        }
        if heard.any {
            self.echo = Some((clock::now() + ECHOES[0], 0));
            return Notification::Message;
        }
        match self.echo {
            Some((at, stage)) if at <= clock::now() => {
                self.echo = ECHOES.get(stage + 1).map(|span| (clock::now() + *span, stage + 1));
                Notification::Message
            }
            _ => Notification::TimedOut,
        }
    }

    fn drain(&mut self) {
        if let Some(inotify) = &self.inotify
            && inotify.read(self.watch).any
        {
            self.echo = Some((clock::now() + ECHOES[0], 0));
        }
    }
}

impl Drop for ThreadSubscription {
    fn drop(&mut self) {
        if !self.process.stamp.is_here() {
            return;
        }
        let instances = &self.process.threads;
        instances.active.fetch_sub(1, Ordering::Relaxed);
        let Some(inotify) = self.inotify.take() else { return };
        inotify.remove(self.watch);
        let replaced = lock(&instances.idle).replace(inotify);
        drop(replaced);
    }
}
