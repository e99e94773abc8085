//! The bridge between one JavaScript thread and the core: its calls in progress and its leases.
//!
//! JavaScript chooses the number of a call. Either the outcome of the call is fetched, or the call is cancelled; then a lease
//! that was granted meanwhile is dropped, which releases it. Both happen on this thread, so they cannot race.

use std::cell::RefCell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use napi::Either;
use napi::Env;
use napi::bindgen_prelude::{ClassInstance, Float64ArraySlice, Uint8Array};
use napi_derive::napi;
use onelock::runtime::ClientGroup;
use onelock::{Credentials, ErrorKind, Lease, MultiLock, Release, event_loop};

use crate::client::{Name, NativeClient, bytes};
use crate::credentials::Provider;
use crate::data::{Diagnosed, Failure, Inspected, Page, ServerFacts, loss_code};
use crate::log;
use crate::options::{ClientOptions, LockOptions, span};
use crate::pump::{Message, Outcome, Pump, WakeupFunction};
use crate::records::{Call, Payload, RECORD, State};
use crate::uv_poll::UvPoller;

/// How long the end of a thread waits.
const EXIT_LIMIT: Duration = Duration::from_secs(1);
/// `wait` of an acquire: for ever.
const FOR_EVER: f64 = -1.0;
/// `wait` of an acquire: one try.
const ONE_TRY: f64 = -2.0;

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

    /// A client; `null` when the arguments are wrong: then the error is payload 0.
    #[napi]
    pub fn open(&self, url: String, options: ClientOptions) -> Option<NativeClient> {
        if options.cert_file.is_some() != options.key_file.is_some() {
            let detail = "certFile and keyFile belong together";
            return self.refused(Failure::new(ErrorKind::InvalidArgument, "make a client", detail));
        }
        let provider = options.credentials.map(|number| Provider::new(&self.pump, number));
        let builder = options.builder();
        let builder = match provider {
            Some(provider) => builder.credentials(provider),
            None => builder,
        };
        match self.clients.build(builder, &url) {
            Ok(client) => Some(NativeClient { client }),
            Err(error) => self.refused(error.into()),
        }
    }

    #[napi]
    pub fn check(&self, env: Env, call: u32, client: &NativeClient) -> napi::Result<()> {
        let client = client.client.clone();
        self.begin(env, call, async move { Ok(Outcome::Checked(client.check().await?)) })
    }

    #[napi]
    pub fn diagnose(&self, env: Env, call: u32, client: &NativeClient, name: Name<'_>) -> napi::Result<()> {
        let (client, name) = (client.client.clone(), bytes(&name).to_vec());
        self.begin(env, call, async move { Ok(Outcome::Diagnosed(client.diagnose(name).await?)) })
    }

    #[napi]
    pub fn close_client(&self, env: Env, call: u32, client: &NativeClient) -> napi::Result<()> {
        let client = client.client.clone();
        self.begin(env, call, async move {
            client.close().await;
            Ok(Outcome::Done)
        })
    }

    #[napi]
    pub fn inspect(&self, env: Env, call: u32, client: &NativeClient, name: Name<'_>) -> napi::Result<()> {
        let (client, name) = (client.client.clone(), bytes(&name).to_vec());
        self.begin(env, call, async move {
            let seen = client.inspect(name).await?;
            Ok(seen.map_or(Outcome::Nothing, |seen| Outcome::Inspected(Box::new(seen))))
        })
    }

    #[napi]
    pub fn list(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        pattern: Name<'_>,
        limit: u32,
        cursor: Option<String>,
    ) -> napi::Result<()> {
        let (client, pattern) = (client.client.clone(), bytes(&pattern).to_vec());
        self.begin(env, call, async move { Ok(Outcome::Listed(client.list(pattern, limit, cursor.as_deref()).await?)) })
    }

    #[napi]
    pub fn force_release(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        name: Name<'_>,
        foreign: bool,
    ) -> napi::Result<()> {
        let (client, name) = (client.client.clone(), bytes(&name).to_vec());
        self.begin(env, call, async move {
            let found =
                if foreign { client.force_release_foreign(name).await? } else { client.force_release(name).await? };
            Ok(Outcome::Flag(found))
        })
    }

    #[allow(clippy::too_many_arguments)] // an object for them would take longer to read than the call itself
    #[napi]
    pub fn acquire(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        wait: f64,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move {
            if wait == ONE_TRY {
                return Ok(lock.try_acquire().await?.map_or(Outcome::Nothing, Outcome::Granted));
            }
            let lease = if wait == FOR_EVER { lock.acquire().await? } else { lock.acquire_within(span(wait)).await? };
            Ok(Outcome::Granted(lease))
        })
    }

    /// The members are given as one list for each of their parts, in the same order.
    #[allow(clippy::too_many_arguments)] // as `acquire`
    #[napi]
    pub fn acquire_many(
        &self,
        env: Env,
        call: u32,
        clients: Vec<ClassInstance<'_, NativeClient>>,
        kinds: Vec<u32>,
        names: Vec<Either<String, Uint8Array>>,
        wait: f64,
        options: Vec<LockOptions>,
    ) -> napi::Result<()> {
        let members = clients.iter().zip(kinds).zip(names).zip(options);
        let locks = members.map(|(((client, kind), name), options)| {
            let name = match &name {
                Either::A(text) => text.as_bytes(),
                Either::B(bytes) => bytes,
            };
            client.lock_named(kind, name, Some(options))
        });
        let lock = MultiLock::new(locks);
        self.begin(env, call, async move {
            if wait == ONE_TRY {
                return Ok(lock.try_acquire().await?.map_or(Outcome::Nothing, Outcome::Granted));
            }
            let lease = if wait == FOR_EVER { lock.acquire().await? } else { lock.acquire_within(span(wait)).await? };
            Ok(Outcome::Granted(lease))
        })
    }

    #[allow(clippy::too_many_arguments)] // as `acquire`
    #[napi]
    pub fn attach(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        proof: String,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(Outcome::Granted(lock.attach(&proof).await?)) })
    }

    #[napi]
    pub fn is_locked(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(Outcome::Flag(lock.is_locked().await?)) })
    }

    #[napi]
    pub fn permits(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(lock.permits().await?.map_or(Outcome::Nothing, Outcome::Permits)) })
    }

    #[allow(clippy::too_many_arguments)] // an object for them would take longer to read than the call itself
    #[napi]
    pub fn set_permits(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        kind: u32,
        name: Name<'_>,
        total: u32,
        options: Option<LockOptions>,
    ) -> napi::Result<()> {
        let lock = client.lock(kind, &name, options);
        self.begin(env, call, async move { Ok(Outcome::Permits(lock.set_permits(total).await?)) })
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

    #[napi]
    pub fn extend(&self, env: Env, call: u32, lease: f64, ttl: f64) -> napi::Result<()> {
        let lease = self.lease(lease);
        self.begin(env, call, async move {
            let lease = lease.ok_or_else(|| not_held("extend"))?;
            match lease.extend(span(ttl)).await {
                Ok(()) => Ok(Outcome::Done),
                Err(error) => Err(Failure::from(error).because_of_loss(lease.loss())),
            }
        })
    }

    #[napi]
    pub fn downgrade(&self, env: Env, call: u32, lease: f64) -> napi::Result<()> {
        let lease = self.lease(lease);
        self.begin(env, call, async move {
            let lease = lease.ok_or_else(|| not_held("downgrade"))?;
            match lease.downgrade().await {
                Ok(()) => Ok(Outcome::Done),
                Err(error) => Err(Failure::from(error).because_of_loss(lease.loss())),
            }
        })
    }

    /// Returns the code of the loss, if the lease was lost before.
    #[napi]
    pub fn release(&self, env: Env, call: u32, lease: f64) -> napi::Result<u32> {
        let handle = self.lease(lease);
        let loss = loss_code(handle.as_ref().and_then(|lease| lease.loss()));
        self.begin(env, call, async move {
            let Some(handle) = handle else {
                return Ok(Outcome::Released { outcome: Release::AlreadyReleased, loss: None });
            };
            let outcome = handle.release().await?;
            Ok(Outcome::Released { outcome, loss: handle.loss() })
        })?;
        if let Some(call) = self.state.borrow_mut().calls.get_mut(&call) {
            call.releases = Some(lease as u64);
        }
        Ok(loss)
    }

    /// The proof for another process; `null` when the lease cannot be detached: then the error is payload 0.
    #[napi]
    pub fn detach(&self, lease: f64) -> Option<String> {
        let Some(handle) = self.lease(lease) else { return self.refused(not_held("detach")) };
        match handle.detach() {
            Ok(proof) => {
                self.state.borrow_mut().leases.remove(&(lease as u64));
                Some(proof)
            }
            Err(error) => self.refused(Failure::from(error).because_of_loss(handle.loss())),
        }
    }

    /// Drops a lease. True when it was still held, and is released now.
    #[napi]
    pub fn forget(&self, lease: f64) -> bool {
        let lease = self.state.borrow_mut().leases.remove(&(lease as u64));
        lease.is_some_and(|lease| lease.is_held())
    }

    /// Whether a lease is that of a writer.
    #[napi]
    pub fn writes(&self, lease: f64) -> bool {
        self.lease(lease).is_some_and(|lease| lease.kind() == onelock::Kind::Write)
    }

    /// The fencing token of one of the locks that a lease holds; -1 without.
    #[napi]
    pub fn fencing_token_of(&self, lease: f64, name: Name<'_>) -> f64 {
        let token = self.lease(lease).and_then(|lease| lease.fencing_token_of(bytes(&name)));
        token.map_or(-1.0, |token| token as f64)
    }

    #[napi]
    pub fn is_held(&self, lease: f64) -> bool {
        self.lease(lease).is_some_and(|lease| lease.is_held())
    }

    /// In milliseconds.
    #[napi]
    pub fn remaining(&self, lease: f64) -> f64 {
        self.lease(lease).map_or(0.0, |lease| lease.remaining().as_secs_f64() * 1e3)
    }

    #[napi]
    pub fn loss(&self, lease: f64) -> u32 {
        loss_code(self.lease(lease).and_then(|lease| lease.loss()))
    }

    #[napi]
    pub fn hold_count(&self, lease: f64) -> f64 {
        self.lease(lease).map_or(0.0, |lease| lease.hold_count() as f64)
    }

    #[napi]
    pub fn fencing_grade(&self, lease: f64) -> &'static str {
        self.lease(lease).map_or("None", |lease| lease.fencing_grade().as_str())
    }

    /// Reports the loss of this lease as a record; at once if it is lost already.
    #[napi]
    pub fn watch_loss(&self, lease: f64) {
        let Some(handle) = self.lease(lease) else { return };
        let (pump, lease) = (self.pump.clone(), lease as u64);
        handle.on_lost(move |reason| pump.push(Message::Lost { lease, reason }));
    }

    /// Reports every missed renewal of this lease as a record.
    #[napi]
    pub fn watch_jeopardy(&self, lease: f64) {
        let Some(handle) = self.lease(lease) else { return };
        let (pump, lease) = (self.pump.clone(), lease as u64);
        handle.on_jeopardy(move || pump.push(Message::Jeopardy { lease }));
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

    /// The text of the oldest log line whose record was fetched.
    #[napi]
    pub fn take_log_line(&self) -> Option<String> {
        self.state.borrow_mut().log_lines.pop_front()
    }

    #[napi]
    pub fn take_failure(&self, payload: u32) -> Option<Failure> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Failure(failure) => Some(*failure),
            _ => None,
        }
    }

    #[napi]
    pub fn take_inspected(&self, payload: u32) -> Option<Inspected> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Inspected(seen) => Some(seen),
            _ => None,
        }
    }

    #[napi]
    pub fn take_page(&self, payload: u32) -> Option<Page> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Page(page) => Some(page),
            _ => None,
        }
    }

    #[napi]
    pub fn take_facts(&self, payload: u32) -> Option<ServerFacts> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Facts(facts) => Some(facts),
            _ => None,
        }
    }

    #[napi]
    pub fn take_diagnosis(&self, payload: u32) -> Option<Diagnosed> {
        match self.state.borrow_mut().payloads.remove(&payload)? {
            Payload::Diagnosed(found) => Some(found),
            _ => None,
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

fn not_held(tried: &str) -> Failure {
    Failure::new(ErrorKind::NotHeld, tried, "this lease was released or handed away")
}
