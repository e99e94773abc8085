//! Resolves the present master of a group through its Sentinels, and watches for a new one.
//!
//! A Sentinel's answer says where to connect. Whether the server there is a master is checked by the handshake.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::Value;

#[cfg(not(target_family = "wasm"))]
use super::query::query_blocking;
use super::query::{query, server_failure};
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::address::multi::{SentinelConfig, host_list};
use crate::store::redis::connection::context::StoreState;
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::multiplexed::connect::connect_to;
use crate::store::redis::connection::multiplexed::manager::ConnectionManager;
use crate::store::redis::connection::multiplexed::raw::RawConnection;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::exchange::Received;
use crate::store::redis::resp::push::Push;
use crate::store::redis::resp::value::text;
use crate::sys::clock;
use crate::sys::task::{sleep, timeout};

/// The channel on which a Sentinel announces a new master.
const SWITCH_CHANNEL: &str = "+switch-master";
/// How long the watch pauses after a Sentinel was lost.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// After this long without a message another Sentinel is watched, in case this one has lost contact with the others.
const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// The Sentinels of one group, and the master that they named last.
pub(crate) struct SentinelResolver {
    master_name: String,
    template: Endpoint,
    options: RedisOptions,
    pub(crate) store_state: Arc<StoreState>,
    name: String,
    state: Mutex<SentinelState>,
    epoch: AtomicU64,
}

struct SentinelState {
    /// The Sentinel that answered last comes first; one that failed or was wrong comes last.
    sentinels: Vec<Arc<Endpoint>>,
    master: Option<Arc<Endpoint>>,
}

impl fmt::Display for SentinelResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl SentinelResolver {
    pub(crate) fn new(group: SentinelConfig, options: RedisOptions) -> SentinelResolver {
        let SentinelConfig { master_name, sentinels, master } = group;
        let scheme = if master.tls.is_some() { "rediss" } else { "redis" };
        let name = format!("{scheme}+sentinel://{}/{master_name}/{}", host_list(sentinels.iter()), master.db);
        let state = SentinelState { sentinels: sentinels.into_iter().map(Arc::new).collect(), master: None };
        let (common, epoch) = (Arc::new(StoreState::default()), AtomicU64::new(0));
        SentinelResolver {
            master_name,
            template: master,
            options,
            store_state: common,
            name,
            state: Mutex::new(state),
            epoch,
        }
    }

    fn state(&self) -> MutexGuard<'_, SentinelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grows whenever connections made before must not be used again.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The present master, according to the first Sentinel that knows it.
    pub(crate) async fn locate(&self) -> Result<Arc<Endpoint>, Failure> {
        let mut search = SentinelSearch::new(self);
        while let Some((sentinel, share)) = search.next() {
            let question: &[&[&str]] = &[&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.master_name]];
            let answer = query(&self.store_state, &self.options, &sentinel, question, share).await;
            if let Some(master) = search.answered(&sentinel, answer) {
                return Ok(master);
            }
        }
        Err(search.give_up())
    }

    /// The same from a thread.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn locate_blocking(&self, deadline: Deadline<'_>) -> Result<Arc<Endpoint>, Failure> {
        let mut search = SentinelSearch::new(self);
        search.until = search.until.min(deadline.until);
        while let Some((sentinel, share)) = search.next() {
            let question: &[&[&str]] = &[&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.master_name]];
            let answer = query_blocking(&self.store_state, &self.options, &sentinel, question, share, deadline);
            if let Some(master) = search.answered(&sentinel, answer) {
                return Ok(master);
            }
        }
        Err(search.give_up())
    }

    /// No master answered at the address that was valid in this epoch: the Sentinel that named it is asked last next
    /// time, and earlier connections are not used again. Counts once per epoch.
    pub(crate) fn mark_stale(&self, epoch: u64) {
        let mut state = self.state();
        if self.epoch() == epoch {
            state.sentinels.rotate_left(1);
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn prefer(&self, sentinel: &Arc<Endpoint>, master: Endpoint) -> Arc<Endpoint> {
        let mut state = self.state();
        if let Some(at) = state.sentinels.iter().position(|it| Arc::ptr_eq(it, sentinel)) {
            state.sentinels[..=at].rotate_right(1);
        }
        self.set_master(&mut state, master).0
    }

    /// Stores the master; tells whether it is another one than before.
    fn set_master(&self, state: &mut SentinelState, master: Endpoint) -> (Arc<Endpoint>, bool) {
        if let Some(before) = state.master.as_ref().filter(|before| ***before == master) {
            return (before.clone(), false);
        }
        let (master, moved) = (Arc::new(master), state.master.is_some());
        state.master = Some(master.clone());
        if moved {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        (master, moved)
    }

    /// The master that a reply names, or why there is none.
    fn read(&self, sentinel: &Endpoint, answer: &Value) -> Result<Endpoint, Failure> {
        if let Some(failure) = server_failure(sentinel, answer) {
            return Err(failure);
        }
        let place = match answer {
            Value::Array(words) => words.first().and_then(text).zip(words.get(1).and_then(text)),
            _ => None,
        };
        place.and_then(|(host, port)| self.master_at(host, port)).ok_or_else(|| {
            let detail = format!("{sentinel}: this Sentinel knows no master named \"{}\"", self.master_name);
            Failure::transient(ErrorKind::Unavailable, detail)
        })
    }

    fn master_at(&self, host: &[u8], port: &[u8]) -> Option<Endpoint> {
        let host = str::from_utf8(host).ok().filter(|host| !host.is_empty())?;
        let port = str::from_utf8(port).ok()?.parse().ok().filter(|port| *port != 0)?;
        Some(self.template.moved_to(host, port))
    }

    /// Watches one Sentinel after the other for a new master, until the connection manager is dropped.
    pub(crate) async fn watch_switches(self: Arc<Self>, manager: Weak<ConnectionManager>) {
        while self.store_state.check_open().is_ok() && manager.strong_count() > 0 {
            let sentinel = self.state().sentinels.first().cloned();
            let Some(sentinel) = sentinel else { return };
            if let Err(failure) = self.watch_one(&sentinel, &manager).await {
                tracing::debug!(cause = failure.detail, "a Sentinel is not listened to");
                sleep(RETRY_PAUSE).await;
            }
            let mut state = self.state();
            if state.sentinels.first().is_some_and(|first| Arc::ptr_eq(first, &sentinel)) {
                state.sentinels.rotate_left(1);
            }
        }
    }

    /// Ends without an error when the Sentinel has been silent for a while.
    async fn watch_one(&self, sentinel: &Arc<Endpoint>, manager: &Weak<ConnectionManager>) -> Result<(), Failure> {
        let limit = self.options.connect_timeout;
        let mut connection = RawConnection::new(
            timeout(limit, connect_to(&self.store_state, &self.options, sentinel.clone(), limit))
                .await
                .unwrap_or_else(|_| Err(no_connection_in_time(&**sentinel)))?,
        );
        // queried on the same connection before subscribing: so no change is missed in between
        connection.push(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.master_name]);
        connection.push_subscription(("SUBSCRIBE", true), vec![SWITCH_CHANNEL.into()]);
        connection.send().await?;
        let master = self.read(sentinel, &connection.reply().await?)?;
        self.on_master(manager, master);
        loop {
            let Ok(heard) = timeout(QUIET_LIMIT, connection.recv()).await else { return Ok(()) };
            match heard? {
                Received::Reply((), reply) => server_failure(sentinel, &reply).map_or(Ok(()), Err)?,
                Received::Push(Push::Message { payload, .. }) => {
                    if let Some(master) = self.parse_switch(&payload) {
                        self.on_master(manager, master);
                    }
                }
                Received::Push(_) => {}
            }
        }
    }

    /// The new master, if a message announces one of this group: `GROUP OLD-HOST OLD-PORT NEW-HOST NEW-PORT`.
    fn parse_switch(&self, message: &[u8]) -> Option<Endpoint> {
        let mut words = message.rsplitn(5, |byte| *byte == b' ');
        let (port, host) = (words.next()?, words.next()?);
        let master_name = words.nth(2)?;
        (master_name == self.master_name.as_bytes()).then(|| self.master_at(host, port)).flatten()
    }

    fn on_master(&self, manager: &Weak<ConnectionManager>, master: Endpoint) {
        let (master, moved) = {
            let mut state = self.state();
            self.set_master(&mut state, master)
        };
        if moved {
            tracing::info!(%master, "Sentinel: the master has moved");
            if let Some(manager) = manager.upgrade() {
                manager.on_master_moved();
            }
        }
    }
}

/// One round of queries. Each Sentinel gets its share of the time, so that a silent one leaves some to the next, and
/// some is left for the master.
struct SentinelSearch<'a> {
    resolver: &'a SentinelResolver,
    left: std::vec::IntoIter<Arc<Endpoint>>,
    until: Time,
    failure: Option<Failure>,
}

impl<'a> SentinelSearch<'a> {
    fn new(resolver: &'a SentinelResolver) -> SentinelSearch<'a> {
        let sentinels = resolver.state().sentinels.clone();
        let until = clock::now() + resolver.options.connect_timeout;
        SentinelSearch { resolver, left: sentinels.into_iter(), until, failure: None }
    }

    fn next(&mut self) -> Option<(Arc<Endpoint>, Duration)> {
        let parts = u32::try_from(self.left.len()).unwrap_or(u32::MAX).saturating_add(1);
        let share = self.until.since(clock::now()) / parts;
        Some((self.left.next()?, share.max(Duration::from_millis(1))))
    }

    fn answered(&mut self, sentinel: &Arc<Endpoint>, answer: Result<Vec<Value>, Failure>) -> Option<Arc<Endpoint>> {
        let read = answer.and_then(|answers| self.resolver.read(sentinel, answers.first().unwrap_or(&Value::Nil)));
        match read {
            Ok(master) => Some(self.resolver.prefer(sentinel, master)),
            Err(failure) => {
                tracing::debug!(cause = failure.detail, "a Sentinel did not name the master");
                // a lasting failure is reported before a transient one
                if self.failure.as_ref().is_none_or(|state| state.transient) {
                    self.failure = Some(failure);
                }
                None
            }
        }
    }

    fn give_up(self) -> Failure {
        let failure = self.failure.unwrap_or_else(|| Failure::transient(ErrorKind::Unavailable, "no Sentinel"));
        let detail = format!("no Sentinel named the master of \"{}\"; {}", self.resolver.master_name, failure.detail);
        Failure { detail, ..failure }
    }
}
