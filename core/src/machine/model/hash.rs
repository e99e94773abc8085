//! The fields of holds that are hashes, and numbers as text.

use super::Value;
use crate::machine::naming::{FENCE_FIELD, INFO_FIELD, MODE_FIELD};
use crate::machine::op::{Claim, Key};
use crate::machine::stored_token;
use crate::machine::token;

/// How many fields a reentrant lock has at most: its owner and our two notes.
const LOCK_FIELDS: usize = 3;

pub(super) fn fresh_hash(claim: &Claim, fence: Option<u64>, info: Option<&str>) -> Value {
    let mut fields = vec![(claim.token.clone().into(), decimal(1))];
    if let Some(fence) = fence {
        fields.push((Key::from(FENCE_FIELD.as_bytes()), decimal(fence)));
    }
    if let Some(info) = info.filter(|info| !info.is_empty()) {
        fields.push((Key::from(INFO_FIELD.as_bytes()), Key::from(info.as_bytes())));
    }
    Value::Hash(fields)
}

/// The hash of a hold that goes over to this claim.
pub(super) fn reowned(
    claim: &Claim,
    count: Option<&Key>,
    mode: Option<&Key>,
    fence: Option<&Key>,
    info: Option<&str>,
) -> Value {
    let mut fields = vec![(claim.token.clone().into(), count.cloned().unwrap_or_else(|| decimal(1)))];
    fields.extend(mode.map(|mode| (Key::from(MODE_FIELD.as_bytes()), mode.clone())));
    fields.extend(fence.map(|fence| (Key::from(FENCE_FIELD.as_bytes()), fence.clone())));
    let info = info.filter(|info| !info.is_empty());
    fields.extend(info.map(|info| (Key::from(INFO_FIELD.as_bytes()), Key::from(info.as_bytes()))));
    Value::Hash(fields)
}

/// Whether a hash field names an owner and not one of our notes beside it.
pub(super) fn is_owner(field: &[u8]) -> bool {
    field != FENCE_FIELD.as_bytes() && field != INFO_FIELD.as_bytes()
}

/// Whether a hash is a reentrant lock, ours or Redisson's: one owner at most, and nothing but our notes beside it.
pub(super) fn is_lock(fields: &[(Key, Key)]) -> bool {
    let mut others = fields.iter().filter(|(field, _)| is_owner(field));
    let owner = others.next();
    fields.len() <= LOCK_FIELDS && others.next().is_none() && owner.is_none_or(|(field, _)| token::is_owner(field))
}

pub(super) fn stored_fence(value: &Value) -> Option<u64> {
    value.field(FENCE_FIELD.as_bytes()).and_then(|text| stored_token(text))
}

/// Whether a string is a number, as that of the free permits of a semaphore is.
pub(super) fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

pub(super) fn decimal(number: u64) -> Key {
    number.to_string().into_bytes().into()
}

pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
