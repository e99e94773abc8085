//! Fair locks on real servers: waiters that die, stop, give up or lose their connection, and who comes next.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop at once, with its message")]

mod cluster;
mod horizon;
mod messages;
mod order;
mod passing;
mod processes;
mod storm;
mod told;

use onelock_tests::resp::text;
use onelock_tests::servers::Server;
use redis::Value;

/// The words of a reply that is a list.
fn list(reply: &Value) -> Vec<String> {
    let Value::Array(items) = reply else { panic!("{reply:?} is no list") };
    items.iter().map(text).collect()
}

/// The tokens in the queue, the head first.
fn queue(server: &Server, name: &str) -> Vec<String> {
    list(&server.cmd(&["ZRANGE", &format!("onelock_queue:{{{name}}}"), "0", "-1"]))
}

/// The number of a token's place, if it has one.
fn number(server: &Server, name: &str, token: &str) -> Option<String> {
    match server.cmd(&["ZSCORE", &format!("onelock_queue:{{{name}}}"), token]) {
        Value::Nil => None,
        number => Some(text(&number)),
    }
}

/// How many places say that their client listens.
fn listening(server: &Server, name: &str) -> usize {
    let records = list(&server.cmd(&["HVALS", &format!("onelock_waiters:{{{name}}}")]));
    records.iter().filter(|record| record.split(' ').nth(3) == Some("1")).count()
}

/// For how many milliseconds a place still lasts; negative when it is over, `None` without a record.
fn place_lasts_ms(server: &Server, name: &str, token: &str) -> Option<i64> {
    let record = match server.cmd(&["HGET", &format!("onelock_waiters:{{{name}}}"), token]) {
        Value::Nil => return None,
        record => text(&record),
    };
    let until: i64 = record.split(' ').next().unwrap().parse().unwrap();
    let [seconds, micros] = list(&server.cmd(&["TIME"])).try_into().unwrap();
    Some(until - (seconds.parse::<i64>().unwrap() * 1000 + micros.parse::<i64>().unwrap() / 1000))
}

/// The token that holds the lock on the server.
fn holder(server: &Server, name: &str) -> Option<String> {
    list(&server.cmd(&["HKEYS", name])).into_iter().find(|field| field.starts_with("onelock1:"))
}

/// Which keys of the lock are there, but for the fencing counter.
fn left(server: &Server, name: &str) -> Vec<String> {
    let keys = [name.to_owned(), format!("onelock_queue:{{{name}}}"), format!("onelock_waiters:{{{name}}}")];
    keys.into_iter().filter(|key| server.int(&["EXISTS", key]) == 1).collect()
}
