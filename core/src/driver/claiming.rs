//! The guard that undoes what an acquire or an attach may have taken. It exists before the first byte is sent, and
//! dropping it at any point queues the undo: the core is responsible for it, not the caller.

use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::hold::Hold;
use crate::machine::{Answer, Claim, NodeSet, Op, Outcome, PendingUndo, Reply, Time, Uncertainty, release_op};

/// A claim in progress.
pub(crate) struct Claiming {
    engine: Arc<Engine>,
    claim: Claim,
    server_ttl: Duration,
    /// What may be on the server; `None` when surely nothing is.
    doubt: Option<Uncertainty>,
    /// Where it may be, if the store has several nodes.
    nodes: NodeSet,
    /// It never was a hold, so its release is not announced.
    quiet: bool,
    /// It continues a hold that existed before, for whose end others wait.
    attaching: bool,
    /// The key stays until then when it is released.
    stays_until: Time,
    /// The connection of the request that is being sent.
    sending_on: Option<u64>,
    /// Whether the engine counts this claim as in progress.
    noted: bool,
    /// A hold that counted as held until now: the first answer tells whether it was.
    believed: Option<Arc<Hold>>,
}

impl Claiming {
    pub(crate) fn new(engine: Arc<Engine>, claim: Claim, server_ttl_ms: u64) -> Claiming {
        engine.reserve_duty();
        Claiming {
            engine,
            claim,
            server_ttl: Duration::from_millis(server_ttl_ms),
            doubt: None,
            nodes: NodeSet::ALL,
            quiet: false,
            attaching: false,
            stays_until: Time::ZERO,
            sending_on: None,
            noted: false,
            believed: None,
        }
    }

    /// A claim to a hold that was detached.
    pub(crate) fn attaching(engine: Arc<Engine>, claim: Claim, server_ttl_ms: u64) -> Claiming {
        let mut claiming = Claiming::new(engine, claim, server_ttl_ms);
        claiming.attaching = true;
        claiming
    }

    /// An existing hold that is about to be released.
    pub(crate) fn existing(engine: Arc<Engine>, hold: &Hold) -> Claiming {
        let mut claiming = Claiming::new(engine, hold.claim.clone(), hold.longest_ms());
        claiming.doubt = Some(hold.doubt);
        claiming.stays_until = hold.terms.stays_until(hold.granted_at);
        claiming.note();
        claiming
    }

    /// Its holder counted it as held until now, and does not wait for the answer.
    pub(crate) fn believed(mut self, hold: Arc<Hold>) -> Claiming {
        self.believed = Some(hold);
        self
    }

    /// The operation that releases it now.
    pub(crate) fn giving_back(&self, now: Time) -> Op {
        release_op(now, self.claim.clone(), self.stays_until)
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
        let owing = self.doubt.is_some() || self.sending_on.is_some();
        if owing && !self.noted {
            self.engine.unsettled();
        } else if !owing && self.noted {
            self.engine.settled();
        }
        self.noted = owing;
    }

    /// The request was answered, or failed.
    pub(crate) fn answered(&mut self, answer: &Answer) {
        self.sending_on = None;
        match &answer.outcome {
            Outcome::Applied(Reply::Granted { .. } | Reply::Unconfirmed(_)) => {
                self.doubt = Some(self.doubt.unwrap_or(Uncertainty::Confirmed));
            }
            // no majority of several nodes: some may have granted it all the same
            Outcome::Applied(Reply::Split { may_still_arrive, .. }) => {
                self.quiet = self.doubt.is_none() && !self.attaching;
                let doubt = if *may_still_arrive { Uncertainty::MayStillArrive } else { Uncertainty::Confirmed };
                self.doubt = Some(self.doubt.unwrap_or(doubt));
            }
            // refused: this request took nothing
            Outcome::Applied(_) | Outcome::NotApplied(_) => {}
            Outcome::Indeterminate(_) => self.doubt = Some(Uncertainty::MayStillArrive),
        }
        self.note();
    }

    /// Whether surely nothing of it is on the server or in flight.
    pub(crate) fn is_clean(&self) -> bool {
        self.doubt.is_none() && self.sending_on.is_none()
    }

    /// It became a lease, or was released: nothing has to be undone any more. Returns which requests may still arrive.
    pub(crate) fn settle(&mut self) -> Uncertainty {
        self.sending_on = None;
        let doubt = self.doubt.take();
        self.note();
        doubt.unwrap_or(Uncertainty::Confirmed)
    }

    /// It was released, except on these nodes.
    pub(crate) fn settle_but(&mut self, owed: NodeSet, may_still_arrive: bool) {
        self.sending_on = None;
        self.doubt = Some(if may_still_arrive { Uncertainty::MayStillArrive } else { Uncertainty::Confirmed });
        self.nodes = owed;
        self.note();
    }

    fn owed(&self) -> Option<Uncertainty> {
        match (self.doubt, self.sending_on) {
            (None, None) => None,
            (Some(doubt), None) => Some(doubt),
            // the ordered connection is still the one it was sent on: an undo on the same one cannot overtake it
            (None | Some(Uncertainty::Confirmed), Some(connection))
                if connection != 0 && self.engine.store.connection() == connection =>
            {
                Some(Uncertainty::Ordered(connection))
            }
            _ => Some(Uncertainty::MayStillArrive),
        }
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        // the usual case, a settled claim, takes no lock
        if (self.doubt.is_none() && self.sending_on.is_none()) || !self.engine.is_here() {
            return;
        }
        if let Some(doubt) = self.owed() {
            let duty = PendingUndo::new(self.claim.clone(), self.server_ttl, doubt);
            let duty = PendingUndo { nodes: self.nodes, quiet: self.quiet, stays_until: self.stays_until, ..duty };
            self.engine.take_duty(duty, self.believed.take());
        }
        if self.noted {
            self.engine.settled();
        }
    }
}
