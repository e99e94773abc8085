//! A fair job queue: three machines take jobs from one list, and each gets its turn in the order in which they ask. With a
//! plain `lock`, the machine that is quickest to ask again could take them all.
//!
//! ```sh
//! cargo run --example job_queue redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onelock::{Client, Error};

/// The list; really a table or a queue that all machines read.
type Jobs = Arc<Mutex<VecDeque<u32>>>;

/// Takes the next job, under the lock; `None` when there is none.
async fn take(client: &Client, jobs: &Jobs) -> Result<Option<u32>, Error> {
    client
        .fair_lock("example:jobs")
        .with(|lease| async move {
            let job = jobs.lock().map(|mut jobs| jobs.pop_front()).unwrap_or_default();
            // the list is marked and written meanwhile, with lease.fencing_token()
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(lease.is_held());
            Ok(job)
        })
        .await
}

/// One machine: in truth a process of its own, with a client of its own.
async fn machine(address: String, jobs: Jobs) -> Result<Vec<u32>, Error> {
    let client = Client::connect(&address).await?;
    let mut taken = Vec::new();
    while let Some(job) = take(&client, &jobs).await? {
        taken.push(job);
    }
    client.close().await;
    Ok(taken)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let jobs: Jobs = Arc::new(Mutex::new((1..=30).collect()));
    let machines: Vec<_> = (0..3).map(|_| tokio::spawn(machine(address.clone(), jobs.clone()))).collect();
    let (mut done, mut most) = (Vec::new(), 0);
    for machine in machines {
        let taken = machine.await.unwrap_or_else(|_| Ok(Vec::new()))?;
        most = most.max(taken.len());
        done.extend(taken);
    }
    done.sort_unstable();
    assert_eq!(done, (1..=30).collect::<Vec<_>>(), "each job was taken once");
    println!("{} jobs, each taken once; no machine took more than {most}", done.len());
    Ok(())
}
