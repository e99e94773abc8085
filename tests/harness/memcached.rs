//! memcached for tests: a child process with a port of its own.
//!
//! ```no_run
//! let server = onelock_tests::memcached::Memcached::start();
//! assert_eq!(server.ask("mn"), "MN");
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::servers::{Port, Tls, signal, spawn};

/// How long a server may take to start. Far more than it needs, for a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server. Killed when dropped, and by the kernel when the test process ends in any other way.
pub struct Memcached {
    folder: TempDir,
    port: Port,
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Memcached {
    /// Starts a server without a password, with 64 MB.
    pub fn start() -> Memcached {
        Memcached::with(&[])
    }

    /// The same with more arguments, such as `-M`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn with(arguments: &[&str]) -> Memcached {
        let mut server = Memcached::prepare();
        server.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        server.launch();
        server
    }

    /// One that asks for this user and password.
    pub fn with_user(user: &str, password: &str) -> Memcached {
        let mut server = Memcached::prepare();
        let file = server.folder.path().join("users");
        std::fs::write(&file, format!("{user}:{password}\n")).expect("a file can be written");
        server.arguments = vec!["-Y".to_owned(), file.display().to_string()];
        server.launch();
        server
    }

    /// One that speaks TLS only, with a certificate for these names; and the files for its clients.
    pub fn encrypted(names: &[&str]) -> (Memcached, Tls) {
        let mut server = Memcached::prepare();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let tls = Tls::create(server.folder.path(), &names);
        let files = format!("ssl_chain_cert={},ssl_key={}", tls.server_cert.display(), tls.server_key.display());
        server.arguments = vec!["-Z".to_owned(), "-o".to_owned(), files];
        server.launch();
        (server, tls)
    }

    fn prepare() -> Memcached {
        let folder = tempfile::tempdir().expect("a folder can be made");
        Memcached { folder, port: Port::reserve(), arguments: Vec::new(), child: Mutex::new(None) }
    }

    /// The port that it listens on.
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its address for a client.
    pub fn url(&self) -> String {
        format!("memcached://127.0.0.1:{}", self.port())
    }

    /// The number of its process.
    ///
    /// # Panics
    /// When it is not running.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().as_ref().expect("the server was killed").id()
    }

    /// Ends it, and all that it keeps. Nothing happens when it is dead already.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            signal(child.id(), libc::SIGKILL);
            child.wait().expect("a killed child ends");
        }
    }

    /// Kills it if need be and starts it again at the same port.
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    fn launch(&self) {
        let folder = std::env::var_os("ONELOCK_SERVERS")
            .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.tools/bin")), PathBuf::from);
        let mut server = Command::new(folder.join("memcached"));
        // it refuses to be root unless it is told so
        server.args(["-u", "root", "-l", "127.0.0.1", "-t", "2", "-p"]).arg(self.port().to_string());
        server.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = spawn(server).expect("memcached can be started; `make servers` fetches it");
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port())).is_err() {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("memcached: {status}");
            }
            assert!(begun.elapsed() < START_LIMIT, "no answer within {START_LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        *self.child.lock().unwrap() = Some(child);
    }

    /// A plain connection.
    ///
    /// # Panics
    /// When there is none to be had.
    pub fn session(&self) -> Session {
        let stream = TcpStream::connect(("127.0.0.1", self.port())).expect("the server answers");
        let _ = stream.set_nodelay(true);
        stream.set_read_timeout(Some(START_LIMIT)).expect("a time limit can be set");
        Session { lines: BufReader::new(stream) }
    }

    /// The first line of the reply to one command, on a connection of its own.
    pub fn ask(&self, command: &str) -> String {
        self.session().ask(command)
    }

    /// Items and connections that are still there.
    pub fn leftovers(&self) -> Vec<String> {
        // those whose time is over are removed when somebody looks
        self.ask("lru_crawler crawl all");
        let (items, connections) = (self.stat("curr_items"), self.stat("curr_connections"));
        let mut left = Vec::new();
        if items > 0 {
            left.push(format!("{items} items"));
        }
        // one serves this question
        if connections > 1 {
            left.push(format!("{} connections", connections - 1));
        }
        left
    }

    /// A number of its statistics.
    ///
    /// # Panics
    /// When it does not have it.
    pub fn stat(&self, name: &str) -> u64 {
        let mut session = self.session();
        let mut line = session.ask("stats");
        while line != "END" {
            if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
                return value.parse().expect("a number");
            }
            line = session.line();
        }
        panic!("there is no {name}");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A plain connection, for what a client library would hide.
pub struct Session {
    lines: BufReader<TcpStream>,
}

impl Session {
    /// The first line of the reply to one command.
    ///
    /// # Panics
    /// When the server ends the connection.
    pub fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.line()
    }

    /// Sends a command whose reply is read later.
    ///
    /// # Panics
    /// When the server ends the connection.
    pub fn send(&mut self, command: &str) {
        self.lines.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("the server reads");
    }

    /// The next line.
    ///
    /// # Panics
    /// When the server ends the connection.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the server answers");
        assert!(line.ends_with('\n'), "the server closed the connection: {line:?}");
        line.trim_end().to_owned()
    }

    /// Writes small items until the server has no memory left or `most` are there, and tells how many.
    pub fn fill(&mut self, most: usize) -> usize {
        for number in 0..most {
            if self.ask(&format!("ms filler{number} 40 T0\r\n{}", "x".repeat(40))) != "HD" {
                return number;
            }
        }
        most
    }
}
