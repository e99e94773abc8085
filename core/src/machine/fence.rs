//! Fencing tokens: how strong a store's are, and the gate on the side of the protected resource.

use std::sync::atomic::{AtomicU64, Ordering};

/// How strong the fencing tokens of a store are. The order is the strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Grade {
    /// No fencing tokens.
    #[default]
    None,
    /// The store may forget acknowledged writes without notice (evicting policy, asynchronous replicas).
    BestEffort,
    /// Tokens grow even if the counter is lost, as long as the server's clock goes on.
    ClockBounded,
    /// The store keeps every acknowledged write.
    Strict,
}

impl Grade {
    /// The name of the grade, as options spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Grade::None => "None",
            Grade::BestEffort => "BestEffort",
            Grade::ClockBounded => "ClockBounded",
            Grade::Strict => "Strict",
        }
    }
}

/// A fencing token as it stands on a server, unless it is none: 0, or past what Lua and JavaScript count exactly.
pub(crate) fn stored_token(text: &[u8]) -> Option<u64> {
    let token: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (1..(1 << 53) - 1).contains(&token).then_some(token)
}

/// The resource's half of fencing, for a resource inside this process: remembers the highest token seen and turns away
/// every lower one. An equal token is the same holder and passes.
///
/// Lock-free and shareable between threads. One gate guards one lock name: tokens of different names don't compare.
///
/// ```
/// use onelock::FenceGate;
/// let gate = FenceGate::new();
/// assert!(gate.admit(7).is_ok());
/// assert!(gate.admit(7).is_ok());          // the same holder again
/// assert!(gate.admit(9).is_ok());          // the next holder
/// let refused = gate.admit(7).unwrap_err(); // the old holder, late
/// assert_eq!((refused.token, refused.highest), (7, 9));
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    highest: AtomicU64,
}

/// The same rule as a Lua script, for a resource that is itself a value in Redis or Valkey: writes `ARGV[2]` to `KEYS[1]`
/// unless a token higher than `ARGV[1]` was seen before (kept in `KEYS[2]`). Its header says the rest.
///
/// For a row of an SQL database the rule is one condition: `... SET fence = :token WHERE id = :id AND fence <= :token`.
pub const FENCE_GUARD_SCRIPT: &str = include_str!("fence_guard.lua");

/// A token that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The token that was turned away.
    pub token: u64,
    /// The highest token seen so far.
    pub highest: u64,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "stale fencing token {}: {} was seen already; this holder lost its lock, stop its work",
            self.token, self.highest
        )
    }
}

impl std::error::Error for Stale {}

impl FenceGate {
    /// A gate that has seen nothing.
    pub const fn new() -> FenceGate {
        FenceGate { highest: AtomicU64::new(0) }
    }

    /// A gate that continues from a stored value, for a resource that remembers it across restarts.
    pub const fn starting_at(highest: u64) -> FenceGate {
        FenceGate { highest: AtomicU64::new(highest) }
    }

    /// Admits the token, or says which higher one was seen. Never blocks.
    pub fn admit(&self, token: u64) -> Result<(), Stale> {
        let highest = self.highest.fetch_max(token, Ordering::AcqRel);
        if token < highest { Err(Stale { token, highest }) } else { Ok(()) }
    }

    /// The highest token seen, 0 for none: to be stored beside the resource.
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }
}
