//! The bridge between one JavaScript thread and the core: its calls in progress and its leases.
//!
//! JavaScript chooses the number of a call. Either the outcome of the call is fetched, or the call is cancelled; then a lease
//! that was granted meanwhile is dropped, which releases it. Both happen on this thread, so they cannot race.

mod clients;
mod leases;
mod locks;
mod payloads;

use std::cell::RefCell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use napi::Env;
use napi::bindgen_prelude::Float64ArraySlice;
use napi_derive::napi;
use onelock::runtime::ClientGroup;
use onelock::{Credentials, ErrorKind, Lease, event_loop};

use crate::data::Failure;
use crate::log;
use crate::pump::{Message, Outcome, Pump, WakeupFunction};
use crate::records::{Call, Payload, RECORD, State};
use crate::uv_poll::UvPoller;

/// How long the end of a thread waits.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

#[napi]
pub struct Bridge {
    pump: Arc<Pump>,
    clients: ClientGroup,
    /// `None` where the event loop cannot poll sockets.
    poller: Option<UvPoller>,
    state: Rc<RefCell<State>>,
}

#[napi]
impl Bridge {
    /// `wakeup` is called without arguments when there are messages to fetch, or with one record. `libuv`: whether the
    /// event loop is libuv.
    #[napi(constructor)]
    pub fn new(env: Env, wakeup: WakeupFunction<'_>, libuv: bool) -> napi::Result<Bridge> {
        let pump = Arc::new(Pump::new(wakeup.build_threadsafe_function::<()>().weak::<true>().build()?));
        let state = Rc::default();
        onelock::runtime::leave_exit_to_caller();
        let clients = ClientGroup::new();
        env.add_env_cleanup_hook((pump.clone(), clients.clone()), |(pump, clients)| release_all(&pump, &clients))?;
        let poller = if libuv { UvPoller::new(env, &wakeup, &pump, &state) } else { None };
        Ok(Bridge { pump, clients, poller, state })
    }

    /// Releases what is held and waits for it, at most one second: the process ends.
    #[napi]
    pub fn close(&self) {
        release_all(&self.pump, &self.clients);
    }

    /// Writes records until the array is full or there are no more messages. Returns how many.
    #[napi]
    pub fn fetch(&self, env: Env, mut records: Float64ArraySlice<'_>) -> u32 {
        let state = &mut *self.state.borrow_mut();
        // SAFETY: the array belongs to JavaScript and lives during this call, in which no JavaScript runs.
        let records = unsafe { records.as_mut() };
        let mut fetched = std::mem::take(&mut state.fetched);
        let room = records.len() / RECORD;
        let mut count = 0;
        while count < room {
            self.pump.fetch(room - count, &mut fetched);
            if fetched.is_empty() {
                break;
            }
            for message in fetched.drain(..) {
                let Some(line) = state.record(message) else { continue };
                records[count * RECORD..][..RECORD].copy_from_slice(&line);
                count += 1;
            }
        }
        state.fetched = fetched;
        if state.calls.is_empty() && count > 0 {
            self.pump.keep_alive(&env, false);
        }
        count as u32
    }

    /// Cancels a call. False when its outcome was fetched before.
    #[napi]
    pub fn cancel(&self, env: Env, call: u32) -> bool {
        let (gone, idle) = {
            let mut state = self.state.borrow_mut();
            let gone = state.calls.remove(&call);
            (gone, state.calls.is_empty())
        };
        let Some(gone) = gone else { return false };
        gone.task.abort();
        self.pump.withdraw(call);
        if idle {
            self.pump.keep_alive(&env, false);
        }
        true
    }

    /// Reports log lines up to this level as records: 1 is errors only, 5 is everything, 0 is nothing.
    #[napi]
    pub fn set_log_level(&self, level: u32) {
        log::set_level(&self.pump, level);
    }

    /// Answers a request for credentials. Does nothing if it was answered before.
    #[napi]
    pub fn answer(&self, request: u32, username: Option<String>, password: String) {
        let asked = self.state.borrow_mut().requests.remove(&request);
        if let Some(asked) = asked {
            asked.answer(Ok::<_, String>(Credentials::new(username.unwrap_or_default(), password)));
        }
    }

    /// Fails a request for credentials with a reason.
    #[napi]
    pub fn refuse(&self, request: u32, reason: String) {
        let asked = self.state.borrow_mut().requests.remove(&request);
        if let Some(asked) = asked {
            asked.answer(Err(reason));
        }
    }
}

impl Bridge {
    /// Starts a call on this thread. It keeps the event loop alive until it has ended.
    fn begin(
        &self,
        env: Env,
        call: u32,
        work: impl Future<Output = Result<Outcome, Failure>> + Send + 'static,
    ) -> napi::Result<()> {
        let pump = self.pump.clone();
        // a panic is a defect; it is reported as a failure
        let work = AssertUnwindSafe(work).catch_unwind().map(move |ended| {
            let outcome = match ended {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(failure)) => Outcome::Failed(Box::new(failure)),
                Err(_) => Outcome::Failed(Box::new(Failure::new(ErrorKind::Internal, "run a call", "it panicked"))),
            };
            pump.push(Message::Outcome { call, outcome });
        });
        let task = match &self.poller {
            Some(poller) => poller.core_loop().start(work),
            None => event_loop::begin(work),
        };
        let mut state = self.state.borrow_mut();
        let task = match task {
            Ok(task) => task,
            Err(error) => {
                // the call was not started; JavaScript takes the error under the number of the call
                let reason = napi::Error::from_reason(error.to_string());
                state.payloads.insert(call, Payload::Failure(Box::new(error.into())));
                return Err(reason);
            }
        };
        if state.calls.is_empty() {
            self.pump.keep_alive(&env, true);
        }
        state.calls.insert(call, Call { task, releases: None });
        drop(state);
        if let Some(poller) = &self.poller {
            poller.after_start();
        }
        Ok(())
    }

    fn lease(&self, lease: f64) -> Option<Arc<Lease>> {
        self.state.borrow().leases.get(&(lease as u64)).cloned()
    }

    fn refused<T>(&self, failure: Failure) -> Option<T> {
        self.state.borrow_mut().payloads.insert(0, Payload::Failure(Box::new(failure)));
        None
    }
}

/// Releases what the clients of this thread hold, and waits for it. It may be called again.
fn release_all(pump: &Pump, clients: &ClientGroup) {
    pump.close();
    clients.close(EXIT_LIMIT);
}
