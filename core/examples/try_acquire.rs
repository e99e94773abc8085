//! Do something only if nobody else is doing it: one look, no waiting. And the same with a bounded wait.
//!
//! ```sh
//! cargo run --example try_acquire redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use onelock::{Client, ErrorKind, Lock};

#[tokio::main]
async fn main() -> Result<(), onelock::Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let client = Client::connect(&address).await?;
    let lock = client.lock("example:try_acquire");

    // Nobody holds it, so the one look succeeds.
    let Some(lease) = lock.try_acquire().await? else {
        println!("another run of this example is at it");
        return Ok(());
    };
    println!("first:  got it at the first look");

    look(&lock).await?;
    wait_a_little(&lock).await?;

    lease.release().await?;
    println!("first:  released it");
    look(&lock).await?;
    client.close().await;
    Ok(())
}

/// One look. That somebody else holds the lock is no error: it is `None`.
async fn look(lock: &Lock) -> Result<(), onelock::Error> {
    match lock.try_acquire().await? {
        Some(lease) => {
            println!("second: got it");
            lease.release().await?;
        }
        None => println!("second: somebody else is at it, so there is nothing to do"),
    }
    Ok(())
}

/// A bounded wait. Used up, it is an error, whose kind tells it apart from a server that cannot be reached.
async fn wait_a_little(lock: &Lock) -> Result<(), onelock::Error> {
    match lock.acquire_within(Duration::from_millis(300)).await {
        Ok(lease) => {
            println!("third:  got it in time");
            lease.release().await?;
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Timeout => {
            println!("third:  {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
