//! A lock that survives the loss of a server: three independent servers, held by whoever holds two of them.
//!
//! ```sh
//! for port in 7001 7002 7003; do redis-server --port $port --appendonly yes --appenddirname aof-$port --daemonize yes; done
//! cargo run --example redlock redlock://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003   # or with the address in $ONELOCK_URL
//! ```
//!
//! Stop one of the three and run it again. Servers without an append-only file do not vote in the first minute after they
//! were started (`quarantine`): they may have forgotten who holds what.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use onelock::Client;

#[tokio::main]
async fn main() -> Result<(), onelock::Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let client = Client::connect(&address).await?;
    // what weakens the lock on these servers, and how strong its fencing tokens are
    let facts = client.check().await?;
    println!("{}, tokens {}", facts.server, facts.grade.as_str());
    for warning in &facts.warnings {
        println!("note: {warning}");
    }

    let lock = client.lock("example:redlock").ttl(Duration::from_secs(10));
    for turn in 1..=3 {
        match lock.acquire_within(Duration::from_secs(5)).await {
            Ok(lease) => {
                println!("turn {turn}: held by a majority, fencing token {:?}", lease.fencing_token());
                println!("turn {turn}: {}", lease.release().await?.as_str());
            }
            // too few servers: what each of them said
            Err(error) => {
                for cause in error.causes() {
                    println!("turn {turn}: {cause}");
                }
                return Err(error);
            }
        }
    }
    client.close().await;
    Ok(())
}
