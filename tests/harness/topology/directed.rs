//! Two servers and a Sentinel that decides nothing by itself, so that a hand-over happens step by step.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use super::GROUP;
use crate::resp::parse_request;
use crate::servers::{Flavor, Server};
use crate::wait::wait_until;

const LIMIT: Duration = Duration::from_secs(60);

/// Two servers, and a Sentinel that names the master that it is told.
pub struct Directed {
    /// The servers. The first one is the master at the beginning.
    pub servers: [Server; 2],
    /// Where the Sentinel listens.
    port: u16,
    /// The port of the server that it names.
    named: Arc<AtomicU16>,
}

impl Directed {
    /// The Sentinel names the first of the servers.
    ///
    /// # Panics
    /// When there is no port for the Sentinel.
    pub fn start(flavor: Flavor) -> Directed {
        let master = Server::start(flavor);
        let replica = Server::builder(flavor).config("replicaof", &format!("127.0.0.1 {}", master.port())).start();
        let servers = [master, replica];
        wait_until(LIMIT, "the replica's data", || servers[1].info("replication")["master_link_status"] == "up");
        let named = Arc::new(AtomicU16::new(servers[0].port()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let master = named.clone();
        // ends with the program
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let master = master.clone();
                thread::spawn(move || serve(connection, &master));
            }
        });
        Directed { servers, port, named }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{GROUP}", self.port)
    }

    /// This server becomes a replica of the other one, which has everything by then. The Sentinel goes on naming the one
    /// that it named before.
    pub fn demote(&self, number: usize) {
        let (old, new) = (&self.servers[number], &self.servers[1 - number]);
        let offset = |server: &Server| server.info("replication")["master_repl_offset"].clone();
        wait_until(LIMIT, "the replica to have everything", || offset(old) == offset(new));
        new.cmd(&["REPLICAOF", "NO", "ONE"]);
        old.cmd(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    }

    /// The Sentinel names this server from now on. Nothing is announced.
    pub fn name(&self, number: usize) {
        self.named.store(self.servers[number].port(), Ordering::SeqCst);
    }

    /// How many writes this server refused because it is a replica.
    pub fn refused(&self, number: usize) -> u64 {
        let stats = self.servers[number].info("errorstats");
        stats.get("errorstat_READONLY").and_then(|line| line.rsplit('=').next()?.parse().ok()).unwrap_or(0)
    }

    /// How many connections asked this server for its role by `HELLO`.
    pub fn greetings(&self, number: usize) -> u64 {
        let stats = self.servers[number].info("commandstats");
        let calls = |line: &String| line.strip_prefix("calls=")?.split(',').next()?.parse().ok();
        stats.get("cmdstat_hello").and_then(calls).unwrap_or(0)
    }
}

/// Answers as a Sentinel would, until the client hangs up.
fn serve(mut connection: TcpStream, master: &AtomicU16) {
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = connection.read(&mut buffer) {
        received.extend_from_slice(&buffer[..length]);
        while let Ok(Some(request)) = parse_request(&received) {
            let word = request.args.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
            let answer = match &word[..] {
                b"SENTINEL" => {
                    let port = master.load(Ordering::SeqCst).to_string();
                    format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
                }
                b"ROLE" => "*1\r\n$8\r\nsentinel\r\n".to_owned(),
                b"SUBSCRIBE" => "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            };
            if connection.write_all(answer.as_bytes()).is_err() {
                return;
            }
            received.drain(..request.length);
        }
    }
}
