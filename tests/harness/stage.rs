//! Where most tests play: a server, the fault proxy in front of it, and clients that go through it and lose patience
//! soon.

use std::time::{Duration, Instant};

use onelock::{ClientBuilder, Error, ErrorKind};

use crate::face::{Client, Face};
use crate::proxy::{Match, Passed, Proxy};
use crate::scripts;
use crate::servers::{Flavor, Server};

/// The limits of [`quick`] clients.
pub const CONNECT: Duration = Duration::from_secs(1);
/// The limits of [`quick`] clients.
pub const REQUEST: Duration = Duration::from_millis(800);
/// How much later than promised a call may return on a machine that is busy with other tests: a bound with it tells a call
/// that ends by itself from one that hangs, or that waits for the end of a lease.
pub const SLACK: Duration = Duration::from_secs(4);
/// Longer than anything should take that has no limit of its own.
pub const SOON: Duration = Duration::from_secs(20);

/// Milliseconds.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Options of a client that loses patience soon.
pub fn quick() -> ClientBuilder {
    onelock::Client::builder().connect_timeout(CONNECT).request_timeout(REQUEST)
}

/// Options of a client that loses patience only when something hangs, also on a busy machine: where the subject is not time.
pub fn unhurried() -> ClientBuilder {
    onelock::Client::builder().connect_timeout(ms(8000)).request_timeout(ms(8000)).node_timeout(ms(2000))
}

/// A server with a proxy in front of it.
pub struct Stage {
    /// The server.
    pub server: Server,
    /// The proxy.
    pub proxy: Proxy,
}

impl Stage {
    /// A server that knows all scripts already, so that every operation is one request.
    pub fn new(flavor: Flavor) -> Stage {
        Stage::with(Server::start(flavor))
    }

    /// The same for the server that is used when it does not matter which.
    pub fn valkey() -> Stage {
        Stage::new(Flavor::Valkey91)
    }

    /// The same for a server that stands already.
    pub fn with(server: Server) -> Stage {
        for script in scripts::ALL {
            server.cmd(&["SCRIPT", "LOAD", script]);
        }
        Stage { proxy: Proxy::start(&server), server }
    }

    /// A client through the proxy that loses patience soon and has not connected yet.
    pub fn client(&self, face: Face) -> Client {
        self.client_with(face, quick())
    }

    /// A client through the proxy that has not connected yet.
    pub fn client_with(&self, face: Face, builder: ClientBuilder) -> Client {
        Client::build(face, builder, &self.proxy.url()).expect("a good address")
    }

    /// A client that goes past the proxy.
    pub fn rival(&self, face: Face) -> Client {
        Client::build(face, onelock::Client::builder(), &self.server.url()).expect("a good address")
    }

    /// Whether a key of this name is on the server.
    pub fn exists(&self, name: impl AsRef<[u8]>) -> bool {
        self.server.int(&[b"EXISTS".as_slice(), name.as_ref()]) == 1
    }

    /// What is left of a key's time, in milliseconds; negative when there is no such key or it has no end.
    pub fn pttl(&self, name: impl AsRef<[u8]>) -> i64 {
        self.server.int(&[b"PTTL".as_slice(), name.as_ref()])
    }

    /// Requests through the proxy that match.
    pub fn requests(&self, matching: &Match) -> Vec<Passed> {
        self.proxy.requests(matching)
    }

    /// Waits until this client owes nothing, holds nothing and waits for nothing, and no key of this name is left.
    pub fn wait_clean(&self, client: &Client, name: impl AsRef<[u8]>, limit: Duration) {
        let name = name.as_ref();
        let start = Instant::now();
        loop {
            let (stats, exists) = (client.stats(), self.exists(name));
            if (stats.cleaning, stats.held, stats.waiting, exists) == (0, 0, 0, false) {
                return;
            }
            let what = format!("\"{}\" after {limit:?}: exists: {exists}, {stats:?}", name.escape_ascii());
            assert!(start.elapsed() < limit, "{what}");
            std::thread::sleep(ms(1));
        }
    }
}

/// How long a call took, and what it gave.
pub fn timed<T>(call: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = call();
    (start.elapsed(), result)
}

/// The time within which a call with this wait returns, whatever the network does, on a busy machine.
pub fn promised(wait: Duration) -> Duration {
    wait + CONNECT + REQUEST * 2 + SLACK
}

/// How often [`quick_once`] tries.
const TRIES: usize = 10;

/// Tries until it took less than `limit` once. For what only its speed tells from what is wrong, as a message does from a look
/// by oneself a second later: a busy machine delays some of the tries, what is wrong delays each.
///
/// # Panics
/// When none was quick; `what` says what was too slow.
pub fn quick_once(limit: Duration, what: &str, mut attempt: impl FnMut() -> Duration) {
    let mut slow = Vec::new();
    while slow.len() < TRIES {
        let took = attempt();
        if took < limit {
            return;
        }
        slow.push(took);
    }
    panic!("{what}: never within {limit:?}: {slow:?}");
}

/// The error of a call that must fail, with its kind checked.
///
/// # Panics
/// When it did not fail, or otherwise.
pub fn fails<T>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    match result {
        Ok(_) => panic!("it succeeded instead of {kind:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            error
        }
    }
}
