//! What to do when a lease is lost: stop the guarded work, and let the resource refuse what comes too late.
//!
//! ```sh
//! cargo run --example lost_lease redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example shows what happens")]

use std::time::Duration;

use onelock::{Client, FenceGate};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), onelock::Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let client = Client::connect(&address).await?;
    let lock = client.lock("example:lost_lease").ttl(Duration::from_secs(1));

    // The resource's half: it remembers the highest token that it has seen and refuses lower ones. A database keeps
    // the number in a column; a resource inside the process uses a gate.
    let resource = FenceGate::new();

    let lease = lock.acquire().await?;
    let old_token = lease.fencing_token().expect("fencing is on by default");
    println!("first:  works with token {old_token}: {:?}", resource.admit(old_token));

    // Somebody takes the lock away. A restart of the server, an eviction or a failover would look the same.
    client.force_release("example:lost_lease").await?;

    // The loss is found at the next renewal, a third of the ttl away. `lost` is the quick way to hear of it, and the
    // other branch, the work, is dropped. `lease.is_held()` is the truth at any time, without waiting.
    tokio::select! {
        () = sleep(Duration::from_secs(10)) => println!("first:  finished its work"),
        reason = lease.lost() => println!("first:  stops its work: {}", reason.explain()),
    }
    println!("first:  held: {}", lease.is_held());

    // Meanwhile the next holder has come, with a higher token ...
    let next = lock.acquire().await?;
    let new_token = next.fencing_token().expect("fencing is on by default");
    println!("second: works with token {new_token}: {:?}", resource.admit(new_token));

    // ... so a write of the old holder that was under way all the time is refused.
    match resource.admit(old_token) {
        Ok(()) => println!("first:  its late write went through"),
        Err(stale) => println!("first:  its late write is refused: {stale}"),
    }
    next.release().await?;
    println!("first:  release says {}", lease.release().await?.as_str());

    // `with` does most of this: it cancels the body at the loss and says `Lost`.
    let outcome = lock
        .with(|_lease| async {
            client.force_release("example:lost_lease").await?;
            sleep(Duration::from_secs(10)).await;
            Ok::<_, onelock::Error>("finished")
        })
        .await;
    match outcome {
        Ok(text) => println!("with:   {text}"),
        Err(error) => println!("with:   {error}"),
    }
    client.close().await;
    Ok(())
}
