//! What an address is once it was read: a place where a store can be opened.

use std::sync::Arc;

use super::diagnosis::{Finding, FindingList};
use super::member::MemberAddress;
use super::{Boxed, Capabilities, SharedStore};
use crate::config::Options;
use crate::error::Error;

/// Reads an address; it begins with one of the scheme's names.
pub(crate) type ReadAddress = fn(&str, &Options) -> Result<Box<dyn StoreAddress>, Error>;

/// An address that was read and checked. No I/O.
pub(crate) trait StoreAddress: Send + Sync {
    /// What a store at this address can do.
    fn capabilities(&self) -> &'static Capabilities;

    /// A store at this address. Opens no socket.
    fn open(&self, options: &Options) -> SharedStore;

    /// The same as one of several independent stores; `None` where it cannot be one.
    #[cfg_attr(not(feature = "redlock"), allow(dead_code, reason = "what only a store of several servers uses"))]
    fn as_member(&self) -> Option<Arc<dyn MemberAddress>> {
        None
    }

    /// Looks at what is there step by step; `name` is what the keys begin with that this user may lock.
    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        let _ = (options, name);
        let mut found = FindingList::of(self.capabilities().store);
        let detail = "locks are in the memory of this process: they exclude nobody in another one";
        found.remark(
            "name",
            detail,
            "use the address of a server, or file:///FOLDER on one machine, for more than one",
        );
        Box::pin(std::future::ready(found.all))
    }

    /// Whether another store that is opened here keeps the locks of the first one, whose runtime has ended.
    fn check_reopen(&self) -> Result<(), Error> {
        Ok(())
    }
}
