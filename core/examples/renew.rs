//! Hold a lock for longer than its lease: the lease is renewed in the background. Or extend it by hand.
//!
//! ```sh
//! cargo run --example renew redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use onelock::Client;
use tokio::time::sleep;

/// The length of a lease (ttl, time to live): what others wait at most after this process was killed. The default is
/// 30 s; it is short here, so that renewal can be watched.
const TTL: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), onelock::Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let client = Client::connect(&address).await?;

    // Renewed every third of the ttl, in the background, however long the work takes.
    let lease = client.lock("example:renew").ttl(TTL).acquire().await?;
    for half_seconds in 1..=4 {
        sleep(Duration::from_millis(500)).await;
        println!(
            "automatic: after {:.1} s held: {}, {:?} left",
            f64::from(half_seconds) / 2.0,
            lease.is_held(),
            lease.remaining()
        );
    }
    lease.release().await?;
    println!("automatic: {} renewals were confirmed", client.stats().renewals);

    // A fixed lease ends by itself, unless it is extended. `extend` sets what is left; it adds nothing.
    let lease = client.lock("example:renew").ttl(TTL).auto_renew(false).acquire().await?;
    lease.extend(2 * TTL).await?;
    sleep(TTL + TTL / 4).await;
    println!("by hand:   after 1.25 s held: {}", lease.is_held());

    // `is_held` turns false a little before the server lets somebody else in, never after.
    sleep(TTL).await;
    println!("by hand:   after 2.25 s held: {}", lease.is_held());
    println!("by hand:   release says {}", lease.release().await?.as_str());
    client.close().await;
    Ok(())
}
