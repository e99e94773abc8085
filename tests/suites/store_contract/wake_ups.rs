//! A release is heard by those who wait elsewhere.

use onelock::machine::ClientTag;
use onelock_tests::face::block_on;

use crate::asker::{Asker, LONG, Seen, TTL, claim, every_way, release};

#[test]
fn a_release_wakes_a_subscriber_of_its_lock() {
    every_way("wake-ups", |place, asker, kind, name| {
        if !asker.store.capabilities().wake_ups {
            return; // waiters look again and again: `clients`
        }
        let waiter = Asker { store: place.store(), way: asker.way };
        let mine = claim(kind, name, 1);
        let mut subscription = block_on(async { waiter.store.subscribe(kind, &mine.key, ClientTag(1)) });
        let confirmed = subscription.state.wait_for(|state| state.subscribed);
        assert!(block_on(async { tokio::time::timeout(LONG, confirmed).await }).is_ok(), "never confirmed");
        // more often than the subscriptions of three servers can be confirmed late
        for _ in 0..4 {
            asker.take(&mine, TTL);
            let before = subscription.state.borrow_and_update().generation;
            assert_eq!(asker.ask(&release(&mine)), Seen::Released(true));
            let heard = subscription.state.wait_for(|state| state.generation > before);
            assert!(block_on(async { tokio::time::timeout(LONG, heard).await }).is_ok(), "not heard");
        }
        drop(subscription);
        waiter.store.close();
    });
}
