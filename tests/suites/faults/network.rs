//! No connection, silence, a slow link, something else than the protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, LossReason, Release};
use onelock_tests::face::{Client, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::servers::Port;
use onelock_tests::stage::{REQUEST, SLACK, SOON, Stage, fails, ms, promised, quick, timed};
use onelock_tests::wait::wait_until;
use socket2::{Domain, Socket, Type};

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

/// A port whose every connection is handed to `serve`, on a thread of its own. Counts them.
struct Impostor {
    port: u16,
    connections: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Impostor {
    fn new(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Impostor {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let impostor = Impostor {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            ended: Arc::default(),
        };
        let (connections, ended, serve) = (impostor.connections.clone(), impostor.ended.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                connections.fetch_add(1, Ordering::AcqRel);
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream.unwrap()));
            }
        });
        impostor
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

#[test]
fn f01_connect_refused_is_unavailable_after_the_wait() {
    on_both(|face| {
        let port = Port::reserve();
        let client = Client::build(face, quick().unreachable_limit(ms(500)), &url(port.number())).unwrap();
        let (took, result) = timed(|| client.lock("a").try_acquire());
        let error = fails(result, ErrorKind::Unavailable);
        assert!(error.to_string().contains(&port.number().to_string()), "it says which server: {error}");
        assert_eq!((error.lock_name(), error.causes().len()), (Some("a"), 1));
        assert!(took < promised(ms(0)), "{took:?}");

        let (took, result) = timed(|| client.lock("a").acquire_within(ms(400)));
        fails(result, ErrorKind::Unavailable);
        assert!(took >= ms(300) && took < promised(ms(400)), "tried as long as it may wait, not {took:?}");

        let (took, result) = timed(|| client.lock("a").acquire());
        fails(result, ErrorKind::Unavailable);
        assert!(took >= ms(300) && took < promised(ms(1500)), "no bound, but not for ever: {took:?}");
        assert_eq!(client.stats().cleaning, 0, "not a byte left");
    });
}

#[test]
fn f01_a_server_that_comes_back_is_found_by_who_waits() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        stage.proxy.refuse();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the first failure", || client.stats().waiting == 1);
            stage.proxy.admit();
            let lease = waiter.join().unwrap();
            assert!(lease.is_held());
            assert_eq!(lease.released(), Release::Released);
        });
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f01_a_server_that_hangs_up_is_not_hammered() {
    on_both(|face| {
        let impostor = Impostor::new(drop);
        let client = Client::build(face, quick(), &url(impostor.port)).unwrap();
        fails(client.lock("a").acquire_within(ms(1500)), ErrorKind::Unavailable);
        let connections = impostor.connections();
        assert!((2..=40).contains(&connections), "{connections} connections in 1.5 s");
    });
}

#[test]
fn f02_syn_black_hole_is_bounded_by_the_connect_timeout() {
    // a queue for one connection, and nobody who takes it out: further SYNs get no answer
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fillers = Vec::new();
    while let Ok(filler) = TcpStream::connect_timeout(&address, ms(100)) {
        fillers.push(filler);
    }
    assert!(fillers.len() < 10, "the queue has a bound");

    on_both(|face| {
        let client = Client::build(face, quick(), &url(address.port())).unwrap();
        for wait in [ms(0), ms(600)] {
            let (took, result) = timed(|| client.lock("a").acquire_within(wait));
            fails(result, ErrorKind::Unavailable);
            assert!(took >= ms(300) && took < promised(wait), "{took:?} for a wait of {wait:?}");
        }
        let (took, result) = timed(|| client.check());
        fails(result, ErrorKind::Unavailable);
        assert!(took < promised(ms(0)), "{took:?}");
    });
}

#[test]
fn f05_half_open_every_call_returns_in_time_and_nothing_is_left_after_healing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let kept = client.lock("kept").acquire().unwrap();
        let short = client.lock("short").ttl(ms(1000)).auto_renew(false).acquire().unwrap();
        stage.proxy.pause();

        let (took, result) = timed(|| client.lock("a").try_acquire());
        fails(result, ErrorKind::Unavailable);
        assert!(took >= ms(280) && took < promised(ms(0)), "{took:?}");
        let (took, result) = timed(|| client.lock("a").acquire_within(ms(500)));
        fails(result, ErrorKind::Unavailable);
        assert!(took >= ms(400) && took < promised(ms(500)), "{took:?}");
        let (took, result) = timed(|| kept.extend(ms(40_000)));
        fails(result, ErrorKind::Unavailable);
        assert!(kept.is_held() && took < promised(ms(0)), "{took:?}");
        let (took, release) = timed(|| kept.released());
        assert_eq!(release, Release::Unconfirmed);
        assert!(!kept.is_held() && took < REQUEST + SLACK, "{took:?}");
        let (took, result) = timed(|| client.inspect("a"));
        fails(result, ErrorKind::Unavailable);
        assert!(took < promised(ms(0)), "{took:?}");

        assert_eq!(short.wait_lost(SOON), Some(LossReason::Expired));
        assert!(!short.is_held());
        stage.proxy.resume();
        drop(short);
        for name in ["a", "kept", "short"] {
            wait_until(SOON, "the cleanup to undo it before its ttl of 30 s", || !stage.exists(name));
        }
        assert!(client.lock("a").acquire_within(SOON).unwrap().is_held(), "the client works again");
    });
}

#[test]
fn f05_replies_missing_writes_were_applied_and_are_undone() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        client.lock("warm").acquire().unwrap().released();
        stage.proxy.pause_replies();
        let (took, result) = timed(|| client.lock("a").try_acquire());
        fails(result, ErrorKind::Unavailable);
        assert!(took < promised(ms(0)), "{took:?}");
        wait_until(SOON, "the acquire to be carried out", || {
            stage.requests(&scripts::acquire().with_arg("a")).iter().any(|it| it.reply.is_some())
        });
        assert!(stage.exists("a"), "held by nobody who knows");
        stage.proxy.resume();
        wait_until(SOON, "the undo, long before the ttl", || !stage.exists("a"));
        assert!(client.lock("b").acquire_within(SOON).unwrap().is_held(), "the client works again");
    });
}

#[test]
fn f05_a_holder_behind_a_silent_link_loses_at_its_deadline_and_not_later() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let ttl = ms(1200);
        let start = Instant::now();
        let lease = client.lock("a").ttl(ttl).acquire().unwrap();
        stage.proxy.pause_replies();
        wait_until(SOON, "the loss", || !lease.is_held());
        let seen = start.elapsed();
        assert_eq!(lease.loss(), Some(LossReason::Expired));
        // renewals did reach the server and nobody heard of it: the deadline is that of the last confirmed one
        assert!(seen < ttl + SLACK, "{seen:?}");
        stage.proxy.resume();
        assert_eq!(lease.released(), Release::AlreadyExpired);
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f08_slow_link_shortens_what_the_holder_believes() {
    on_both(|face| {
        let stage = Stage::valkey();
        let slow = quick().connect_timeout(ms(4000)).request_timeout(ms(2500));
        let client = stage.client_with(face, slow);
        client.check().unwrap(); // before: what the server says of itself would block such a link for seconds
        stage.proxy.latency(ms(150));
        stage.proxy.rate(Some(1000));
        let lease = client.lock("a").ttl(ms(3000)).auto_renew(false).acquire().unwrap();
        let remaining = lease.remaining();
        assert!(remaining < ms(3000 - 300), "{remaining:?}: the round trip is taken off");
        assert!(i128::from(stage.pttl("a")) + 20 >= remaining.as_millis().cast_signed(), "the server keeps it longer");
        assert_eq!(lease.released(), Release::Released);

        // less left than demanded is no grant, and is released
        let picky = client.lock("b").ttl(ms(1000)).min_validity(ms(900)).auto_renew(false);
        let error = fails(picky.acquire_within(ms(800)), ErrorKind::Unavailable);
        assert!(error.to_string().contains("granted, but"), "{error}");
        stage.proxy.heal();
        stage.wait_clean(&client, "b", SOON);
    });
}

/// Answers the first bytes of a connection with the given ones, then says no more.
fn answers(junk: &'static [u8]) -> Impostor {
    Impostor::new(move |mut stream| {
        let mut request = [0; 4096];
        if stream.read(&mut request).is_ok_and(|count| count > 0) && stream.write_all(junk).is_ok() {
            while stream.read(&mut request).is_ok_and(|count| count > 0) {}
        }
    })
}

#[test]
fn f12_something_else_than_the_protocol_is_unavailable() {
    let peers: [&'static [u8]; 8] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"220 mail.example ESMTP\r\n",
        b"\0\0\0\0\0\0\0\0",
        b"$-7\r\nabc\r\n",
        b"*99999999999999999999\r\n",
        b":12x\r\n:12x\r\n:12x\r\n",
    ];
    onelock_tests::face::side_by_side(&peers.map(|junk| (junk.escape_ascii().to_string(), junk)), |junk| {
        for face in onelock_tests::face::Face::ALL {
            let impostor = answers(junk);
            let client = Client::build(face, quick(), &url(impostor.port)).unwrap();
            let (took, result) = timed(|| client.lock("a").acquire_within(ms(300)));
            let error = fails(result, ErrorKind::Unavailable);
            assert!(took < promised(ms(300)), "{took:?}");
            assert!(impostor.connections() <= 20, "{} connections", impostor.connections());
            assert!(error.to_string().is_ascii(), "{error}");
            let (took, result) = timed(|| client.check());
            fails(result, ErrorKind::Unavailable);
            assert!(took < promised(ms(0)), "{took:?}");
        }
    });
}

#[test]
fn f12_junk_without_end_fills_no_memory() {
    let floods: [(&str, &'static [u8]); 3] =
        [("a line without end", b"+"), ("a giant string", b"$2000000000\r\n"), ("a giant array", b"*1000000000\r\n")];
    onelock_tests::face::side_by_side(&floods.map(|(what, start)| (what.to_owned(), start)), |start| {
        for face in onelock_tests::face::Face::ALL {
            let swallowed = Arc::new(AtomicUsize::new(0));
            let (count, start) = (swallowed.clone(), *start);
            let impostor = Impostor::new(move |mut stream| {
                let chunk = if start[0] == b'*' { b":1\r\n".repeat(16 << 10) } else { vec![b'a'; 64 << 10] };
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.set_write_timeout(Some(Duration::from_secs(20)));
                let mut bytes = start;
                while let Ok(written @ 1..) = stream.write(bytes) {
                    count.fetch_add(written, Ordering::Relaxed);
                    bytes = &chunk;
                }
            });
            let client = Client::build(face, quick(), &url(impostor.port)).unwrap();
            let (took, result) = timed(|| client.lock("a").try_acquire());
            fails(result, ErrorKind::Unavailable);
            assert!(took < promised(ms(0)), "{took:?}");
            let most = impostor.connections() * (80 << 20);
            let read = swallowed.load(Ordering::Relaxed);
            assert!(read <= most, "{read} bytes were taken in over {} connections", impostor.connections());
        }
    });
}

#[test]
fn f12_junk_in_the_middle_ends_the_connection_and_nothing_else() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        client.lock("warm").acquire().unwrap().released();
        let before = stage.proxy.connections();
        stage.proxy.on(scripts::acquire()).once().replace_reply(b"HTTP/1.1 200 OK\r\n\r\n");
        let lock = client.lock("a").ttl(ms(2000));
        let lease = lock.acquire_within(ms(1000)).unwrap();
        assert_eq!(stage.requests(&scripts::acquire().with_arg("a")).len(), 2, "unknown, so asked again");
        assert!(stage.proxy.connections() > before, "on another connection");
        stage.proxy.on(scripts::release()).once().replace_reply(b"%%%%");
        assert_eq!(lease.released(), Release::Unconfirmed);
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f12_an_endless_tease_of_good_replies_is_no_reply() {
    // a peer that answers more than it was asked must not be believed: replies and requests no longer match
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        client.lock("warm").acquire().unwrap().released();
        let now = stage.server.text(&["TIME"]);
        assert!(!now.is_empty());
        stage.proxy.on(scripts::acquire()).once().replace_reply(b"+OK\r\n+OK\r\n+OK\r\n");
        let result = client.lock("a").ttl(ms(2000)).acquire_within(ms(500));
        match result {
            Ok(lease) => assert_eq!(lease.released(), Release::Released),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable), "{error}"),
        }
        stage.wait_clean(&client, "a", SOON);
        assert!(client.lock("b").try_acquire().unwrap().is_some());
        assert!(stage.requests(&Match::any()).len() < 60);
    });
}
