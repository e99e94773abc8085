//! A job that every machine has on its timetable, and that only one of them runs each time, although their clocks differ.
//!
//! ```sh
//! cargo run --example only_one redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use onelock::{Client, Error};
use tokio::time::Instant;

/// How often the job is due. Really an hour or a day.
const TICK: Duration = Duration::from_millis(500);
/// More than the machines' clocks differ by. At most the ttl, which is 30 s where nothing else is said.
const APART: Duration = Duration::from_secs(10);

/// One machine, whose clock is late by so much; in truth each is a process of its own. Tells how often it ran the job.
async fn machine(address: String, number: u32, start: Instant) -> Result<u32, Error> {
    let client = Client::connect(&address).await?;
    let mut runs = 0;
    for tick in 1..=3 {
        let due = start + TICK * tick + Duration::from_millis(50) * number;
        tokio::time::sleep_until(due).await;
        let lock = client.lock(format!("example:only_one:{tick}")).min_hold(APART);
        // another machine runs it, or has run it
        let Some(lease) = lock.try_acquire().await? else { continue };
        println!("tick {tick}: machine {number}");
        runs += 1;
        // it took no time at all, and yet the machine whose clock is late finds it done
        lease.release().await?;
    }
    client.close().await;
    Ok(runs)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let start = Instant::now();
    let machines = [0, 1, 2].map(|number| tokio::spawn(machine(address.clone(), number, start)));
    let mut runs = 0;
    for machine in machines {
        if let Ok(ran) = machine.await {
            runs += ran?;
        }
    }
    println!("three ticks, {runs} runs");
    Ok(())
}
