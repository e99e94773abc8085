//! Before anything is measured: every loop must send the same commands.

use onelock_tests::servers::Server;

use crate::floor::Floor;
use crate::raw::Requests;
use crate::sequential::block_on;

/// Who it is, and one cycle of it.
type Side<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// Compares what the server is sent by one cycle of each side.
///
/// # Panics
/// When they differ: the numbers would say nothing.
pub(crate) fn check(server: &Server, lock: &str) {
    let mut requests = Requests::new(lock);
    let url = server.url();
    let mut sides: Vec<Side<'_>> = Vec::new();

    let client = onelock::blocking::Client::connect(&url).expect("the server is up");
    sides.push((
        "onelock::blocking",
        Box::new(move || {
            let lease = client.lock(lock).acquire().expect("the lock is free");
            lease.release().expect("it is held");
        }),
    ));
    let runtime = crate::sequential::runtime();
    let client = block_on(&runtime, onelock::Client::connect(&url)).expect("the server is up");
    sides.push((
        "onelock",
        Box::new(move || {
            block_on(&runtime, async {
                let lease = client.lock(lock).acquire().await.expect("the lock is free");
                lease.release().await.expect("it is held");
            });
        }),
    ));
    let mut floor = Floor::start(&[server.port()], &requests);
    sides.push((
        "hiredis",
        Box::new(move || {
            floor.block("scripts", 1);
        }),
    ));
    let mut connection = redis::Client::open(url).and_then(|client| client.get_connection()).expect("the server is up");
    sides.push(("redis-rs", Box::new(move || requests.run(&mut connection))));

    let monitor = server.monitor();
    let mut first: Option<Vec<Vec<String>>> = None;
    for (name, cycle) in &mut sides {
        cycle(); // a side may send more the first time
        monitor.clear();
        cycle();
        let sent: Vec<_> = monitor.sent().into_iter().map(|seen| without_token(seen.args)).collect();
        assert_eq!(sent.len(), 2, "{name} sends something besides acquire and release: {sent:#?}");
        let wanted = first.get_or_insert_with(|| sent.clone());
        assert_eq!(&sent, wanted, "{name} does not send what the others send");
    }
}

/// Tokens differ; that there is one, of the same form, is what has to be the same.
pub(crate) fn without_token(args: Vec<String>) -> Vec<String> {
    let is_token = |word: &str| {
        word.strip_prefix("onelock1:").is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    args.into_iter().map(|word| if is_token(&word) { "<token>".to_owned() } else { word }).collect()
}
