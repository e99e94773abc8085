//! Subscriptions in a cluster: made at the node that serves the slot, and made again at the next one when it moves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::super::node::Node;
use super::super::request::Announce;
use super::atlas::Atlas;
use crate::backend::{Hearing, Subscription};
use crate::driver::clock;

/// How long a subscription may be missing before the map is doubted again.
const DOUBT: Duration = Duration::from_secs(1);

/// Ends the task that stands behind a subscription.
struct Guard(AbortHandle);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Subscribes to `channel`, which is of this slot, until the guard is dropped.
pub(super) fn subscribe(atlas: &Arc<Atlas>, slot: u16, channel: Vec<u8>) -> Subscription {
    let (sender, hearing) = watch::channel(Hearing::default());
    let task = tokio::spawn(relay(atlas.clone(), slot, channel, sender));
    Subscription { hearing, guard: Box::new(Guard(task.abort_handle())) }
}

async fn relay(atlas: Arc<Atlas>, slot: u16, channel: Vec<u8>, sender: watch::Sender<Hearing>) {
    let mut versions = atlas.versions();
    loop {
        versions.borrow_and_update();
        let Some(node) = atlas.owner(slot) else {
            if atlas.refresh(clock::now()).await.is_err() {
                tokio::time::sleep(DOUBT).await;
            }
            if atlas.common.check_open().is_err() {
                return;
            }
            continue;
        };
        let announce = atlas.announce();
        let mut ears = Ears::at(&node, &channel, announce);
        loop {
            let subscribed = ears.tell(&sender);
            tokio::select! {
                () = ears.changed() => {
                    if !ears.state().subscribed {
                        // lost or refused: perhaps because the slot is no longer there
                        atlas.suspect();
                    }
                }
                _ = versions.changed() => {
                    let stays = atlas.owner(slot).is_some_and(|owner| Arc::ptr_eq(&owner, &node));
                    if !stays || atlas.announce() != announce {
                        break;
                    }
                }
                () = tokio::time::sleep(DOUBT), if !subscribed => atlas.suspect(),
            }
        }
        drop(ears);
        // whatever was announced meanwhile was missed
        sender.send_modify(|hearing| {
            hearing.subscribed = false;
            hearing.hints += 1;
        });
    }
}

/// One or two subscriptions at a node.
struct Ears {
    classic: Option<Subscription>,
    sharded: Option<Subscription>,
}

impl Ears {
    fn at(node: &Arc<Node>, channel: &[u8], announce: Announce) -> Ears {
        let ear = |wanted: bool, sharded: bool| wanted.then(|| node.subscribe(channel.to_vec(), sharded));
        Ears { classic: ear(announce != Announce::Sharded, false), sharded: ear(announce != Announce::Classic, true) }
    }

    /// Subscribed means all that can be; refused that none can.
    fn state(&self) -> Hearing {
        let ears = [&self.classic, &self.sharded].into_iter().flatten();
        let (mut some, mut all, mut refused, mut hints) = (false, true, true, 0);
        for ear in ears {
            let heard = *ear.hearing.borrow();
            some |= heard.subscribed;
            all &= heard.subscribed || heard.refused;
            refused &= heard.refused;
            hints += heard.hints;
        }
        Hearing { subscribed: some && all, refused, hints }
    }

    /// Passes the state on, if there is anything new. Returns whether it is subscribed.
    fn tell(&self, sender: &watch::Sender<Hearing>) -> bool {
        let state = self.state();
        if state.hints > 0 {
            sender.send_modify(|hearing| {
                hearing.subscribed = state.subscribed;
                hearing.refused = state.refused;
                hearing.hints += 1;
            });
        }
        state.subscribed
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = changed(&mut self.classic) => {}
            () = changed(&mut self.sharded) => {}
        }
    }
}

async fn changed(ear: &mut Option<Subscription>) {
    if let Some(ear) = ear
        && ear.hearing.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
