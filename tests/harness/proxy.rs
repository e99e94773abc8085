//! A proxy between client and server that knows the protocol, and spoils single messages on demand.
//!
//! ```no_run
//! use onelock_tests::proxy::{Cut, Match, Proxy};
//! use onelock_tests::servers::Server;
//!
//! let server = Server::valkey();
//! let proxy = Proxy::start(&server);
//! let fault = proxy.on(Match::command("EVALSHA").containing("orders:42")).once().cut_instead_of_reply(Cut::Reset);
//! // ... a client acquires through proxy.url() ...
//! fault.wait_hits(1);
//! assert_eq!(proxy.requests(&Match::command("EVALSHA")).len(), 2);
//! ```
//!
//! The faults are those that a network can produce. A stream neither reorders nor loses a message in its midst, so
//! after a lost or held message everything behind it on that connection is lost or held as well.

mod expect;
mod lane;
mod link;
mod log;
mod rule;
mod state;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

use crate::clock::boot_ns;
use crate::servers::{Port, Server};
use crate::wait::wait_until;
use lane::{Parcel, Way};
use link::Link;
use rule::Data;

pub use log::{Fate, Passed};
pub use rule::{Cut, Match, Plan, Rule};

/// How soon the listening thread notices that it is to stop.
const LOOK: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(30);

/// What holds for all connections at once.
#[derive(Clone, Copy, Default)]
struct Settings {
    requests_paused: bool,
    replies_paused: bool,
    latency: Duration,
    bytes_per_second: Option<usize>,
    split: bool,
}

impl Settings {
    const fn paused(&self, way: Way) -> bool {
        match way {
            Way::ToServer => self.requests_paused,
            Way::ToClient => self.replies_paused,
        }
    }
}

struct Shared {
    server: SocketAddr,
    settings: Mutex<Settings>,
    rules: Mutex<Vec<Arc<Data>>>,
    log: Mutex<Vec<Passed>>,
    links: Mutex<Vec<Arc<Link>>>,
    refusing: AtomicBool,
    listening: AtomicBool,
    ended: AtomicBool,
}

impl Shared {
    fn settings(&self) -> Settings {
        *self.settings.lock().unwrap()
    }

    fn links(&self) -> Vec<Arc<Link>> {
        self.links.lock().unwrap().clone()
    }

    fn wake_all(&self) {
        for link in self.links() {
            link.wake();
        }
    }

    /// The first rule that wants this message; one use of it is taken.
    fn rule(&self, push: bool, connection: usize, args: &[Vec<u8>]) -> Option<Arc<Data>> {
        self.rules.lock().unwrap().iter().find(|rule| rule.take(push, connection, args)).cloned()
    }

    fn record(&self, connection: usize, args: &[Vec<u8>]) -> usize {
        let mut log = self.log.lock().unwrap();
        let args = args.to_vec();
        log.push(Passed { connection, at_ns: boot_ns(), args, fate: Fate::Waiting, reply: None, delivered_ns: None });
        log.len() - 1
    }

    fn set_fate(&self, record: usize, fate: Fate) {
        self.log.lock().unwrap()[record].fate = fate;
    }

    fn set_reply(&self, record: usize, frame: &[u8]) {
        self.log.lock().unwrap()[record].reply = Some(frame.to_vec());
    }

    fn set_delivered(&self, record: usize) {
        self.log.lock().unwrap()[record].delivered_ns = Some(boot_ns());
    }

    fn lost(&self, parcels: &[Parcel]) {
        for record in parcels.iter().filter_map(|parcel| parcel.record) {
            self.set_fate(record, Fate::Lost);
        }
    }

    /// Accepts connections until the end; closes the port while they are to be refused.
    fn accept(self: &Arc<Self>, port: u16, first: TcpListener) {
        let mut listener = Some(first);
        while !self.ended.load(Ordering::Acquire) {
            if self.refusing.load(Ordering::Acquire) {
                listener = None;
            } else if listener.is_none() {
                listener = listen(port).ok();
            }
            self.listening.store(listener.is_some(), Ordering::Release);
            let Some(open) = &listener else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if let Ok((client, _)) = open.accept() {
                // A client that cannot be served is reset by being dropped like this.
                let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
                if let Ok(server) = TcpStream::connect_timeout(&self.server, Duration::from_secs(1)) {
                    let _ = SockRef::from(&client).set_linger(None);
                    let mut links = self.links.lock().unwrap();
                    let number = links.len();
                    links.push(Link::start(self, number, client, server).expect("threads can be started"));
                }
            }
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    // Also the limit of accept(), so that the thread looks up now and then.
    SockRef::from(&listener).set_read_timeout(Some(LOOK))?;
    Ok(listener)
}

/// A fault proxy in front of one server. Ends all its connections when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    port: Port,
    url: String,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of `server`. It stays in front of that port when the server is killed and restarted.
    pub fn start(server: &Server) -> Self {
        Self::with_url(server.port(), &server.url())
    }

    /// Starts a proxy in front of any port of this machine.
    pub fn to(port: u16) -> Self {
        Self::with_url(port, &format!("redis://127.0.0.1:{port}/"))
    }

    fn with_url(server: u16, server_url: &str) -> Self {
        // Between the reservation and the listening another process can take the port.
        let (port, listener) = (0..20)
            .find_map(|_| {
                let port = Port::reserve();
                listen(port.number()).ok().map(|listener| (port, listener))
            })
            .expect("there is a free port");
        let shared = Arc::new(Shared {
            server: (Ipv4Addr::LOCALHOST, server).into(),
            settings: Mutex::default(),
            rules: Mutex::default(),
            log: Mutex::default(),
            links: Mutex::default(),
            refusing: AtomicBool::new(false),
            listening: AtomicBool::new(true),
            ended: AtomicBool::new(false),
        });
        let (own, number) = (Arc::clone(&shared), port.number());
        let acceptor = std::thread::Builder::new()
            .name(format!("proxy {number}"))
            .spawn(move || own.accept(number, listener))
            .expect("a thread can be started");
        let url = server_url.replace(&format!(":{server}/"), &format!(":{number}/"));
        Self { shared, port, url, acceptor: Some(acceptor) }
    }

    /// The port that clients connect to.
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The server's address with the port of the proxy.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// As [`Server::url_with`], through the proxy.
    pub fn url_with(&self, userinfo: &str, tail: &str) -> String {
        let at = if userinfo.is_empty() { "" } else { "@" };
        format!("redis://{userinfo}{at}127.0.0.1:{}{tail}", self.port())
    }

    /// Begins a rule for the messages that match. If several rules match, the oldest that is not used up is applied.
    pub fn on(&self, matching: Match) -> Plan<'_> {
        Plan::new(&self.shared, matching)
    }

    /// Everything that clients have sent, in the order of arrival.
    pub fn passed(&self) -> Vec<Passed> {
        self.shared.log.lock().unwrap().clone()
    }

    /// What clients have sent that matches.
    pub fn requests(&self, matching: &Match) -> Vec<Passed> {
        self.passed().into_iter().filter(|it| matching.hits(false, it.connection, &it.args)).collect()
    }

    /// Waits until clients have sent `count` requests that match, and returns them.
    ///
    /// # Panics
    /// When that takes longer than 5 s.
    pub fn wait_requests(&self, matching: &Match, count: usize) -> Vec<Passed> {
        wait_until(LIMIT, &format!("{count} requests: {matching:?}"), || self.requests(matching).len() >= count);
        self.requests(matching)
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.shared.links.lock().unwrap().len()
    }

    /// The numbers of the connections that are open.
    pub fn open_connections(&self) -> Vec<usize> {
        self.shared.links().iter().filter(|link| link.is_open()).map(|link| link.number).collect()
    }

    /// Resets the client's side of every connection. Requests that had arrived still go to the server.
    pub fn cut_all(&self) {
        self.cut_where(Cut::Reset, |_| true);
    }

    /// Cuts the client's side of one connection.
    pub fn cut(&self, connection: usize, how: Cut) {
        self.cut_where(how, |number| number == connection);
    }

    fn cut_where(&self, how: Cut, which: impl Fn(usize) -> bool) {
        for link in self.shared.links().into_iter().filter(|link| which(link.number) && link.is_open()) {
            link.cut(how);
            link.wait_closed();
        }
    }

    /// A black hole: connections are accepted and stay open, and nothing passes in either direction. What is sent
    /// meanwhile arrives after [`resume`](Self::resume), as it does when a network heals.
    pub fn pause(&self) {
        self.change(|settings| (settings.requests_paused, settings.replies_paused) = (true, true));
    }

    /// Half of a black hole: requests arrive and are carried out, replies do not come.
    pub fn pause_replies(&self) {
        self.change(|settings| settings.replies_paused = true);
    }

    /// The other half: nothing reaches the server, but what it says arrives.
    pub fn pause_requests(&self) {
        self.change(|settings| settings.requests_paused = true);
    }

    /// Ends every pause.
    pub fn resume(&self) {
        self.change(|settings| (settings.requests_paused, settings.replies_paused) = (false, false));
    }

    /// Refuses new connections, as a machine does on which nothing listens. Open ones stay.
    pub fn refuse(&self) {
        self.shared.refusing.store(true, Ordering::Release);
        wait_until(LIMIT, "the port to be closed", || !self.shared.listening.load(Ordering::Acquire));
    }

    /// Accepts connections again.
    pub fn admit(&self) {
        self.shared.refusing.store(false, Ordering::Release);
        wait_until(LIMIT, "the port to be open", || self.shared.listening.load(Ordering::Acquire));
    }

    /// Delays every message, in each direction, by `one_way` (so a round trip by twice that).
    pub fn latency(&self, one_way: Duration) {
        self.change(|settings| settings.latency = one_way);
    }

    /// Lets through only so many bytes per second in each direction of each connection; `None` for no limit.
    pub fn rate(&self, bytes_per_second: Option<usize>) {
        self.change(|settings| settings.bytes_per_second = bytes_per_second);
    }

    /// Delivers replies byte by byte.
    pub fn split_replies(&self, split: bool) {
        self.change(|settings| settings.split = split);
    }

    /// Ends all faults: rules are removed, what they hold goes on its way, pauses, latency and limits end, new
    /// connections are accepted. What is lost stays lost.
    pub fn heal(&self) {
        for rule in self.shared.rules.lock().unwrap().drain(..) {
            rule.end();
        }
        self.change(|settings| *settings = Settings::default());
        self.admit();
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.shared.settings.lock().unwrap());
        self.shared.wake_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for link in self.shared.links() {
            link.end();
        }
    }
}
