//! The line of GUARANTEES.md that gives a user what locks need: enough, on every server, and nothing too much.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use onelock::blocking::{Client, Lock};
use onelock::{Error, ErrorKind, Owner, Release};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::wait::{wait_for, wait_until};

const LIMIT: Duration = Duration::from_secs(10);

/// The words of the line.
fn line() -> Vec<String> {
    let text = include_str!("../../GUARANTEES.md");
    let line = text.lines().find(|line| line.starts_with("ACL SETUSER app ")).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Connects as that user. Short time limits, since a refusal should not cost the test much time.
fn client(server: &Server, tail: &str) -> Result<Client, Error> {
    Client::builder()
        .ttl(Duration::from_millis(600))
        .label("permissions")
        .inspectable(true)
        .connect_timeout(Duration::from_millis(500))
        .request_timeout(Duration::from_millis(300))
        .unreachable_limit(Duration::from_millis(500))
        .connect_blocking(&server.url_with("app:secret", tail))
}

/// Everything that a client can do, of both kinds of lock.
fn exercise(server: &Server, tail: &str) -> Result<(), Error> {
    let client = client(server, tail)?;
    client.check()?;
    for (name, lock) in [("app:mutex", client.lock("app:mutex")), ("app:cart", client.reentrant_lock("app:cart"))] {
        let lease = lock.acquire()?;
        lease.extend(Duration::from_millis(700))?;
        lock.is_locked()?;
        client.inspect(name)?;
        hand_over(server, tail, &lock, || lease.release())?;

        let proof = lock.acquire()?.detach()?;
        lock.attach(&proof)?.release()?;
        let lease = lock.acquire()?;
        client.force_release(name)?;
        lease.release()?;
    }
    let lock = client.reentrant_lock("app:cart").owner(&Owner::new());
    let (outer, inner) = (lock.acquire()?, lock.acquire()?);
    inner.release()?;
    outer.release()?;
    renew(&client)?;
    client.close();
    Ok(())
}

/// Somebody waits while the lock is held, and gets it.
fn hand_over(
    server: &Server,
    tail: &str,
    lock: &Lock,
    release: impl FnOnce() -> Result<Release, Error>,
) -> Result<(), Error> {
    let other = client(server, tail)?;
    let (name, kind) = (lock.name().to_owned(), lock.kind());
    let waiter = std::thread::spawn(move || {
        let lock = match kind {
            onelock::Kind::Mutex => other.lock(&name),
            _ => other.reentrant_lock(&name),
        };
        let outcome = lock.acquire_within(Duration::from_secs(2)).and_then(|lease| lease.release());
        other.close();
        outcome
    });
    let channel = onelock::machine::naming::channel(kind, lock.name());
    // Where it may not subscribe or ask, nobody is ever heard; then the release follows all the same.
    let subscribers = || server.cmd(&[b"PUBSUB".as_slice(), b"NUMSUB", &channel]);
    let began = std::time::Instant::now();
    while format!("{:?}", subscribers()).contains("int(0)") && began.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(2));
    }
    release()?;
    waiter.join().unwrap()?;
    Ok(())
}

/// Holds a lock for long enough that it was renewed.
fn renew(client: &Client) -> Result<(), Error> {
    let before = client.stats().renewals;
    let lease = client.lock("app:renewed").acquire()?;
    while lease.is_held() && client.stats().renewals == before {
        std::thread::sleep(Duration::from_millis(5));
    }
    lease.release()?;
    Ok(())
}

/// What the server refused to this user, except for the niceties that it may refuse.
fn refusals(server: &Server, nicety: &str) -> Vec<String> {
    let redis::Value::Array(entries) = server.cmd(&["ACL", "LOG"]) else { panic!("ACL LOG is a list") };
    let texts = entries.into_iter().map(|entry| format!("{entry:?}"));
    texts.filter(|text| nicety.is_empty() || !text.contains(nicety)).collect()
}

#[test]
fn the_line_is_enough_on_every_server() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        server.cmd(&line());
        for tail in ["/", "/?protocol=resp2", "/1"] {
            exercise(&server, tail).unwrap_or_else(|error| panic!("{flavor:?} {tail}: {error}"));
        }
        // 6.2 has no permissions for single subcommands of CLIENT, so the name of the connection stays unset there
        let nicety = if flavor == Flavor::Redis62 { "client" } else { "" };
        let refused = refusals(&server, nicety);
        let unasked: Vec<_> = refused.iter().filter(|text| !text.contains("config")).collect();
        assert!(unasked.is_empty(), "{flavor:?}: {unasked:#?}");
    }
}

#[test]
fn nothing_in_the_line_is_too_much() {
    let server = Server::valkey();
    let all = line();
    // servers after 6.2 count SELECT among +@connection
    let granted = |word: &&String| word.starts_with('+') && !["+@connection", "+select"].contains(&word.as_str());
    let commands: Vec<&String> = all.iter().filter(granted).collect();
    let patterns: Vec<&String> = all.iter().filter(|word| word.starts_with(['~', '&'])).collect();
    assert!(commands.len() > 15 && patterns.len() == 4, "{commands:?} {patterns:?}");
    for missing in commands.into_iter().chain(patterns) {
        let words: Vec<&String> = all.iter().filter(|word| *word != missing).collect();
        server.cmd(&words);
        server.cmd(&["ACL", "LOG", "RESET"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        // with or without an error: some are missed only in the background
        let outcome = exercise(&server, "/?protocol=resp2");
        let missed = refusals(&server, "").into_iter().any(|text| !text.contains("config|get"));
        assert!(missed, "{missing} is not needed: {outcome:?}");
    }
}

#[test]
fn other_names_are_out_of_reach_and_the_error_says_so() {
    let server = Server::valkey();
    server.cmd(&line());
    let client = client(&server, "/").unwrap();
    let error = client.lock("other").acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}");
    assert!(error.to_string().contains("GUARANTEES.md"), "{error}");
    client.close();
}

#[test]
fn names_with_a_brace_need_the_words_that_are_said_to_be_needed() {
    let text = include_str!("../../GUARANTEES.md");
    let more = text.lines().find_map(|line| line.strip_prefix("If your names contain a `{`, add `")).unwrap();
    let more = more.split('`').next().unwrap();
    let server = Server::valkey();
    server.cmd(&line());
    let client = client(&server, "/").unwrap();
    let lock = client.lock("app:{7}:cart");
    assert_eq!(lock.acquire().unwrap_err().kind(), ErrorKind::NotPermitted);
    server.cmd(&["ACL", "SETUSER", "app"].into_iter().chain(more.split(' ')).collect::<Vec<_>>());
    server.cmd(&["ACL", "LOG", "RESET"]);
    hand_over(&server, "/", &lock, || lock.acquire()?.release()).unwrap();
    client.close();
    assert_eq!(refusals(&server, "config"), Vec::<String>::new());
}

#[test]
fn without_channels_waiters_find_out_by_themselves() {
    let server = Server::valkey();
    let words: Vec<String> = line().into_iter().filter(|word| !word.starts_with('&')).collect();
    server.cmd(&words);
    let client = client(&server, "/").unwrap();
    let lease = client.lock("app:quiet").ttl(Duration::from_secs(30)).acquire().unwrap();
    let (waiter, other) = (client.clone(), server.url_with("app:secret", "/"));
    drop(waiter);
    let waiter = std::thread::spawn(move || {
        let client = Client::connect(&other).unwrap();
        let lease = client.lock("app:quiet").acquire_within(LIMIT);
        client.close();
        lease.map(|_| ())
    });
    wait_until(LIMIT, "the waiter to be refused a subscription", || !refusals(&server, "config").is_empty());
    wait_for(LIMIT, "a release", || lease.release().ok());
    waiter.join().unwrap().unwrap();
    client.close();
}
