//! The one error type. Its kinds are the rows of `tests/spec/errors.toml`, shared by every language.

use std::fmt;

/// How many bytes of a name a message shows: all of a name that is within the limit.
const NAME_SHOWN: usize = 512;

/// What went wrong, one variant per row of the error table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A single try was refused: somebody else holds the lock.
    Busy,
    /// The wait was used up while somebody else held the lock.
    Timeout,
    /// The caller stopped waiting.
    Cancelled,
    /// The lease ended without being released.
    Lost,
    /// The lease was released or detached before.
    NotHeld,
    /// No server could be reached in time.
    Unavailable,
    /// Too few of several independent servers answered in time.
    NoQuorum,
    /// User name or password were refused.
    AuthFailed,
    /// The user may not run a command or touch a key.
    NotPermitted,
    /// The server is a replica.
    ReadOnly,
    /// The server is up but refuses to write: out of memory, failing to persist, loading, running a long script.
    ServerRefused,
    /// Another kind of lock, or something else, stands under the name.
    WrongKind,
    /// An argument was refused before any I/O.
    InvalidArgument,

    /// The store cannot do what was asked.
    Unsupported,
    /// The owner of a read lease asks for the write lock of the same name: it would wait for itself.
    WouldDeadlock,
    /// A semaphore has another number of permits than was said, or none is set.
    PermitsMismatch,
    /// The client was closed.
    Closed,
    /// The lease belongs to the parent process.
    Forked,
    /// The machine gave no thread, file descriptor or memory.
    SystemLimit,
    /// A defect of this library.
    Internal,
}

struct Row {
    number: u32,
    name: &'static str,
    not_acquired: bool,
    retryable: bool,
    todo: &'static str,
}

const fn row(number: u32, name: &'static str, not_acquired: bool, retryable: bool, todo: &'static str) -> Row {
    Row { number, name, not_acquired, retryable, todo }
}

impl ErrorKind {
    /// Every kind, in the order of the table.
    pub const ALL: [ErrorKind; 20] = [
        ErrorKind::Busy,
        ErrorKind::Timeout,
        ErrorKind::Cancelled,
        ErrorKind::Lost,
        ErrorKind::NotHeld,
        ErrorKind::Unavailable,
        ErrorKind::NoQuorum,
        ErrorKind::AuthFailed,
        ErrorKind::NotPermitted,
        ErrorKind::ReadOnly,
        ErrorKind::ServerRefused,
        ErrorKind::WrongKind,
        ErrorKind::InvalidArgument,
        ErrorKind::Unsupported,
        ErrorKind::WouldDeadlock,
        ErrorKind::PermitsMismatch,
        ErrorKind::Closed,
        ErrorKind::Forked,
        ErrorKind::SystemLimit,
        ErrorKind::Internal,
    ];

    const fn row(self) -> Row {
        match self {
            ErrorKind::Busy => {
                row(1, "Busy", true, true, "it is held by somebody else; wait for it, or try again later")
            }
            ErrorKind::Timeout => row(2, "Timeout", true, true, "wait longer, or find out who holds it with inspect"),
            ErrorKind::Cancelled => row(3, "Cancelled", true, true, "the caller stopped waiting; nothing is held"),
            ErrorKind::Lost => row(
                10,
                "Lost",
                false,
                false,
                "stop the guarded work: somebody else may hold the lock now; acquire again to go on",
            ),
            ErrorKind::NotHeld => {
                row(11, "NotHeld", false, false, "this lease was released or handed away; use a lease that is held")
            }
            ErrorKind::Unavailable => {
                row(20, "Unavailable", false, true, "check that the server runs and can be reached at this address")
            }
            ErrorKind::NoQuorum => row(
                21,
                "NoQuorum",
                false,
                true,
                "too few of the independent servers answered in time; check each of them",
            ),
            ErrorKind::AuthFailed => row(
                22,
                "AuthFailed",
                false,
                false,
                "check user name and password: in the address, or what the credentials provider gives",
            ),
            ErrorKind::NotPermitted => row(
                23,
                "NotPermitted",
                false,
                false,
                "give this user the rights that the store needs; GUARANTEES.md lists them",
            ),
            ErrorKind::ReadOnly => row(24, "ReadOnly", false, true, "this server is a replica; connect to its master"),
            ErrorKind::ServerRefused => {
                row(25, "ServerRefused", false, true, "the server is up but refuses to write; its own words say why")
            }
            ErrorKind::WrongKind => row(
                30,
                "WrongKind",
                false,
                false,
                "a name belongs to one kind of lock; use another name, or the kind that stands there",
            ),
            ErrorKind::InvalidArgument => {
                row(31, "InvalidArgument", false, false, "correct the argument that is named")
            }
            ErrorKind::Unsupported => {
                row(32, "Unsupported", false, false, "choose a store or an option that can do it")
            }
            ErrorKind::WouldDeadlock => row(
                33,
                "WouldDeadlock",
                false,
                false,
                "release the read lease first, or take the write lock from the start",
            ),
            ErrorKind::PermitsMismatch => row(
                34,
                "PermitsMismatch",
                false,
                false,
                "give all clients the same number of permits, or set it with set_permits",
            ),
            ErrorKind::Closed => row(40, "Closed", false, false, "the client was closed; make a new one"),
            ErrorKind::Forked => row(
                41,
                "Forked",
                false,
                false,
                "a lease does not cross a fork; acquire in the child, release in the parent",
            ),
            ErrorKind::SystemLimit => row(
                42,
                "SystemLimit",
                false,
                true,
                "the machine is at a limit (threads, file descriptors, memory); raise it, or free some, and call again",
            ),
            ErrorKind::Internal => {
                row(50, "Internal", false, false, "this is a defect of onelock; please report it with this message")
            }
        }
    }

    /// The number that stands for this kind in C and on the wire of the test drivers. Never reused.
    pub const fn number(self) -> u32 {
        self.row().number
    }

    /// The name of the row, as in the table.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether this ends an acquire because of waiting, not because of a fault: Busy, Timeout, Cancelled.
    pub const fn is_not_acquired(self) -> bool {
        self.row().not_acquired
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub const fn is_retryable(self) -> bool {
        self.row().retryable
    }

    /// The hint that closes every message of this kind.
    pub const fn todo(self) -> &'static str {
        self.row().todo
    }
}

/// Why an operation failed: the kind, the lock, what was tried, what was found, and what to do.
///
/// The message never holds a password, a token or a raw binary name.
///
/// ```
/// # async fn demo(client: onelock::Client) -> Result<(), onelock::Error> {
/// match client.lock("orders:42").try_acquire().await {
///     Ok(Some(lease)) => { lease.release().await?; }
///     Ok(None) => println!("somebody else is at it"),
///     Err(error) if error.is_retryable() => println!("later: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<ErrorData>);

#[derive(Clone, PartialEq, Eq)]
struct ErrorData {
    kind: ErrorKind,
    lock: Option<String>,
    tried: String,
    detail: String,
    causes: Vec<String>,
}

// the machine room makes failures, not errors: only the client calls the makers below
#[cfg_attr(not(feature = "client"), allow(dead_code))]
impl Error {
    /// An error of `kind` while `tried` was attempted; `detail` says what was found.
    pub(crate) fn new(kind: ErrorKind, tried: impl Into<String>, detail: impl Into<String>) -> Error {
        Error(Box::new(ErrorData { kind, lock: None, tried: tried.into(), detail: detail.into(), causes: Vec::new() }))
    }

    /// Names the lock (bytes that are not printable are escaped; a name that is refused for its length is cut).
    pub(crate) fn on(mut self, name: &[u8]) -> Error {
        let shown = &name[..name.len().min(NAME_SHOWN)];
        let more = if shown.len() < name.len() { "..." } else { "" };
        self.0.lock = Some(format!("{}{more}", shown.escape_ascii()));
        self
    }

    /// Adds what each server said.
    pub(crate) fn because(mut self, cause: impl Into<String>) -> Error {
        self.0.causes.push(cause.into());
        self
    }

    /// What went wrong, as a value to compare with.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the lock, non-printable bytes escaped and a long name cut; `None` when the error concerns no lock.
    pub fn lock_name(&self) -> Option<&str> {
        self.0.lock.as_deref()
    }

    /// What was tried, in a few words: `acquire`, `extend`, `connect` ...
    pub fn tried(&self) -> &str {
        &self.0.tried
    }

    /// What was found, without the lock's name and the hint.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// What each server said, one entry per server; empty when no server was at fault.
    pub fn causes(&self) -> &[String] {
        &self.0.causes
    }

    /// See [`ErrorKind::is_not_acquired`].
    pub fn is_not_acquired(&self) -> bool {
        self.0.kind.is_not_acquired()
    }

    /// See [`ErrorKind::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.tried)?;
        if let Some(lock) = &self.0.lock {
            write!(f, " \"{lock}\"")?;
        }
        write!(f, ": {}", self.0.detail)?;
        for cause in &self.0.causes {
            write!(f, "; {cause}")?;
        }
        write!(f, " ({}: {})", self.0.kind.name(), self.0.kind.todo())
    }
}

/// The message itself: it is what a program prints whose `main` returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

#[cfg(feature = "client")]
/// The error of an argument that is not valid.
pub(crate) fn invalid(tried: &str, detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, tried, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Spec {
        number: u32,
        kind: String,
        not_acquired: bool,
        retryable: bool,
        todo: String,
    }

    fn spec() -> Vec<Spec> {
        let text = include_str!("../../tests/spec/errors.toml");
        let table: toml::Table = text.parse().unwrap();
        let rows = table["error"].as_array().unwrap();
        rows.iter()
            .map(|row| Spec {
                number: row["number"].as_integer().unwrap().try_into().unwrap(),
                kind: row["kind"].as_str().unwrap().to_owned(),
                not_acquired: row["not_acquired"].as_bool().unwrap(),
                retryable: row["retryable"].as_bool().unwrap(),
                todo: row["todo"].as_str().unwrap().to_owned(),
            })
            .collect()
    }

    #[test]
    fn kinds_are_the_rows_of_the_table() {
        let spec = spec();
        assert_eq!(spec.len(), ErrorKind::ALL.len());
        for (row, kind) in spec.iter().zip(ErrorKind::ALL) {
            assert_eq!(row.kind, kind.name());
            assert_eq!(row.kind, format!("{kind:?}"));
            assert_eq!(row.number, kind.number());
            assert_eq!(row.not_acquired, kind.is_not_acquired());
            assert_eq!(row.retryable, kind.is_retryable());
            assert_eq!(row.todo, kind.todo());
        }
    }

    #[test]
    fn a_message_names_the_lock_what_was_tried_and_what_to_do() {
        let error = Error::new(ErrorKind::Busy, "try_acquire", "held for another 900 ms").on(b"a\xffb");
        assert_eq!(
            error.to_string(),
            "try_acquire \"a\\xffb\": held for another 900 ms \
             (Busy: it is held by somebody else; wait for it, or try again later)"
        );
    }
}
