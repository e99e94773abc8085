//! What the item of a lock holds: the token of a mutex, or the token of a reentrant lock with its count and who it is.

use std::sync::Arc;

use crate::machine::{Claim, Kind, token};

/// The content of an item that is a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockItem {
    pub(super) kind: Kind,
    pub(super) token: String,
    pub(super) count: u64,
    /// Text for inspection, of a reentrant lock: a mutex has it in its token.
    pub(super) info: Option<String>,
}

impl LockItem {
    /// What a claim that is granted leaves.
    pub(super) fn of(claim: &Claim, info: Option<&Arc<str>>) -> LockItem {
        let info = info.filter(|_| claim.kind == Kind::Reentrant).map(ToString::to_string);
        LockItem { kind: claim.kind, token: claim.token.to_string(), count: 1, info }
    }

    /// `None` for what is no lock.
    pub(super) fn read(value: &[u8]) -> Option<LockItem> {
        let text = str::from_utf8(value).ok()?;
        if token::is_ours(value) {
            let is_token = token::is_well_formed(Kind::Mutex, text);
            return is_token.then(|| LockItem { kind: Kind::Mutex, token: text.to_owned(), count: 1, info: None });
        }
        let mut words = text.split(' ');
        let (token, count) = (words.next()?, words.next()?.parse().ok()?);
        if !token::is_owner(token.as_bytes()) {
            return None;
        }
        Some(LockItem {
            kind: Kind::Reentrant,
            token: token.to_owned(),
            count,
            info: words.next().filter(|info| !info.is_empty()).map(str::to_owned),
        })
    }

    pub(super) fn write(&self) -> String {
        match (self.kind, &self.info) {
            (Kind::Reentrant, Some(info)) => format!("{} {} {info}", self.token, self.count),
            (Kind::Reentrant, None) => format!("{} {}", self.token, self.count),
            _ => self.token.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_a_lock() {
        let uuid = token::client_uuid([7; 16]);
        let info = token::value([1; 16], Some(&token::OwnerInfo { label: "a b".into(), ..Default::default() }));
        for (kind, token, info) in [
            (Kind::Mutex, token::value([3; 16], None), None),
            (Kind::Mutex, info.clone(), None),
            (Kind::Reentrant, token::field(&uuid, 8), None),
            (Kind::Reentrant, token::field(&uuid, 8), Some(info)),
        ] {
            let claim = Claim { kind, key: (*b"k").into(), token };
            let item = LockItem::of(&claim, info.as_ref());
            assert_eq!(LockItem::read(item.write().as_bytes()), Some(item));
        }
        for other in [&b""[..], b"1", b"onelock1:zz", b"\xff", b"a b c", b"4711 1", uuid.as_bytes()] {
            assert_eq!(LockItem::read(other), None, "{other:?}");
        }
    }
}
