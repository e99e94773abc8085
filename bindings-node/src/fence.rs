//! The gate that checks fencing tokens at the resource.

use napi_derive::napi;

/// Remembers the highest fencing token seen. Tokens are below 2^53, so numbers carry them exactly.
#[napi]
pub struct FenceGate(onelock::FenceGate);

#[napi]
impl FenceGate {
    #[napi(constructor)]
    pub fn new(highest: f64) -> FenceGate {
        FenceGate(onelock::FenceGate::starting_at(highest as u64))
    }

    /// Whether the token may pass.
    #[napi]
    pub fn admit(&self, token: f64) -> bool {
        self.0.admit(token as u64).is_ok()
    }

    #[napi]
    pub fn highest(&self) -> f64 {
        self.0.highest() as f64
    }
}

/// The script that checks tokens beside data on a server.
#[napi]
pub fn fence_guard_script() -> &'static str {
    onelock::FENCE_GUARD_SCRIPT
}
