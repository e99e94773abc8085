//! Independent servers, for Redlock.

use redis::Value;

use crate::proxy::Proxy;
use crate::scripts;
use crate::servers::{Builder, Flavor, Server};

/// Several servers that know nothing of each other, each with a proxy in front of it.
pub struct Several {
    /// The servers.
    pub servers: Vec<Server>,
    /// The proxies, in the same order.
    pub proxies: Vec<Proxy>,
}

impl Several {
    /// So many servers without persistence; they know all scripts already.
    pub fn start(flavor: Flavor, number: usize) -> Several {
        Several::with(number, || Server::builder(flavor))
    }

    /// The same of servers with more configuration.
    pub fn with(number: usize, builder: impl Fn() -> Builder) -> Several {
        let servers: Vec<Server> = (0..number).map(|_| builder().start()).collect();
        for server in &servers {
            for script in scripts::ALL {
                server.cmd(&["SCRIPT", "LOAD", script]);
            }
        }
        let proxies = servers.iter().map(Proxy::start).collect();
        Several { servers, proxies }
    }

    /// The address past the proxies; `query` is what is behind the question mark. Fresh servers vote at once with
    /// `quarantine_ms=0`.
    pub fn url(&self, query: &str) -> String {
        let hosts: Vec<String> = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redlock://{}?{query}", hosts.join(","))
    }

    /// The address through the proxies.
    pub fn proxied(&self, query: &str) -> String {
        let strip = |proxy: &Proxy| proxy.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
        let hosts: Vec<String> = self.proxies.iter().map(strip).collect();
        format!("redlock://{}?{query}", hosts.join(","))
    }

    /// Runs a command on all of them; what the first one answered.
    pub fn command(&self, words: &[String]) -> Result<Value, String> {
        let replies: Vec<_> = self.servers.iter().map(|server| server.try_cmd(words)).collect();
        replies.into_iter().next().expect("at least one server")
    }

    /// On how many of the servers that run a key stands.
    pub fn count(&self, name: &str) -> usize {
        let running = self.servers.iter().filter(|server| server.is_running());
        running.filter(|server| server.int(&["EXISTS", name]) == 1).count()
    }
}
