//! What a server is asked, line by line, as its MONITOR command tells it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::resp::{Connection, text};
use crate::wait::wait_until;

/// One command that a server carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who sent it: `lua` for a command inside a script, `unix:...` for a Unix socket, otherwise address and port.
    pub source: String,
    /// The command and its arguments, with `\xNN` for bytes that cannot be printed.
    pub args: Vec<String>,
}

impl Seen {
    /// Whether this is the command `name`, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.args.first().is_some_and(|command| command.eq_ignore_ascii_case(name))
    }

    fn parse(line: &str) -> Option<Self> {
        // 1700000000.123456 [0 127.0.0.1:51234] "SET" "a" "1"
        let (source, words) = line.split_once(" [")?.1.split_once("] ")?;
        let source = source.split_once(' ')?.1.to_owned();
        let mut args = Vec::new();
        let mut chars = words.chars();
        while chars.next() == Some('"') {
            let mut word = String::new();
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => match chars.next()? {
                        escaped @ ('"' | '\\') => word.push(escaped),
                        other => word.extend(['\\', other]),
                    },
                    plain => word.push(plain),
                }
            }
            args.push(word);
            if chars.next().is_none() {
                break;
            }
        }
        Some(Self { source, args })
    }
}

/// Collects every command that the server runs, from [`Server::monitor`](super::Server::monitor) until dropped.
pub struct Monitor {
    seen: Arc<Mutex<Vec<Seen>>>,
    marker: Mutex<Connection>,
    close: Option<Box<dyn FnOnce() + Send>>,
}

/// Numbers the markers, so that each is told from the others.
static MARKERS: AtomicU64 = AtomicU64::new(0);
const MARKER: &str = "monitor-marker-";

impl Monitor {
    pub(super) fn start(mut connection: Connection, marker: Connection, socket: &Path) -> Self {
        assert_eq!(text(&connection.cmd(&["MONITOR"]).unwrap()), "OK");
        connection.limit(None).unwrap();
        let close = connection.closer().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        std::thread::Builder::new()
            .name(format!("monitor {}", socket.display()))
            .spawn(move || {
                // Ends when the server or the handle is gone.
                while let Ok(line) = connection.read() {
                    if let Some(line) = Seen::parse(&text(&line)) {
                        sink.lock().unwrap().push(line);
                    }
                }
            })
            .expect("a thread can be started");
        Self { seen, marker: Mutex::new(marker), close: Some(Box::new(close)) }
    }

    /// Everything seen so far, in the server's order. First waits until what the server has already run is here.
    pub fn seen(&self) -> Vec<Seen> {
        let marker = format!("{MARKER}{}", MARKERS.fetch_add(1, Ordering::Relaxed));
        self.marker.lock().unwrap().cmd(&["ECHO", &marker]).unwrap();
        wait_until(Duration::from_secs(30), "MONITOR to catch up", || {
            self.seen.lock().unwrap().iter().any(|line| line.args.get(1) == Some(&marker))
        });
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|line| !line.args.get(1).is_some_and(|arg| arg.starts_with(MARKER))).cloned().collect()
    }

    /// What clients sent over TCP: without the commands inside scripts, and without those of the fixture itself.
    pub fn sent(&self) -> Vec<Seen> {
        let outside = |line: &Seen| line.source != "lua" && !line.source.starts_with("unix:");
        self.seen().into_iter().filter(outside).collect()
    }

    /// How often clients sent the command `name` over TCP.
    pub fn count(&self, name: &str) -> usize {
        self.sent().iter().filter(|line| line.is(name)).count()
    }

    /// Forgets what was seen so far.
    pub fn clear(&self) {
        self.seen();
        self.seen.lock().unwrap().clear();
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Some(close) = self.close.take() {
            close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line() {
        let line = Seen::parse(r#"1700000000.1 [0 127.0.0.1:5] "SET" "a \"b\\" "\x00\n" """#).unwrap();
        assert_eq!(line.source, "127.0.0.1:5");
        assert_eq!(line.args, ["SET", r#"a "b\"#, r"\x00\n", ""]);
        assert!(line.is("set"));
    }
}
