//! Messages that say nothing: anybody may publish on a lock's channel, as often as it likes.

use std::time::Duration;

use onelock::machine::{ATTEMPT_SPACING, Acquire, HerdBackoff, Jitter, PROMPT_ANSWERS, Spacing, Time};

use super::bug::Bug;
use super::world::{Event, World};

/// How many messages a storm has, and how far apart they are.
const MESSAGES: u32 = 1200;
const APART: u64 = 50_000;
/// So far back refusals are counted.
const WINDOW: Duration = Duration::from_millis(40);
/// Attempts in that time that are not in answer to messages: the first looks, a poll, the end of the holder's time.
const OTHERS: u32 = 4;

/// A message came to a sleeping waiter.
pub(super) fn hint(bug: Option<Bug>, machine: &mut Acquire, now: Time, jitter: &mut Jitter) {
    if bug == Some(Bug::StormAnswered) {
        machine.set_spacing(Spacing::default());
        machine.set_herd_backoff(HerdBackoff::default());
    }
    machine.hint(now, jitter);
}

impl World {
    /// Somebody publishes on the channel of a lock, for nothing.
    pub(super) fn storm(&mut self, name: usize, left: u32) {
        for (_, link, of) in self.server.subscribers.clone() {
            if of == name {
                let delay = self.delay();
                self.push(self.now + delay, Event::Message(link, name as u8, None));
            }
        }
        if left > 0 && !self.calm {
            self.push(self.now + APART, Event::Storm(name as u8, left - 1));
        }
    }

    pub(super) fn begin_storm(&mut self, name: usize) {
        self.storm(name, MESSAGES);
    }

    /// The head of a local line asks the server: some messages in vain may be answered at once, but not all of a storm.
    pub(super) fn check_spacing(&mut self, task: usize) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let Some(call) = self.tasks[task].call.as_ref().filter(|call| call.ticket.is_some()) else { return };
        let now = self.local(client);
        if now >= call.machine.gives_up_at() {
            return;
        }
        let allowed = PROMPT_ANSWERS + OTHERS + (WINDOW.as_nanos() / ATTEMPT_SPACING.as_nanos()) as u32;
        let refusals = &mut self.clients[client].refusals[name];
        refusals.retain(|refused_at| now.since(*refused_at) < WINDOW);
        let count = refusals.len();
        if count > allowed as usize {
            let detail = format!("task {task} asks after {count} refusals within {WINDOW:?}");
            self.violate("P8 bounded waiting", detail);
        }
    }
}
