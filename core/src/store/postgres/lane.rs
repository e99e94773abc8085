//! A connection that many callers share, made anew when it ended; and one operation on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::TableClient;
use super::connection::Connection;
use super::failure::{self, Refusal};
use super::operations::{self, Statement};
use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Op, Outcome, Time};
use crate::sys::fork::LeakAfterFork;
use crate::sys::{clock, lock};

/// How often a client looks for rows to remove.
const PURGE_EVERY: Duration = Duration::from_secs(3600);

/// The index of the table takes 2,704 bytes a row, of which a few say what follows.
const NAME_MAX: usize = 2600;

/// The words for a reply that did not come in time.
const NO_REPLY: &str = "no reply in time";

/// What becomes of an attempt to connect, once it is known.
type PendingConnection = watch::Receiver<Option<Result<Arc<Connection>, Failure>>>;

/// One ordered connection at a time.
#[derive(Default)]
pub(super) struct Lane {
    present: Mutex<Option<Arc<Connection>>>,
    /// The next connection in the making, and since when. It goes on when whoever wanted it first has no time left.
    attempt: Mutex<Option<(Time, LeakAfterFork<PendingConnection>)>>,
}

impl Lane {
    fn usable(&self) -> Option<Arc<Connection>> {
        lock(&self.present).as_ref().filter(|connection| connection.is_usable()).cloned()
    }

    /// The number of the present connection, or of the next one. Every connection of a store has the next number, so
    /// a wrong guess is a number that no answer carries.
    pub(super) fn number(&self, numbers: &AtomicU64) -> u64 {
        self.usable().map_or_else(|| numbers.load(Ordering::Relaxed) + 1, |connection| connection.number)
    }

    pub(super) fn close(&self) {
        // the driver says goodbye when outstanding statements are answered
        drop(lock(&self.present).take());
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    Main,
    Renewals,
}

impl Which {
    fn of(op: &Op) -> Which {
        if matches!(op, Op::Renew { .. }) { Which::Renewals } else { Which::Main }
    }
}

impl TableClient {
    fn lane(&self, which: Which) -> &Lane {
        match which {
            Which::Main => &self.main,
            Which::Renewals => &self.renewals,
        }
    }

    /// Whether its name fits into the index of the table.
    fn fits(&self, op: &Op) -> Result<(), Failure> {
        let length = operations::longest_name(op);
        if length <= NAME_MAX {
            return Ok(());
        }
        let detail =
            format!("{}: the name has {length} bytes with its prefix; it may have {NAME_MAX} bytes", self.address);
        Err(Failure::lasting(ErrorKind::InvalidArgument, detail))
    }

    fn silent(&self, words: &str) -> Failure {
        Failure::transient(ErrorKind::Unavailable, format!("{}: {words}", self.address))
    }

    async fn connected(self: &Arc<Self>, which: Which, until: Time) -> Result<Arc<Connection>, Failure> {
        loop {
            self.ready()?;
            if let Some(connection) = self.lane(which).usable() {
                return Ok(connection);
            }
            let left = until.since(clock::now());
            let mut attempt = self.attempt(which);
            let made = timeout(left, attempt.wait_for(Option::is_some)).await;
            match made.map(|made| made.ok().and_then(|made| made.clone())) {
                Ok(Some(made)) => return made,
                // the runtime that it was made on has ended
                Ok(None) if !left.is_zero() => {}
                _ => return Err(self.silent("no answer in time")),
            }
        }
    }

    /// The present attempt to connect, or a new one: it has all the time that a connection may take, whoever waits for it.
    fn attempt(self: &Arc<Self>, which: Which) -> PendingConnection {
        let now = clock::now();
        let mut present = lock(&self.lane(which).attempt);
        if let Some((since, attempt)) = &*present
            && attempt.has_changed().is_ok()
            && attempt.borrow().is_none()
            && now.since(*since) <= self.connector.limits.connect
        {
            return (**attempt).clone();
        }
        let (sender, attempt) = watch::channel(None);
        *present = Some((now, LeakAfterFork::new(attempt.clone(), self.connector.stamp)));
        drop(present);
        let shared = self.clone();
        tokio::spawn(async move {
            let made = shared.connect(which).await;
            let _ = sender.send(Some(made));
            // whoever waits has it; nothing else may keep the connection
            let mut present = lock(&shared.lane(which).attempt);
            if present.as_ref().is_some_and(|(since, _)| *since == now) {
                *present = None;
            }
        });
        attempt
    }

    async fn connect(&self, which: Which) -> Result<Arc<Connection>, Failure> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let until = clock::now() + self.connector.limits.connect;
        let connection = Arc::new(self.connector.connect(number, until, None).await?);
        if number > 1 {
            self.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        let lane = self.lane(which);
        self.admit(&connection, |connection| *lock(&lane.present) = Some(connection.clone()));
        if let Err(closed) = self.ready() {
            lane.close();
            return Err(closed);
        }
        Ok(connection)
    }

    /// A new connection is used beside others to the same server only, and ends those to another one: after a failover, holds
    /// would be renewed on the former server and granted on the new one.
    pub(super) fn admit(&self, connection: &Arc<Connection>, place: impl FnOnce(&Arc<Connection>)) {
        let mut server = lock(&self.server);
        if server.replace(connection.server).is_some_and(|former| former != connection.server) {
            tracing::debug!(place = self.address, "onelock: another server answers; connections to the former one end");
            let lanes = [&self.main, &self.renewals].map(|lane| lock(&lane.present).clone());
            let listening = lock(&self.listening).upgrade();
            for other in lanes.into_iter().flatten().chain(listening) {
                if other.server != connection.server {
                    other.cut();
                }
            }
        }
        place(connection);
    }

    /// Connects for this operation, if need be.
    pub(super) async fn prepare(self: &Arc<Self>, op: &Op, until: Time) -> Result<(), Failure> {
        self.connected(Which::of(op), until).await.map(drop)
    }

    pub(super) async fn call(self: &Arc<Self>, op: &Op, until: Time) -> Answer {
        let which = Which::of(op);
        if let Err(failure) = self.fits(op) {
            return TableClient::answer(clock::now(), 0, Outcome::NotApplied(failure), None);
        }
        let mut missed_table = false;
        loop {
            let begun = clock::now();
            let connection = match self.connected(which, until).await {
                Ok(connection) => connection,
                Err(failure) => return TableClient::answer(begun, 0, Outcome::NotApplied(failure), None),
            };
            self.commands_sent.fetch_add(1, Ordering::Relaxed);
            let sent_at = clock::now();
            connection.sent(sent_at);
            let statement = Statement {
                client: connection.client(),
                statements: &self.connector.statements,
                place: &self.address,
                announces: self.listener.is_heard(),
                table: connection.table,
            };
            let limit = until.since(sent_at).min(self.connector.limits.request);
            let done = timeout(limit, statement.carry_out(op)).await;
            let (outcome, time) = match done {
                Ok(Ok((outcome, time))) => {
                    // there is another table: the next connection tells
                    if matches!(outcome, Outcome::Indeterminate(_)) {
                        connection.retire();
                    }
                    (outcome, time)
                }
                Ok(Err(error)) => {
                    let refusal = failure::refusal(&error, &self.address);
                    let is_gone = refusal.is(&SqlState::UNDEFINED_TABLE);
                    if refusal.ends_connection || is_gone {
                        connection.retire();
                    }
                    // the next connection makes the table, whoever waits for it, and tells that it did
                    if is_gone && !missed_table {
                        missed_table = true;
                        continue;
                    }
                    (refusal.outcome(), None)
                }
                Err(_) => {
                    connection.given_up(sent_at, self.connector.limits.request);
                    (Outcome::Indeterminate(self.silent(NO_REPLY)), None)
                }
            };
            if matches!((op, &outcome), (Op::Release { .. }, Outcome::Applied(_))) {
                self.purge(sent_at);
            }
            return TableClient::answer(sent_at, connection.number, outcome, time);
        }
    }

    /// Now and then removes the rows of locks that nobody has used for long: in the background, on a connection of its own,
    /// so that nobody waits for it.
    fn purge(self: &Arc<Self>, now: Time) {
        let due = self.purge_at.load(Ordering::Relaxed);
        let next = (now + PURGE_EVERY).as_nanos();
        if now.as_nanos() < due
            || self.purge_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let shared = self.clone();
        tokio::spawn(async move {
            let limits = &shared.connector.limits;
            if shared.ready().is_ok()
                && let Ok(connection) = shared.connector.connect(0, clock::now() + limits.connect, None).await
            {
                // one that fails, or is stopped after the time of a request, is made up for by the next
                let asked = connection.client().execute_typed(&shared.connector.statements.purge, &[]);
                let _ = timeout(limits.request, asked).await;
            }
        });
    }

    /// The rows of a statement that changes nothing.
    pub(super) async fn query(
        self: &Arc<Self>,
        text: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        until: Time,
    ) -> Result<Vec<Row>, Failure> {
        let connection = self.connected(Which::Main, until).await?;
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
        let sent_at = clock::now();
        connection.sent(sent_at);
        let limit = until.since(sent_at).min(self.connector.limits.request);
        let done = timeout(limit, connection.client().query_typed(text, parameters)).await;
        match done {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                let Refusal { ends_connection, failure, .. } = failure::refusal(&error, &self.address);
                if ends_connection {
                    connection.retire();
                }
                Err(failure)
            }
            Err(_) => {
                connection.given_up(sent_at, self.connector.limits.request);
                Err(self.silent(NO_REPLY))
            }
        }
    }
}
