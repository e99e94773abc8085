//! The background runtime of a host: its only one.

use crate::Error;
use crate::sys::task::Handle;

/// The runtime.
#[allow(clippy::unnecessary_wraps)] // as where a system may refuse one
pub(crate) fn handle() -> Result<Handle, Error> {
    Ok(Handle)
}
