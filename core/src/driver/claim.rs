//! Claims: a token of its own for every acquire and attach, and the inspection text beside it.

use std::sync::Arc;

use super::engine::Engine;
use super::lock_spec::LockSpec;
use crate::Error;
use crate::machine::{Claim, HoldLayout, OwnerInfo, TokenForm, token};
use crate::sys::clock;
use crate::sys::random::random;

/// The inspection text of a hold that is granted now, if this client is inspectable.
pub(crate) fn info_now(engine: &Engine) -> Option<Arc<str>> {
    engine.options.inspectable.then(|| token::value([0; 16], Some(&owner_info(engine))))
}

/// What inspection tells about a hold of this client that is granted now.
fn owner_info(engine: &Engine) -> OwnerInfo {
    OwnerInfo {
        label: engine.options.label.clone().unwrap_or_default(),
        pid: engine.stamp.pid(),
        host: engine.host.clone(),
        since_ms: clock::wall_us() / 1000,
    }
}

/// A claim with a token of its own, and the inspection text of a lock that is a hash.
pub(crate) fn fresh_claim(engine: &Engine, lock: &LockSpec) -> Result<(Claim, Option<Arc<str>>), Error> {
    let random = random()?;
    let options = &engine.options;
    let owner = options.inspectable.then(|| owner_info(engine));
    let row = lock.kind.row();
    let (inside, beside) = match row.layout {
        HoldLayout::Text => (owner.as_ref(), None),
        HoldLayout::Hash | HoldLayout::Shared => (None, owner.as_ref()),
        HoldLayout::Permits => (None, None),
    };
    let token = match row.token {
        TokenForm::Value => token::value(random, inside),
        TokenForm::Owner => {
            let number = random.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte));
            token::field(&engine.uuid, number)
        }
        // checked with the description: it fits
        TokenForm::Permits => token::permits(random, lock.count as u16),
    };
    let info = beside.map(|owner| token::value(random, Some(owner)));
    Ok((Claim { kind: lock.kind, key: lock.key.clone(), token }, info))
}
