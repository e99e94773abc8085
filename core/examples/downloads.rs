//! At most three downloads at a time, on all machines together: each takes one of three permits, which the servers of a
//! partner allow.
//!
//! ```sh
//! cargo run --example downloads redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onelock::{Client, Error};

const AT_ONCE: u32 = 3;

/// The partner, who counts.
#[derive(Default)]
struct Partner {
    connected: AtomicU32,
    most: AtomicU32,
}

async fn download(client: &Client, partner: &Partner) -> Result<(), Error> {
    // every program names the same number of permits
    client
        .semaphore("partner:downloads", AT_ONCE)
        .with(|_permit| async {
            let now = partner.connected.fetch_add(1, Ordering::SeqCst) + 1;
            partner.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(30)).await;
            partner.connected.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
        .await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let partner = Arc::new(Partner::default());
    // two machines, in truth processes
    let machines = [Client::connect(&address).await?, Client::connect(&address).await?];
    let downloads: Vec<_> = (0..12)
        .map(|number| {
            let (client, partner) = (machines[number % 2].clone(), partner.clone());
            tokio::spawn(async move { download(&client, &partner).await })
        })
        .collect();
    let mut done = 0;
    for download in downloads {
        if let Ok(result) = download.await {
            result?;
            done += 1;
        }
    }
    let most = partner.most.load(Ordering::SeqCst);
    assert!(most <= AT_ONCE, "{most} at a time");
    println!("{done} downloads, {most} at a time at most");
    for client in machines {
        client.close().await;
    }
    Ok(())
}
