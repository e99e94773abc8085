//! One server: its connections of each kind, and one operation on them.

pub(crate) mod exchange;
#[cfg(target_family = "wasm")]
mod hosted;
#[cfg(not(target_family = "wasm"))]
mod loop_sender;
pub(crate) mod replicas;
pub(crate) mod run_id;
pub(crate) mod scan;
mod sender;
pub(crate) mod server_info;
#[cfg(not(target_family = "wasm"))]
mod threads;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};

use self::exchange::is_refused_for_good;
pub(crate) use self::exchange::{RawExchange, RoutedAnswer, SendOptions, is_worth_keeping, not_sent};
use self::sender::MultiplexedSender;
#[cfg(not(target_family = "wasm"))]
use self::threads::ThreadConnections;
use super::command::reply;
use super::options::RedisOptions;
use super::pubsub::registry;
use crate::machine::{Answer, Failure, Op, Outcome, Time};
use crate::store::Subscription;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::command::form::CommandForms;
use crate::store::redis::connection::context::{Locator, NodeContext, StoreState};
use crate::store::redis::connection::multiplexed::connection::AsyncConnection;
use crate::store::redis::connection::multiplexed::manager::ConnectionManager;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::pubsub::registry::SubscriptionRegistry;
use crate::store::redis::topology::cluster::redirect::Redirect;
use crate::store::redis::topology::sentinel::SentinelResolver;
use crate::sys::clock;
use crate::sys::task;

/// How many idle connections are kept for acquires that wait for replicas.
const MAX_IDLE: usize = 16;

/// One server.
pub(crate) struct Node {
    pub(crate) context: Arc<NodeContext>,
    pub(crate) manager: Arc<ConnectionManager>,
    subscriptions: Arc<SubscriptionRegistry>,
    sharded_subscriptions: Arc<SubscriptionRegistry>,
    #[cfg(not(target_family = "wasm"))]
    pub(crate) threads: ThreadConnections,
    command_forms: CommandForms,
    /// Idle connections for acquires that wait for replicas: no other request may queue behind `WAIT`.
    dedicated: Mutex<Vec<AsyncConnection>>,
}

impl Node {
    /// The node at `endpoint`; its connections are numbered from `numbers_from` on.
    pub(crate) fn at(
        endpoint: Endpoint,
        options: RedisOptions,
        store_state: Arc<StoreState>,
        numbers_from: u64,
    ) -> Node {
        Node::new(NodeContext::new(endpoint, options, store_state), numbers_from)
    }

    /// The node of the master that Sentinels name.
    pub(crate) fn with_sentinels(resolver: SentinelResolver, options: RedisOptions) -> Node {
        Node::new(NodeContext::with_sentinels(resolver, options), 0)
    }

    fn new(context: NodeContext, numbers_from: u64) -> Node {
        let context = Arc::new(context);
        let subscriptions = Arc::new(SubscriptionRegistry::default());
        let manager = Arc::new(ConnectionManager::new(context.clone(), subscriptions.clone(), numbers_from));
        let sharded_subscriptions = Arc::new(SubscriptionRegistry::sharded());
        #[cfg(not(target_family = "wasm"))]
        let threads = ThreadConnections::new(&context);
        let (dedicated, command_forms) = (Mutex::default(), CommandForms::default());
        Node {
            context,
            manager,
            subscriptions,
            sharded_subscriptions,
            #[cfg(not(target_family = "wasm"))]
            threads,
            command_forms,
            dedicated,
        }
    }

    /// Subscribes to `channel`.
    pub(crate) fn subscribe(&self, channel: Vec<u8>, sharded: bool) -> Subscription {
        registry::subscribe(
            if sharded { &self.sharded_subscriptions } else { &self.subscriptions },
            &self.manager,
            channel,
        )
    }

    /// Ends its connections. The store must be closed before, so that no new ones are made.
    pub(crate) fn close(&self) {
        #[cfg(not(target_family = "wasm"))]
        self.threads.close();
        self.manager.close();
        self.dedicated().clear();
        self.subscriptions.wake();
        self.sharded_subscriptions.wake();
    }

    /// Drops its idle connections, since it will not be asked again. Connections in use end with their users.
    pub(crate) fn drop_idle(&self) {
        #[cfg(not(target_family = "wasm"))]
        self.threads.drop_idle();
        self.dedicated().clear();
    }

    /// Whether replicas must confirm an operation.
    fn waits_for_replicas(&self, op: &Op) -> bool {
        matches!(op, Op::Acquire { .. } | Op::Enter { .. } | Op::AcquirePermits { .. } | Op::Attach { .. })
            && self.context.options.min_replicas > 0
            && self.context.store_state.has_wait()
    }

    /// One operation from a task.
    pub(crate) async fn call(&self, op: &Op, options: SendOptions, until: Time) -> RoutedAnswer {
        if self.waits_for_replicas(op) {
            self.call_dedicated(op, options, until).await
        } else {
            self.call_multiplexed(op, options, until).await
        }
    }

    async fn call_multiplexed(&self, op: &Op, options: SendOptions, until: Time) -> RoutedAnswer {
        loop {
            let (begun, epoch) = (clock::now(), self.context.epoch());
            let connection = match self.manager.get(until).await {
                Ok(connection) => connection,
                Err(failure) => return not_sent(begun, failure),
            };
            let sent = self.exchange_op(&connection, op, options, until).await;
            match &sent.outcome {
                // the connection ended before this request was sent: take the next one
                Outcome::NotApplied(_) if clock::now() < until && self.context.store_state.check_open().is_ok() => {}
                _ => {
                    let routed = self.read(op, sent, clock::now());
                    if is_refused_for_good(&routed.answer.outcome) {
                        // outstanding replies are still delivered
                        connection.retire();
                        self.context.mark_stale(epoch);
                    }
                    return routed;
                }
            }
        }
    }

    /// On a dedicated connection, where no other request queues behind `WAIT`.
    async fn call_dedicated(&self, op: &Op, options: SendOptions, until: Time) -> RoutedAnswer {
        loop {
            let begun = clock::now();
            let idle = self.dedicated().pop();
            let reused = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                None => match self.connect_dedicated(until).await {
                    Ok(connection) => connection,
                    Err(failure) => return not_sent(begun, failure),
                },
            };
            let mut sent = self.exchange_op(&connection, op, options, until).await;
            if reused && matches!(sent.outcome, Outcome::NotApplied(_)) {
                continue;
            }
            if matches!(&sent.outcome, Outcome::Applied(value) if reply::is_grant(value)) {
                let wait = replicas::wait(&self.context, until);
                let limit = wait.limit + self.context.options.request_timeout;
                sent.confirm(&self.context, connection.request(None, &wait.command, clock::now(), limit).await);
            }
            let routed = self.read(op, sent, clock::now());
            if is_worth_keeping(&routed.answer.outcome) {
                self.keep_dedicated(connection);
            }
            return routed;
        }
    }

    async fn connect_dedicated(&self, until: Time) -> Result<AsyncConnection, Failure> {
        self.context.store_state.check_open()?;
        let left = until.since(clock::now());
        let made = task::timeout(left, self.manager.connect_dedicated()).await;
        made.unwrap_or_else(|_| Err(no_connection_in_time(&self.context.name)))
    }

    fn keep_dedicated(&self, connection: AsyncConnection) {
        let mut dedicated = self.dedicated();
        if dedicated.len() < MAX_IDLE && !connection.is_gone() && self.context.store_state.check_open().is_ok() {
            dedicated.push(connection);
        }
    }

    fn dedicated(&self) -> MutexGuard<'_, Vec<AsyncConnection>> {
        self.dedicated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one operation, in the form that the server takes.
    async fn exchange_op(
        &self,
        connection: &AsyncConnection,
        op: &Op,
        options: SendOptions,
        until: Time,
    ) -> RawExchange {
        self.command_forms.exchange(op, MultiplexedSender { context: &self.context, connection, options, until }).await
    }

    /// The reply to a command that is no operation, an error included.
    pub(crate) async fn command(&self, words: &[&str], until: Time) -> Result<Value, Failure> {
        self.request(Cmd::new().arg(words), until).await
    }

    /// The same, for a command of any bytes.
    pub(crate) async fn request(&self, command: &Cmd, until: Time) -> Result<Value, Failure> {
        let connection = self.manager.get(until).await?;
        match sender::exchange(&self.context, &connection, command, SendOptions::default(), until).await.1 {
            Outcome::Applied(value) => Ok(value),
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Err(failure),
        }
    }

    /// What a raw reply says about `op`.
    pub(crate) fn read(&self, op: &Op, sent: RawExchange, received_at: Time) -> RoutedAnswer {
        let RawExchange { sent_at, connection, outcome, confirmations } = sent;
        let mut redirect = None;
        let (server_time_us, outcome) = match outcome {
            Outcome::Applied(value) => {
                redirect = Redirect::from_reply(&value, &self.context);
                let reading = reply::read(op, value);
                if reading.publish_refused {
                    self.context.store_state.warn_publish_refused(&self.context.name);
                }
                (reading.server_time_us, replicas::judge(reading.outcome, confirmations, &self.context.options))
            }
            Outcome::NotApplied(failure) => (None, Outcome::NotApplied(failure)),
            Outcome::Indeterminate(failure) => (None, Outcome::Indeterminate(failure)),
        };
        RoutedAnswer { answer: Answer { sent_at, received_at, connection, server_time_us, outcome }, redirect }
    }

    /// Whether another server may take its place.
    pub(crate) fn can_move(&self) -> bool {
        matches!(self.context.locator, Locator::Sentinel(_))
    }
}
