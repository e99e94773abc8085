//! The table of living handles. A handle is a number in the form of a pointer, and no number is used twice: so a freed
//! handle, or one of another kind, is detected instead of followed.
//!
//! It never blocks: `onelock_lease_is_held` is mostly a look-up, and a child forked at any moment uses the same table.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::object::Object;

/// The top bits of every handle on 64-bit machines: no valid address has them, so dereferencing a handle faults at
/// once.
#[cfg(target_pointer_width = "64")]
const MARK: usize = 0x4F4C << 48;
#[cfg(not(target_pointer_width = "64"))]
const MARK: usize = 0;
const INDEX_BITS: u32 = if usize::BITS == 64 { 24 } else { 16 };
const GENERATION_BITS: u32 = if usize::BITS == 64 { 24 } else { 16 };
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;
const GENERATION_MAX: u32 = (1 << GENERATION_BITS) - 1;
/// Segments have 64, 128, 256 ... slots; they are allocated when needed and never freed.
const FIRST: usize = 64;
const SEGMENTS: usize = INDEX_BITS as usize - 5;
const NONE: u32 = u32::MAX;

/// The bit of a slot's state that says that its handle is alive.
const ALIVE: u64 = 1 << 31;
/// The bits below it count the references to the object.
const REFS: u64 = ALIVE - 1;
/// The bits above it are the generation: how many handles the slot has had.
const GENERATION_AT: u32 = 32;

/// A place for one object, which is present while its handle is alive or referenced.
struct Slot {
    /// Generation, [`ALIVE`], references.
    state: AtomicU64,
    object: UnsafeCell<Option<Box<Object>>>,
    next_free: AtomicU32,
    /// The handle of a cancel token and whether it was cancelled: see [`Flag`].
    flag: AtomicU64,
}

// SAFETY: `object` is written in two places only: by the thread that took the slot from the list of free ones, before
// `state` says that it is alive (Release), and by the one whose decrement left a dead slot without shares (AcqRel), before
// the slot goes back to that list. It is read under a reference, taken by a compare-and-swap that saw it alive (Acquire).
unsafe impl Sync for Slot where Object: Send + Sync {}

/// A reference to the object of a handle that was alive when it was taken.
pub(crate) struct HandleRef {
    table: &'static Table,
    slot: &'static Slot,
    index: usize,
}

impl Deref for HandleRef {
    type Target = Object;
    fn deref(&self) -> &Object {
        // SAFETY: there are no writes while there is a reference.
        match unsafe { &*self.slot.object.get() } {
            Some(object) => object,
            None => unreachable!("an object stays as long as there is a reference in it"),
        }
    }
}

impl Drop for HandleRef {
    fn drop(&mut self) {
        let before = self.slot.state.fetch_sub(1, Ordering::AcqRel);
        if before & (ALIVE | REFS) != 1 {
            return;
        }
        // SAFETY: the handle is dead and this was the last reference, so no other thread reads or writes.
        let object = unsafe { (*self.slot.object.get()).take() };
        let generation = before >> GENERATION_AT;
        // a slot whose generations are used up is never used again
        if generation < u64::from(GENERATION_MAX) {
            self.slot.state.store((generation + 1) << GENERATION_AT, Ordering::Release);
            self.table.push_free(self.index, self.slot);
        }
        // last: it may take long, and use the table
        drop(object);
    }
}

/// The slots and the list of free ones.
pub(crate) struct Table {
    segments: [AtomicPtr<Slot>; SEGMENTS],
    fresh: AtomicU32,
    /// The first free index (low half) and a counter that tells equal heads apart (high half).
    free: AtomicU64,
}

/// The one table of the process.
pub(crate) static HANDLES: Table = Table::new();

fn segment_of(index: usize) -> (usize, usize) {
    let position = index + FIRST;
    let segment = (position.ilog2() - FIRST.ilog2()) as usize;
    (segment, position - (FIRST << segment))
}

impl Table {
    const fn new() -> Table {
        Table {
            segments: [const { AtomicPtr::new(null_mut()) }; SEGMENTS],
            fresh: AtomicU32::new(0),
            free: AtomicU64::new(NONE as u64),
        }
    }

    fn slot(&'static self, index: usize) -> Option<&'static Slot> {
        let (segment, offset) = segment_of(index);
        let first = self.segments.get(segment)?.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: a segment has FIRST << segment slots, offset is below that, and segments are never freed.
        Some(unsafe { &*first.add(offset) })
    }

    fn make_segment(&self, segment: usize) {
        let Some(place) = self.segments.get(segment) else { return };
        if !place.load(Ordering::Acquire).is_null() {
            return;
        }
        let slots: Box<[Slot]> = (0..FIRST << segment).map(|_| Slot::new()).collect();
        let first = Box::into_raw(slots).cast::<Slot>();
        if place.compare_exchange(null_mut(), first, Ordering::AcqRel, Ordering::Acquire).is_err() {
            let all = std::ptr::slice_from_raw_parts_mut(first, FIRST << segment);
            // SAFETY: made by Box::into_raw above with this length, and another thread's segment went in instead.
            drop(unsafe { Box::from_raw(all) });
        }
    }

    fn pop_free(&'static self) -> Option<usize> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            if index == NONE {
                return None;
            }
            let next = self.slot(index as usize)?.next_free.load(Ordering::Acquire);
            let new = ((head >> 32).wrapping_add(1) << 32) | u64::from(next);
            match self.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index as usize),
                Err(seen) => head = seen,
            }
        }
    }

    fn push_free(&self, index: usize, slot: &Slot) {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            slot.next_free.store(head as u32, Ordering::Release);
            let new = ((head >> 32).wrapping_add(1) << 32) | index as u64;
            match self.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    /// Makes a handle for an object. `None` when the table is full.
    pub(crate) fn insert(&'static self, object: Object) -> Option<usize> {
        let index = if let Some(index) = self.pop_free() {
            index
        } else {
            let index = self.fresh.fetch_add(1, Ordering::Relaxed) as usize;
            if index >= INDEX_MASK {
                self.fresh.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            self.make_segment(segment_of(index).0);
            index
        };
        let slot = self.slot(index)?;
        let dead = slot.state.load(Ordering::Acquire);
        let handle = MARK | ((dead >> GENERATION_AT) as usize) << INDEX_BITS | index;
        if matches!(object, Object::Cancel) {
            slot.flag.store((handle as u64) << 1, Ordering::Release);
        }
        // SAFETY: this thread took the free slot from the list, so no other uses it.
        unsafe { *slot.object.get() = Some(Box::new(object)) };
        slot.state.store(dead | ALIVE, Ordering::Release);
        Some(handle)
    }

    fn slot_of(&'static self, handle: usize) -> Option<&'static Slot> {
        let marked = MARK == 0 || handle & (0xFFFF << (usize::BITS - 16)) == MARK;
        if marked && handle != 0 { self.slot(handle & INDEX_MASK) } else { None }
    }

    /// A reference to a living slot, if `wanted` accepts its generation.
    fn reference(
        &'static self,
        slot: &'static Slot,
        index: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<HandleRef> {
        let mut seen = slot.state.load(Ordering::Acquire);
        loop {
            if seen & ALIVE == 0 || seen & REFS == REFS || !wanted((seen >> GENERATION_AT) as usize) {
                return None;
            }
            match slot.state.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(HandleRef { table: self, slot, index }),
                Err(other) => seen = other,
            }
        }
    }

    /// The object of this handle, if it is alive.
    pub(crate) fn get(&'static self, handle: usize) -> Option<HandleRef> {
        let slot = self.slot_of(handle)?;
        let generation = handle >> INDEX_BITS & GENERATION_MAX as usize;
        self.reference(slot, handle & INDEX_MASK, |alive| alive == generation)
    }

    /// Ends the handle. `None` when it was not alive, or `wanted` refuses it. The object is dropped with its last
    /// reference.
    pub(crate) fn remove(&'static self, handle: usize, wanted: impl Fn(&Object) -> bool) -> Option<HandleRef> {
        let reference = self.get(handle)?;
        if !wanted(&reference) || reference.slot.state.fetch_and(!ALIVE, Ordering::AcqRel) & ALIVE == 0 {
            return None;
        }
        // before the slot can be another handle: there is a reference
        reference.slot.flag.store(0, Ordering::Release);
        Some(reference)
    }

    /// Every living object.
    #[cfg(test)]
    pub(crate) fn all(&'static self) -> Vec<HandleRef> {
        let count = self.fresh.load(Ordering::Acquire) as usize;
        (0..count).filter_map(|index| self.reference(self.slot(index)?, index, |_| true)).collect()
    }

    /// The flag of this cancel token; it cannot set the flag of another handle. Async-signal-safe, as all of [`Flag`].
    pub(crate) fn flag(&'static self, handle: usize) -> Option<Flag> {
        let word = &self.slot_of(handle)?.flag;
        Some(Flag { word, unset: (handle as u64) << 1 })
    }
}

impl Slot {
    fn new() -> Slot {
        Slot {
            state: AtomicU64::new(1 << GENERATION_AT),
            object: UnsafeCell::new(None),
            next_free: AtomicU32::new(NONE),
            flag: AtomicU64::new(0),
        }
    }
}

/// One bit that belongs to a handle and ends with it. It is in the table, which is never freed, so that a signal
/// handler can set it with atomic operations alone.
#[derive(Clone, Copy)]
pub(crate) struct Flag {
    word: &'static AtomicU64,
    unset: u64,
}

impl Flag {
    /// Sets it. False when the handle is not alive.
    pub(crate) fn set(self) -> bool {
        let result = self.word.compare_exchange(self.unset, self.unset | 1, Ordering::AcqRel, Ordering::Acquire);
        result == Ok(self.unset) || result == Err(self.unset | 1)
    }

    /// Whether it was set.
    pub(crate) fn is_set(self) -> bool {
        self.word.load(Ordering::Acquire) == self.unset | 1
    }
}

impl onelock::blocking::Interrupt for Flag {
    fn interrupted(&self) -> bool {
        self.is_set()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn fresh() -> &'static Table {
        Box::leak(Box::new(Table::new()))
    }

    #[test]
    fn a_handle_is_never_given_out_twice() {
        let table = fresh();
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let handle = table.insert(Object::Cancel).unwrap();
            assert!(seen.insert(handle));
            assert!(table.get(handle).is_some());
            assert!(table.remove(handle, |_| true).is_some());
            assert!(table.get(handle).is_none() && table.remove(handle, |_| true).is_none());
        }
        assert_eq!(table.fresh.load(Ordering::Relaxed), 1, "the slot is used again");
    }

    #[test]
    fn many_live_handles_and_hostile_ones() {
        let table = fresh();
        let handles: Vec<usize> = (0..5000).map(|_| table.insert(Object::Cancel).unwrap()).collect();
        assert!(handles.iter().all(|handle| table.get(*handle).is_some()));
        for hostile in [0, 1, 8, usize::MAX, MARK, MARK | INDEX_MASK, handles[0] ^ (1 << INDEX_BITS), handles[0] ^ MARK]
        {
            assert!(table.get(hostile).is_none(), "{hostile:#x}");
        }
        assert!(table.remove(handles[7], |_| false).is_none());
        assert!(table.get(handles[7]).is_some());
        assert_eq!(table.all().len(), 5000);
    }

    #[test]
    fn a_worn_out_slot_is_retired() {
        let table = fresh();
        let first = table.insert(Object::Cancel).unwrap();
        let slot = table.slot(first & INDEX_MASK).unwrap();
        let last = u64::from(GENERATION_MAX);
        slot.state.store(last << GENERATION_AT | ALIVE, Ordering::Relaxed);
        let handle = MARK | (GENERATION_MAX as usize) << INDEX_BITS | first & INDEX_MASK;
        table.remove(handle, |_| true).unwrap();
        let second = table.insert(Object::Cancel).unwrap();
        assert_ne!(first & INDEX_MASK, second & INDEX_MASK);
    }

    #[test]
    fn a_flag_ends_with_its_handle() {
        let table = fresh();
        let handle = table.insert(Object::Cancel).unwrap();
        let flag = table.flag(handle).unwrap();
        assert!(!flag.is_set() && flag.set() && flag.set() && flag.is_set());
        table.remove(handle, |_| true).unwrap();
        assert!(!flag.is_set() && !flag.set());
        let next = table.insert(Object::Cancel).unwrap();
        assert!(!flag.set() && !table.flag(next).unwrap().is_set());
    }

    #[test]
    fn threads_share_it() {
        let table = fresh();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..5000 {
                        let handle = table.insert(Object::Cancel).unwrap();
                        assert!(table.get(handle).is_some(), "{round}");
                        assert!(table.remove(handle, |_| true).is_some());
                    }
                });
            }
        });
        assert!(table.all().is_empty());
    }
}
