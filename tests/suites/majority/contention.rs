//! Several clients at a time: what each of them saw, and the check that it was right.

use std::sync::Mutex;
use std::time::Duration;

use onelock_tests::clock::boot_ns;
use onelock_tests::face::{Client, Face};
use onelock_tests::history::{Call, Limits, Record, Return, check};
use onelock_tests::stage::SOON;
use onelock_tests::wait::wait_until;

use crate::place::{everywhere, fresh};

const CLIENTS: usize = 4;
const ROUNDS: u64 = 12;

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

/// Acquires and releases, and notes what happened.
fn work(client: &Client, process: &str, records: &Mutex<Vec<Record>>) {
    let note = |record| records.lock().unwrap().push(record);
    let call = |call, op: &str, lease| Call {
        process: process.to_owned(),
        call,
        op: op.to_owned(),
        lock: "a".to_owned(),
        lease,
        at_ns: boot_ns(),
        limit_ns: Some(ns(SOON)),
    };
    for round in 0..ROUNDS {
        note(Record::Call(call(2 * round, "acquire", None)));
        let lease = client.lock("a").acquire_within(SOON).unwrap();
        let remaining = lease.remaining();
        let at_ns = boot_ns();
        note(Record::Return(Return {
            process: process.to_owned(),
            call: 2 * round,
            at_ns,
            outcome: "ok".to_owned(),
            lease: Some(round),
            token: lease.fencing_token(),
            valid_until_ns: Some(at_ns + ns(remaining)),
            ..Return::default()
        }));
        note(Record::Call(call(2 * round + 1, "release", Some(round))));
        let outcome = format!("{:?}", lease.released());
        let call = 2 * round + 1;
        note(Record::Return(Return {
            process: process.to_owned(),
            call,
            at_ns: boot_ns(),
            outcome,
            ..Return::default()
        }));
    }
    note(Record::End { process: process.to_owned(), at_ns: boot_ns() });
}

#[test]
fn one_at_a_time_and_their_tokens_grow() {
    everywhere(|mixed, face| {
        let other = if face == Face::Async { Face::Blocking } else { Face::Async };
        let clients: Vec<Client> = (0..CLIENTS)
            .map(|at| Client::connect(if at % 2 == 0 { face } else { other }, fresh(), &mixed.url()).unwrap())
            .collect();
        let records = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (at, client) in clients.iter().enumerate() {
                let records = &records;
                scope.spawn(move || work(client, &format!("client-{at}"), records));
            }
        });
        let limits = Limits { loss_told: SOON, call: SOON };
        let report = check(&records.into_inner().unwrap(), &limits);
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        assert_eq!(report.summary.leases as u64, CLIENTS as u64 * ROUNDS);
        wait_until(SOON, "nothing left", || mixed.count("a") == 0);
        clients.iter().for_each(Client::close);
    });
}
