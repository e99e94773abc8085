//! The connection to one server over time: made when it is needed, shared by all, replaced when it breaks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::dial::dial;
use super::pipe::{Ear, Pipe};
use super::shared::{Shared, Target};
use super::socket::no_connection_in_time;
use super::subscriber::Subscriber;
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Jitter, Time};

/// The first pause between two attempts to connect; each further failure doubles it …
const PAUSE: Duration = Duration::from_millis(10);
/// … up to this. Pauses are drawn between half and the whole.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// While a master is being replaced, pauses are no longer than those after so many failures.
const FAILURES_OF_A_HAND_OVER: u32 = 3;
/// A connection that lives longer than this was a good one: the next attempt doesn't pause.
const SETTLED: Duration = Duration::from_secs(5);

type Attempt = watch::Receiver<Option<Result<Arc<Pipe>, Failure>>>;

/// The way to the server.
pub(crate) struct Link {
    shared: Arc<Shared>,
    ear: Arc<dyn Ear>,
    /// Its connections are numbered from here on, so that those of different nodes of one store differ.
    numbers_from: u64,
    state: Mutex<State>,
}

struct State {
    pipe: Option<Arc<Pipe>>,
    /// The attempt under way, which all callers share. It goes on when they go away.
    attempt: Option<Attempt>,
    /// Attempts that failed, and connections that broke at once, in a row.
    failures: u32,
    made_at: Time,
    made: u64,
    jitter: Jitter,
    /// Listens for another master, once there was one.
    watch: Option<AbortHandle>,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, ear: Arc<dyn Ear>, numbers_from: u64) -> Link {
        let jitter = Jitter::new(clock::now().as_nanos());
        let state = State { pipe: None, attempt: None, failures: 0, made_at: Time::ZERO, made: 0, jitter, watch: None };
        Link { shared, ear, numbers_from, state: Mutex::new(state) }
    }

    /// The connection, made now if there is none. Callers that come while it is being made wait for the same one.
    pub(crate) async fn pipe(self: &Arc<Self>, until: Time) -> Result<Arc<Pipe>, Failure> {
        loop {
            let mut attempt = {
                let mut state = self.state();
                self.shared.common.check_open()?;
                if let Some(pipe) = state.pipe.as_ref().filter(|pipe| !pipe.is_gone()) {
                    return Ok(pipe.clone());
                }
                match &state.attempt {
                    Some(attempt) => attempt.clone(),
                    None => self.begin(&mut state),
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
            .pipe
            .as_ref()
            .filter(|pipe| !pipe.is_gone())
            .map_or(self.numbers_from + state.made + 1, |pipe| pipe.number)
    }

    /// The means to subscribe: this connection, or a second one where replies and messages don't go together.
    pub(crate) async fn subscriber(self: &Arc<Self>) -> Result<Subscriber, Failure> {
        let limit = self.shared.options.request_timeout;
        let pipe = self.pipe(Time::MAX).await?;
        if pipe.resp3 {
            return Ok(Subscriber::sharing(pipe, limit));
        }
        let dialled = dial(&self.shared).await?;
        Subscriber::alone(dialled, limit, self.ear.clone()).await
    }

    /// The means to subscribe to sharded channels, whose end a server announces by itself.
    pub(crate) async fn sharded_subscriber(&self, ear: Arc<dyn Ear>) -> Result<Subscriber, Failure> {
        let dialled = dial(&self.shared).await?;
        Ok(Subscriber::sharded(dialled, self.shared.options.request_timeout, ear))
    }

    /// The server has moved: what goes on is sent to the new one, without a pause.
    pub(crate) fn moved(&self) {
        let mut state = self.state();
        state.failures = 0;
        state.made_at = Time::ZERO;
        if let Some(pipe) = &state.pipe {
            pipe.stop();
        }
    }

    /// The next request goes over a new connection; what is in flight gets its replies.
    pub(crate) fn retire(&self) {
        if let Some(pipe) = &self.state().pipe {
            pipe.retire();
        }
    }

    /// Ends the connection. `Shared` must be closed before, so that no new one is made.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        if let Some(pipe) = state.pipe.take() {
            pipe.stop();
        }
        if let Some(watch) = state.watch.take() {
            watch.abort();
        }
    }

    /// Whether the store was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.common.check_open().is_err()
    }

    /// A pause for the n-th failure in a row.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        pause(failures, &mut self.state().jitter)
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> Attempt {
        if state.pipe.take().is_some() {
            let lived = clock::now().since(state.made_at);
            state.failures = if lived > SETTLED { 0 } else { state.failures + 1 };
        }
        let pause = pause(state.failures, &mut state.jitter);
        let (sender, receiver) = watch::channel(None);
        let link = self.clone();
        state.attempt = Some(receiver.clone());
        let number = self.numbers_from + state.made + 1;
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let made = link.make(number).await;
            sender.send_replace(Some(link.finish(made)));
        });
        receiver
    }

    /// A connection of its own for one caller, with no number.
    pub(crate) async fn own_pipe(&self) -> Result<Pipe, Failure> {
        self.make(0).await
    }

    async fn make(&self, number: u64) -> Result<Pipe, Failure> {
        let options = &self.shared.options;
        let dialled = dial(&self.shared).await?;
        let start = Pipe::start(dialled, number, options.request_timeout, self.ear.clone());
        match timeout(options.connect_timeout, start).await {
            Ok(started) => started,
            Err(_) => Err(no_connection_in_time(&self.shared.name)),
        }
    }

    fn finish(self: &Arc<Self>, made: Result<Pipe, Failure>) -> Result<Arc<Pipe>, Failure> {
        let mut state = self.state();
        state.attempt = None;
        // asked under the lock, so that `close` misses none
        let pipe = self.shared.common.check_open().and(made).inspect_err(|failure| {
            state.failures += 1;
            // it is there, and another one is just taking its place: that is soon over
            if failure.kind == ErrorKind::ReadOnly {
                state.failures = state.failures.min(FAILURES_OF_A_HAND_OVER);
            }
        })?;
        state.made += 1;
        state.made_at = clock::now();
        if state.made > 1 {
            self.shared.common.reconnected(&self.shared.name);
        }
        let pipe = Arc::new(pipe);
        state.pipe = Some(pipe.clone());
        if let Target::Watched(scout) = &self.shared.target
            && state.watch.as_ref().is_none_or(AbortHandle::is_finished)
        {
            state.watch = Some(tokio::spawn(scout.clone().watch(Arc::downgrade(self))).abort_handle());
        }
        Ok(pipe)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pause(failures: u32, jitter: &mut Jitter) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let longest = (PAUSE * 2u32.pow((failures - 1).min(10))).min(LONGEST_PAUSE);
    jitter.between(longest / 2, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_bounded() {
        let mut jitter = Jitter::new(1);
        assert_eq!(pause(0, &mut jitter), Duration::ZERO);
        for (failures, low, high) in [(1, 5, 10), (2, 10, 20), (4, 40, 80), (8, 500, 1000), (u32::MAX, 500, 1000)] {
            for _ in 0..100 {
                let pause = pause(failures, &mut jitter);
                assert!((low..=high).contains(&pause.as_millis()), "{failures}: {pause:?}");
            }
        }
    }
}
