//! PostgreSQL for tests: a child process with a data directory and a port of its own.
//!
//! ```no_run
//! let server = onelock_tests::postgres::Postgres::start();
//! let session = server.session();
//! assert_eq!(session.one("SELECT 1 + 1"), "2");
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::servers::{Port, Tls, signal, spawn};

/// The file name of its program, as `tools/servers.sh` knows it.
const PROGRAM: &str = "postgres";
/// How long a server may take to start. Far more than it needs, for a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(90);
/// The server runs as nobody where the test runs as root, which it refuses to be.
const NOBODY: u32 = 65_534;

/// A running server without durability. Killed when dropped, and by the kernel when the test process ends in any other way.
pub struct Postgres {
    folder: TempDir,
    port: Port,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
}

fn is_root() -> bool {
    // SAFETY: it reads a number.
    #[allow(unsafe_code, reason = "the standard library does not tell it")]
    unsafe {
        libc::geteuid() == 0
    }
}

/// A program beside the server's, run as a user that the server accepts.
fn command(program: &str) -> Command {
    use std::os::unix::process::CommandExt;
    let folder = std::env::var_os("ONELOCK_SERVERS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.tools/bin")), PathBuf::from);
    let link = folder.join(PROGRAM);
    let server = std::fs::canonicalize(&link)
        .unwrap_or_else(|error| panic!("{}: {error}; `make servers` fetches it", link.display()));
    let beside = server.parent().expect("a file has a folder");
    let mut command = Command::new(beside.join(program));
    // libraries that came with it
    let libraries = std::env::join_paths([folder.join("../lib"), beside.join("../lib")]).expect("no colon in a path");
    command.env("LD_LIBRARY_PATH", libraries).env("LC_ALL", "C").env("TZ", "UTC");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// What the names of the folders begin with; the number of the process follows.
const FOLDERS: &str = "onelock-postgres-";

/// Removes the folders of test processes that have ended: one that is killed, or keeps a server to its end, leaves its own.
fn sweep() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDERS)?.split_once('-')).map(|(pid, _)| pid);
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Postgres {
    /// Starts a server whose user `postgres` needs no password.
    pub fn start() -> Postgres {
        Postgres::with(&[])
    }

    /// The same with more settings, such as `max_connections=20`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn with(settings: &[&str]) -> Postgres {
        let server = Postgres::prepare(settings);
        server.initialize();
        server.launch();
        server
    }

    fn initialize(&self) {
        let mut initdb = command("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "-D"]);
        initdb.arg(self.data());
        let status = spawn(initdb).and_then(|mut child| child.wait()).expect("initdb can be started");
        assert!(status.success(), "initdb: {status}");
    }

    /// A server that speaks TLS, too, with a certificate for these names; and the files for its clients.
    ///
    /// # Panics
    /// When it does not start.
    pub fn encrypted(names: &[&str]) -> (Postgres, Tls) {
        let mut server = Postgres::prepare(&[]);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let tls = Tls::create(server.folder.path(), &names);
        // the server refuses a key that others may read
        std::fs::set_permissions(&tls.server_key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&tls.server_key, Some(NOBODY), Some(NOBODY)).expect("root may give files away");
        }
        let setting = |name: &str, path: &Path| format!("{name}={}", path.display());
        server.settings = vec![
            "ssl=on".to_owned(),
            setting("ssl_cert_file", &tls.server_cert),
            setting("ssl_key_file", &tls.server_key),
            setting("ssl_ca_file", &tls.ca),
        ];
        server.initialize();
        server.launch();
        (server, tls)
    }

    /// Kills it if need be and starts it again at the same port, with nothing in it: its disk was exchanged.
    ///
    /// # Panics
    /// When it does not start.
    pub fn wipe(&self) {
        self.kill();
        std::fs::remove_dir_all(self.data()).expect("the data can be removed");
        self.initialize();
        self.launch();
    }

    /// A standby of this server, which follows it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn standby(&self) -> Postgres {
        let standby = Postgres::prepare(&[]);
        let mut copy = command("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-c", "fast", "--no-sync", "-X", "stream", "-p"]);
        copy.arg(self.port().to_string()).arg("-D").arg(standby.data());
        let status = spawn(copy).and_then(|mut child| child.wait()).expect("pg_basebackup can be started");
        assert!(status.success(), "pg_basebackup: {status}");
        standby.launch();
        standby
    }

    fn prepare(settings: &[&str]) -> Postgres {
        sweep();
        let prefix = format!("{FOLDERS}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a folder can be made");
        if is_root() {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may give folders away");
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Postgres { folder, port: Port::reserve(), settings, child: Mutex::new(None) }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder of its Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The port that it listens on.
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The number of its process.
    ///
    /// # Panics
    /// When it is not running.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().as_ref().expect("the server was killed").id()
    }

    /// The address of its database `postgres` for a client, as its superuser; `query` is what follows the `?`.
    pub fn url(&self, query: &str) -> String {
        self.url_of("postgres", query)
    }

    /// The same as a user, perhaps with a password.
    pub fn url_of(&self, user: &str, query: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres?{query}", self.port())
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends it as a power cut would. Nothing happens when it is dead already.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            // at once, but its own children with it
            signal(child.id(), libc::SIGQUIT);
            child.wait().expect("a killed child ends");
        }
    }

    /// Kills it if need be and starts it again with the same port and data.
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    /// Makes a standby the server that is written to.
    pub fn promote(&self) {
        self.session().one("SELECT pg_promote(true, 60)");
    }

    fn launch(&self) {
        let mut server = command("postgres");
        server.arg("-D").arg(self.data()).arg("-p").arg(self.port().to_string());
        let folder = self.folder.path().display();
        for setting in [
            "listen_addresses=127.0.0.1",
            &format!("unix_socket_directories={folder}"),
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=16MB",
            "max_wal_size=64MB",
            "min_wal_size=32MB",
            "max_connections=200",
            "wal_level=replica",
            "hot_standby=on",
            "autovacuum_naptime=600s",
            "log_min_messages=fatal",
        ] {
            server.arg("-c").arg(setting);
        }
        for setting in &self.settings {
            server.arg("-c").arg(setting);
        }
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log can be made");
        server.stderr(log);
        let mut child = spawn(server).expect("the server can be started");
        let begun = Instant::now();
        loop {
            // a standby answers later, and says so meanwhile
            let asked = Session::connect(self.port(), "postgres", None);
            if asked.is_ok() {
                break;
            }
            if let Ok(Some(status)) = child.try_wait() {
                panic!("postgres: {status}\n{}", self.log());
            }
            assert!(begun.elapsed() < START_LIMIT, "no answer within {START_LIMIT:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        *self.child.lock().unwrap() = Some(child);
    }

    /// A connection of the superuser.
    ///
    /// # Panics
    /// When there is none to be had.
    pub fn session(&self) -> Session {
        Session::connect(self.port(), "postgres", None).expect("the server answers")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A plain connection, for what a client library would hide.
pub struct Session {
    runtime: Runtime,
    client: Option<Client>,
}

impl Session {
    /// Connects as this user.
    ///
    /// # Errors
    /// What the server or the driver says.
    pub fn connect(port: u16, user: &str, password: Option<&str>) -> Result<Session, String> {
        // a thread of its own: the connection goes on while the test does something else
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(|error| error.to_string())?;
        let client = runtime.block_on(async {
            let stream =
                tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true);
            let mut config = Config::new();
            config.user(user).dbname("postgres");
            if let Some(password) = password {
                config.password(password);
            }
            let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            Ok::<Client, String>(client)
        })?;
        Ok(Session { runtime, client: Some(client) })
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("there until it is dropped")
    }

    /// The rows of statements, each as its values separated by `|`.
    ///
    /// # Errors
    /// What the server says, with its code.
    pub fn query(&self, text: &str) -> Result<Vec<String>, String> {
        let messages = self.runtime.block_on(self.client().simple_query(text)).map_err(|error| {
            error.as_db_error().map_or(error.to_string(), |told| format!("{} {}", told.code().code(), told.message()))
        })?;
        let mut rows = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                let mut text = String::new();
                for at in 0..row.len() {
                    let _ = write!(text, "{}{}", if at == 0 { "" } else { "|" }, row.get(at).unwrap_or("null"));
                }
                rows.push(text);
            }
        }
        Ok(rows)
    }

    /// Carries statements out.
    ///
    /// # Panics
    /// When the server refuses one.
    pub fn run(&self, text: &str) {
        self.query(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// The one row of a statement.
    ///
    /// # Panics
    /// When the server refuses it, or there is another number of rows.
    pub fn one(&self, text: &str) -> String {
        let rows = self.query(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rows.len(), 1, "{text}: {rows:?}");
        rows.into_iter().next().expect("just counted")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // says goodbye before its runtime ends
        drop(self.client.take());
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
}
