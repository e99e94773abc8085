//! The manager of one multiplexed connection: makes it when it is needed, shares it, and replaces it when it breaks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::connect::connect;
use super::connection::AsyncConnection;
use super::transport::PushHandler;
use crate::error::ErrorKind;
use crate::machine::{Failure, Jitter, Time};
use crate::store::redis::connection::context::{Locator, NodeContext};
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::pubsub::subscriber::Subscriber;
use crate::sys::clock;
use crate::sys::task::{self, AbortHandle, timeout};

/// The first pause between two attempts to connect; each further failure doubles it …
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// … up to this. Pauses are drawn between half and the whole.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// While a master is being replaced, pauses are no longer than after so many failures.
const FAILOVER_FAILURES_MAX: u32 = 3;
/// After a connection that lived longer than this, the next attempt does not pause.
const STABLE_AFTER: Duration = Duration::from_secs(5);

type ConnectAttempt = watch::Receiver<Option<Result<Arc<AsyncConnection>, Failure>>>;

/// Manages the connection to one server.
pub(crate) struct ConnectionManager {
    shared: Arc<NodeContext>,
    push_handler: Arc<dyn PushHandler>,
    /// Its connections are numbered from here on, so that those of different nodes of one store differ.
    numbers_from: u64,
    state: Mutex<ManagerState>,
}

struct ManagerState {
    connection: Option<Arc<AsyncConnection>>,
    /// The attempt in progress, which all callers share. It continues without them.
    attempt: Option<ConnectAttempt>,
    /// Failed attempts, and connections that broke at once, in a row.
    failures: u32,
    made_at: Time,
    made: u64,
    jitter: Jitter,
    /// Watches for another master, once there was one.
    master_watch: Option<AbortHandle>,
}

impl ConnectionManager {
    pub(crate) fn new(
        shared: Arc<NodeContext>,
        push_handler: Arc<dyn PushHandler>,
        numbers_from: u64,
    ) -> ConnectionManager {
        let jitter = Jitter::new(clock::now().as_nanos());
        let state = ManagerState {
            connection: None,
            attempt: None,
            failures: 0,
            made_at: Time::ZERO,
            made: 0,
            jitter,
            master_watch: None,
        };
        ConnectionManager { shared, push_handler, numbers_from, state: Mutex::new(state) }
    }

    /// The connection, made now if there is none. Concurrent callers wait for the same attempt.
    pub(crate) async fn get(self: &Arc<Self>, until: Time) -> Result<Arc<AsyncConnection>, Failure> {
        loop {
            let mut attempt = {
                let mut state = self.state();
                self.shared.store_state.check_open()?;
                if let Some(connection) = state.connection.as_ref().filter(|connection| !connection.is_gone()) {
                    return Ok(connection.clone());
                }
                match &state.attempt {
                    Some(attempt) => attempt.clone(),
                    None => self.start_attempt(&mut state),
                }
            };
            let left = until.since(clock::now());
            let ended =
                timeout(left, attempt.wait_for(Option::is_some)).await.map(|ended| ended.ok().as_deref().cloned());
            match ended {
                Err(_) => return Err(no_connection_in_time(&self.shared.name)),
                Ok(Some(Some(result))) => return result,
                Ok(_) => {
                    // the task ended with its runtime; try on this one
                    let mut state = self.state();
                    if state.attempt.as_ref().is_some_and(|current| current.same_channel(&attempt)) {
                        state.attempt = None;
                    }
                }
            }
        }
    }

    /// The number of the present connection, or of the next one if there is none.
    pub(crate) fn number(&self) -> u64 {
        let state = self.state();
        state
            .connection
            .as_ref()
            .filter(|connection| !connection.is_gone())
            .map_or(self.numbers_from + state.made + 1, |connection| connection.number)
    }

    /// A subscriber on this connection, or on a second one where RESP2 keeps replies and messages apart.
    pub(crate) async fn subscriber(self: &Arc<Self>) -> Result<Subscriber, Failure> {
        let shared = self.get(Time::MAX).await?;
        let connection = if shared.resp3 { shared } else { Arc::new(self.connect_dedicated().await?) };
        Ok(Subscriber::new(connection, false, self.shared.options.request_timeout))
    }

    /// A subscriber to sharded channels, on a connection of its own, since a server ends such subscriptions by itself.
    pub(crate) async fn sharded_subscriber(&self, push_handler: Arc<dyn PushHandler>) -> Result<Subscriber, Failure> {
        let (connected, limit) = (connect(&self.shared).await?, self.shared.options.request_timeout);
        Ok(Subscriber::new(Arc::new(AsyncConnection::start(connected, 0, limit, push_handler)), true, limit))
    }

    /// The master has moved: the next request goes to the new one, without a pause.
    pub(crate) fn on_master_moved(&self) {
        let mut state = self.state();
        state.failures = 0;
        state.made_at = Time::ZERO;
        if let Some(connection) = &state.connection {
            connection.stop();
        }
    }

    /// The next request goes over a new connection; what is in flight gets its replies.
    pub(crate) fn retire(&self) {
        if let Some(connection) = &self.state().connection {
            connection.retire();
        }
    }

    /// Ends the connection. The store must be closed before, so that no new one is made.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        if let Some(connection) = state.connection.take() {
            connection.stop();
        }
        if let Some(watch) = state.master_watch.take() {
            watch.abort();
        }
    }

    /// Whether the store was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.store_state.check_open().is_err()
    }

    /// The pause after the n-th failure in a row.
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        backoff(failures, &mut self.state().jitter)
    }

    fn start_attempt(self: &Arc<Self>, state: &mut ManagerState) -> ConnectAttempt {
        if state.connection.take().is_some() {
            let lived = clock::now().since(state.made_at);
            state.failures = if lived > STABLE_AFTER { 0 } else { state.failures + 1 };
        }
        let pause = backoff(state.failures, &mut state.jitter);
        let (sender, receiver) = watch::channel(None);
        let manager = self.clone();
        state.attempt = Some(receiver.clone());
        let number = self.numbers_from + state.made + 1;
        task::spawn(async move {
            task::sleep(pause).await;
            let made = manager.connect(number).await;
            sender.send_replace(Some(manager.finish_attempt(made)));
        });
        receiver
    }

    /// A dedicated connection for one caller, without a number.
    pub(crate) async fn connect_dedicated(&self) -> Result<AsyncConnection, Failure> {
        self.connect(0).await
    }

    async fn connect(&self, number: u64) -> Result<AsyncConnection, Failure> {
        let connected = connect(&self.shared).await?;
        let limit = self.shared.options.request_timeout;
        Ok(AsyncConnection::start(connected, number, limit, self.push_handler.clone()))
    }

    fn finish_attempt(
        self: &Arc<Self>,
        made: Result<AsyncConnection, Failure>,
    ) -> Result<Arc<AsyncConnection>, Failure> {
        let mut state = self.state();
        state.attempt = None;
        // checked under the lock, so that `close` misses none
        let connection = self.shared.store_state.check_open().and(made).inspect_err(|failure| {
            state.failures += 1;
            // the server answers, and its successor takes over soon
            if failure.kind == ErrorKind::ReadOnly {
                state.failures = state.failures.min(FAILOVER_FAILURES_MAX);
            }
        })?;
        state.made += 1;
        state.made_at = clock::now();
        if state.made > 1 {
            self.shared.store_state.note_reconnect(&self.shared.name);
        }
        let connection = Arc::new(connection);
        state.connection = Some(connection.clone());
        if let Locator::Sentinel(sentinels) = &self.shared.locator
            && state.master_watch.as_ref().is_none_or(AbortHandle::is_finished)
        {
            state.master_watch =
                Some(task::spawn(sentinels.clone().watch_switches(Arc::downgrade(self))).abort_handle());
        }
        Ok(connection)
    }

    fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn backoff(failures: u32, jitter: &mut Jitter) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let longest = (BACKOFF_MIN * 2u32.pow((failures - 1).min(10))).min(BACKOFF_MAX);
    jitter.between(longest / 2, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_bounded() {
        let mut jitter = Jitter::new(1);
        assert_eq!(backoff(0, &mut jitter), Duration::ZERO);
        for (failures, low, high) in [(1, 5, 10), (2, 10, 20), (4, 40, 80), (8, 500, 1000), (u32::MAX, 500, 1000)] {
            for _ in 0..100 {
                let pause = backoff(failures, &mut jitter);
                assert!((low..=high).contains(&pause.as_millis()), "{failures}: {pause:?}");
            }
        }
    }
}
