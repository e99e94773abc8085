//! The Redis and Valkey store.
//!
//! | file | is |
//! |---|---|
//! | `endpoint` | the address of one server |
//! | `scripts`, `scripts/*.lua` | what runs on the server: one script per operation |
//! | `request`, `reply`, `refusal` | an operation as a command, and back: the reply, or what a refusal means |
//! | `replies`, `value` | replies from a socket, and small questions to them |
//! | `handshake` | the first words on a connection |
//! | `dial`, `pipe`, `link` | async: make a connection, share it between tasks, replace it when it breaks |
//! | `wire`, `line`, `lines` | blocking: a socket, a connection driven by the calling thread, the pool of them |
//! | `background`, `pace` | the work of a shared connection, of which callers may do a step themselves; its timers |
//! | `parked` | many blocking callers at once: a thread waits for the connection that tasks share |
//! | `subscriber`, `listen` | subscriptions: how they are made, and who wants which |
//! | `facts` | what the server says about itself |
//! | `socket`, `tls`, `shared` | what both ways to the socket share |
//!
//! Wire format and multiplexing are redis-rs'. Connections are made here, because the time limits, the order of addresses
//! and what is known after a failure matter to a lock.

mod background;
mod dial;
mod endpoint;
mod facts;
mod handshake;
mod line;
mod lines;
mod link;
mod listen;
mod pace;
mod parked;
mod pipe;
mod refusal;
mod replies;
mod reply;
mod request;
mod scripts;
mod shared;
mod socket;
mod subscriber;
mod tls;
mod value;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

pub use endpoint::{Endpoint, Place, Protocol, TlsFiles};

use self::line::Patience;
use self::lines::Lines;
use self::link::Link;
use self::listen::Topics;
use self::pipe::Pipe;
use self::request::Form;
use self::shared::Shared;
use crate::backend::{Boxed, Facts, Interrupt, Store, StoreStats, Subscription};
use crate::driver::clock;
use crate::error::{Error, ErrorKind};
use crate::machine::{Answer, Failure, Key, Kind, Op, Outcome, Time, naming};

/// How a store speaks to its server. What the address says comes first.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long making a connection may take, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// How long a reply may take. A connection that is slower is given up.
    pub request_timeout: Duration,
    /// The name that `CLIENT LIST` shows; set where the server and the user's permissions allow it.
    pub client_name: Option<String>,
    /// Certificate authorities to believe, PEM; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain, PEM.
    pub cert_file: Option<PathBuf>,
    /// The client's private key, PEM.
    pub key_file: Option<PathBuf>,
    /// Believe any certificate. For experiments only.
    pub tls_insecure: bool,
    /// From this many blocking callers at a time on, the next ones share the connection of the tasks, if there is one: see
    /// [`SHARE_FROM`]. Only where its background work goes on while threads block; by default nobody shares.
    pub share_from: usize,
}

/// With this many threads at work, one connection whose requests leave in batches is at least as fast as one connection
/// each, which costs the server two system calls for every request. Measured with 2 to 64 threads on two processors: with
/// fewer, or on processors that are not busy, the hop to the connection's task costs more than the batches save.
pub const SHARE_FROM: usize = 25;

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions {
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(1),
            client_name: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            tls_insecure: false,
            share_from: usize::MAX,
        }
    }
}

/// Locks on one Redis or Valkey server, 6.2 or newer.
pub struct RedisStore {
    inner: Arc<Inner>,
    lines: Lines,
    address: String,
    /// Blocking callers inside at present.
    callers: AtomicUsize,
}

/// What background tasks and futures hold on to.
struct Inner {
    shared: Arc<Shared>,
    link: Arc<Link>,
    topics: Arc<Topics>,
}

impl RedisStore {
    /// A store for the server at `address` (see [`Endpoint::parse`]). No I/O happens; a bad address is `InvalidArgument`.
    pub fn new(address: &str, options: RedisOptions) -> Result<RedisStore, Error> {
        Ok(RedisStore::at(Endpoint::parse(address, &options)?, options))
    }

    /// A store for the server at `endpoint`. No I/O happens.
    pub fn at(endpoint: Endpoint, options: RedisOptions) -> RedisStore {
        let address = endpoint.to_string();
        let shared = Arc::new(Shared::new(endpoint, options));
        let topics = Arc::new(Topics::default());
        let link = Arc::new(Link::new(shared.clone(), topics.clone()));
        let lines = Lines::new(shared.clone());
        let inner = Arc::new(Inner { shared, link, topics });
        RedisStore { inner, lines, address, callers: AtomicUsize::new(0) }
    }

    /// One request over the connection that tasks share. `None` when it took none: then not a byte left.
    fn call_sharing(&self, op: &Op, patience: Patience<'_>) -> Option<Answer> {
        let shared = &*self.inner.shared;
        let pipe = self.inner.link.present()?;
        let mut form = Form::Sha;
        loop {
            let command = request::command(op, form);
            shared.count_command();
            let sent_at = clock::now();
            let outcome = pipe.request_on_thread(&command, sent_at, patience);
            match &outcome {
                Outcome::Applied(value) if form == Form::Sha && refusal::is_unknown_script(value) => {
                    form = Form::Text;
                }
                Outcome::NotApplied(_) => return None,
                _ => {
                    // without a number: to the driver, a caller on a thread has a connection of its own, without order
                    let answer = answer(shared, op, outcome, sent_at, clock::now(), 0);
                    if !is_worth_keeping(&answer.outcome) && matches!(answer.outcome, Outcome::NotApplied(_)) {
                        pipe.stop();
                    }
                    return Some(answer);
                }
            }
        }
    }

    /// One request on a blocking connection, and when it was sent.
    fn exchange(&self, line: &mut line::Line, op: &Op, patience: Patience<'_>) -> (Time, Outcome<Value>) {
        let shared = &*self.inner.shared;
        let mut form = Form::Sha;
        loop {
            let request = request::command(op, form);
            let sent_at = clock::now();
            let patience = Patience { until: shared.reply_until(patience.until, sent_at), ..patience };
            shared.count_command();
            let outcome = line.exchange(&shared.endpoint, &request, sent_at, patience);
            match &outcome {
                Outcome::Applied(value) if form == Form::Sha && refusal::is_unknown_script(value) => {
                    form = Form::Text;
                }
                _ => return (sent_at, outcome),
            }
        }
    }
}

/// A blocking caller among those that are there at the same time.
struct Crowd<'a> {
    callers: &'a AtomicUsize,
    /// How many there are with this one.
    size: usize,
}

impl Crowd<'_> {
    fn join(callers: &AtomicUsize) -> Crowd<'_> {
        Crowd { callers, size: callers.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        self.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store for RedisStore {
    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.call(&op, until).await })
    }

    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        let shared = &*self.inner.shared;
        let begun = clock::now();
        if let Err(failure) = shared.check_open() {
            return not_sent(begun, failure);
        }
        let patience = Patience { until, interrupt };
        let crowd = Crowd::join(&self.callers);
        if crowd.size >= shared.options.share_from
            && let Some(answer) = self.call_sharing(op, patience)
        {
            return answer;
        }
        let mut pooled = self.lines.pooled(begun);
        loop {
            let reused = pooled.is_some();
            let mut line = match pooled.take().map_or_else(|| self.lines.open(patience), Ok) {
                Ok(line) => line,
                Err(failure) => return not_sent(begun, failure),
            };
            let (sent_at, outcome) = self.exchange(&mut line, op, patience);
            let received_at = clock::now();
            if reused && matches!(outcome, Outcome::NotApplied(_)) {
                // closed by the server while it was idle: not a byte left, so a new connection is as good
                self.lines.lose(line);
                continue;
            }
            let answer = answer(shared, op, outcome, sent_at, received_at, 0);
            if is_worth_keeping(&answer.outcome) {
                self.lines.give(line, received_at);
            } else {
                self.lines.lose(line);
            }
            return answer;
        }
    }

    fn connection(&self) -> u64 {
        self.inner.link.number()
    }

    fn subscribe(&self, kind: Kind, key: &Key) -> Subscription {
        listen::subscribe(&self.inner.topics, &self.inner.link, naming::channel(kind, key))
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let inner = self.inner.clone();
        Box::pin(async move { facts::look(&inner, until).await })
    }

    fn stats(&self) -> StoreStats {
        self.inner.shared.stats()
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn close(&self) {
        self.inner.shared.close();
        self.lines.close();
        self.inner.link.close();
        self.inner.topics.wake();
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    async fn call(&self, op: &Op, until: Time) -> Answer {
        let mut form = Form::Sha;
        loop {
            let begun = clock::now();
            let pipe = match self.link.pipe(until).await {
                Ok(pipe) => pipe,
                Err(failure) => return not_sent(begun, failure),
            };
            let (sent_at, outcome) = self.exchange(&pipe, &request::command(op, form), until).await;
            let received_at = clock::now();
            match &outcome {
                Outcome::Applied(value) if form == Form::Sha && refusal::is_unknown_script(value) => {
                    form = Form::Text;
                }
                // the connection ended before this request's turn came: take the next one
                Outcome::NotApplied(_) if received_at < until && self.shared.check_open().is_ok() => {}
                _ => {
                    let answer = answer(&self.shared, op, outcome, sent_at, received_at, pipe.number);
                    if !is_worth_keeping(&answer.outcome) && matches!(answer.outcome, Outcome::NotApplied(_)) {
                        pipe.stop();
                    }
                    return answer;
                }
            }
        }
    }

    /// One request on the shared connection, and when it was handed in.
    async fn exchange(&self, pipe: &Pipe, command: &Cmd, until: Time) -> (Time, Outcome<Value>) {
        self.shared.count_command();
        let sent_at = clock::now();
        (sent_at, pipe.request(command, sent_at, until).await)
    }
}

/// What a raw reply says about `op`.
fn answer(
    shared: &Shared,
    op: &Op,
    outcome: Outcome<Value>,
    sent_at: Time,
    received_at: Time,
    connection: u64,
) -> Answer {
    let (server_time_us, outcome) = match outcome {
        Outcome::Applied(value) => {
            let reading = reply::read(op, value);
            if reading.unheard {
                shared.warn_unheard();
            }
            (reading.server_time_us, reading.outcome)
        }
        Outcome::NotApplied(failure) => (None, Outcome::NotApplied(failure)),
        Outcome::Indeterminate(failure) => (None, Outcome::Indeterminate(failure)),
    };
    Answer { sent_at, received_at, connection, server_time_us, outcome }
}

/// The answer to a request for which there was no connection.
fn not_sent(begun: Time, failure: Failure) -> Answer {
    Answer {
        sent_at: begun,
        received_at: clock::now(),
        connection: 0,
        server_time_us: None,
        outcome: Outcome::NotApplied(failure),
    }
}

/// A server that turned into a replica, or no longer knows the user, is looked up and introduced to anew.
fn is_worth_keeping<T>(outcome: &Outcome<T>) -> bool {
    match outcome {
        Outcome::Applied(_) => true,
        Outcome::NotApplied(failure) => !matches!(failure.kind, ErrorKind::ReadOnly | ErrorKind::AuthFailed),
        Outcome::Indeterminate(_) => false,
    }
}
