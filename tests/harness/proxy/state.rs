//! What is known about one connection, under its mutex, and how replies get in line.

use std::sync::Arc;
use std::time::Instant;

use super::Shared;
use super::expect::Awaiting;
use super::lane::{Lane, Parcel, Way};
use super::rule::{Data, ReplyAction};

#[derive(Default)]
pub(super) struct State {
    pub(super) to_server: Lane,
    pub(super) to_client: Lane,
    pub(super) awaiting: Awaiting,
    /// A request was lost, so all later ones are.
    pub(super) requests_lost: bool,
    /// A reply was lost, so all later ones are.
    pub(super) replies_lost: bool,
    /// Cut by the proxy, or closed by either side.
    pub(super) over: bool,
    pub(super) cut: bool,
    /// Threads that still hold the client's socket.
    pub(super) client_threads: usize,
}

impl State {
    pub(super) fn lane(&mut self, way: Way) -> &mut Lane {
        match way {
            Way::ToServer => &mut self.to_server,
            Way::ToClient => &mut self.to_client,
        }
    }

    pub(super) const fn dead_or_cut(&self) -> bool {
        self.cut || self.to_client.dead
    }

    /// Gives the proxy's own answers, as far as no reply of the server comes before them.
    pub(super) fn answer_in_turn(&mut self, shared: &Shared) {
        while let Some((bytes, expected)) = self.awaiting.take_ready() {
            self.deliver(shared, bytes, expected.record, expected.action, expected.rule);
        }
    }

    pub(super) fn deliver(
        &mut self,
        shared: &Shared,
        frame: Vec<u8>,
        record: Option<usize>,
        action: ReplyAction,
        rule: Option<Arc<Data>>,
    ) {
        if self.replies_lost || self.cut {
            return;
        }
        let mut parcel = Parcel::new(frame, Instant::now() + shared.settings().latency, record);
        match action {
            ReplyAction::Deliver => {}
            ReplyAction::Drop => {
                self.replies_lost = true;
                parcel.bytes.clear();
                parcel.record = None;
            }
            ReplyAction::Hold => parcel.gate.clone_from(&rule),
            ReplyAction::Delay(by) => parcel.due += by,
            ReplyAction::Replace(bytes) => parcel.bytes = bytes,
            ReplyAction::CutInstead(how) | ReplyAction::CutAfter(how) => {
                if matches!(action, ReplyAction::CutInstead(_)) {
                    parcel.bytes.clear();
                    parcel.record = None;
                }
                parcel.then_cut = rule.clone().map(|rule| (how, rule));
            }
        }
        if let (Some(rule), None) = (rule, &parcel.then_cut) {
            rule.done();
        }
        self.to_client.push(parcel);
    }
}
