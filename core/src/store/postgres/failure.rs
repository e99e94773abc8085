//! What the server's errors mean: whether the statement may have happened, and what to do about it.

use std::error::Error as _;

use tokio_postgres::error::{Error as DriverError, SqlState};

use crate::error::ErrorKind;
use crate::machine::{Failure, Outcome};

/// How a statement failed.
pub(super) struct Refusal {
    pub(super) code: Option<SqlState>,
    /// Whether it certainly did nothing.
    pub(super) undone: bool,
    /// Whether the connection is of no more use.
    pub(super) ends_connection: bool,
    pub(super) failure: Failure,
}

impl Refusal {
    pub(super) fn is(&self, code: &SqlState) -> bool {
        self.code.as_ref() == Some(code)
    }

    pub(super) fn outcome<T>(self) -> Outcome<T> {
        if self.undone { Outcome::NotApplied(self.failure) } else { Outcome::Indeterminate(self.failure) }
    }
}

/// The server's or the system's own words. They hold no password: the server never sends one back.
pub(super) fn words(error: &DriverError) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(told), _) => format!("{} ({})", told.message(), told.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) if error.is_closed() => "the server closed the connection".to_owned(),
        (None, None) => error.to_string(),
    }
}

/// What a user needs.
const RIGHTS: &str = "the user needs SELECT, INSERT, UPDATE and DELETE on the table, and USAGE on its schema";

/// Whether a pooler lets no settings through in the startup packet.
pub(super) fn refuses_settings(error: &DriverError) -> bool {
    // pgbouncer: "unsupported startup parameter: options"; RDS Proxy: "... doesn't support command-line options"
    let words = words(error);
    words.contains("startup parameter") || words.contains("command-line options")
}

/// What became of a statement that was sent.
pub(super) fn refusal(error: &DriverError, place: &str) -> Refusal {
    let detail = format!("{place}: {}", words(error));
    let Some(code) = error.code().cloned() else {
        let failure = Failure::transient(ErrorKind::Unavailable, detail);
        return Refusal { code: None, undone: false, ends_connection: true, failure };
    };
    let (undone, ends_connection, failure) = match code.code() {
        "55P03" => {
            let why = format!("{detail}: another transaction keeps the row of this lock locked");
            (true, false, Failure::transient(ErrorKind::ServerRefused, why))
        }
        // this transaction was chosen to give way to another one
        "40001" | "40P01" => (true, false, Failure::transient(ErrorKind::ServerRefused, detail)),
        "25006" => (true, true, Failure::transient(ErrorKind::ReadOnly, detail)),
        "42501" => (true, false, Failure::lasting(ErrorKind::NotPermitted, format!("{detail}; {RIGHTS}"))),
        // no such table or schema, or it is another program's: nothing was done yet
        other if other.starts_with("42") || other == "3F000" => {
            (true, false, Failure::lasting(ErrorKind::ServerRefused, detail))
        }
        // stopped by an operator, by the time limit, or at the server's end: perhaps as late as its commit
        "57014" => (false, false, Failure::transient(ErrorKind::Unavailable, detail)),
        "57P01" | "57P02" | "57P03" | "57P05" => (false, true, Failure::transient(ErrorKind::Unavailable, detail)),
        other if other.starts_with("08") => (false, true, Failure::transient(ErrorKind::Unavailable, detail)),
        other if other.starts_with("53") || other == "54000" => {
            (true, false, Failure::transient(ErrorKind::ServerRefused, detail))
        }
        _ => (false, false, Failure::transient(ErrorKind::ServerRefused, detail)),
    };
    Refusal { code: Some(code), undone, ends_connection, failure }
}

/// Why a connection could not be made: nothing was sent on it.
pub(super) fn not_connected(error: &DriverError, place: &str) -> Failure {
    let detail = format!("{place}: {}", words(error));
    let Some(code) = error.code() else {
        // the driver refuses to log in without the password that the server asks for
        if words(error).contains("password missing") {
            return Failure::lasting(ErrorKind::AuthFailed, format!("{detail}; the address has no password"));
        }
        return Failure::transient(ErrorKind::Unavailable, detail);
    };
    let without_tls = detail.contains("no encryption") || detail.contains("SSL off");
    match code.code() {
        "28000" | "28P01" if without_tls => {
            let why = "if the server takes this user over TLS only, write sslmode=require, or better verify-full";
            Failure::lasting(ErrorKind::AuthFailed, format!("{detail}; {why}"))
        }
        "28000" | "28P01" => Failure::lasting(ErrorKind::AuthFailed, detail),
        "3D000" => Failure::lasting(ErrorKind::InvalidArgument, format!("{detail}; create it, or correct the address")),
        "42501" => Failure::lasting(ErrorKind::NotPermitted, format!("{detail}; {RIGHTS}")),
        other if other.starts_with("53") => Failure::transient(ErrorKind::ServerRefused, detail),
        other if other.starts_with("57") => Failure::transient(ErrorKind::Unavailable, detail),
        _ => Failure::transient(ErrorKind::ServerRefused, detail),
    }
}
