//! The line of GUARANTEES.md that gives a user what locks need: enough, on every server, and nothing too much.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use onelock::blocking::{Client, Lock};
use onelock::{ClientBuilder, Error, ErrorKind, Owner, Release};
use onelock_tests::face::side_by_side;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::topology::{Cluster, Group};
use onelock_tests::wait::{wait_for, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// The words of the line.
fn line() -> Vec<String> {
    let text = include_str!("../../GUARANTEES.md");
    let line = text.lines().find(|line| line.starts_with("ACL SETUSER app ")).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// The words that are to be added in this case, which begins a sentence of the document.
fn more(case: &str) -> Vec<String> {
    let text = include_str!("../../GUARANTEES.md").replace('\n', " ");
    let (_, rest) = text.split_once(case).unwrap();
    rest.split('`').nth(1).unwrap().split(' ').map(str::to_owned).collect()
}

/// Servers as this user sees them.
struct Place<'a> {
    url: String,
    options: ClientBuilder,
    /// Whether anybody listens to this channel.
    is_heard: &'a dyn Fn(&[u8]) -> bool,
}

/// Short time limits, since a refusal should not cost the test much time.
fn options() -> ClientBuilder {
    Client::builder()
        .ttl(Duration::from_millis(600))
        .label("permissions")
        .inspectable(true)
        .connect_timeout(Duration::from_millis(500))
        .request_timeout(Duration::from_millis(300))
        .unreachable_limit(Duration::from_millis(500))
}

/// Connects to one server as that user.
fn client(server: &Server, tail: &str) -> Result<Client, Error> {
    options().connect_blocking(&server.url_with("app:secret", tail))
}

fn is_heard(server: &Server, how: &str, channel: &[u8]) -> bool {
    let count = server.cmd(&[b"PUBSUB".as_slice(), how.as_bytes(), channel]);
    !format!("{count:?}").contains("int(0)")
}

/// Everything that a client can do on one server, of both kinds of lock.
fn exercise(server: &Server, tail: &str) -> Result<(), Error> {
    exercise_at(&at(server, tail, &|channel| is_heard(server, "NUMSUB", channel)))
}

fn at<'a>(server: &Server, tail: &str, is_heard: &'a dyn Fn(&[u8]) -> bool) -> Place<'a> {
    Place { url: server.url_with("app:secret", tail), options: options(), is_heard }
}

/// The same anywhere.
fn exercise_at(place: &Place<'_>) -> Result<(), Error> {
    let client = place.options.clone().connect_blocking(&place.url)?;
    client.check()?;
    for (name, lock) in [("app:mutex", client.lock("app:mutex")), ("app:cart", client.reentrant_lock("app:cart"))] {
        let lease = lock.acquire()?;
        lease.extend(Duration::from_millis(700))?;
        lock.is_locked()?;
        client.inspect(name)?;
        hand_over(place, &lock, || lease.release())?;

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
fn hand_over(place: &Place<'_>, lock: &Lock, release: impl FnOnce() -> Result<Release, Error>) -> Result<(), Error> {
    let other = place.options.clone().connect_blocking(&place.url)?;
    let (name, kind) = (lock.name().to_owned(), lock.kind());
    let waiter = std::thread::spawn(move || {
        let lock = match kind {
            onelock::Kind::Mutex => other.lock(&name),
            kind => other.lock_of(kind, &name),
        };
        let outcome = lock.acquire_within(Duration::from_secs(2)).and_then(|lease| lease.release());
        other.close();
        outcome
    });
    let channel = onelock::machine::naming::channel(kind, lock.name());
    // Where it may not subscribe or ask, nobody is ever heard; then the release follows all the same.
    let began = std::time::Instant::now();
    while !(place.is_heard)(&channel) && began.elapsed() < Duration::from_millis(300) {
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

/// Whether it is the question how many wait, of `inspect`, which does without.
fn counts(refused: &str) -> bool {
    ["pubsub|numsub", "pubsub"].iter().any(|word| refused.contains(&format!("\"{word}\"")))
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
        // (as a word: every entry says something about the client)
        let nicety = if flavor == Flavor::Redis62 { "\"client\"" } else { "" };
        let refused = refusals(&server, nicety);
        let unasked: Vec<_> = refused.iter().filter(|text| !text.contains("config") && !counts(text)).collect();
        assert!(unasked.is_empty(), "{flavor:?}: {unasked:#?}");
    }
}

#[test]
fn nothing_in_the_line_is_too_much() {
    let server = Server::valkey();
    let all = line();
    // servers after 6.2 count SELECT among +@connection: see below
    let granted = |word: &&String| word.starts_with('+') && *word != "+select";
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
        let missed = refusals(&server, "").into_iter().any(|text| !text.contains("config|get") && !counts(&text));
        assert!(missed, "{missing} is not needed: {outcome:?}");
    }
}

/// Later servers count these among `+@connection`, so that only 6.2 can show that they are needed.
#[test]
fn nothing_that_6_2_alone_counts_separately_is_too_much() {
    let flavor = Flavor::Redis62;
    let without = |words: Vec<String>, missing: &str| {
        assert!(words.iter().any(|word| word == missing), "{words:?}");
        known(flavor, words.into_iter().filter(|word| word != missing).collect())
    };
    let names = |texts: &[String], command: &str| texts.iter().any(|text| text.contains(&format!("{command}\"")));

    let server = Server::start(flavor);
    server.cmd(&without(line(), "+select"));
    let outcome = exercise(&server, "/1");
    let refused = refusals(&server, "config");
    assert!(outcome.is_err() && names(&refused, "select"), "{outcome:?} {refused:?}");

    let cluster = Cluster::patient(flavor);
    set_user(&cluster.nodes, &without([line(), more("In a cluster add ")].concat(), "+asking"));
    let outcome = exercise_cluster(&cluster);
    let refused = unasked(&cluster.nodes, flavor);
    assert!(names(&refused, "asking"), "{outcome:?} {refused:?}");

    let group = Group::start(flavor);
    set_user(&group.servers, &without([line(), more("With `min_replicas` add ")].concat(), "+wait"));
    let is_heard = |channel: &[u8]| is_heard(group.master(), "NUMSUB", channel);
    let outcome = exercise_at(&Place { options: options().min_replicas(1), ..at(group.master(), "/", &is_heard) });
    let refused = unasked(&group.servers, flavor);
    // a server that refuses it is taken for one that has none, so there is no error
    assert!(names(&refused, "wait"), "{outcome:?} {refused:?}");
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
fn fair_locks_need_the_words_that_are_said_to_be_needed() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        server.cmd(&line());
        let client = client(&server, "/").unwrap();
        let lock = client.fair_lock("app:fair");
        assert_eq!(lock.acquire().unwrap_err().kind(), ErrorKind::NotPermitted);
        let mut words = vec!["ACL".to_owned(), "SETUSER".to_owned(), "app".to_owned()];
        words.extend(more("For fair locks add"));
        server.cmd(&words);
        server.cmd(&["ACL", "LOG", "RESET"]);
        let is_heard = |_: &[u8]| true;
        let place = at(&server, "/", &is_heard);
        let lease = lock.acquire().unwrap();
        let waiters = || client.inspect("app:fair").unwrap().unwrap().waiters.len();
        let seen = || wait_until(LIMIT, "the waiter is seen", || waiters() == 1);
        hand_over(&place, &lock, || (seen(), lease.release()).1).unwrap();
        let proof = lock.acquire().unwrap().detach().unwrap();
        lock.attach(&proof).unwrap().release().unwrap();
        client.close();
        // niceties: to see who listens, the whole configuration, and on 6.2 the name of the connection
        let nicety = |text: &str| ["pubsub", "config", "'\"client\"'"].iter().any(|word| text.contains(word));
        let refused: Vec<_> = refusals(&server, "").into_iter().filter(|text| !nicety(text)).collect();
        assert_eq!(refused, Vec::<String>::new(), "{flavor:?}");
    }
}

#[test]
fn read_write_locks_need_the_words_that_are_said_to_be_needed() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        server.cmd(&line());
        let client = client(&server, "/").unwrap();
        let (lock, other) = (client.rw_lock("app:rw"), client.rw_lock("app:rw"));
        assert_eq!(lock.read().acquire().unwrap_err().kind(), ErrorKind::NotPermitted);
        let mut words = vec!["ACL".to_owned(), "SETUSER".to_owned(), "app".to_owned()];
        words.extend(more("For fair locks add"));
        words.extend(more("For read/write locks add"));
        server.cmd(&words);
        server.cmd(&["ACL", "LOG", "RESET"]);
        let is_heard = |_: &[u8]| true;
        let place = at(&server, "/", &is_heard);
        for side in [lock.read(), lock.write()] {
            let lease = lock.write().acquire_within(Duration::from_secs(10)).unwrap();
            hand_over(&place, &side, || lease.release()).unwrap();
            let proof = side.acquire_within(Duration::from_secs(10)).unwrap().detach().unwrap();
            side.attach(&proof).unwrap().release().unwrap();
        }
        let lease = lock.write().acquire_within(Duration::from_secs(10)).unwrap();
        lease.downgrade().unwrap();
        // one of Redisson's beside it, which is looked at when ours leaves
        server.cmd(&["HSET", "app:rw", "d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:57", "1"]);
        let beside = other.read().acquire_within(Duration::from_secs(10)).unwrap();
        assert_eq!(client.inspect("app:rw").unwrap().unwrap().hold_count, 3);
        beside.release().unwrap();
        lease.release().unwrap();
        client.close();
        let nicety = |text: &str| ["pubsub", "config", "'\"client\"'"].iter().any(|word| text.contains(word));
        let refused: Vec<_> = refusals(&server, "").into_iter().filter(|text| !nicety(text)).collect();
        assert_eq!(refused, Vec::<String>::new(), "{flavor:?}");
    }
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
    let is_heard = |channel: &[u8]| is_heard(&server, "NUMSUB", channel);
    let place = at(&server, "/", &is_heard);
    hand_over(&place, &lock, || lock.acquire()?.release()).unwrap();
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

/// 6.2 knows no sharded channels.
fn known(flavor: Flavor, words: Vec<String>) -> Vec<String> {
    let sharded = |word: &String| ["+ssubscribe", "+sunsubscribe", "+spublish"].contains(&word.as_str());
    words.into_iter().filter(|word| flavor != Flavor::Redis62 || !sharded(word)).collect()
}

fn set_user(servers: &[Server], words: &[String]) {
    for server in servers {
        server.cmd(words);
        server.cmd(&["ACL", "LOG", "RESET"]);
    }
}

/// What all of them refused but the niceties: the configuration, and on 6.2 the name of the connection.
fn unasked(servers: &[Server], flavor: Flavor) -> Vec<String> {
    let all = servers.iter().flat_map(|server| refusals(server, "config"));
    let all = all.filter(|text| !counts(text));
    all.filter(|text| flavor != Flavor::Redis62 || !text.contains("\"client\"")).collect()
}

/// Everything in a cluster, and a lock whose slot is on its way to another node.
fn exercise_cluster(cluster: &Cluster) -> Result<(), Error> {
    let url = cluster.url().replace("://", "://app:secret@");
    // 6.2 takes the first of these for a question that it does not know
    let is_heard = |channel: &[u8]| {
        let on = |node: &Server| {
            ["SHARDNUMSUB", "NUMSUB"].iter().any(|how| {
                node.try_cmd(&[b"PUBSUB".as_slice(), how.as_bytes(), channel])
                    .is_ok_and(|count| !format!("{count:?}").contains("int(0)"))
            })
        };
        cluster.nodes.iter().any(on)
    };
    exercise_at(&Place { url: url.clone(), options: options(), is_heard: &is_heard })?;
    let slot = cluster.slot("app:moved");
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    let client = options().connect_blocking(&url)?;
    let lease = client.lock("app:moved").acquire()?;
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to);
    let outcome = lease.extend(LIMIT).and_then(|()| lease.release());
    client.close();
    cluster.move_keys(slot, from, to);
    cluster.end_move(slot, to);
    cluster.wait_agreed();
    outcome.map(|_| ())
}

#[test]
fn the_words_for_a_cluster_are_enough_on_every_server() {
    side_by_side(&Flavor::ALL.map(|flavor| (format!("{flavor:?}"), flavor)), |flavor| {
        let cluster = Cluster::patient(*flavor);
        set_user(&cluster.nodes, &known(*flavor, [line(), more("In a cluster add ")].concat()));
        exercise_cluster(&cluster).unwrap_or_else(|error| panic!("{flavor:?}: {error}"));
        assert_eq!(unasked(&cluster.nodes, *flavor), Vec::<String>::new(), "{flavor:?}");
    });
}

#[test]
fn nothing_in_the_words_for_a_cluster_is_too_much() {
    let cluster = Cluster::patient(Flavor::Valkey91);
    let words = more("In a cluster add ");
    assert!(words.len() == 6 && words.iter().all(|word| word.starts_with('+')), "{words:?}");
    // servers after 6.2 count ASKING among +@connection: see above
    for missing in words.iter().filter(|word| *word != "+asking") {
        let rest = words.iter().filter(|word| *word != missing).cloned().collect();
        set_user(&cluster.nodes, &[line(), rest].concat());
        let outcome = exercise_cluster(&cluster);
        let missed = || !unasked(&cluster.nodes, Flavor::Valkey91).is_empty();
        // a subscription is ended in the background
        wait_until(LIMIT, &format!("{missing} to be missed ({outcome:?})"), missed);
    }
}

#[test]
fn the_words_for_sentinels_are_enough_on_every_server_and_none_is_too_much() {
    side_by_side(&Flavor::ALL.map(|flavor| (format!("{flavor:?}"), flavor)), |flavor| {
        let group = Group::start(*flavor);
        let words = more("A user of Sentinels needs ");
        let watcher = |words: &[String]| {
            let front = ["ACL", "SETUSER", "watcher", "on", ">word", "resetkeys", "resetchannels", "-@all"];
            set_user(&group.sentinels, &[&front.map(str::to_owned), words].concat());
        };
        let is_heard = |channel: &[u8]| is_heard(group.master(), "NUMSUB", channel);
        let url = group.url().replace("://", "://app:secret@");
        let place = Place {
            url,
            options: options().sentinel_username("watcher").sentinel_password("word"),
            is_heard: &is_heard,
        };
        set_user(&group.servers, &line());
        watcher(&words);
        exercise_at(&place).unwrap_or_else(|error| panic!("{flavor:?}: {error}"));
        assert_eq!(unasked(&group.servers, *flavor), Vec::<String>::new(), "{flavor:?}");
        assert_eq!(unasked(&group.sentinels, *flavor), Vec::<String>::new(), "{flavor:?}");
        for missing in words.iter().filter(|_| *flavor == Flavor::Valkey91) {
            watcher(&words.iter().filter(|word| *word != missing).cloned().collect::<Vec<_>>());
            let outcome = exercise_at(&place);
            let missed = || !unasked(&group.sentinels, *flavor).is_empty();
            wait_until(LIMIT, &format!("{missing} to be missed ({outcome:?})"), missed);
        }
    });
}

#[test]
fn the_word_for_min_replicas_is_enough_on_every_server() {
    side_by_side(&Flavor::ALL.map(|flavor| (format!("{flavor:?}"), flavor)), |flavor| {
        let group = Group::start(*flavor);
        let master = group.master();
        let waits = || master.info("commandstats").contains_key("cmdstat_wait");
        set_user(&group.servers, &[line(), more("With `min_replicas` add ")].concat());
        assert!(!waits());
        let is_heard = |channel: &[u8]| is_heard(master, "NUMSUB", channel);
        let place = Place { options: options().min_replicas(1), ..at(master, "/", &is_heard) };
        exercise_at(&place).unwrap_or_else(|error| panic!("{flavor:?}: {error}"));
        assert!(waits(), "{flavor:?}: replicas were asked");
        assert_eq!(unasked(&group.servers, *flavor), Vec::<String>::new(), "{flavor:?}");
    });
}
