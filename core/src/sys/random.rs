//! Random bytes from the operating system.

#[cfg(target_family = "wasm")]
pub(crate) use super::hosted::random;
#[cfg(not(target_family = "wasm"))]
use crate::{Error, ErrorKind};

/// Sixteen bytes from the operating system; never from a generator that a fork would copy.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn random() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Internal, "make a token", format!("the operating system gave no random bytes: {error}"))
    })?;
    Ok(bytes)
}
