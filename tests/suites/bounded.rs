//! Blocking calls come back in time whatever comes in, a byte now and then, and however often signals do.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]
#![allow(unsafe_code)] // signals

use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use onelock::blocking::{Cancel, Client};
use onelock::{ClientBuilder, ErrorKind, Release};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::ms;

/// No call of these tests may take longer, and none of them would end by itself.
const LIMIT: Duration = Duration::from_secs(20);
const REQUEST: Duration = Duration::from_millis(300);

/// What becomes of the server's bytes.
const PASSED: u8 = 0;
/// One after the other, with a pause before each.
const DRIPPING: u8 = 1;
/// Not passed on; instead there are messages that nobody asked for.
const PUSHES: u8 = 2;

/// A way to a server that does not look at what it carries.
struct Relay {
    port: u16,
    mode: Arc<AtomicU8>,
    ended: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(port: u16, pause: Duration) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay {
            port: listener.local_addr().unwrap().port(),
            mode: Arc::default(),
            ended: Arc::default(),
            streams: Arc::default(),
        };
        let (mode, ended, streams) = (relay.mode.clone(), relay.ended.clone(), relay.streams.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(client), false) = (stream, ended.load(Ordering::SeqCst)) else { return };
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                client.set_nodelay(true).unwrap();
                streams.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (mode, ended) = (mode.clone(), ended.clone());
                thread::spawn(move || carry(server, client, &mode, pause, &ended));
            }
        });
        relay
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut server: TcpStream, mut client: TcpStream, mode: &AtomicU8, pause: Duration, ended: &AtomicBool) {
    const PUSH: &[u8] = b">2\r\n+nothing\r\n+new\r\n";
    server.set_read_timeout(Some(ms(1))).unwrap();
    let mut buffer = [0; 4096];
    while !ended.load(Ordering::SeqCst) {
        let count = match server.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::TimedOut) => 0,
            Err(_) => break,
        };
        let sent = match mode.load(Ordering::SeqCst) {
            PASSED => client.write_all(&buffer[..count]),
            DRIPPING => buffer[..count].iter().try_for_each(|byte| {
                thread::sleep(pause);
                client.write_all(&[*byte])
            }),
            _ => {
                thread::sleep(pause);
                client.write_all(PUSH)
            }
        };
        if sent.is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// A peer that answers whatever comes with these bytes, and one more now and then, without end.
fn endless(first: &'static [u8], pause: Duration) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, ended) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
    let over = ended.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut client), false) = (stream, over.load(Ordering::SeqCst)) else { return };
            let over = over.clone();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                let _ = client.read(&mut buffer);
                let mut sent = client.write_all(first);
                while sent.is_ok() && !over.load(Ordering::SeqCst) {
                    thread::sleep(pause);
                    sent = client.write_all(b"a");
                }
            });
        }
    });
    (port, ended)
}

/// Runs the call on a thread of its own and says how long it took.
fn comes_back<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, came) = sync_channel(1);
    thread::spawn(move || sender.send(call()));
    came.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{what} did not come back within {LIMIT:?}"))
}

fn quick() -> ClientBuilder {
    Client::builder().connect_timeout(REQUEST).request_timeout(REQUEST).close_timeout(ms(100))
}

#[test]
fn a_handshake_that_drips_ends_in_time() {
    // a reply, the greeting of a Sentinel's or server's HELLO, and a TLS record
    let cases: [(&str, &'static [u8]); 2] = [("redis", b"$1000000\r\n"), ("rediss", b"\x16\x03\x03\x40\x00\x02\x00")];
    for (scheme, first) in cases {
        let (port, ended) = endless(first, ms(20));
        let client = quick().tls_insecure(scheme == "rediss").build_blocking(&format!("{scheme}://127.0.0.1:{port}"));
        let client = client.unwrap();
        let lock = client.lock("a");
        let error = comes_back(scheme, move || lock.try_acquire().unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // the caller gives up
        let cancel = Cancel::new();
        let (lock, flag) = (client.lock("a").interrupt(cancel.clone()), cancel.clone());
        let (sender, begun) = sync_channel(1);
        thread::spawn(move || {
            begun.recv().unwrap();
            thread::sleep(ms(50));
            flag.cancel();
        });
        let error = comes_back("cancelled", move || {
            sender.send(()).unwrap();
            lock.acquire().unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", port));
    }
}

fn calls_come_back(client: &Client, relay: &Relay, mode: u8) {
    relay.set(PASSED);
    let ours = format!("ours {mode}");
    let lease = client.lock(ours).ttl(Duration::from_secs(100)).acquire().unwrap();
    let held = client.lock(format!("held {mode}")).ttl(Duration::from_secs(100)).acquire().unwrap();
    for lock in ["warm", "warmer"] {
        client.lock(lock).acquire().unwrap().release().unwrap();
    }
    relay.set(mode);
    let lock = client.lock("free");
    let tried = comes_back("try_acquire", move || lock.try_acquire());
    assert_eq!(tried.unwrap_err().kind(), ErrorKind::Unavailable);
    let lock = client.lock(format!("held {mode}"));
    let waited = comes_back("acquire", move || lock.acquire_within(ms(300)));
    assert!(waited.is_err());
    let (lease, extended) = comes_back("extend", move || {
        let extended = lease.extend(Duration::from_secs(101));
        (lease, extended)
    });
    assert_eq!(extended.unwrap_err().kind(), ErrorKind::Unavailable);
    let released = comes_back("release", move || lease.release());
    assert_eq!(released.unwrap(), Release::Unconfirmed);
    let seen = client.clone();
    assert!(comes_back("inspect", move || seen.inspect("held")).is_err());
    let check = client.clone();
    assert!(comes_back("check", move || check.check()).is_err());
    drop(held);
}

#[test]
fn replies_that_drip_end_in_time() {
    let server = Server::valkey();
    for (mode, pause) in [(DRIPPING, ms(45)), (PUSHES, ms(20))] {
        let relay = Relay::to(server.port(), pause);
        let client = quick().build_blocking(&format!("redis://127.0.0.1:{}", relay.port)).unwrap();
        calls_come_back(&client, &relay, mode);
        relay.set(PASSED);
    }
}

#[test]
fn replies_that_drip_through_tls_end_in_time() {
    let server = Server::builder(Flavor::Redis70).tls().start();
    let (_, port) = server.tls().unwrap();
    let relay = Relay::to(port, ms(20));
    let client = quick().tls_insecure(true).build_blocking(&format!("rediss://127.0.0.1:{}", relay.port)).unwrap();
    calls_come_back(&client, &relay, DRIPPING);
}

#[test]
fn many_threads_on_one_connection_come_back_too() {
    let server = Server::valkey();
    let relay = Relay::to(server.port(), ms(20));
    let client = quick().build_blocking(&format!("redis://127.0.0.1:{}", relay.port)).unwrap();
    client.check().unwrap();
    relay.set(PUSHES);
    let calls = (0..24).map(|number| {
        let client = client.clone();
        let (sender, came) = sync_channel(1);
        thread::spawn(move || sender.send(client.lock(format!("a{number}")).try_acquire().map(drop)));
        came
    });
    for came in calls.collect::<Vec<_>>() {
        assert!(came.recv_timeout(LIMIT).expect("it did not come back").is_err());
    }
}

#[test]
fn a_redlock_comes_back_too() {
    let servers = [Server::valkey(), Server::valkey(), Server::valkey()];
    let relays = servers.each_ref().map(|server| Relay::to(server.port(), ms(1)));
    let hosts = relays.each_ref().map(|relay| format!("127.0.0.1:{}", relay.port)).join(",");
    let client = quick().build_blocking(&format!("redlock://{hosts}?quarantine_ms=0&node_timeout_ms=200")).unwrap();
    client.lock("warm").acquire().unwrap().release().unwrap();
    for relay in &relays {
        relay.set(PUSHES);
    }
    let lock = client.lock("a");
    assert!(comes_back("try_acquire", move || lock.try_acquire()).is_err());
}

/// Signals the calling thread every few milliseconds for as long as it lives.
struct Signals(Arc<AtomicBool>, Option<thread::JoinHandle<()>>);

extern "C" fn nothing(_: libc::c_int) {}

impl Signals {
    fn here() -> Signals {
        // SAFETY: the handler does nothing; the thread that is signalled waits for the end of the one that signals.
        let target = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
            libc::pthread_self()
        };
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                // SAFETY: the thread lives; see above.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                thread::sleep(ms(5));
            }
        });
        Signals(over, Some(thread))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        let _ = self.1.take().map(thread::JoinHandle::join);
    }
}

#[test]
fn signals_keep_nobody_waiting() {
    let server = Server::builder(Flavor::Redis70).tls().start();
    for url in [server.url(), server.unix_url(), server.tls_url()] {
        let client = quick().tls_insecure(url.starts_with("rediss")).connect_blocking(&url).unwrap();
        let lease = client.lock("a").ttl(Duration::from_secs(100)).acquire().unwrap();
        let rival = quick().tls_insecure(url.starts_with("rediss")).connect_blocking(&url).unwrap();
        let lock = rival.lock("a");
        let error = comes_back(&url, move || {
            let _signals = Signals::here();
            lock.acquire_within(ms(300)).unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        // to a server that answers nothing any more, with a connection and without one
        server.stop();
        let released = comes_back(&url, move || {
            let _signals = Signals::here();
            lease.release().unwrap()
        });
        assert_eq!(released, Release::Unconfirmed);
        let fresh = quick().tls_insecure(url.starts_with("rediss")).build_blocking(&url).unwrap();
        let lock = fresh.lock("b");
        let error = comes_back(&url, move || {
            let _signals = Signals::here();
            lock.try_acquire().unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        server.cont();
        let lock = client.lock("a");
        comes_back(&url, move || {
            let _signals = Signals::here();
            lock.acquire_within(Duration::from_secs(10)).unwrap().release().unwrap()
        });
    }
}
