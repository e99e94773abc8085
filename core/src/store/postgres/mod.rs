//! The `postgres://` store: each lock is a row of a table. The server's clock ends a hold.
//!
//! Each operation is one statement, so that nothing is ever half done, and no transaction is open while a lock is held. The
//! driver is tokio-postgres; a statement is sent with its parameters in one message and nothing is prepared, so that poolers
//! which hand a connection from transaction to transaction do no harm.
//!
//! | file | is |
//! |---|---|
//! | `address`, `database` | `postgres://user@host/database`, and what it names |
//! | `statements`, `sql/` | the statements |
//! | `connection`, `encryption` | connecting, TLS; the table |
//! | `operations` | an operation as a statement, and its rows as a reply |
//! | `failure` | what errors mean |
//! | `heard` | when the server has sent something last |
//! | `lane` | a connection that is made anew when it ended |
//! | `listener` | wake-ups: `LISTEN`, and the marks of those who wait |
//! | `member`, `vote` | a database as one of several independent stores |
//! | `diagnosis` | a look at the database step by step, and how strong its fencing tokens are |

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio_postgres::types::Type;

use self::connection::{Connection, DatabaseConnector, Limits};
use self::database::Database;
use self::lane::Lane;
use self::listener::ReleaseListener;
use super::member::RunObserver;
use super::{Boxed, Capabilities, Facts, Scan, Scanned, Store, StoreStats, Subscription, foreign_cursor};
use crate::ErrorKind;
use crate::config::Options;
use crate::config::credentials::Provider;
use crate::machine::{Answer, ClientTag, Failure, Key, Kind, Op, Outcome, Time, glob};
use crate::sys::clock;

pub(crate) mod address;
mod connection;
mod database;
mod diagnosis;
mod encryption;
mod failure;
mod heard;
mod lane;
mod listener;
mod member;
mod operations;
mod statements;
mod vote;

/// What it can do: whatever one server can, but for replicas, for locks with several holders, and for several locks by one
/// request.
pub(crate) const CAPABILITIES: Capabilities =
    Capabilities { min_replicas: false, ..Capabilities::all("postgres", &[Kind::Mutex, Kind::Reentrant]) };

/// One client's access to the locks of a table.
pub(crate) struct PostgresStore {
    shared: Arc<TableClient>,
}

struct TableClient {
    connector: DatabaseConnector,
    /// What is asked in order: acquire, release, undo ...
    main: Lane,
    /// Renewals: a row that somebody keeps locked delays them no longer than themselves.
    renewals: Lane,
    listener: Arc<ReleaseListener>,
    /// The connection of the listener.
    listening: Mutex<Weak<Connection>>,
    /// The server that all connections go to, as [`Connection::server`] tells it.
    server: Mutex<Option<i64>>,
    closed: AtomicBool,
    numbers: AtomicU64,
    commands_sent: AtomicU64,
    reconnects: AtomicU64,
    /// When rows that nobody uses are looked for next.
    purge_at: AtomicU64,
    address: String,
}

impl PostgresStore {
    fn new(database: Database, options: &Options) -> PostgresStore {
        PostgresStore::with(database, options, None)
    }

    /// The same as one of several stores, if somebody observes which run of the server it is connected to.
    fn with(database: Database, options: &Options, observer: Option<RunObserver>) -> PostgresStore {
        let limits = Limits {
            connect: options.connect_timeout,
            request: options.request_timeout,
            label: options.label.clone(),
            member: observer.is_some().then_some(options.node_timeout.min(options.request_timeout)),
        };
        let (address, listens) = (database.to_string(), database.listens);
        let shared = Arc::new(TableClient {
            connector: DatabaseConnector::new(
                database,
                limits,
                options.credentials.as_ref().map(Provider::source),
                observer,
            ),
            main: Lane::default(),
            renewals: Lane::default(),
            listener: Arc::new(ReleaseListener::new(listens)),
            listening: Mutex::default(),
            server: Mutex::default(),
            closed: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            commands_sent: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            purge_at: AtomicU64::new(0),
            address,
        });
        PostgresStore { shared }
    }
}

impl TableClient {
    /// Before anything is sent: not closed, and not inherited.
    fn ready(&self) -> Result<(), Failure> {
        if !self.connector.stamp.is_here() {
            let detail = format!("{} was connected by the parent process", self.address);
            return Err(Failure::lasting(ErrorKind::Forked, detail));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::lasting(ErrorKind::Closed, format!("{} was closed", self.address)));
        }
        Ok(())
    }

    fn answer(sent_at: Time, number: u64, outcome: Outcome<crate::machine::Reply>, time: Option<u64>) -> Answer {
        Answer { sent_at, received_at: clock::now(), connection: number, server_time_us: time, outcome }
    }
}

impl Store for PostgresStore {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.call(&op, until).await })
    }

    fn prepare(&self, op: &Op, until: Time) -> Boxed<Result<(), Failure>> {
        let (shared, op) = (self.shared.clone(), op.clone());
        Box::pin(async move { shared.prepare(&op, until).await })
    }

    fn connection(&self) -> u64 {
        if self.shared.connector.stamp.is_here() { self.shared.main.number(&self.shared.numbers) } else { 0 }
    }

    fn subscribe(&self, _kind: Kind, key: &Key, _client: ClientTag) -> Subscription {
        listener::subscribe(&self.shared, key)
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move { diagnosis::facts(&shared, until).await })
    }

    /// A cursor is the last name that was looked at, in hex.
    fn scan(&self, scan: Scan, until: Time) -> Boxed<Result<Scanned, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let after = scan.cursor.as_deref().map(|cursor| from_hex(cursor).ok_or_else(foreign_cursor)).transpose()?;
            let (after, count) = (after.unwrap_or_default(), i64::from(scan.count.max(1)));
            let parameters = [(&after as _, Type::BYTEA), (&count as _, Type::INT8)];
            let rows = shared.query(&shared.connector.statements.scan, &parameters, until).await?;
            let (mut names, mut next) = (Vec::new(), None);
            for row in &rows {
                if let (Ok(name), Ok(is_end)) = (row.try_get::<_, Vec<u8>>(0), row.try_get(1)) {
                    if is_end { next = Some(hex(&name)) } else { names.push(name) }
                }
            }
            let keys = names.into_iter().filter(|name| glob::matches(&scan.pattern, name)).map(Key::from).collect();
            Ok(Scanned { keys, next })
        })
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            commands_sent: self.shared.commands_sent.load(Ordering::Relaxed),
            reconnects: self.shared.reconnects.load(Ordering::Relaxed),
        }
    }

    fn address(&self) -> &str {
        &self.shared.address
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        // a child says nothing on what it inherited, and its parent's locks may be closed for ever
        if self.shared.connector.stamp.is_here() {
            self.shared.main.close();
            self.shared.renewals.close();
            self.shared.listener.close();
        }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        if self.shared.connector.stamp.is_here() {
            self.shared.listener.close();
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    if text.len().is_multiple_of(2) { digits.collect() } else { None }
}
