//! The calls in progress, the clients and the leases, all by number.
//!
//! JavaScript chooses the number of a call. Either the outcome of the call is fetched, or the call is cancelled; then a lease
//! that was granted meanwhile is dropped, which releases it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;

use onelock::host::{self, HostedTask};
use onelock::{Client, Credentials, CredentialsRequest, Lease};

use crate::data::Failure;
use crate::memory::{Arguments, NOTHING, leave};
use crate::records::{Message, Outcome, RECORD};

/// How many records are fetched at once; `bindings-node/ts/pump.ts` says the same.
const BATCH: usize = 64;
/// Log lines are dropped while this many messages are queued.
const MAX_LOG_BACKLOG: usize = 4096;

pub(crate) struct Call {
    task: HostedTask,
    /// The lease that the call releases; it is dropped when the call has ended.
    pub(crate) releases: Option<u64>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) calls: HashMap<u32, Call>,
    pub(crate) clients: HashMap<u32, Client>,
    last_client: u32,
    pub(crate) leases: HashMap<u64, Arc<Lease>>,
    next_lease: u64,
    pub(crate) payloads: HashMap<u32, Vec<u8>>,
    /// The texts of log lines, in the order of their records.
    pub(crate) log_lines: VecDeque<String>,
    /// Requests for credentials that JavaScript has not answered yet.
    pub(crate) requests: HashMap<u32, CredentialsRequest>,
    pub(crate) last_request: u32,
    /// To be dropped when nothing is borrowed: a lease that is dropped may have something to say.
    pub(crate) gone: Vec<Arc<Lease>>,
}

impl State {
    pub(crate) fn keep(&mut self, lease: Lease) -> f64 {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, Arc::new(lease));
        self.next_lease as f64
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
    static MESSAGES: RefCell<VecDeque<Message>> = RefCell::default();
    static RECORDS: RefCell<[f64; RECORD * BATCH]> = const { RefCell::new([0.0; RECORD * BATCH]) };
}

/// Looks at the state. `look` must not run code of the core that may queue messages with it borrowed: messages are apart.
pub(crate) fn with<R>(look: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(look)
}

/// Queues a message.
pub(crate) fn push(message: Message) {
    MESSAGES.with_borrow_mut(|messages| {
        if messages.len() < MAX_LOG_BACKLOG || !matches!(message, Message::LogLine { .. }) {
            messages.push_back(message);
        }
    });
}

/// Whether there are messages to fetch.
pub(crate) fn has_messages() -> u32 {
    MESSAGES.with_borrow(|messages| (!messages.is_empty()).into())
}

/// Starts a call, and runs it until it has to wait.
pub(crate) fn begin(call: u32, work: impl Future<Output = Result<Outcome, Failure>> + Send + 'static) -> u32 {
    let task = host::spawn(async move {
        let outcome = work.await.unwrap_or_else(|failure| Outcome::Failed(Box::new(failure)));
        push(Message::Outcome { call, outcome });
    });
    with(|state| state.calls.insert(call, Call { task, releases: None }));
    host::turn();
    has_messages()
}

pub(crate) fn client(number: u32) -> Option<Client> {
    with(|state| state.clients.get(&number).cloned())
}

pub(crate) fn keep_client(client: Client) -> u32 {
    with(|state| {
        state.last_client += 1;
        state.clients.insert(state.last_client, client);
        state.last_client
    })
}

pub(crate) fn lease(number: f64) -> Option<Arc<Lease>> {
    with(|state| state.leases.get(&(number as u64)).cloned())
}

/// Leaves a failure as payload 0.
pub(crate) fn refuse(failure: impl Into<Failure>) {
    let bytes = failure.into().json().into_bytes();
    with(|state| state.payloads.insert(0, bytes));
}

/// Where the fetched records lie.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_records() -> *const f64 {
    RECORDS.with_borrow(|records| records.as_ptr())
}

/// Writes records until the array is full or there are no more messages. Returns how many.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_fetch() -> u32 {
    let mut count = 0;
    while count < BATCH {
        let Some(message) = MESSAGES.with_borrow_mut(VecDeque::pop_front) else { break };
        let unwanted = |call: &u32| with(|state| !state.calls.contains_key(call));
        if matches!(&message, Message::Outcome { call, .. } if unwanted(call)) {
            continue;
        }
        let (record, gone) = with(|state| (state.record(message), std::mem::take(&mut state.gone)));
        drop(gone);
        let Some(record) = record else { continue };
        RECORDS.with_borrow_mut(|records| records[count * RECORD..][..RECORD].copy_from_slice(&record));
        count += 1;
    }
    u32::try_from(count).unwrap_or(0)
}

/// Cancels a call. 0 when its outcome was fetched before.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_cancel(call: u32) -> u32 {
    let Some(gone) = with(|state| state.calls.remove(&call)) else { return 0 };
    gone.task.abort();
    let is_outcome = |message: &Message| matches!(message, Message::Outcome { call: known, .. } if *known == call);
    let withdrawn = MESSAGES.with_borrow_mut(|messages| {
        let at = messages.iter().position(is_outcome);
        at.and_then(|at| messages.remove(at))
    });
    drop(withdrawn);
    host::turn();
    1
}

/// Begins to release everything: the program ends, and does not come back to fetch results.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_close() {
    let clients: Vec<Client> = with(|state| state.clients.values().cloned().collect());
    for client in clients {
        drop(host::spawn(async move { client.close().await }));
    }
    host::turn();
}

/// The object of a call that its record could not carry.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_take(payload: u32) -> i32 {
    with(|state| state.payloads.remove(&payload)).map_or(NOTHING, leave)
}

/// The text of the oldest log line whose record was fetched.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_take_log_line() -> i32 {
    with(|state| state.log_lines.pop_front()).map_or(NOTHING, leave)
}

/// Answers a request for credentials; a user of -1 bytes is the server's default one.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_answer(request: u32, user: i32, password: usize) {
    let user = usize::try_from(user).unwrap_or(0);
    let mut arguments = Arguments::take(user + password);
    let given = Credentials::new(arguments.text(user), arguments.text(password));
    if let Some(asked) = with(|state| state.requests.remove(&request)) {
        asked.answer(Ok::<_, String>(given));
    }
    host::turn();
}

/// Fails a request for credentials with a reason.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_refuse(request: u32, reason: usize) {
    let reason = Arguments::take(reason).text(reason);
    if let Some(asked) = with(|state| state.requests.remove(&request)) {
        asked.answer(Err(reason));
    }
    host::turn();
}
