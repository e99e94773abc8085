//! What a memcached is sent is what PROTOCOL.md says, and all of it.

use std::collections::BTreeSet;

use onelock::{Owner, Release};
use onelock_tests::face::{Client, Face};
use onelock_tests::memcached::Memcached;
use onelock_tests::stage::{ms, unhurried};
use onelock_tests::wire::Wire;

use crate::document;

/// Whether a command is as the notation says; the value of an item follows on a line of its own.
fn fits(pattern: &str, line: &str) -> bool {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (patterns, words) = (words(pattern), words(line));
    patterns.len() == words.len()
        && patterns.iter().zip(&words).all(|(pattern, word)| match pattern.as_str() {
            "KEY" => word == "YQ" || word == "cg" || word.starts_with("h:") && word.len() == 66,
            _ => document::fits(pattern, word, ""),
        })
}

#[test]
fn what_is_sent_is_written_down() {
    let server = Memcached::with_user("bob", "sesame");
    let (wire, plain) = (Wire::to(server.port()), Memcached::start());
    let second = Wire::to(plain.port());
    let urls = [
        format!("memcached://bob:sesame@127.0.0.1:{}", wire.port()),
        format!("memcached://127.0.0.1:{}", second.port()),
    ];
    for url in &urls {
        let client = Client::build(Face::Blocking, unhurried(), url).unwrap();
        let lease = client.lock("a").acquire().unwrap();
        lease.extend(ms(40_000)).unwrap();
        let proof = lease.detach().unwrap();
        assert_eq!(client.lock("a").attach(&proof).unwrap().released(), Release::Released);
        assert_eq!(client.lock("n".repeat(300)).acquire().unwrap().released(), Release::Released);
        let owner = Owner::new();
        let lock = client.reentrant_lock("r").owner(&owner);
        let (outer, inner) = (lock.acquire().unwrap(), lock.acquire().unwrap());
        assert_eq!((inner.released(), outer.released()), (Release::Released, Release::Released));
        client.close();
    }
    let patterns = document::column("memcached", 0);
    let sent = [wire.sent(), second.sent()].concat();
    let mut seen = BTreeSet::new();
    let mut lines = sent.lines();
    while let Some(line) = lines.next() {
        let pattern = patterns.iter().find(|pattern| fits(pattern, line));
        seen.insert(pattern.unwrap_or_else(|| panic!("PROTOCOL.md does not know {line:?}")).clone());
        if line.starts_with("ms ") || line.starts_with("set ") {
            let value = lines.next().unwrap();
            let length = line.split(' ').nth(if line.starts_with("ms ") { 2 } else { 4 }).unwrap();
            assert_eq!(value.len().to_string(), length, "{line}");
        }
    }
    assert_eq!(seen, patterns, "written down and never sent");
}
