//! The address of a server in memory: `memory://`, `memory://NAME`.

use std::sync::Arc;

use super::{CAPABILITIES, MemoryStore};
use crate::config::Options;
use crate::error::{Error, ErrorKind};
use crate::store::address::StoreAddress;
use crate::store::{Capabilities, SharedStore};

/// The address of a server in memory.
struct MemoryAddress {
    /// Empty for a private one.
    name: String,
}

/// Reads `memory://` and `memory://NAME`.
#[allow(clippy::unnecessary_wraps, reason = "the addresses of other stores can be wrong")]
pub(crate) fn read(url: &str, _options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    let name = url.split_once("://").map_or("", |(_, name)| name.trim_end_matches('/'));
    Ok(Box::new(MemoryAddress { name: name.to_owned() }))
}

impl StoreAddress for MemoryAddress {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, _options: &Options) -> SharedStore {
        Arc::new(match self.name.as_str() {
            "" => MemoryStore::private(),
            name => MemoryStore::named(name),
        })
    }

    fn check_reopen(&self) -> Result<(), Error> {
        if !self.name.is_empty() {
            return Ok(());
        }
        let detail = "the runtime on which this client was first used has ended, and its memory:// with it; make a new \
                      client, or name the store (memory://NAME)";
        Err(Error::new(ErrorKind::Unsupported, "use the client", detail))
    }
}
