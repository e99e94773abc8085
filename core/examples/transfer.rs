//! A transfer between two accounts, which are locked together. Many transfers run at once, in both directions: since all
//! of them take the locks in one order, none waits for another in a circle.
//!
//! ```sh
//! cargo run --example transfer redis://127.0.0.1:6379     # or with the address in $ONELOCK_URL
//! ```
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onelock::{Client, Error};

/// The accounts; really rows of a database, each with the highest fencing token that wrote it.
struct Bank([AtomicI64; 3]);

impl Bank {
    fn balance(&self, account: usize) -> i64 {
        self.0[account].load(Ordering::Relaxed)
    }

    fn set(&self, account: usize, balance: i64) {
        self.0[account].store(balance, Ordering::Relaxed);
    }
}

async fn transfer(client: &Client, bank: &Bank, from: usize, to: usize, amount: i64) -> Result<bool, Error> {
    let names = [from, to].map(|account| format!("example:account:{account}"));
    client
        .multi_lock(&names)
        .with(|lease| async move {
            if bank.balance(from) < amount {
                return Ok(false);
            }
            // both are ours; each account would be written with its own token: lease.fencing_token_of(name)
            assert!(lease.is_held());
            let (left, grown) = (bank.balance(from) - amount, bank.balance(to) + amount);
            tokio::task::yield_now().await;
            bank.set(from, left);
            bank.set(to, grown);
            Ok(true)
        })
        .await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::connect(&std::env::args().nth(1).unwrap_or_default()).await?;
    let bank = Arc::new(Bank([100, 100, 100].map(AtomicI64::new)));
    let mut running = Vec::new();
    for number in 0..30 {
        let (client, bank) = (client.clone(), bank.clone());
        let (from, to) = (number % 3, (number + 1 + number / 15) % 3);
        running.push(tokio::spawn(async move { transfer(&client, &bank, from, to, 5).await }));
    }
    let mut made = 0;
    for transfer in running {
        if let Ok(done) = transfer.await {
            made += i64::from(done?);
        }
    }
    let balances: Vec<i64> = (0..3).map(|account| bank.balance(account)).collect();
    println!("{made} transfers, balances {balances:?}, together {}", balances.iter().sum::<i64>());
    client.close().await;
    Ok(())
}
