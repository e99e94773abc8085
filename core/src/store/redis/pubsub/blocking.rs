//! A subscription that a waiting thread reads itself, so that a wake-up reaches the waiter without a switch to another
//! thread.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;

use crate::machine::Time;
use crate::store::redis::connection::blocking::connection::BlockingConnection;
use crate::store::redis::connection::blocking::pool::ConnectionPool;
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::resp::exchange::Received;
use crate::store::redis::resp::push::Push;
use crate::store::{BlockingSubscription, Interrupt, Notification, Uninterrupted};
use crate::sys::clock;

/// At most so many threads at a time have a subscription of their own; further ones use those of the registry.
const MAX_THREADS: usize = 8;
/// How many connections are kept for later waiters.
const MAX_IDLE: usize = 2;
/// Socket time limits are as coarse as the kernel's tick; for shorter waits the socket is polled.
const COARSE_TIMER: Duration = Duration::from_millis(10);
/// At most so many reads drain a connection, so that a publisher cannot keep a caller busy.
const MAX_DRAIN_READS: usize = 8;

/// The subscriptions of one server's waiting threads.
pub(crate) struct BlockingSubscriptions {
    shared: Arc<NodeContext>,
    pool: Arc<ConnectionPool>,
    idle: Mutex<Vec<BlockingConnection>>,
    /// How many threads have one now.
    active: AtomicUsize,
    closed: AtomicBool,
}

impl BlockingSubscriptions {
    pub(crate) fn new(shared: Arc<NodeContext>, connections: Arc<ConnectionPool>) -> BlockingSubscriptions {
        let (idle, standing, closed) = (Mutex::default(), AtomicUsize::new(0), AtomicBool::new(false));
        BlockingSubscriptions { shared, pool: connections, idle, active: standing, closed }
    }

    /// Subscribes to `channel`; `None` when that is not possible before the deadline, or for no more threads.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        channel: Vec<u8>,
        deadline: Deadline<'_>,
    ) -> Option<SubscribedConnection> {
        if self.active.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
            self.active.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut subscription = SubscribedConnection { owner: self.clone(), connection: None, channel };
        loop {
            let kept = self.idle().pop();
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) if connection.socket.epoch == self.shared.epoch() => connection,
                Some(stale) => {
                    self.pool.discard(stale);
                    continue;
                }
                None => self.pool.open(deadline).ok()?,
            };
            let limit = Deadline { until: self.shared.reply_until(deadline.until, clock::now()), ..deadline };
            match confirm_subscription(&mut connection, &subscription.channel, limit) {
                Some(true) => {
                    subscription.connection = Some(connection);
                    return Some(subscription);
                }
                // closed by the server while it was idle
                None if reused => self.pool.discard(connection),
                Some(false) | None => {
                    self.pool.discard(connection);
                    return None;
                }
            }
        }
    }

    /// Closes the idle connections; the others are closed when their waiters end.
    pub(crate) fn close(&self) {
        let mut idle = self.idle();
        self.closed.store(true, Ordering::Release);
        let connections = std::mem::take(&mut *idle);
        drop(idle);
        drop(connections);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<BlockingConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The subscription of one thread.
pub(crate) struct SubscribedConnection {
    owner: Arc<BlockingSubscriptions>,
    /// `None` once the connection is lost.
    connection: Option<BlockingConnection>,
    channel: Vec<u8>,
}

impl BlockingSubscription for SubscribedConnection {
    fn recv(&mut self, until: Time, interrupt: &dyn Interrupt) -> Notification {
        let Some(connection) = &mut self.connection else { return Notification::Lost };
        if connection.socket.epoch != self.owner.shared.epoch() {
            return Notification::Lost;
        }
        let Ok(left) = (Deadline { until, interrupt }).check() else { return Notification::TimedOut };
        if left <= COARSE_TIMER && !is_readable(connection, left) {
            return Notification::TimedOut;
        }
        match connection.recv_within(left) {
            Ok(Some(Received::Push(Push::Message { channel, .. }))) if channel == self.channel => {
                // one attempt answers all messages that have arrived
                while let Ok(Some(_)) = connection.exchange.next() {}
                Notification::Message
            }
            // also the end of an earlier subscription, and messages before it
            Ok(_) => Notification::TimedOut,
            Err(_) => Notification::Lost,
        }
    }

    fn drain(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        for _ in 0..MAX_DRAIN_READS {
            if !is_readable(connection, Duration::ZERO) || !matches!(connection.recv_within(COARSE_TIMER), Ok(Some(_)))
            {
                return;
            }
            while let Ok(Some(_)) = connection.exchange.next() {}
        }
    }
}

/// Whether the socket is readable, now or within `left`.
#[cfg(unix)]
fn is_readable(connection: &BlockingConnection, left: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    poll(&mut [PollFd::new(&*connection.socket.stream.socket(), PollFlags::IN)], Some(&limit))
        .is_ok_and(|ready| ready > 0)
}

/// Whether the socket may be readable after `left`.
#[cfg(not(unix))]
fn has_something(_: &BlockingConnection, left: Duration) -> bool {
    std::thread::park_timeout(left);
    !left.is_zero()
}

impl Drop for SubscribedConnection {
    fn drop(&mut self) {
        self.owner.active.fetch_sub(1, Ordering::Relaxed);
        let Some(mut connection) = self.connection.take() else { return };
        // the confirmation is dropped by the next user of the connection
        let now = clock::now();
        let deadline = Deadline { until: now, interrupt: &Uninterrupted };
        let channel = vec![std::mem::take(&mut self.channel)];
        connection.exchange.push_subscription(None, now, ("UNSUBSCRIBE", false), channel);
        connection.socket.set_io_timeout(COARSE_TIMER);
        if connection.socket.send(&mut connection.exchange.requests, deadline).is_err() {
            return self.owner.pool.discard(connection);
        }
        let mut idle = self.owner.idle();
        // checked under the lock, so that `close` misses none
        if idle.len() < MAX_IDLE && !self.owner.closed.load(Ordering::Acquire) {
            idle.push(connection);
        }
    }
}

/// Whether it is confirmed; `None` when the connection is unusable.
fn confirm_subscription(connection: &mut BlockingConnection, channel: &[u8], deadline: Deadline<'_>) -> Option<bool> {
    let BlockingConnection { socket, exchange } = connection;
    exchange.push_subscription(Some(()), clock::now(), ("SUBSCRIBE", true), vec![channel.to_vec()]);
    socket.set_io_timeout(deadline.check().ok()?);
    socket.send(&mut exchange.requests, deadline).ok()?;
    loop {
        match socket.receive(exchange, deadline).ok()? {
            Received::Reply((), reply) => return Some(!matches!(reply, Value::ServerError(_))),
            // without end, perhaps
            Received::Push(_) => deadline.check().ok()?,
        };
    }
}
