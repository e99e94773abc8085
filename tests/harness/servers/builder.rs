//! What a server is started with.

use std::fmt::Write as _;
use std::sync::Mutex;

use tempfile::TempDir;

use super::{CONFIG, Flavor, LOG, Port, SOCKET, Server, Tls, USER, clock};

/// Collects configuration, then starts the server.
#[must_use = "nothing runs before start()"]
pub struct Builder {
    flavor: Flavor,
    lines: Vec<(String, String)>,
    users: Vec<String>,
    acl_file: bool,
    password: Option<String>,
    tls_names: Option<Vec<String>>,
    sentinel: bool,
    clock: bool,
}

impl Builder {
    pub(super) fn new(flavor: Flavor) -> Self {
        let users = vec![format!("user {USER} on >{USER} ~* &* +@all")];
        Self {
            flavor,
            lines: Vec::new(),
            users,
            acl_file: false,
            password: None,
            tls_names: None,
            sentinel: false,
            clock: false,
        }
    }

    /// Adds a line of configuration, such as `("maxmemory-policy", "allkeys-lru")`. A later one wins.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.into(), value.into()));
        self
    }

    /// Keeps the data over restarts: an append-only file, synced `always`, `everysec` or `no`.
    pub fn aof(self, sync: &str) -> Self {
        self.config("appendonly", "yes").config("appendfsync", sync)
    }

    /// Asks clients for a password (of the user `default`).
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user by its rules, such as `("app", "on >secret ~app:* +@all -@dangerous")`. The name `default` changes
    /// what clients may do that do not log in.
    pub fn user(mut self, name: &str, rules: &str) -> Self {
        self.users.push(format!("user {name} {rules}"));
        self
    }

    /// Keeps the users in a file of their own, so that `ACL LOAD` and `ACL SAVE` work.
    pub fn acl_file(mut self) -> Self {
        self.acl_file = true;
        self
    }

    /// Listens with TLS on a second port, with a certificate for 127.0.0.1 and localhost. Client certificates are
    /// welcome but not demanded (`.config("tls-auth-clients", "yes")` demands them).
    pub fn tls(self) -> Self {
        self.tls_for(&["127.0.0.1", "localhost"])
    }

    /// As [`tls`](Self::tls), with a certificate for these names and addresses only.
    pub fn tls_for(mut self, names: &[&str]) -> Self {
        assert!(self.flavor.has_tls(), "{} is built without TLS", self.flavor.program());
        self.tls_names = Some(names.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// Makes it a Sentinel: it keeps no data and watches the servers that its configuration names.
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Gives it a time of day of its own, which [`Server::set_clock`] sets.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Starts the server and returns once it answers.
    ///
    /// # Panics
    /// When it does not start; the message ends with its log.
    pub fn start(self) -> Server {
        let mut failures = Vec::new();
        // Another process can take a port between the look and the start; then the next one is tried.
        for _ in 0..20 {
            match self.start_once() {
                Ok(server) => return server,
                Err(why) if why.contains("in use") || why.contains("Failed listening") => failures.push(why),
                Err(why) => panic!("{} did not start: {why}", self.flavor.program()),
            }
        }
        panic!("{} found no free port: {failures:?}", self.flavor.program());
    }

    fn start_once(&self) -> Result<Server, String> {
        let folder = tempfile::Builder::new().prefix("onelock-").tempdir().map_err(|error| error.to_string())?;
        let port = Port::reserve();
        let tls = self.tls_names.as_ref().map(|names| (Tls::create(folder.path(), names), Port::reserve()));
        self.write_config(&folder, &port, tls.as_ref());
        if self.clock {
            clock::create(folder.path());
        }
        let server = Server {
            flavor: self.flavor,
            folder,
            port,
            tls,
            password: self.password.clone(),
            sentinel: self.sentinel,
            child: Mutex::new(None),
            fixture: Mutex::new(None),
        };
        server.launch()?;
        Ok(server)
    }

    fn write_config(&self, folder: &TempDir, port: &Port, tls: Option<&(Tls, Port)>) {
        let mut out = format!(
            "port {}\nbind 127.0.0.1\nprotected-mode no\ndaemonize no\nunixsocket ./{SOCKET}\nlogfile ./{LOG}\ndir ./\n",
            port.number()
        );
        if !self.sentinel {
            out.push_str("save \"\"\nappendonly no\n");
        }
        if self.flavor.guards_debug() && !self.sentinel {
            out.push_str("enable-debug-command yes\n");
        }
        if let Some((tls, port)) = tls {
            let [ca, cert, key] = [&tls.ca, &tls.server_cert, &tls.server_key].map(|path| path.display());
            let _ = writeln!(out, "tls-port {}\ntls-auth-clients optional", port.number());
            let _ = writeln!(out, "tls-ca-cert-file {ca}\ntls-cert-file {cert}\ntls-key-file {key}");
        }
        let mut users = self.users.join("\n") + "\n";
        if let Some(password) = &self.password {
            let _ = writeln!(users, "user default on >{password} ~* &* +@all");
        }
        if self.acl_file {
            std::fs::write(folder.path().join("users.acl"), users).unwrap();
            out.push_str("aclfile ./users.acl\n");
        } else {
            out.push_str(&users);
        }
        for (name, value) in &self.lines {
            let _ = writeln!(out, "{name} {value}");
        }
        std::fs::write(folder.path().join(CONFIG), out).unwrap();
    }
}
