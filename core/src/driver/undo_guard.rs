//! The guard that undoes what an acquire or an attach may have taken. It exists before the first byte is sent, and
//! dropping it at any point queues the undo: the core is responsible for it, not the caller.

use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::hold::Hold;
use crate::machine::{
    Answer, Claim, NodeSet, Op, Outcome, PLACE_MAX, PendingUndo, Reply, Time, Uncertainty, release_op, session_length,
};

/// A claim in progress.
pub(crate) struct UndoGuard {
    engine: Arc<Engine>,
    claim: Claim,
    server_ttl: Duration,
    /// What may be on the server; `None` when surely nothing is.
    uncertainty: Option<Uncertainty>,
    /// Where it may be, if the store has several nodes.
    nodes: NodeSet,
    /// It never was a hold, so its release is not announced.
    silent: bool,
    /// It continues a hold that existed before, for whose end others wait.
    attaching: bool,
    /// The key stays until then when it is released.
    stays_until: Time,
    /// The connection of the request that is being sent.
    sending_on: Option<u64>,
    /// Whether the engine counts this claim as in progress.
    noted: bool,
    /// A hold that counted as held until now: the first answer tells whether it was.
    believed_hold: Option<Arc<Hold>>,
}

impl UndoGuard {
    pub(crate) fn new(engine: Arc<Engine>, claim: Claim, server_ttl_ms: u64) -> UndoGuard {
        engine.reserve_undo();
        let mut server_ttl = Duration::from_millis(server_ttl_ms);
        if let Some(least) = engine.store.capabilities().place_min {
            server_ttl = server_ttl.max(least);
        }
        if claim.kind.row().queues {
            // a late enter stands in the queue for as long as a place lasts
            server_ttl = server_ttl.max(PLACE_MAX);
        }
        UndoGuard {
            engine,
            claim,
            server_ttl,
            uncertainty: None,
            nodes: NodeSet::ALL,
            silent: false,
            attaching: false,
            stays_until: Time::ZERO,
            sending_on: None,
            noted: false,
            believed_hold: None,
        }
    }

    /// A claim to a hold that was detached.
    pub(crate) fn attaching(engine: Arc<Engine>, claim: Claim, server_ttl_ms: u64) -> UndoGuard {
        let mut guard = UndoGuard::new(engine, claim, server_ttl_ms);
        guard.attaching = true;
        guard
    }

    /// An existing hold that is about to be released.
    pub(crate) fn existing(engine: Arc<Engine>, hold: &Hold) -> UndoGuard {
        let mut guard = UndoGuard::new(engine, hold.claim.clone(), hold.longest_ttl_ms());
        guard.uncertainty = Some(hold.uncertainty);
        guard.stays_until = hold.stays_until();
        guard.note();
        guard
    }

    /// Its holder counted it as held until now, and does not wait for the answer.
    pub(crate) fn believed_hold(mut self, hold: Arc<Hold>) -> UndoGuard {
        self.believed_hold = Some(hold);
        self
    }

    /// The operation that releases it now.
    pub(crate) fn release_op(&self, now: Time) -> Op {
        release_op(now, self.claim.clone(), self.stays_until)
    }

    /// How long the server keeps what its requests made, at most.
    pub(crate) fn server_ttl(&self) -> Duration {
        self.server_ttl
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// A request is about to be handed to a connection: the ordered one of this number, or a caller's own (0).
    pub(crate) fn sending(&mut self, connection: u64) {
        self.sending_on = Some(connection);
        self.note();
    }

    /// Tells the engine whether something may have to be undone: a client that closes waits for it.
    fn note(&mut self) {
        let outstanding = self.uncertainty.is_some() || self.sending_on.is_some();
        if outstanding && !self.noted {
            self.engine.claim_began();
        } else if !outstanding && self.noted {
            self.engine.claim_ended();
        }
        self.noted = outstanding;
    }

    /// The request was answered, or failed.
    pub(crate) fn answered(&mut self, answer: &Answer) {
        self.sending_on = None;
        if answer.connection != 0
            && self.uncertainty == Some(Uncertainty::Ordered(answer.connection))
            && matches!(answer.outcome, Outcome::Applied(_))
        {
            // what was sent before it on the same connection has been carried out by now
            self.uncertainty = Some(Uncertainty::Confirmed);
        }
        match &answer.outcome {
            // also what has a place in a queue on the server until it leaves
            Outcome::Applied(Reply::Granted { .. } | Reply::Queued { .. } | Reply::Unconfirmed(_)) => {
                self.uncertainty = Some(self.uncertainty.unwrap_or(Uncertainty::Confirmed));
            }
            // no majority of several nodes: some may have granted it all the same
            Outcome::Applied(Reply::Split { may_still_arrive, .. }) => {
                self.silent = self.uncertainty.is_none() && !self.attaching;
                let uncertainty = if *may_still_arrive { Uncertainty::MayStillArrive } else { Uncertainty::Confirmed };
                self.uncertainty = Some(self.uncertainty.unwrap_or(uncertainty));
            }
            // refused: this request took nothing
            Outcome::Applied(_) | Outcome::NotApplied(_) => {}
            Outcome::Indeterminate(_) => self.uncertainty = Some(Uncertainty::MayStillArrive),
        }
        self.note();
    }

    /// Another acquire of this client goes on with the claim, for a hold with this time to live on the server. A request
    /// that was under way may still arrive, unless what is sent from now on cannot overtake it.
    pub(crate) fn passed_on(&mut self, server_ttl_ms: u64) {
        self.server_ttl = self.server_ttl.max(Duration::from_millis(server_ttl_ms));
        self.uncertainty = self.outstanding();
        self.sending_on = None;
        self.note();
    }

    /// Whether surely nothing of it is on the server or in flight.
    pub(crate) fn is_clean(&self) -> bool {
        self.uncertainty.is_none() && self.sending_on.is_none()
    }

    /// It became a lease, or was released: nothing has to be undone any more. Returns which requests may still arrive.
    pub(crate) fn settle(&mut self) -> Uncertainty {
        self.sending_on = None;
        let uncertainty = self.uncertainty.take();
        self.note();
        uncertainty.unwrap_or(Uncertainty::Confirmed)
    }

    /// It was released, except on these nodes.
    pub(crate) fn settle_except(&mut self, owed: NodeSet, may_still_arrive: bool) {
        self.sending_on = None;
        self.uncertainty = Some(if may_still_arrive { Uncertainty::MayStillArrive } else { Uncertainty::Confirmed });
        self.nodes = owed;
        self.note();
    }

    fn outstanding(&self) -> Option<Uncertainty> {
        match (self.uncertainty, self.sending_on) {
            (uncertainty, None) => uncertainty,
            (Some(Uncertainty::Ordered(before)), Some(connection)) if before != connection => {
                Some(Uncertainty::MayStillArrive)
            }
            (Some(Uncertainty::MayStillArrive), Some(_)) => Some(Uncertainty::MayStillArrive),
            // the ordered connection is still the one it was sent on: an undo on the same one cannot overtake it
            (_, Some(connection)) if connection != 0 && self.engine.store.connection() == connection => {
                Some(Uncertainty::Ordered(connection))
            }
            (_, Some(_)) => Some(Uncertainty::MayStillArrive),
        }
    }
}

impl Drop for UndoGuard {
    fn drop(&mut self) {
        // the usual case, a settled claim, takes no lock
        if (self.uncertainty.is_none() && self.sending_on.is_none()) || !self.engine.is_here() {
            return;
        }
        if let Some(uncertainty) = self.outstanding() {
            let least = self.engine.store.capabilities().place_min;
            let there_for = least.map_or(self.server_ttl, |least| session_length(self.server_ttl, least));
            let undo = PendingUndo::new(self.claim.clone(), there_for, uncertainty);
            let undo = PendingUndo { nodes: self.nodes, quiet: self.silent, stays_until: self.stays_until, ..undo };
            self.engine.take_undo(undo, self.believed_hold.take());
        }
        if self.noted {
            self.engine.claim_ended();
        }
    }
}
