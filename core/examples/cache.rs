//! A cache that many read and that one refreshes: readers share the lock, and whoever finds the value too old takes it alone,
//! looks again, and refreshes it once for all.
//!
//! ```sh
//! cargo run --example cache redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onelock::{Client, Error};

/// What all machines read; really a file or a row.
#[derive(Default)]
struct Cache {
    value: Mutex<Option<u32>>,
    refreshed: AtomicU32,
}

impl Cache {
    fn get(&self) -> Option<u32> {
        self.value.lock().map(|value| *value).unwrap_or_default()
    }

    async fn refresh(&self) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let round = self.refreshed.fetch_add(1, Ordering::Relaxed) + 1;
        if let Ok(mut value) = self.value.lock() {
            *value = Some(41 + round);
        }
    }
}

async fn read(client: &Client, cache: &Cache) -> Result<Option<u32>, Error> {
    let lock = client.rw_lock("example:cache");
    // many at a time
    let found = lock.read().with(|_lease| async { Ok::<_, Error>(cache.get()) }).await?;
    if found.is_some() {
        return Ok(found);
    }
    let lease = lock.write().acquire().await?;
    // another one may have refreshed it while this one waited
    if cache.get().is_none() {
        cache.refresh().await;
    }
    // others may read from here on, and no writer comes in between
    lease.downgrade().await?;
    let value = cache.get();
    lease.release().await?;
    Ok(value)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let cache = Arc::new(Cache::default());
    // two machines, in truth processes
    let machines = [Client::connect(&address).await?, Client::connect(&address).await?];
    let readers: Vec<_> = (0..20)
        .map(|number| {
            let (client, cache) = (machines[number % 2].clone(), cache.clone());
            tokio::spawn(async move { read(&client, &cache).await })
        })
        .collect();
    let mut served = 0;
    for reader in readers {
        let value = reader.await.unwrap_or(Ok(None))?;
        assert_eq!(value, Some(42));
        served += 1;
    }
    println!("{served} readers, refreshed {} time", cache.refreshed.load(Ordering::Relaxed));
    for client in machines {
        client.close().await;
    }
    Ok(())
}
