//! A credentials provider: asked for each new connection, of every topology and both faces, once more
//! when the server refuses what it said, and for nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onelock::{
    Client as Plain, ClientBuilder, Credentials, CredentialsProvider, CredentialsRequest, ErrorKind, Release,
};
use onelock_tests::face::{Client, Face, everywhere, on_both};
use onelock_tests::servers::{Builder, Flavor, Server};
use onelock_tests::stage::{REQUEST, SOON, fails, ms, promised, quick, timed, unhurried};
use onelock_tests::topology::{Cluster, GROUP, Group, Several};
use onelock_tests::wait::wait_until;

/// What is given as a password, or why there is none. Clones are one.
#[derive(Clone)]
struct Vault {
    asked: Arc<AtomicUsize>,
    gives: Arc<Mutex<Result<&'static str, &'static str>>>,
}

impl Vault {
    fn with(password: &'static str) -> Vault {
        Vault { asked: Arc::default(), gives: Arc::new(Mutex::new(Ok(password))) }
    }

    fn gives(&self, given: Result<&'static str, &'static str>) {
        *self.gives.lock().unwrap() = given;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn provider(&self) -> impl Fn() -> Result<Credentials, &'static str> + Send + Sync + use<> {
        let vault = self.clone();
        move || {
            vault.asked.fetch_add(1, Ordering::SeqCst);
            vault.gives.lock().unwrap().map(|password| Credentials::new("app", password))
        }
    }
}

fn with_user(builder: Builder) -> Builder {
    builder.user("app", "on >first ~* &* +@all")
}

fn rotate(servers: &[Server], password: &str) {
    for server in servers {
        server.cmd(&["ACL", "SETUSER", "app", "resetpass", &format!(">{password}")]);
    }
}

/// Another password is as good as the present one.
fn admit(servers: &[Server], password: &str) {
    for server in servers {
        server.cmd(&["ACL", "SETUSER", "app", &format!(">{password}")]);
    }
}

/// Ends every connection of the user.
fn cut(servers: &[Server]) {
    for server in servers {
        server.cmd(&["CLIENT", "KILL", "USER", "app"]);
    }
}

/// How many connections these servers have seen, all in all.
fn received(servers: &[Server]) -> usize {
    let count = |server: &Server| server.info("stats")["total_connections_received"].parse::<usize>().unwrap();
    servers.iter().map(count).sum()
}

/// The users of the connections to these servers that are not the fixture's. One that has sent nothing yet counts: it may
/// have asked for its password already.
fn users(servers: &[Server]) -> HashSet<String> {
    let names = |server: &Server| -> Vec<String> {
        let list = server.text(&["CLIENT", "LIST", "TYPE", "normal"]);
        let ours = |line: &&str| ["lib-name=onelock", "user=app", "cmd=NULL"].iter().any(|word| line.contains(word));
        let ours = list.lines().filter(ours);
        ours.filter_map(|line| line.split(" user=").nth(1)?.split(' ').next().map(str::to_owned)).collect()
    };
    servers.iter().flat_map(names).collect()
}

/// A lease is held and a waiter waits while the password changes and every connection is cut: both go on with the new one.
fn outlives_a_rotation(face: Face, servers: &[Server], url: &str, builder: &dyn Fn() -> ClientBuilder) {
    rotate(servers, "first");
    let (vault, before) = (Vault::with("first"), received(servers));
    let made = || Client::build(face, builder().credentials(vault.provider()), url).unwrap();
    let (holder, waiter) = (made(), made());
    assert_eq!(vault.asked(), 0, "making a client asks nobody");
    let lock = holder.lock("{job}").ttl(ms(6000));
    let lease = lock.acquire_within(SOON).unwrap();
    assert!(vault.asked() > 0);
    wait_until(SOON, "the user to be known everywhere", || users(servers) == HashSet::from(["app".to_owned()]));
    // a connection that is just being made has not asked yet
    let same = || vault.asked() == received(servers) - before;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock("{job}").acquire_within(SOON * 2).map(|lease| lease.released()));
        wait_until(SOON, "a waiter", || waiter.stats().waiting == 1);
        for password in ["second", "third"] {
            admit(servers, password);
            vault.gives(Ok(password));
            // nobody is about to use the old one
            wait_until(SOON, "all connections to be made", || {
                same() && users(servers) == HashSet::from(["app".to_owned()])
            });
            let asked = vault.asked();
            rotate(servers, password);
            cut(servers);
            let renewals = holder.stats().renewals;
            // the reply to one that was sent before may be counted first
            wait_until(SOON, "a renewal with the new password", || {
                // a connection that had asked and was not yet the user's has been spared
                if vault.asked() == asked {
                    cut(servers);
                }
                assert!(lease.is_held(), "{:?} of {:?}", lease.loss(), holder.stats());
                holder.stats().renewals > renewals && vault.asked() > asked
            });
            assert!(lease.is_held());
            wait_until(SOON, "an extension with the new password", || lease.extend(ms(6000)).is_ok());
        }
        lease.released();
        waits.join().unwrap().unwrap();
    });
    wait_until(SOON, "as many questions as connections", same);
    let asked = vault.asked();
    for _ in 0..20 {
        holder.lock("{job}").acquire_within(SOON).unwrap().released();
    }
    let more = vault.asked() - asked;
    assert!(more <= servers.len(), "asked {more} times with connections at hand");
    assert_eq!((holder.stats().lost, waiter.stats().lost), (0, 0));
    for client in [holder, waiter] {
        client.close();
    }
}

#[test]
fn one_server() {
    everywhere(|flavor, face| {
        let servers = [with_user(Server::builder(flavor)).start()];
        outlives_a_rotation(face, &servers, &servers[0].url_with("", "/"), &unhurried);
        let url = servers[0].url_with("", "/?protocol=resp2");
        outlives_a_rotation(face, &servers, &url, &unhurried);
    });
}

#[test]
fn a_connection_for_grants_that_replicas_confirm() {
    on_both(|face| {
        let builder = || with_user(Server::builder(Flavor::Valkey91));
        let master = builder().start();
        let replica = builder().config("replicaof", &format!("127.0.0.1 {}", master.port())).start();
        wait_until(SOON, "the replica", || replica.info("replication")["master_link_status"] == "up");
        let servers = [master];
        let options = || unhurried().min_replicas(1).replica_timeout(ms(8000));
        outlives_a_rotation(face, &servers, &servers[0].url_with("", "/"), &options);
    });
}

#[test]
fn a_cluster() {
    let cluster = Cluster::with(Flavor::Valkey91, 0, with_user);
    for face in Face::ALL {
        outlives_a_rotation(face, &cluster.nodes, &cluster.url(), &unhurried);
        // every node asks
        let (vault, name) = (Vault::with("third"), |at| cluster.name_on(at, "node"));
        let client = Client::build(face, unhurried().credentials(vault.provider()), &cluster.url()).unwrap();
        let held: Vec<_> = (0..3).map(|at| client.lock(name(at)).acquire_within(SOON).unwrap()).collect();
        assert!(vault.asked() >= 3, "{} questions", vault.asked());
        assert!(held.iter().all(|lease| lease.released() == Release::Released));
        client.close();
    }
}

#[test]
fn the_master_that_sentinels_name_and_not_the_sentinels() {
    let group = Group::with(Flavor::Valkey91, with_user, |sentinel| {
        sentinel.config("sentinel", "sentinel-pass sentinels-word").password("sentinels-word")
    });
    let before = group.servers[0].port();
    for face in Face::ALL {
        let options = || unhurried().sentinel_password("sentinels-word");
        outlives_a_rotation(face, &group.servers, &group.url(), &options);
        // Sentinels have what the address says for them, and nothing of the provider
        let vault = Vault::with("third");
        let stranger = Client::build(face, quick().credentials(vault.provider()), &group.url()).unwrap();
        let error = fails(stranger.lock("a").try_acquire(), ErrorKind::AuthFailed).to_string();
        assert!(error.contains("no Sentinel named the master") && vault.asked() == 0, "{error}");
        // a provider that fails is no reason to give up the connections that there are, or the Sentinel that named the master
        let client = Client::build(face, options().credentials(vault.provider()), &group.url()).unwrap();
        client.check().unwrap();
        client.lock("free").acquire_within(SOON).unwrap().released();
        let rival = Client::build(face, options(), &group.url()).unwrap().lock("busy").acquire_within(SOON).unwrap();
        vault.gives(Err("away"));
        fails(client.lock("busy").acquire_within(ms(300)), ErrorKind::Timeout);
        client.lock("free").try_acquire().unwrap().expect("an old connection").released();
        rival.released();
    }
    assert_eq!(group.master().port(), before);
    assert!(group.url().ends_with(GROUP));
}

#[test]
fn every_server_of_redlock() {
    let several = Several::with(3, || with_user(Server::builder(Flavor::Valkey91)));
    for face in Face::ALL {
        outlives_a_rotation(face, &several.servers, &several.url("quarantine_ms=0"), &unhurried);
    }
}

/// Many threads at a time, each with a connection of its own, and those that share.
#[test]
fn many_threads_ask_for_each_connection_that_they_make() {
    let servers = [with_user(Server::builder(Flavor::Valkey91)).start()];
    let (vault, before) = (Vault::with("first"), received(&servers));
    let client = unhurried().credentials(vault.provider()).build_blocking(&servers[0].url_with("", "/")).unwrap();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for thread in 0..24 {
                let client = &client;
                scope.spawn(move || {
                    for _ in 0..5 {
                        client.lock(format!("{thread}")).acquire_within(SOON).unwrap().release().unwrap();
                    }
                });
            }
        });
        cut(&servers);
    }
    let same = || vault.asked() == received(&servers) - before;
    wait_until(SOON, "as many questions as connections", same);
    assert!(vault.asked() >= 3);
    client.close();
}

/// Answers what it was asked when the test says so.
struct Later(Mutex<Sender<CredentialsRequest>>);

impl CredentialsProvider for Later {
    fn ask(&self, request: CredentialsRequest) {
        self.0.lock().unwrap().send(request).unwrap();
    }
}

fn later() -> (Later, Receiver<CredentialsRequest>) {
    let (sender, requests) = channel();
    (Later(Mutex::new(sender)), requests)
}

#[test]
fn an_answer_may_come_later_from_any_thread_and_a_late_one_harms_nothing() {
    everywhere(|flavor, face| {
        let server = with_user(Server::builder(flavor)).start();
        let (provider, requests) = later();
        let client = Client::build(face, quick().credentials(provider), &server.url_with("", "/")).unwrap();
        // nobody answers: the call is back in time, and names who was late
        let (took, tried) = timed(|| client.lock("a").try_acquire());
        let error = fails(tried, ErrorKind::Unavailable);
        assert!(error.to_string().contains("the credentials provider did not answer in time"), "{error}");
        assert!(error.is_retryable() && took < promised(Duration::ZERO), "{took:?}");
        let (took, tried) = timed(|| client.lock("a").acquire_within(REQUEST));
        let error = fails(tried, ErrorKind::Unavailable);
        assert!(error.to_string().contains("the credentials provider") && took < promised(REQUEST), "{took:?} {error}");
        let late: Vec<_> = requests.try_iter().collect();
        assert!(!late.is_empty());
        // a waiting acquire gets the answer of whoever asked for it last
        std::thread::scope(|scope| {
            let acquires = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            let mut waited = requests.recv_timeout(SOON).unwrap();
            for request in late {
                wait_until(SOON, "patience to end", || request.time_left().is_zero());
                request.answer(Ok::<_, &str>(Credentials::new("app", "wrong")));
            }
            while !acquires.is_finished() {
                waited.answer(Ok::<_, &str>(Credentials::new("app", "first")));
                let next = || requests.recv_timeout(ms(20)).ok();
                let Some(request) = std::iter::repeat_with(next).take(200).find_map(|it| it) else { break };
                waited = request;
                if acquires.is_finished() {
                    break;
                }
            }
            acquires.join().unwrap().released();
        });
    });
}

/// The password is replaced after the provider has told it, and before the server has read it.
#[test]
fn a_password_replaced_on_its_way_to_the_server_is_asked_for_once_more() {
    everywhere(|flavor, face| {
        let server = with_user(Server::builder(flavor)).start();
        let (asked, url) = (Arc::new(AtomicUsize::new(0)), server.url_with("", "/"));
        let counted = asked.clone();
        // the first answer is one too old
        let provider = move || {
            let password = if counted.fetch_add(1, Ordering::SeqCst) == 0 { "replaced" } else { "first" };
            Ok::<_, &str>(Credentials::new("app", password))
        };
        let client = Client::build(face, quick().credentials(provider), &url).unwrap();
        client.lock("a").try_acquire().unwrap().expect("a free lock").released();
        assert!(asked.load(Ordering::SeqCst) >= 2);
        client.close();
        // a password that stays wrong is refused
        let vault = Vault::with("wrong");
        let client = Client::build(face, quick().credentials(vault.provider()), &url).unwrap();
        fails(client.lock("a").try_acquire(), ErrorKind::AuthFailed);
        assert!(vault.asked() >= 2);
        client.close();
    });
}

#[test]
fn a_provider_that_fails_says_why_and_is_asked_again() {
    everywhere(|flavor, face| {
        let server = with_user(Server::builder(flavor)).start();
        let (vault, url) = (Vault::with("first"), server.url_with("", "/"));
        let client = Client::build(face, quick().credentials(vault.provider()), &url).unwrap();
        vault.gives(Err("no token today"));
        let error = fails(client.lock("a").try_acquire(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("the credentials provider failed: no token today"), "{error}");
        assert!(error.is_retryable());
        // an acquire that waits is granted when the provider recovers
        std::thread::scope(|scope| {
            let acquires = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            let asked = vault.asked();
            wait_until(SOON, "another question", || vault.asked() > asked);
            vault.gives(Ok("first"));
            acquires.join().unwrap().released();
        });
        // a password that the server refuses is refused as any other, and the next one is tried
        vault.gives(Ok("hunter2"));
        cut(std::slice::from_ref(&server));
        wait_until(SOON, "a refusal", || match client.lock("a").try_acquire() {
            Ok(_) => panic!("{face:?}: an old connection was used, or a wrong password"),
            Err(error) => {
                let text = format!("{error} {error:?}");
                assert!(!text.contains("hunter2"), "{text}");
                error.kind() == ErrorKind::AuthFailed
            }
        });
        vault.gives(Ok("first"));
        wait_until(SOON, "a connection", || matches!(client.lock("a").try_acquire(), Ok(Some(_))));
        client.close();
    });
}

/// A lease outlives a provider that is away for less than the ttl.
#[test]
fn a_lease_outlives_a_provider_that_fails_for_a_while() {
    on_both(|face| {
        let servers = [with_user(Server::builder(Flavor::Valkey91)).start()];
        let vault = Vault::with("first");
        let builder = unhurried().ttl(ms(9000)).credentials(vault.provider());
        let client = Client::build(face, builder, &servers[0].url_with("", "/")).unwrap();
        let lease = client.lock("a").acquire_within(SOON).unwrap();
        vault.gives(Err("away"));
        let (asked, missed) = (vault.asked(), client.stats().renewals_missed);
        wait_until(SOON, "a missed renewal", || {
            // also what was just being connected
            cut(&servers);
            client.stats().renewals_missed > missed && vault.asked() > asked + 1
        });
        vault.gives(Ok("first"));
        let renewals = client.stats().renewals;
        wait_until(SOON, "a renewal", || client.stats().renewals > renewals);
        assert!(lease.is_held() && lease.loss().is_none());
        lease.released();
    });
}

#[test]
fn a_provider_that_panics_is_a_failure_that_passes() {
    on_both(|face| {
        let server = with_user(Server::builder(Flavor::Valkey91)).start();
        let panics = Arc::new(AtomicUsize::new(0));
        let counted = panics.clone();
        let provider = move || {
            assert!(counted.fetch_add(1, Ordering::SeqCst) > 0, "planted");
            Ok::<_, String>(Credentials::new("app", "first"))
        };
        // a panic is printed before it is caught, and its backtrace takes time
        let patient = quick().connect_timeout(SOON).credentials(provider);
        let client = Client::build(face, patient, &server.url_with("", "/")).unwrap();
        let error = fails(client.check().map(drop), ErrorKind::Unavailable);
        assert!(error.to_string().contains("the credentials provider ended without an answer"), "{error}");
        wait_until(SOON, "a connection", || matches!(client.lock("a").try_acquire(), Ok(Some(_))));
    });
}

/// A provider that blocks does not stop the renewal of what is held elsewhere, nor a runtime of one thread.
#[test]
fn a_provider_that_blocks_stops_nobody_else() {
    let servers = [with_user(Server::builder(Flavor::Valkey91)).start()];
    let url = servers[0].url_with("", "/");
    let (entered, entries) = channel();
    let (open, gate) = channel::<()>();
    let (entered, gate) = (Mutex::new(entered), Mutex::new(gate));
    let provider = move || {
        entered.lock().unwrap().send(()).unwrap();
        gate.lock().unwrap().recv().map(|()| Credentials::new("app", "first"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let other = Plain::builder().build(&url).unwrap();
        let stuck = unhurried().credentials(provider).build(&url).unwrap();
        let lease = other.lock("held").ttl(ms(10_000)).renew_every(ms(150)).acquire().await.unwrap();
        let acquires = tokio::spawn(async move { stuck.lock("a").acquire().await });
        let renewals = other.stats().renewals;
        while entries.try_recv().is_err() || other.stats().renewals < renewals + 4 {
            assert!(lease.is_held());
            tokio::time::sleep(ms(5)).await;
            if other.stats().renewals >= renewals + 4 {
                break;
            }
        }
        assert!(!acquires.is_finished());
        for _ in 0..16 {
            let _ = open.send(());
        }
        acquires.await.unwrap().unwrap().release().await.unwrap();
        lease.release().await.unwrap();
    });
}

#[test]
fn credentials_in_the_address_beside_a_provider_are_refused_before_any_question() {
    let vault = Vault::with("first");
    for url in [
        "redis://app:hunter2@127.0.0.1:1",
        "redis://app@127.0.0.1:1",
        "rediss://:hunter2@127.0.0.1:1",
        "redis://127.0.0.1:1?password=hunter2",
        "redis://127.0.0.1:1?username=app",
        "unix://app:hunter2@/run/redis.sock",
        "redis+sentinel://app:hunter2@127.0.0.1:1/g",
        "redis+cluster://:hunter2@127.0.0.1:1,127.0.0.1:2",
        "redlock://app:hunter2@127.0.0.1:1,127.0.0.1:2",
        "redis://127.0.0.1:1 redis://:hunter2@127.0.0.1:2",
    ] {
        let error = fails(unhurried().credentials(vault.provider()).build(url), ErrorKind::InvalidArgument).to_string();
        assert!(error.contains("user name or password") && error.contains("the option credentials"), "{url}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let nodes = unhurried().credentials(vault.provider()).build_nodes(["redis://h1", "redis://app:hunter2@h2"]);
    fails(nodes, ErrorKind::InvalidArgument);
    // Sentinels have credentials of their own beside it
    let url = "redis+sentinel://127.0.0.1:1/g?sentinel_username=watcher&sentinel_password=word";
    unhurried().credentials(vault.provider()).build(url).unwrap();
    // and where nobody logs in, nobody is asked
    let client = unhurried().credentials(vault.provider()).build_blocking("memory://").unwrap();
    client.lock("a").acquire().unwrap().release().unwrap();
    assert_eq!(vault.asked(), 0);
    let shown = format!("{:?}", unhurried().credentials(vault.provider()));
    assert!(shown.contains("CredentialsProvider") && !shown.contains("first"), "{shown}");
}
