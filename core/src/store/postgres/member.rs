//! A database as one of several independent stores.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::connection::DatabaseConnector;
use super::database::Database;
use super::{PostgresStore, diagnosis, failure};
use crate::config::Options;
use crate::machine::quorum::{ServerData, ServerRun};
use crate::machine::{Failure, token};
use crate::store::diagnosis::Finding;
use crate::store::member::{MemberAddress, RunObserver};
use crate::store::{Boxed, SharedStore};

impl MemberAddress for Database {
    fn name(&self) -> String {
        self.to_string()
    }

    fn open_member(&self, options: &Options, observer: RunObserver) -> SharedStore {
        Arc::new(PostgresStore::with(self.clone(), options, Some(observer)))
    }

    fn diagnose_member(&self, options: &Options, name: Vec<u8>, observer: RunObserver) -> Boxed<Vec<Finding>> {
        diagnosis::look(PostgresStore::with(self.clone(), options, Some(observer)), name)
    }
}

impl DatabaseConnector {
    /// Tells the observer, if there is one, which run and which data are at the other end. Returns which table is there.
    pub(super) async fn observe(&self, client: &Client, place: &str, is_new: bool) -> Result<Option<i64>, Failure> {
        let Some(observer) = &self.observer else { return Ok(None) };
        let asked = client.query_typed_one(&self.statements.run, &[(&self.database.table, Type::TEXT)]).await;
        match asked.and_then(|row| read(&row)) {
            Ok((mut run, table)) => {
                if let (true, Some(data)) = (is_new, &mut run.data) {
                    data.age = Duration::ZERO;
                }
                observer.observe(Some(&run));
                Ok(Some(table))
            }
            // this user may not look, so it votes as one that tells nothing
            Err(error) if error.code().is_some_and(|code| code.code() == "42501") => {
                observer.observe(None);
                Ok(None)
            }
            Err(error) => Err(failure::not_connected(&error, place)),
        }
    }
}

fn read(row: &tokio_postgres::Row) -> Result<(ServerRun, i64), tokio_postgres::Error> {
    let (started_us, up_us): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let (system, age_s): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
    let (timeline, table): (&str, i64) = (row.try_get(4)?, row.try_get(5)?);
    let mut run_id = [0; 40];
    for (place, byte) in run_id.iter_mut().zip(format!("{started_us}:{system}").bytes()) {
        *place = byte;
    }
    let data = ServerData {
        id: token::digest(format!("{system}:{timeline}:{table}").as_bytes()),
        age: Duration::from_secs(age_s.cast_unsigned()),
    };
    let uptime = Duration::from_micros(up_us.cast_unsigned());
    Ok((ServerRun { run_id, uptime, keeps_data: row.try_get(6)?, data: Some(data) }, table))
}
