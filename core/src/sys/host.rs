//! The host's name.

/// The host's name, for inspection.
pub(crate) fn host() -> String {
    #[cfg(not(target_family = "wasm"))]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(target_family = "wasm")]
    return super::hosted::host().name();
}
