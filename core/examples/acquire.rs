//! Take a lock, do the guarded work, release the lock. A second worker waits its turn meanwhile.
//!
//! ```sh
//! cargo run --example acquire redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example shows what happens")]

use std::time::Duration;

use onelock::Client;

#[tokio::main]
async fn main() -> Result<(), onelock::Error> {
    // An empty address means $ONELOCK_URL. `connect` opens the connection and looks at the server.
    let address = std::env::args().nth(1).unwrap_or_default();
    let client = Client::connect(&address).await?;

    // A lock is only a description: it can be cloned and shared, and nothing is held yet.
    let lock = client.lock("example:acquire");

    // A lease is one granted hold. It is renewed in the background until it is released.
    let lease = lock.acquire().await?;
    println!("first:  has the lock, fencing token {:?}", lease.fencing_token());

    // Somebody else wants it too: another process in real life, another task here. It gives up after 5 s.
    let second = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(5)).await });

    // The guarded work. Show the fencing token to whatever you write to, if that can check it.
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("first:  has done its work, {:?} of the lease are left", lease.remaining());

    // Released in one round trip; the one who waits is told, and does not poll.
    let found = lease.release().await?;
    println!("first:  {}", found.as_str());

    let lease = second.await.expect("the second worker does not panic")?;
    println!("second: has the lock, fencing token {:?}, which is higher", lease.fencing_token());
    lease.release().await?;

    // Releases what is still held (nothing here) and ends the background work.
    client.close().await;
    Ok(())
}
