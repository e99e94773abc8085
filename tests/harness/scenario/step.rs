//! One step of a scenario, as it is written.

use serde::Deserialize;
use toml::{Table, Value};

/// One step: an action, and what must come of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Step {
    /// `client.operation lease` or `lease.operation`: carried out, and its answer awaited.
    #[serde(rename = "do")]
    pub act: Option<String>,
    /// The same without awaiting the answer.
    pub start: Option<String>,
    /// Awaits the answer to what was started for this lease.
    pub wait: Option<String>,
    /// What was started for this lease must not have been answered yet.
    pub pending: Option<String>,
    /// Cancels what was started for this lease.
    pub cancel: Option<String>,
    /// Awaits the loss event of this lease.
    pub lost: Option<String>,
    /// Awaits the jeopardy event of this lease.
    pub jeopardy: Option<String>,
    /// No loss event of this lease must have come.
    pub not_lost: Option<String>,
    /// A command for the server as a list of words; or `stop`, `cont`, `kill`, `restart`.
    pub server: Option<Value>,
    /// Lets time pass, in ms. Only for what must not happen meanwhile.
    pub pass_ms: Option<u64>,
    /// What the answer must be like.
    pub is: Option<Value>,
    /// The kind of the error that it must be.
    pub error: Option<String>,
    /// The same where several servers make up the store and a majority is missing, if that is another kind.
    pub error_of_several: Option<String>,
    /// It must take this long at least, in ms.
    pub at_least: Option<u64>,
    /// It must take this long at most, in ms.
    pub at_most: Option<u64>,
    /// From which mark on `at_least` and `at_most` count, instead of the beginning of the call.
    pub since: Option<String>,
    /// Remembers the instant before this step under a name.
    pub mark: Option<String>,
    /// Repeats the step until the answer is as it must be, for so many ms at most.
    pub within: Option<u64>,
    /// Remembers the answer under a name.
    pub save: Option<String>,
    /// Everything else: arguments of the operation.
    #[serde(flatten)]
    pub args: Table,
}

impl Step {
    /// Whether it concerns a server.
    pub fn needs_server(&self) -> bool {
        self.server.is_some()
    }

    /// Whether it asks for a kind of lock that only some servers keep.
    pub fn needs_other_kinds(&self) -> bool {
        let operation = |text: &String| operation(text).ends_with("permits");
        let kind = self.args.get("kind").and_then(Value::as_str);
        ["fair", "read", "write", "semaphore"].iter().any(|kind| self.args.contains_key(*kind))
            || kind.is_some_and(|kind| ["fair_lock", "semaphore"].contains(&kind))
            || self.act.iter().chain(&self.start).any(operation)
    }

    /// Whether it lists locks, which a cache does not.
    pub fn lists(&self) -> bool {
        self.act.iter().chain(&self.start).any(|text| operation(text) == "list")
    }

    /// Whether it says something of a fencing token, which a cache does not have.
    pub fn expects_token(&self) -> bool {
        fn has_token(value: &Value) -> bool {
            match value {
                Value::Table(table) => table.iter().any(|(word, value)| word == "token" || has_token(value)),
                Value::Array(values) => values.iter().any(has_token),
                _ => false,
            }
        }
        self.is.as_ref().is_some_and(has_token)
    }

    /// Whether it hands a hold over, which files do not.
    pub fn hands_over(&self) -> bool {
        self.act.iter().chain(&self.start).any(|text| ["attach", "detach"].contains(&operation(text)))
    }
}

/// The method that a step calls.
fn operation(text: &str) -> &str {
    text.split([' ', '.']).nth(1).unwrap_or_default()
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = [
            ("do", &self.act),
            ("start", &self.start),
            ("wait", &self.wait),
            ("pending", &self.pending),
            ("cancel", &self.cancel),
            ("lost", &self.lost),
            ("jeopardy", &self.jeopardy),
            ("not_lost", &self.not_lost),
        ];
        for (word, value) in words {
            if let Some(value) = value {
                write!(f, "{word} = {value:?}")?;
            }
        }
        if let Some(server) = &self.server {
            write!(f, "server = {server}")?;
        }
        if let Some(ms) = self.pass_ms {
            write!(f, "pass_ms = {ms}")?;
        }
        for (name, value) in &self.args {
            write!(f, ", {name} = {value}")?;
        }
        Ok(())
    }
}
