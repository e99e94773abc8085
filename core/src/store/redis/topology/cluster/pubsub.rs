//! Subscriptions that follow their slot: made at the node that serves it, and made again at the next one when it moves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::map::ClusterTopology;
use crate::store::redis::command::call::Announce;
use crate::store::redis::node::Node;
use crate::store::{Subscription, SubscriptionState};
use crate::sys::clock;
use crate::sys::task::{self, AbortHandle};

/// How long a subscription may be missing before the map is refreshed.
const REFRESH_AFTER: Duration = Duration::from_secs(1);

/// Ends the task of a subscription.
struct FollowGuard(AbortHandle);

impl Drop for FollowGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Subscribes to `channel`, which belongs to this slot, until the guard is dropped.
pub(crate) fn subscribe(topology: &Arc<ClusterTopology>, slot: u16, channel: Vec<u8>) -> Subscription {
    let (sender, state) = watch::channel(SubscriptionState::default());
    let task = task::spawn(follow_slot(topology.clone(), slot, channel, sender));
    Subscription { state, guard: Box::new(FollowGuard(task.abort_handle())) }
}

async fn follow_slot(
    topology: Arc<ClusterTopology>,
    slot: u16,
    channel: Vec<u8>,
    sender: watch::Sender<SubscriptionState>,
) {
    let mut versions = topology.versions();
    loop {
        versions.borrow_and_update();
        let Some(node) = topology.owner(slot) else {
            if topology.refresh(clock::now()).await.is_err() {
                task::sleep(REFRESH_AFTER).await;
            }
            if topology.store_state.check_open().is_err() {
                return;
            }
            continue;
        };
        let announce = topology.announce();
        let mut subscriptions = NodeSubscriptions::subscribe_at(&node, &channel, announce);
        loop {
            let subscribed = subscriptions.publish(&sender);
            tokio::select! {
                () = subscriptions.changed() => {
                    if !subscriptions.combined().subscribed {
                        // lost or refused: the slot may have moved
                        topology.schedule_refresh();
                    }
                }
                _ = versions.changed() => {
                    let stays = topology.owner(slot).is_some_and(|owner| Arc::ptr_eq(&owner, &node));
                    if !stays || topology.announce() != announce {
                        break;
                    }
                }
                () = task::sleep(REFRESH_AFTER), if !subscribed => topology.schedule_refresh(),
            }
        }
        drop(subscriptions);
        // messages in between were missed
        sender.send_modify(|state| {
            state.subscribed = false;
            state.generation += 1;
        });
    }
}

/// One or two subscriptions at a node.
struct NodeSubscriptions {
    classic: Option<Subscription>,
    sharded: Option<Subscription>,
}

impl NodeSubscriptions {
    fn subscribe_at(node: &Arc<Node>, channel: &[u8], announce: Announce) -> NodeSubscriptions {
        let subscription = |wanted: bool, sharded: bool| wanted.then(|| node.subscribe(channel.to_vec(), sharded));
        NodeSubscriptions {
            classic: subscription(announce != Announce::Sharded, false),
            sharded: subscription(announce != Announce::Forwarded, true),
        }
    }

    /// Subscribed means all that can be; refused that none can.
    fn combined(&self) -> SubscriptionState {
        let subscriptions = [&self.classic, &self.sharded].into_iter().flatten();
        let (mut some, mut all, mut refused, mut hints) = (false, true, true, 0);
        for subscription in subscriptions {
            let heard = subscription.state.borrow();
            some |= heard.subscribed;
            all &= heard.subscribed || heard.refused;
            refused &= heard.refused;
            hints += heard.generation;
        }
        // a message may come from another node than the answers: no connection, so that none is believed
        SubscriptionState { subscribed: some && all, refused, generation: hints, ..SubscriptionState::default() }
    }

    /// Publishes the combined state if it has changed. Returns whether it is subscribed.
    fn publish(&self, sender: &watch::Sender<SubscriptionState>) -> bool {
        let combined = self.combined();
        if combined.generation > 0 {
            sender.send_modify(|state| {
                state.subscribed = combined.subscribed;
                state.refused = combined.refused;
                state.generation += 1;
            });
        }
        combined.subscribed
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = changed(&mut self.classic) => {}
            () = changed(&mut self.sharded) => {}
        }
    }
}

async fn changed(subscription: &mut Option<Subscription>) {
    if let Some(subscription) = subscription
        && subscription.state.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
