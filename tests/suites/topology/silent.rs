//! A cluster that does not answer: what is lost on it is lost side by side, not one after the other.

use std::net::TcpListener;
use std::time::Instant;

use onelock::ErrorKind;
use onelock_tests::face::block_on;
use onelock_tests::stage::{CONNECT, REQUEST, SLACK, quick};

#[test]
fn callers_of_a_silent_cluster_wait_side_by_side() {
    // connections are made, and nobody says a word
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = hole.local_addr().unwrap().port();
    let client = quick().build(&format!("redis+cluster://127.0.0.1:{port}")).unwrap();
    let begun = Instant::now();
    let tasks: Vec<_> = block_on(async {
        let one = |number: u32| {
            let lock = client.lock(format!("{number}"));
            tokio::spawn(async move { lock.try_acquire().await.map(drop).unwrap_err().kind() })
        };
        (0..20).map(one).collect()
    });
    for task in tasks {
        assert_eq!(block_on(task).unwrap(), ErrorKind::Unavailable);
    }
    // one after the other they would take twenty times the limit for a connection
    assert!(begun.elapsed() < CONNECT + REQUEST * 2 + SLACK, "{:?}", begun.elapsed());
    // and whoever comes later looks for himself
    let lock = client.lock("later");
    let error = block_on(async { tokio::time::timeout(CONNECT + REQUEST * 2 + SLACK, lock.try_acquire()).await });
    assert_eq!(error.unwrap().map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
}
