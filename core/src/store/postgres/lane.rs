//! A connection that many callers share, made anew when it ended; and one operation on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::TableClient;
use super::connection::Connection;
use super::failure::{self, Refusal};
use super::operations::Statement;
use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Op, Outcome, Time};
use crate::sys::{clock, lock};

/// How often a client looks for rows to remove.
const PURGE_EVERY: Duration = Duration::from_secs(3600);

/// The words for a reply that did not come in time.
const NO_REPLY: &str = "no reply in time";

/// One ordered connection at a time.
#[derive(Default)]
pub(super) struct Lane {
    present: Mutex<Option<Arc<Connection>>>,
    /// Whoever has it makes the next connection.
    connecting: tokio::sync::Mutex<()>,
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

impl TableClient {
    fn silent(&self, words: &str) -> Failure {
        Failure::transient(ErrorKind::Unavailable, format!("{}: {words}", self.address))
    }

    async fn connected(&self, lane: &Lane, until: Time) -> Result<Arc<Connection>, Failure> {
        self.ready()?;
        if let Some(connection) = lane.usable() {
            return Ok(connection);
        }
        let left = until.since(clock::now());
        let in_vain = || self.silent("no answer in time");
        let _turn = timeout(left, lane.connecting.lock()).await.map_err(|_| in_vain())?;
        self.ready()?;
        if let Some(connection) = lane.usable() {
            return Ok(connection);
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Arc::new(self.connector.connect(number, until, None).await?);
        if number > 1 {
            self.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        *lock(&lane.present) = Some(connection.clone());
        if let Err(closed) = self.ready() {
            lane.close();
            return Err(closed);
        }
        Ok(connection)
    }

    pub(super) async fn call(self: &Arc<Self>, op: &Op, until: Time) -> Answer {
        let lane = self.lane(op);
        let mut made_table = false;
        loop {
            let begun = clock::now();
            let connection = match self.connected(lane, until).await {
                Ok(connection) => connection,
                Err(failure) => return TableClient::answer(begun, 0, Outcome::NotApplied(failure), None),
            };
            self.commands_sent.fetch_add(1, Ordering::Relaxed);
            let sent_at = clock::now();
            let statement = Statement {
                client: connection.client(),
                statements: &self.connector.statements,
                place: &self.address,
                announces: self.listener.is_heard(),
            };
            let limit = until.since(sent_at).min(self.connector.limits.request);
            let (outcome, time) = match timeout(limit, statement.carry_out(op)).await {
                Ok(Ok((outcome, time))) => (outcome, time),
                Ok(Err(error)) => {
                    let refusal = failure::refusal(&error, &self.address);
                    if refusal.ends_connection {
                        connection.retire();
                    }
                    if refusal.is(&SqlState::UNDEFINED_TABLE) && !made_table {
                        made_table = true;
                        match self.make_table(&connection, until).await {
                            Ok(()) => continue,
                            Err(failure) => (Outcome::NotApplied(failure), None),
                        }
                    } else {
                        (refusal.outcome(), None)
                    }
                }
                Err(_) => {
                    if clock::now().since(sent_at) >= self.connector.limits.request {
                        connection.cut();
                    }
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
            let until = clock::now() + shared.connector.limits.connect;
            if let Ok(connection) = shared.connector.connect(0, until, None).await {
                // one that fails, or is stopped after the time of a request, is made up for by the next
                let _ = connection.client().execute_typed(&shared.connector.statements.purge, &[]).await;
            }
        });
    }

    /// Somebody removed the table.
    async fn make_table(&self, connection: &Connection, until: Time) -> Result<(), Failure> {
        let limit = until.since(clock::now()).min(self.connector.limits.request);
        let made = timeout(limit, self.connector.make_table(connection.client(), &self.address)).await;
        made.unwrap_or_else(|_| Err(self.silent(NO_REPLY)))
    }

    /// The rows of a statement that changes nothing.
    pub(super) async fn query(
        &self,
        text: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        until: Time,
    ) -> Result<Vec<Row>, Failure> {
        let connection = self.connected(&self.main, until).await?;
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
        let sent_at = clock::now();
        let limit = until.since(sent_at).min(self.connector.limits.request);
        match timeout(limit, connection.client().query_typed(text, parameters)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                let Refusal { ends_connection, failure, .. } = failure::refusal(&error, &self.address);
                if ends_connection {
                    connection.retire();
                }
                Err(failure)
            }
            Err(_) => {
                if clock::now().since(sent_at) >= self.connector.limits.request {
                    connection.cut();
                }
                Err(self.silent(NO_REPLY))
            }
        }
    }
}
