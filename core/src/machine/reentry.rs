//! Re-entry: which hold belongs to which owner, and how often it was entered. The count lives here; the server gets the
//! absolute number, never an increment, so that a repeated request is harmless.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::Key;

/// Who re-enters a reentrant lock: two acquires with equal owners are the same holder.
///
/// An owner is local to its client; what stands on the server is fresh for every outermost acquisition.
///
/// ```
/// use onelock::Owner;
/// let request = Owner::new();
/// assert_eq!(request, request.clone());
/// assert_ne!(request, Owner::new());
/// assert_eq!(Owner::named("worker-7"), Owner::named("worker-7"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Id);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Id {
    Number(u64),
    Name(Arc<[u8]>),
}

impl Owner {
    /// An owner equal to nobody but its clones.
    #[allow(clippy::new_without_default)] // a default owner that differs every time would surprise
    pub fn new() -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(Id::Number(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The owner of this name: equal wherever the same name is given in this client.
    pub fn named(name: impl AsRef<[u8]>) -> Owner {
        Owner(Id::Name(name.as_ref().into()))
    }
}

/// What an owner's entry requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enter<H> {
    /// The owner does not hold it: acquire, then report [`Registry::granted`] or [`Registry::abandoned`].
    First,
    /// It is held: send this count to the server, then report [`Registry::entered`].
    Again {
        /// The hold.
        hold: H,
        /// The absolute count to set.
        count: u64,
    },
    /// The same owner is in the middle of something: ask again when the registry has changed.
    Wait,
    /// The hold that would be entered was lost. Its handles have to be released first.
    Lost(H),
}

/// What leaving a hold takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The owner still holds it: send this count to the server.
    Inner {
        /// The absolute count to set.
        count: u64,
    },
    /// The last one left: release.
    Last,
    /// The same owner is in the middle of something: ask again when the registry has changed.
    Wait,
}

#[derive(Clone, Debug)]
enum OwnerEntry<H> {
    Acquiring,
    Held { id: u64, hold: H, count: u64, busy: bool },
}

/// The holds of one client by key and owner.
#[derive(Clone, Debug)]
pub struct Registry<H> {
    slots: HashMap<(Key, Owner), OwnerEntry<H>>,
}

impl<H> Default for Registry<H> {
    fn default() -> Registry<H> {
        Registry { slots: HashMap::new() }
    }
}

impl<H: Clone> Registry<H> {
    /// An owner wants to enter. `is_held` says whether a hold is still believed.
    pub fn enter(&mut self, key: &Key, owner: &Owner, is_held: impl Fn(&H) -> bool) -> Enter<H> {
        match self.slots.entry((key.clone(), owner.clone())) {
            Entry::Vacant(slot) => {
                slot.insert(OwnerEntry::Acquiring);
                Enter::First
            }
            Entry::Occupied(mut slot) => match slot.get_mut() {
                OwnerEntry::Acquiring | OwnerEntry::Held { busy: true, .. } => Enter::Wait,
                OwnerEntry::Held { hold, .. } if !is_held(hold) => Enter::Lost(hold.clone()),
                OwnerEntry::Held { hold, count, busy, .. } => {
                    *busy = true;
                    Enter::Again { hold: hold.clone(), count: *count + 1 }
                }
            },
        }
    }

    /// The first acquire was granted; `id` names the hold.
    pub fn granted(&mut self, key: &Key, owner: &Owner, id: u64, hold: H) {
        self.slots.insert((key.clone(), owner.clone()), OwnerEntry::Held { id, hold, count: 1, busy: false });
    }

    /// The first acquire ended without a hold.
    pub fn abandoned(&mut self, key: &Key, owner: &Owner) {
        let slot = (key.clone(), owner.clone());
        if matches!(self.slots.get(&slot), Some(OwnerEntry::Acquiring)) {
            self.slots.remove(&slot);
        }
    }

    /// A re-entry was confirmed (`inside`) or not. False when the hold ended meanwhile: start over.
    pub fn entered(&mut self, key: &Key, owner: &Owner, id: u64, inside: bool) -> bool {
        let Some(OwnerEntry::Held { count, busy, .. }) = self.held(key, owner, id) else { return false };
        *busy = false;
        if inside {
            *count += 1;
        }
        true
    }

    /// An owner leaves and can tell the server. [`Leave::Inner`] is followed by [`Registry::left`].
    pub fn leave(&mut self, key: &Key, owner: &Owner, id: u64) -> Leave {
        match self.held(key, owner, id) {
            Some(OwnerEntry::Held { busy: true, .. }) => Leave::Wait,
            Some(OwnerEntry::Held { count, busy, .. }) if *count > 1 => {
                *count -= 1;
                *busy = true;
                Leave::Inner { count: *count }
            }
            _ => self.remove(key, owner, id),
        }
    }

    /// The server was told of an inner leave, or could not be.
    pub fn left(&mut self, key: &Key, owner: &Owner, id: u64) {
        if let Some(OwnerEntry::Held { busy, .. }) = self.held(key, owner, id) {
            *busy = false;
        }
    }

    /// An owner leaves without telling the server (a dropped handle). True when it was the last one.
    pub fn leave_silently(&mut self, key: &Key, owner: &Owner, id: u64) -> bool {
        match self.held(key, owner, id) {
            Some(OwnerEntry::Held { count, .. }) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => self.remove(key, owner, id) == Leave::Last,
        }
    }

    /// How often the hold was entered; 0 when it is gone.
    pub fn count(&self, key: &Key, owner: &Owner, id: u64) -> u64 {
        match self.slots.get(&(key.clone(), owner.clone())) {
            Some(OwnerEntry::Held { id: held, count, .. }) if *held == id => *count,
            _ => 0,
        }
    }

    /// The same while no call of the owner is in progress; `None` otherwise.
    pub fn settled_count(&self, key: &Key, owner: &Owner, id: u64) -> Option<u64> {
        match self.slots.get(&(key.clone(), owner.clone())) {
            Some(OwnerEntry::Held { id: held, busy: true, .. }) if *held == id => None,
            _ => Some(self.count(key, owner, id)),
        }
    }

    /// Whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn held(&mut self, key: &Key, owner: &Owner, id: u64) -> Option<&mut OwnerEntry<H>> {
        self.slots
            .get_mut(&(key.clone(), owner.clone()))
            .filter(|slot| matches!(slot, OwnerEntry::Held { id: held, .. } if *held == id))
    }

    fn remove(&mut self, key: &Key, owner: &Owner, id: u64) -> Leave {
        if self.held(key, owner, id).is_some() {
            self.slots.remove(&(key.clone(), owner.clone()));
        }
        Leave::Last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        b"a".as_slice().into()
    }

    #[test]
    fn counts_are_absolute_and_the_last_one_releases() {
        let (key, owner) = (key(), Owner::new());
        let mut registry = Registry::default();
        assert_eq!(registry.enter(&key, &owner, |_: &char| true), Enter::First);
        assert_eq!(registry.enter(&key, &owner, |_| true), Enter::Wait, "one after the other");
        registry.granted(&key, &owner, 1, 'h');
        assert_eq!(registry.enter(&key, &owner, |_| true), Enter::Again { hold: 'h', count: 2 });
        assert_eq!(registry.enter(&key, &owner, |_| true), Enter::Wait);
        assert!(registry.entered(&key, &owner, 1, true));
        assert_eq!(registry.leave(&key, &owner, 1), Leave::Inner { count: 1 });
        assert_eq!(registry.leave(&key, &owner, 1), Leave::Wait);
        registry.left(&key, &owner, 1);
        assert_eq!(registry.leave(&key, &owner, 1), Leave::Last);
        assert!(registry.is_empty());
    }

    #[test]
    fn an_unconfirmed_entry_does_not_count() {
        let (key, owner) = (key(), Owner::new());
        let mut registry = Registry::default();
        registry.enter(&key, &owner, |_: &char| true);
        registry.granted(&key, &owner, 1, 'h');
        registry.enter(&key, &owner, |_| true);
        assert_eq!(registry.settled_count(&key, &owner, 1), None, "it tells the server itself");
        assert!(registry.entered(&key, &owner, 1, false));
        assert_eq!(registry.settled_count(&key, &owner, 1), Some(1));
        assert_eq!(registry.count(&key, &owner, 1), 1);
        assert!(registry.leave_silently(&key, &owner, 1));
        assert!(!registry.entered(&key, &owner, 1, true), "the hold is gone");
        assert_eq!(registry.settled_count(&key, &owner, 1), Some(0));
    }

    #[test]
    fn a_lost_hold_is_not_entered_and_another_owner_is_nobody() {
        let (key, owner) = (key(), Owner::new());
        let mut registry = Registry::default();
        registry.enter(&key, &owner, |_: &char| true);
        registry.granted(&key, &owner, 1, 'h');
        assert_eq!(registry.enter(&key, &owner, |_| false), Enter::Lost('h'));
        assert_eq!(registry.enter(&key, &Owner::new(), |_| true), Enter::First);
        registry.leave(&key, &owner, 1);
        assert_eq!(registry.enter(&key, &owner, |_| true), Enter::First, "released: a fresh hold");
        registry.abandoned(&key, &owner);
        assert_eq!(registry.enter(&key, &owner, |_| true), Enter::First);
    }
}
