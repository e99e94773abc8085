//! A master, its replicas, and the Sentinels that watch them.

use std::time::{Duration, Instant};

use redis::Value;

use crate::resp::{text, words};
use crate::servers::{Builder, Flavor, Server};
use crate::wait::{wait_for, wait_until};

/// What the Sentinels call it.
pub const GROUP: &str = "the-group";
/// Far longer than anything takes here. A Sentinel that was kept waiting by a busy machine does nothing for half a minute
/// ("tilt"), and only then goes on with what it was at.
const LIMIT: Duration = Duration::from_secs(180);

/// A master with replicas, watched by three Sentinels.
pub struct Group {
    /// The servers. The first one is the master at the beginning.
    pub servers: Vec<Server>,
    /// The Sentinels.
    pub sentinels: Vec<Server>,
}

impl Group {
    /// One master, two replicas, three Sentinels that bear a silent master for a minute: a server that a busy machine keeps
    /// waiting is not taken for dead.
    pub fn start(flavor: Flavor) -> Group {
        Group::with(flavor, |server| server, |sentinel| sentinel)
    }

    /// From here on the Sentinels find a dead master after half a second.
    pub fn watch_closely(&self) {
        self.set_down_after("500");
    }

    /// As in the beginning: a silent master is borne for a minute.
    pub fn bear_silence(&self) {
        self.set_down_after("60000");
    }

    fn set_down_after(&self, milliseconds: &str) {
        for sentinel in &self.sentinels {
            sentinel.cmd(&["SENTINEL", "SET", GROUP, "down-after-milliseconds", milliseconds]);
        }
    }

    /// The same with more configuration for the servers and for the Sentinels.
    pub fn with(flavor: Flavor, server: impl Fn(Builder) -> Builder, sentinel: impl Fn(Builder) -> Builder) -> Group {
        let builder = || {
            server(Server::builder(flavor).config("repl-diskless-sync-delay", "0").config("repl-diskless-sync", "yes"))
        };
        let mut servers = vec![builder().start()];
        let master = servers[0].port();
        for _ in 0..2 {
            servers.push(builder().config("replicaof", &format!("127.0.0.1 {master}")).start());
        }
        let group = Group { servers, sentinels: Vec::new() };
        wait_until(LIMIT, "the replicas", || group.servers[0].info("replication")["connected_slaves"] == "2");
        for replica in &group.servers[1..] {
            wait_until(LIMIT, "a replica's data", || replica.info("replication")["master_link_status"] == "up");
        }
        let watching = |_| {
            let lines = [
                format!("monitor {GROUP} 127.0.0.1 {master} 2"),
                format!("down-after-milliseconds {GROUP} 60000"),
                format!("failover-timeout {GROUP} 3000"),
                format!("parallel-syncs {GROUP} 2"),
            ];
            let builder = Server::builder(flavor).sentinel();
            sentinel(lines.iter().fold(builder, |builder, line| builder.config("sentinel", line))).start()
        };
        let group = Group { sentinels: (0..3).map(watching).collect(), ..group };
        for sentinel in &group.sentinels {
            wait_until(LIMIT, "a Sentinel to know everybody", || {
                let known = words(&sentinel.cmd(&["SENTINEL", "MASTER", GROUP])).join(" ");
                known.contains("num-slaves 2") && known.contains("num-other-sentinels 2")
            });
        }
        group
    }

    /// Its address, with all Sentinels.
    pub fn url(&self) -> String {
        self.url_of(&self.sentinels.iter().map(Server::port).collect::<Vec<_>>())
    }

    /// Its address with Sentinels at these ports.
    pub fn url_of(&self, ports: &[u16]) -> String {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{GROUP}", hosts.join(","))
    }

    /// Which of the servers a Sentinel calls the master.
    pub fn named_by(&self, sentinel: &Server) -> usize {
        let named = words(&sentinel.cmd(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", GROUP]));
        let at = self.servers.iter().position(|server| named.contains(&server.port().to_string()));
        at.unwrap_or_else(|| panic!("{named:?} is none of the servers"))
    }

    /// The server that most Sentinels call the master.
    pub fn master(&self) -> &Server {
        &self.servers[self.named_by(&self.sentinels[1])]
    }

    /// Carries out a command at the master, as if there were nobody else.
    ///
    /// # Errors
    /// What it refused.
    pub fn command(&self, words: &[String]) -> Result<Value, String> {
        let mut reply = self.master().try_cmd(words)?;
        if let (["PUBSUB", "CHANNELS"], Value::Array(channels)) =
            (&words.iter().map(String::as_str).collect::<Vec<_>>()[..], &mut reply)
        {
            // on this one Sentinels find each other
            channels.retain(|channel| text(channel) != "__sentinel__:hello");
        }
        Ok(reply)
    }

    /// Has the Sentinels hand over to a replica in good order, and waits until that is done and known.
    pub fn fail_over(&self) {
        self.hand_over(true);
    }

    /// Has the Sentinels make a replica the master whatever becomes of the present one.
    pub fn depose(&self) {
        self.hand_over(false);
    }

    fn hand_over(&self, in_good_order: bool) {
        let before = self.named_by(&self.sentinels[0]);
        let mut asked: Option<Instant> = None;
        wait_until(LIMIT, "the handing over", || {
            // one that does not get on in time is given up by the Sentinels
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(8)) {
                // coordinated: the replica has everything before it takes over; older Sentinels don't know that
                let ask =
                    |words: &[&str]| self.sentinels[0].try_cmd(&[&["SENTINEL", "FAILOVER", GROUP], words].concat());
                let coordinated = in_good_order.then(|| ask(&["COORDINATED"]));
                let begun = match coordinated {
                    Some(Err(why)) if why.contains("wrong number of arguments") => ask(&[]).is_ok(),
                    Some(result) => result.is_ok(),
                    None => ask(&[]).is_ok(),
                };
                asked = begun.then(Instant::now);
            }
            self.named_by(&self.sentinels[0]) != before
        });
        self.wait_moved(before);
    }

    /// Waits until there is one master, and everybody else is its replica and has what it has.
    pub fn wait_calm(&self) {
        wait_until(LIMIT, "calm", || {
            let named: Vec<usize> = self.sentinels.iter().map(|sentinel| self.named_by(sentinel)).collect();
            let port = self.servers[named[0]].port().to_string();
            let follows = |server: &Server| {
                let info = server.info("replication");
                let follows = info.get("master_port").is_none_or(|master| *master == port);
                let linked = info.get("master_link_status").is_none_or(|status| status == "up");
                follows && linked && (info["role"] == "slave" || server.port().to_string() == port)
            };
            named.iter().all(|name| *name == named[0]) && self.servers.iter().all(follows)
        });
    }

    /// Waits until every Sentinel names the same master, another one than `before`, which answers as such.
    pub fn wait_moved(&self, before: usize) -> usize {
        wait_for(LIMIT, "another master", || {
            let named: Vec<usize> = self.sentinels.iter().map(|sentinel| self.named_by(sentinel)).collect();
            let agreed = named.iter().all(|name| *name == named[0] && *name != before);
            (agreed && self.servers[named[0]].info("replication")["role"] == "master").then_some(named[0])
        })
    }
}
