//! The two background tasks of a client: one renews leases and watches their deadlines, one cleans up. Both sleep until
//! their schedule has something due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::engine::Engine;
use super::sleep_until;
use crate::machine::{Alarm, Answer, LossReason, Op, Outcome, Renewal, RenewalRound, Reply, Time, UndoId};
use crate::sys::{clock, lock};

/// Wakes a sleeping task, but only for an earlier deadline than the one it sleeps for.
pub(crate) struct DeadlineWaker {
    sleeping_until: AtomicU64,
    notify: Notify,
}

impl DeadlineWaker {
    pub(crate) fn new() -> DeadlineWaker {
        DeadlineWaker { sleeping_until: AtomicU64::new(Time::MAX.as_nanos()), notify: Notify::new() }
    }

    /// Something is due at `time`. Called while the schedule's mutex is held or after it changed.
    pub(crate) fn wake_for(&self, time: Time) {
        if time.as_nanos() < self.sleeping_until.load(Ordering::Acquire) {
            // until the task runs, no other caller needs to wake it for a later time
            self.sleeping_until.fetch_min(time.as_nanos(), Ordering::AcqRel);
            self.notify.notify_one();
        }
    }

    /// Wakes the task in any case.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// The task goes to sleep until something is due at `time`; returns until when. Called while the schedule's mutex
    /// is held.
    ///
    /// The reason for a wake-up may be gone when the task runs: a lock that is taken and released in a loop. Then it
    /// still sleeps until that time only, so that the next turn of the loop, due a little later, need not wake it.
    fn begin_sleep(&self, now: Time, time: Time) -> Time {
        let rung_for = Time::from_nanos(self.sleeping_until.load(Ordering::Acquire));
        let until = if rung_for > now { time.min(rung_for) } else { time };
        self.sleeping_until.store(until.as_nanos(), Ordering::Release);
        until
    }

    async fn wait(&self, time: Time) {
        tokio::select! {
            () = self.notify.notified() => {}
            () = sleep_until(time) => {}
        }
    }
}

/// Renews, until the engine is gone.
pub(crate) async fn run_renewal(engine: Weak<Engine>, waker: Arc<DeadlineWaker>) {
    loop {
        let wake_at = {
            let Some(engine) = engine.upgrade() else { return };
            let (alarms, wake_at) = {
                let mut watch = lock(&engine.renewals);
                let now = clock::now();
                let alarms = watch.watchdog.poll(now);
                (alarms, waker.begin_sleep(now, watch.watchdog.wake_at()))
            };
            apply_alarms(&engine, alarms);
            wake_at
        };
        waker.wait(wake_at).await;
    }
}

/// Carries out the watchdog's alarms.
pub(crate) fn apply_alarms(engine: &Arc<Engine>, alarms: Vec<Alarm>) {
    for alarm in alarms {
        match alarm {
            Alarm::Renew(round) => {
                // rounds run in parallel: a slow one never delays the others, nor does a slow node of a cluster
                for round in round.split(|key| engine.store.shard(key)) {
                    let engine = engine.clone();
                    engine.runtime.clone().spawn(async move { renew_round(engine, round).await });
                }
            }
            Alarm::Jeopardy(id) => engine.notify_jeopardy(id),
            Alarm::Lost(id, reason) => engine.notify_lost(id, reason),
        }
    }
}

async fn renew_round(engine: Arc<Engine>, round: RenewalRound) {
    let until = clock::now() + round.limit;
    let answer = engine.store.call(Op::Renew { holds: round.holds.clone() }, until).await;
    count_renewals(&engine, &round, &answer);
    let alarms = {
        let mut watch = lock(&engine.renewals);
        let alarms = watch.watchdog.renewed(clock::now(), &round, &answer);
        engine.renewal_waker.wake_for(watch.watchdog.wake_at());
        alarms
    };
    apply_alarms(&engine, alarms);
    // after the confirmed renewals: they are not affected by a clock jump that this very reply shows
    engine.observe_clock(&answer);
}

fn count_renewals(engine: &Engine, round: &RenewalRound, answer: &Answer) {
    let (confirmed, missed) = match &answer.outcome {
        Outcome::Applied(Reply::Renewed(verdicts)) => {
            let count = |wanted: fn(&Renewal) -> bool| verdicts.iter().filter(|verdict| wanted(verdict)).count();
            (count(|verdict| *verdict == Renewal::Renewed), count(|verdict| matches!(verdict, Renewal::Failed(_))))
        }
        Outcome::Applied(_) => (0, round.ids.len()),
        Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => {
            tracing::warn!(leases = round.ids.len(), cause = %failure.detail, "renewal round failed; trying again");
            (0, round.ids.len())
        }
    };
    engine.metrics.renewals.fetch_add(confirmed as u64, Ordering::Relaxed);
    engine.metrics.renewals_missed.fetch_add(missed as u64, Ordering::Relaxed);
}

/// Marks the cleanup task as ended when dropped: if it ends with its runtime, the queue must not keep the engine alive.
pub(crate) struct CleanupTask(pub(crate) Weak<Engine>);

impl Drop for CleanupTask {
    fn drop(&mut self) {
        if let Some(engine) = self.0.upgrade()
            && engine.stamp.is_here()
        {
            engine.abandon_cleanup();
        }
    }
}

/// Cleans up, until the engine is gone (which it is not while the queue has entries).
pub(crate) async fn run_cleanup(cleaner: CleanupTask, waker: Arc<DeadlineWaker>) {
    loop {
        let wake_at = {
            let Some(engine) = cleaner.0.upgrade() else { return };
            let (sends, ended, wake_at) = {
                let mut cleanup = lock(&engine.cleanup);
                let now = clock::now();
                let sends = cleanup.queue.poll(now);
                (sends, cleanup.queue.ended(), waker.begin_sleep(now, cleanup.queue.wake_at()))
            };
            for claim in &ended {
                engine.store.settled(claim);
            }
            for (id, op) in sends {
                let engine = engine.clone();
                engine.runtime.clone().spawn(async move { send_undo(engine, id, op).await });
            }
            finish_cleaning(&engine);
            wake_at
        };
        waker.wait(wake_at).await;
    }
}

fn finish_cleaning(engine: &Engine) {
    let mut cleanup = lock(&engine.cleanup);
    // only `close` waits for this
    let done = engine.is_closed() && cleanup.queue.is_answered();
    let kept = cleanup.release_engine();
    drop(cleanup);
    if done {
        engine.cleanup_done.notify_waiters();
    }
    drop(kept);
}

async fn send_undo(engine: Arc<Engine>, id: UndoId, op: Op) {
    let until = clock::now() + engine.options.connect_timeout + engine.options.request_timeout;
    let answer = engine.store.call(op, until).await;
    engine.observe_clock(&answer);
    if let Some(failure) = answer.outcome.failure() {
        tracing::debug!(cause = %failure.detail, "clean-up not confirmed yet");
    }
    let (ended, wake_at, believed_hold) = {
        let mut cleanup = lock(&engine.cleanup);
        cleanup.queue.answered(clock::now(), id, &answer);
        (cleanup.queue.ended(), cleanup.queue.wake_at(), cleanup.believed.remove(&id))
    };
    for claim in &ended {
        engine.store.settled(claim);
    }
    engine.cleanup_waker.wake_for(wake_at);
    // a later answer would only find what the first request had left
    if let Some(hold) = believed_hold
        && let Some(found) = match answer.outcome {
            Outcome::Applied(Reply::Released(found) | Reply::PartlyReleased { found, .. }) => Some(found),
            Outcome::Applied(Reply::ReleasedToWaiters) => Some(true),
            _ => None,
        }
        && hold.lease.finish_release(found, answer.received_at)
    {
        engine.notify_loss_of(&hold, LossReason::Taken);
    }
    finish_cleaning(&engine);
}
