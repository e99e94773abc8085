//! What a driver knows of the requests that carried one token: enough to say what an undo has to reckon with.

use onelock::machine::Uncertainty;

/// The requests of one token that may still be carried out, as far as the client knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail {
    /// Request and connection; 0 for an unordered connection or one that is not known yet.
    open: Vec<(u32, u64)>,
    granted: bool,
}

impl Trail {
    /// A request was handed to the store.
    pub(super) fn submitted(&mut self, request: u32) {
        self.open.push((request, 0));
    }

    /// It went out on this connection.
    pub(super) fn sent(&mut self, request: u32, connection: u64) {
        for open in self.open.iter_mut().filter(|open| open.0 == request) {
            open.1 = connection;
        }
    }

    /// It was answered, so it is not under way any more, and neither is what went before it on an ordered connection.
    pub(super) fn answered(&mut self, request: u32, connection: u64, granted: bool) {
        self.open.retain(|(other, other_connection)| {
            *other != request && !(connection != 0 && *other_connection == connection && *other < request)
        });
        self.granted = granted;
    }

    /// Whether an answer said that something stands on the server.
    pub(super) fn stands(&self) -> bool {
        self.granted
    }

    /// Whether another request than this one was submitted that may have been carried out.
    pub(super) fn has_others(&self, request: u32) -> bool {
        self.open.iter().any(|(other, _)| *other != request)
    }

    /// Nothing of it left, or the server refused it.
    pub(super) fn not_applied(&mut self, request: u32) {
        self.open.retain(|(other, _)| *other != request);
    }

    /// Whether anything was submitted that may be carried out yet.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// What an undo has to reckon with; `None` when nothing can be there to undo.
    pub(super) fn uncertainty(&self) -> Option<Uncertainty> {
        match self.open.first() {
            None => self.granted.then_some(Uncertainty::Confirmed),
            Some((_, first)) if *first != 0 && self.open.iter().all(|(_, other)| other == first) => {
                Some(Uncertainty::Ordered(*first))
            }
            Some(_) => Some(Uncertainty::MayStillArrive),
        }
    }
}
