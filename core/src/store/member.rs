//! What a store needs in order to vote as one of several independent ones.

use std::fmt;
use std::sync::Arc;

use super::diagnosis::Finding;
use super::{Boxed, SharedStore};
use crate::config::Options;
use crate::machine::quorum::ServerRun;

/// The address of a store that can be one of several: it carries out `Vote` and `WriteBack`, says which connection is an
/// ordered one, and tells its run and its data on every new connection.
pub(crate) trait MemberAddress: Send + Sync {
    /// Where it is, without secrets. The same for the same place.
    fn name(&self) -> String;

    /// A store at this address, which tells its run to the observer before it sends a request on a new connection. Opens no
    /// socket.
    fn open_member(&self, options: &Options, observer: RunObserver) -> SharedStore;

    /// Looks at what is there step by step, and tells the observer.
    fn diagnose_member(&self, options: &Options, name: Vec<u8>, observer: RunObserver) -> Boxed<Vec<Finding>>;
}

/// Is told which run of a server was met, if that is known.
type ObserveRun = dyn Fn(Option<&ServerRun>) + Send + Sync;

/// Called for every connection, before any request is sent on it.
#[derive(Clone)]
pub(crate) struct RunObserver(Arc<ObserveRun>);

impl RunObserver {
    pub(crate) fn new(told: impl Fn(Option<&ServerRun>) + Send + Sync + 'static) -> RunObserver {
        RunObserver(Arc::new(told))
    }

    /// Passes on what the server says about itself; `None` if it refused.
    pub(crate) fn observe(&self, run: Option<&ServerRun>) {
        (self.0)(run);
    }
}

/// It is no part of an address's identity.
impl PartialEq for RunObserver {
    fn eq(&self, _: &RunObserver) -> bool {
        true
    }
}

impl Eq for RunObserver {}

impl fmt::Debug for RunObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunObserver")
    }
}
