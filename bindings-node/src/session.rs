//! What one thread of JavaScript has: its calls under way, its leases, and the way results come back to it.
//!
//! A call has a number that JavaScript chose. Exactly one of two things becomes of it: its outcome is fetched, or it is
//! cancelled, and then a lease that was granted meanwhile is dropped here, which gives it back. Both happen on this
//! thread, so neither can overtake the other.

use std::cell::RefCell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use napi::Env;
use napi::bindgen_prelude::Float64ArraySlice;
use napi_derive::napi;
use onelock::{Credentials, ErrorKind, Lease, Release, event_loop};

use crate::client::{Name, NativeClient, bytes};
use crate::credentials::Provider;
use crate::data::{Failure, Seen, ServerFacts, loss_code};
use crate::exit::Clients;
use crate::log;
use crate::options::{ClientOptions, LockOptions, span};
use crate::pump::{BellFunction, Message, Outcome, Pump};
use crate::records::{Call, Parcel, RECORD, State};
use crate::watch::Watcher;

/// `wait` of an acquire: for ever.
const FOR_EVER: f64 = -1.0;
/// `wait` of an acquire: one try.
const ONE_TRY: f64 = -2.0;

#[napi]
pub struct Session {
    pump: Arc<Pump>,
    clients: Arc<Clients>,
    /// `None` where event loops cannot watch sockets for us.
    watcher: Option<Watcher>,
    state: Rc<RefCell<State>>,
}

#[napi]
impl Session {
    /// `bell` is called when there is something to fetch, or with the one record that there is. `libuv`: whether that is
    /// what the event loop is.
    #[napi(constructor)]
    pub fn new(env: Env, bell: BellFunction<'_>, libuv: bool) -> napi::Result<Session> {
        let pump = Arc::new(Pump::new(bell.build_threadsafe_function::<()>().weak::<true>().build()?));
        let state = Rc::default();
        let clients = Arc::new(Clients::new(pump.clone()));
        env.add_env_cleanup_hook(clients.clone(), |clients| clients.close())?;
        let watcher = if libuv { Watcher::new(env, &bell, &pump, &state) } else { None };
        Ok(Session { pump, clients, watcher, state })
    }

    /// Gives back what is held and waits for it, a second at most: the process ends.
    #[napi]
    pub fn close(&self) {
        self.clients.close();
    }

    /// Writes as many records as there is room for, and tells how many. When there is room left, there are no more.
    #[napi]
    pub fn fetch(&self, env: Env, mut records: Float64ArraySlice<'_>) -> u32 {
        let state = &mut *self.state.borrow_mut();
        // SAFETY: the array is JavaScript's and lives through this call, in which no JavaScript runs.
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
                let Some(line) = state.line(message) else { continue };
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

    /// A client; `null` when the arguments are wrong, and the error is parcel 0.
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
        match builder.build(&url) {
            Ok(client) => Some(NativeClient::new(client, self.clients.clone())),
            Err(error) => self.refused(error.into()),
        }
    }

    #[napi]
    pub fn check(&self, env: Env, call: u32, client: &NativeClient) -> napi::Result<()> {
        let client = client.client.clone();
        self.begin(env, call, async move { Ok(Outcome::Checked(client.check().await?)) })
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

    /// Stops a call. False when its outcome was fetched before: then that stands.
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

    /// Tells why it was lost before, if it was.
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

    /// The proof for another process; `null` when there is nothing to hand over, and the error is parcel 0.
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

    /// Lets go of a lease. True when it was still held, and is given back now.
    #[napi]
    pub fn forget(&self, lease: f64) -> bool {
        let lease = self.state.borrow_mut().leases.remove(&(lease as u64));
        let was_held = lease.is_some_and(|lease| lease.is_held());
        self.clients.sweep();
        was_held
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

    /// Tells the loss of this lease as a record; at once if it is lost already.
    #[napi]
    pub fn watch_loss(&self, lease: f64) {
        let Some(handle) = self.lease(lease) else { return };
        let (pump, lease) = (self.pump.clone(), lease as u64);
        handle.on_lost(move |reason| pump.tell(Message::Lost { lease, reason }));
    }

    /// Tells every missed renewal of this lease as a record.
    #[napi]
    pub fn watch_jeopardy(&self, lease: f64) {
        let Some(handle) = self.lease(lease) else { return };
        let (pump, lease) = (self.pump.clone(), lease as u64);
        handle.on_jeopardy(move || pump.tell(Message::Jeopardy { lease }));
    }

    /// Tells what the core has to say as records, up to this level: 1 is errors only, 5 is everything, 0 is nothing.
    #[napi]
    pub fn listen(&self, level: u32) {
        log::listen(&self.pump, level);
    }

    /// Answers a question for credentials. One that was answered before is left alone.
    #[napi]
    pub fn answer(&self, request: u32, username: Option<String>, password: String) {
        let asked = self.state.borrow_mut().requests.remove(&request);
        if let Some(asked) = asked {
            asked.answer(Ok::<_, String>(Credentials::new(username.unwrap_or_default(), password)));
        }
    }

    /// Says why there are no credentials.
    #[napi]
    pub fn refuse(&self, request: u32, reason: String) {
        let asked = self.state.borrow_mut().requests.remove(&request);
        if let Some(asked) = asked {
            asked.answer(Err(reason));
        }
    }

    /// The text of the oldest log line that was told.
    #[napi]
    pub fn take_line(&self) -> Option<String> {
        self.state.borrow_mut().said.pop_front()
    }

    #[napi]
    pub fn take_failure(&self, parcel: u32) -> Option<Failure> {
        match self.state.borrow_mut().parcels.remove(&parcel)? {
            Parcel::Failure(failure) => Some(*failure),
            _ => None,
        }
    }

    #[napi]
    pub fn take_seen(&self, parcel: u32) -> Option<Seen> {
        match self.state.borrow_mut().parcels.remove(&parcel)? {
            Parcel::Seen(seen) => Some(seen),
            _ => None,
        }
    }

    #[napi]
    pub fn take_facts(&self, parcel: u32) -> Option<ServerFacts> {
        match self.state.borrow_mut().parcels.remove(&parcel)? {
            Parcel::Facts(facts) => Some(facts),
            _ => None,
        }
    }
}

impl Session {
    /// Begins a call on this thread. The event loop lives until it has ended.
    fn begin(
        &self,
        env: Env,
        call: u32,
        work: impl Future<Output = Result<Outcome, Failure>> + Send + 'static,
    ) -> napi::Result<()> {
        let pump = self.pump.clone();
        // a panic, which is a defect, is told as a failure
        let work = AssertUnwindSafe(work).catch_unwind().map(move |ended| {
            let outcome = match ended {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(failure)) => Outcome::Failed(Box::new(failure)),
                Err(_) => Outcome::Failed(Box::new(Failure::new(ErrorKind::Internal, "run a call", "it panicked"))),
            };
            pump.tell(Message::Outcome { call, outcome });
        });
        let task = match &self.watcher {
            Some(watcher) => watcher.core_loop().start(work),
            None => event_loop::begin(work),
        };
        let mut state = self.state.borrow_mut();
        let task = match task {
            Ok(task) => task,
            Err(error) => {
                // there is no call: nothing is waited for, and JavaScript finds the error under its number
                let reason = napi::Error::from_reason(error.to_string());
                state.parcels.insert(call, Parcel::Failure(Box::new(error.into())));
                return Err(reason);
            }
        };
        if state.calls.is_empty() {
            self.pump.keep_alive(&env, true);
        }
        state.calls.insert(call, Call { task, releases: None });
        drop(state);
        if let Some(watcher) = &self.watcher {
            watcher.attend();
        }
        Ok(())
    }

    fn lease(&self, lease: f64) -> Option<Arc<Lease>> {
        self.state.borrow().leases.get(&(lease as u64)).cloned()
    }

    fn refused<T>(&self, failure: Failure) -> Option<T> {
        self.state.borrow_mut().parcels.insert(0, Parcel::Failure(Box::new(failure)));
        None
    }
}

fn not_held(tried: &str) -> Failure {
    Failure::new(ErrorKind::NotHeld, tried, "this lease was released or handed away")
}
