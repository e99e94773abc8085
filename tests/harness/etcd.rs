//! etcd for tests: a child process with a data directory and ports of its own.
//!
//! ```no_run
//! let server = onelock_tests::etcd::Etcd::start();
//! assert_eq!(server.ctl(&["get", "a"]), "");
//! ```

mod links;
mod members;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::servers::{Port, Tls, spawn};

pub use members::EtcdMembers;

/// How long a server may take to start. Far more than it needs, for a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(40);

/// A running server on its own. Killed when dropped, and by the kernel when the test process ends in any other way.
pub struct Etcd {
    folder: TempDir,
    port: Port,
    peers: Port,
    tls: Option<Tls>,
    options: Vec<String>,
    child: Mutex<Option<Child>>,
}

/// A program that `tools/servers.sh` has put there.
fn program(name: &str) -> Command {
    let folder = std::env::var_os("ONELOCK_SERVERS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.tools/bin")), PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing; `make servers` fetches it", path.display());
    let mut command = Command::new(path);
    command.env("ETCDCTL_API", "3").stdin(Stdio::null());
    command
}

/// What the names of the folders begin with; the number of the process follows.
const FOLDERS: &str = "onelock-etcd-";

/// Removes the folders of test processes that have ended: one that is killed, or keeps a server to its end, leaves its own.
fn sweep(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDERS)?.split_once('-')).map(|(pid, _)| pid);
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Etcd {
    /// Starts a server that asks nobody for a password.
    pub fn start() -> Etcd {
        let server = Etcd::prepare();
        server.launch();
        server
    }

    /// The same with further options.
    pub fn with(options: &[&str]) -> Etcd {
        let mut server = Etcd::prepare();
        server.options = options.iter().map(|option| (*option).to_owned()).collect();
        server.launch();
        server
    }

    /// A server that speaks TLS only, with a certificate for these names; and the files for its clients.
    ///
    /// # Panics
    /// When it does not start.
    pub fn encrypted(names: &[&str]) -> (Etcd, Tls) {
        let mut server = Etcd::prepare();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let tls = Tls::create(server.folder.path(), &names);
        server.tls = Some(tls.clone());
        server.launch();
        (server, tls)
    }

    fn prepare() -> Etcd {
        // each write waits for the disk, unless there is none
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        sweep(&place);
        let prefix = format!("{FOLDERS}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(place).expect("a folder can be made");
        Etcd {
            folder,
            port: Port::reserve(),
            peers: Port::reserve(),
            tls: None,
            options: Vec::new(),
            child: Mutex::new(None),
        }
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

    /// Its address for a client; `tail` is what follows the port.
    pub fn url(&self, tail: &str) -> String {
        format!("etcd://127.0.0.1:{}{tail}", self.port())
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
            child.kill().and_then(|()| child.wait()).expect("a killed child ends");
        }
    }

    /// Kills it if need be and starts it again with the same port and data.
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    fn launch(&self) {
        self.launch_known_as(|_| {});
    }

    /// The same; who has to know the number of its process before it answers is told.
    fn launch_known_as(&self, tell: impl FnOnce(u32)) {
        let mut server = program("etcd");
        let clients = format!("{}://127.0.0.1:{}", self.scheme(), self.port());
        let peers = format!("http://127.0.0.1:{}", self.peers.number());
        server.arg("--data-dir").arg(self.folder.path().join("data"));
        server.args(["--name", "one", "--initial-cluster", &format!("one={peers}")]);
        server.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        server.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        server.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error"]);
        server.args(&self.options);
        if let Some(tls) = &self.tls {
            server.arg("--cert-file").arg(&tls.server_cert).arg("--key-file").arg(&tls.server_key);
        }
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log can be made");
        server.stdout(Stdio::null()).stderr(log);
        let mut child = spawn(server).expect("the server can be started");
        tell(child.id());
        let begun = Instant::now();
        while self.try_ctl(&["endpoint", "health"]).is_err() {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("etcd: {status}\n{}", self.log());
            }
            assert!(begun.elapsed() < START_LIMIT, "no answer within {START_LIMIT:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.child.lock().unwrap() = Some(child);
    }

    /// `etcdctl` for this server, to be run by the caller.
    pub fn ctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = program("etcdctl");
        command.arg("--endpoints").arg(format!("{}://127.0.0.1:{}", self.scheme(), self.port()));
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca);
        }
        command.args(arguments);
        command
    }

    /// What `etcdctl` says, without the last line break.
    ///
    /// # Errors
    /// What it complains about.
    pub fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let done = self.ctl_command(arguments).output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    /// The same where it works.
    ///
    /// # Panics
    /// When it does not.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    /// A number that the server tells of itself, by the name of its metric.
    ///
    /// # Panics
    /// When it does not tell it.
    pub fn metric(&self, name: &str) -> u64 {
        self.metrics().into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// How often each call of its API was begun, by words such as `KV/Range`.
    ///
    /// # Panics
    /// When it does not tell it.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let call = |name: &str| {
            let labels = name.strip_prefix("grpc_server_started_total{")?;
            let label =
                |word: &str| labels.split_once(&format!("{word}=\"")).and_then(|(_, rest)| rest.split('"').next());
            Some(format!("{}/{}", label("grpc_service")?.strip_prefix("etcdserverpb.")?, label("grpc_method")?))
        };
        let calls: BTreeMap<_, _> =
            self.metrics().iter().filter_map(|(name, count)| Some((call(name)?, *count))).collect();
        assert!(calls.contains_key("KV/Range"), "{calls:?}");
        calls
    }

    fn metrics(&self) -> Vec<(String, u64)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).expect("the server listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("the server reads");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("the server answers");
        let read = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse::<f64>().ok()? as u64))
        };
        told.lines().filter_map(read).collect()
    }

    /// How many leases there are.
    pub fn leases(&self) -> usize {
        self.ctl(&["lease", "list"]).lines().skip(1).count()
    }

    /// The keys that begin like this.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let told = self.ctl(&["get", "--prefix", "--keys-only", prefix]);
        told.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
