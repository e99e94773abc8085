//! Real servers for tests: each a child process with a folder and a port of its own, ready within milliseconds.
//!
//! ```no_run
//! use onelock_tests::servers::{Flavor, Server};
//!
//! let server = Server::start(Flavor::Valkey91);
//! server.cmd(&["SET", "a", "1"]);
//! assert_eq!(server.text(&["GET", "a"]), "1");
//! ```
//!
//! The fixture itself talks to the server over a Unix socket as the user `fixture`, so it is not in the way of tests
//! that lock users out, and it does not count among the TCP clients.

mod builder;
mod clock;
mod flavor;
mod monitor;
mod port;
mod process;
mod tls;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redis::Value;
use tempfile::TempDir;

use crate::resp::{Connection, text};

pub use builder::Builder;
pub use flavor::Flavor;
pub use monitor::{Monitor, Seen};
pub use port::Port;
pub use process::{cont, signal, spawn, state, stop};
pub use tls::Tls;

/// Every flavor, for tests that compare servers.
pub const fn all_flavors() -> [Flavor; 4] {
    Flavor::ALL
}

const USER: &str = "fixture";
const SOCKET: &str = "socket";
const LOG: &str = "log";
const CONFIG: &str = "server.conf";

/// How long a server may take to start. Far more than it needs, for a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server. Killed when dropped, and by the kernel when the test process ends in any other way.
///
/// All methods take `&self`, so that one thread can stop a server while another one uses it.
pub struct Server {
    flavor: Flavor,
    folder: TempDir,
    port: Port,
    tls: Option<(Tls, Port)>,
    password: Option<String>,
    sentinel: bool,
    child: Mutex<Option<Child>>,
    fixture: Mutex<Option<Connection>>,
}

impl Server {
    /// Starts a server without persistence, password or TLS.
    pub fn start(flavor: Flavor) -> Self {
        Self::builder(flavor).start()
    }

    /// Starts the server that tests use when it does not matter which: Valkey 9.1.
    pub fn valkey() -> Self {
        Self::start(Flavor::Valkey91)
    }

    /// A server with more configuration.
    pub fn builder(flavor: Flavor) -> Builder {
        Builder::new(flavor)
    }

    /// What it is.
    pub const fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// The port that it listens on without TLS.
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port that it listens on with TLS, and the files that go with it.
    pub fn tls(&self) -> Option<(&Tls, u16)> {
        self.tls.as_ref().map(|(tls, port)| (tls, port.number()))
    }

    /// Its address for a client, with the password when one was set.
    pub fn url(&self) -> String {
        self.url_with(&self.password.as_ref().map(|password| format!(":{password}")).unwrap_or_default(), "/")
    }

    /// Its address with `userinfo` (`user:password`, or nothing) and everything from the path on (`/2?option=x`).
    pub fn url_with(&self, userinfo: &str, tail: &str) -> String {
        let at = if userinfo.is_empty() { "" } else { "@" };
        format!("redis://{userinfo}{at}127.0.0.1:{}{tail}", self.port())
    }

    /// Its address over TLS; the client must be told to trust [`Tls::ca`].
    ///
    /// # Panics
    /// When it was started without TLS.
    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.tls().expect("the server was started with TLS").1)
    }

    /// Its address over its Unix socket.
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Its working folder, where its append-only file and its log are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }

    /// The number of its process.
    ///
    /// # Panics
    /// When it is not running.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().as_ref().expect("the server was killed").id()
    }

    /// Whether it was started and not killed since.
    pub fn is_running(&self) -> bool {
        self.child.lock().unwrap().is_some()
    }

    /// Freezes it (SIGSTOP): connections stay open and nothing is answered.
    pub fn stop(&self) {
        stop(self.pid());
    }

    /// Lets it run on after [`stop`](Self::stop).
    pub fn cont(&self) {
        cont(self.pid());
    }

    /// Kills it (SIGKILL), as a power cut would. Nothing happens when it is dead already.
    pub fn kill(&self) {
        *self.fixture.lock().unwrap() = None;
        if let Some(mut child) = self.child.lock().unwrap().take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
        }
    }

    /// Kills it if need be and starts it again with the same ports and folder. With an append-only file the data is
    /// there again; without one it is empty. Returns once it answers, be it with LOADING.
    pub fn restart(&self) {
        self.kill();
        let start = Instant::now();
        while let Err(why) = self.launch() {
            // Nobody takes a port of ours on purpose, but a connection of the old process may still hold it.
            assert!(start.elapsed() < START_LIMIT, "{} does not start again: {why}", self.flavor.program());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sets its time of day to so many seconds beside the truth; its monotonic clock goes on as ever. It must have been
    /// started with [`clock`](Builder::clock).
    pub fn set_clock(&self, beside_s: i64) {
        clock::set(self.folder.path(), beside_s * 1_000_000_000);
    }

    /// Runs a command and returns its reply.
    ///
    /// # Panics
    /// When the reply is an error, or none comes within 5 s.
    pub fn cmd(&self, args: &[impl AsRef<[u8]>]) -> Value {
        self.try_cmd(args).unwrap_or_else(|error| panic!("{}: {error}", printable(args)))
    }

    /// Runs a command and returns its reply, or the text of the error that the server answered.
    ///
    /// # Panics
    /// When no reply comes within 5 s.
    pub fn try_cmd(&self, args: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        let mut held = self.fixture.lock().unwrap();
        let mut reply = held.as_mut().map(|connection| connection.cmd(args));
        // The test may have killed this connection; a new one takes its place. Silence is not repaired like that.
        if reply.as_ref().is_none_or(|reply| reply.as_ref().is_err_and(|error| !is_timeout(error))) {
            reply = Some(held.insert(self.connect()).cmd(args));
        }
        let value = reply.expect("set above").unwrap_or_else(|error| {
            *held = None;
            panic!("{} did not answer {}: {error}\n{}", self.flavor.program(), printable(args), self.log())
        });
        match value {
            Value::ServerError(_) => Err(text(&value)[1..].to_owned()),
            value => Ok(value),
        }
    }

    /// As [`cmd`](Self::cmd), with the reply as text (see [`text`]).
    pub fn text(&self, args: &[impl AsRef<[u8]>]) -> String {
        text(&self.cmd(args))
    }

    /// As [`cmd`](Self::cmd), for a reply that is a number.
    ///
    /// # Panics
    /// When it is none.
    pub fn int(&self, args: &[impl AsRef<[u8]>]) -> i64 {
        let reply = self.text(args);
        reply.parse().unwrap_or_else(|_| panic!("{} answered {reply}, not a number", printable(args)))
    }

    /// The fields of an INFO section.
    pub fn info(&self, section: &str) -> HashMap<String, String> {
        let pairs = self.text(&["INFO", section]);
        pairs.lines().filter_map(|line| line.split_once(':')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    /// Changes a setting while it runs.
    pub fn config_set(&self, name: &str, value: &str) {
        self.cmd(&["CONFIG", "SET", name, value]);
    }

    /// Watches every command that it runs from now on.
    pub fn monitor(&self) -> Monitor {
        Monitor::start(self.connect(), self.connect(), &self.socket())
    }

    /// A raw connection of the fixture's own user, over the Unix socket.
    ///
    /// # Panics
    /// When the server is down or refuses it.
    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap_or_else(|error| panic!("{}: {error}\n{}", self.flavor.program(), self.log()))
    }

    fn try_connect(&self) -> io::Result<Connection> {
        let mut connection = Connection::unix(self.socket())?;
        let reply = connection.cmd(&["AUTH", USER, USER])?;
        if matches!(reply, Value::ServerError(_)) {
            return Err(io::Error::other(text(&reply)));
        }
        Ok(connection)
    }

    /// Starts the program and waits until it answers on its socket, which it opens after its ports.
    fn launch(&self) -> Result<(), String> {
        let _ = std::fs::remove_file(self.socket());
        let mut command = Command::new(self.flavor.path());
        command.arg(CONFIG).args(self.sentinel.then_some("--sentinel")).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        clock::attach(&mut command, self.folder.path());
        let mut child = spawn(command).map_err(|error| error.to_string())?;
        let start = Instant::now();
        loop {
            if let Ok(connection) = self.try_connect() {
                *self.fixture.lock().unwrap() = Some(connection);
                *self.child.lock().unwrap() = Some(child);
                return Ok(());
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("{status}\n{}", self.log()));
            }
            if start.elapsed() > START_LIMIT {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {START_LIMIT:?}\n{}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn printable(args: &[impl AsRef<[u8]>]) -> String {
    let words: Vec<_> = args.iter().map(|arg| arg.as_ref().escape_ascii().to_string()).collect();
    words.join(" ")
}
