//! Whether leases of one lock were valid at the same time, by a sweep over their beginnings and ends.

use std::collections::{BTreeMap, BTreeSet};

use super::Mode;
use super::leases::Lease;
use super::report::{Check, Violation};

/// Checks the leases of one lock, in O(n log n). Each conflict is reported once, at the beginning of the later lease.
pub(super) fn overlaps(lock: &str, leases: &[&Lease<'_>], found: &mut Vec<Violation>) {
    // Ends sort before beginnings of the same instant: a lease is valid up to, and not at, its end.
    let mut edges = BTreeSet::new();
    for (index, lease) in leases.iter().enumerate() {
        if lease.end_ns() > lease.granted_ns {
            edges.insert((lease.end_ns(), false, index));
            edges.insert((lease.granted_ns, true, index));
        }
    }
    let [mut exclusive, mut shared, mut permits] = [const { BTreeSet::<usize>::new() }; 3];
    for (at_ns, begins, index) in edges {
        let lease = leases[index];
        let own = match lease.mode {
            Mode::Exclusive => &mut exclusive,
            Mode::Shared => &mut shared,
            Mode::Permit(_) => &mut permits,
        };
        if !begins {
            own.remove(&index);
            continue;
        }
        let others = match lease.mode {
            Mode::Exclusive => exclusive.first().or(shared.first()).or(permits.first()),
            Mode::Shared => exclusive.first().or(permits.first()),
            Mode::Permit(limit) if permits.len() < limit => exclusive.first().or(shared.first()),
            Mode::Permit(_) => permits.first(),
        };
        if let Some(&other) = others {
            let (other, until) = (leases[other].name(), leases[other].end_ns());
            let text = format!("{} was granted while {other} was valid, until {until} ns", lease.name());
            found.push(Violation { check: Check::Exclusion, lock: lock.to_owned(), at_ns, text });
        }
        match lease.mode {
            Mode::Exclusive => exclusive.insert(index),
            Mode::Shared => shared.insert(index),
            Mode::Permit(_) => permits.insert(index),
        };
    }
}

/// Checks the fencing tokens of one lock, in O(n log n).
pub(super) fn fencing(lock: &str, leases: &[&Lease<'_>], found: &mut Vec<Violation>) {
    let mut violation = |at_ns, text| {
        found.push(Violation { check: Check::Fencing, lock: lock.to_owned(), at_ns, text });
    };
    let mut by_token: BTreeMap<u64, &Lease<'_>> = BTreeMap::new();
    for lease in leases {
        if let Some(other) = lease.token.and_then(|token| by_token.insert(token, lease)) {
            violation(lease.granted_ns, format!("{} has the token of {}", lease.name(), other.name()));
        }
    }
    // Of the grants that were complete when a call began, only the one with the highest token matters.
    let mut by_grant: Vec<_> = by_token.values().collect();
    by_grant.sort_by_key(|lease| lease.granted_ns);
    let mut by_call = by_grant.clone();
    by_call.sort_by_key(|lease| lease.called_ns);
    let mut complete = by_grant.into_iter().peekable();
    let mut highest: Option<&Lease<'_>> = None;
    for lease in by_call {
        while let Some(earlier) = complete.next_if(|earlier| earlier.granted_ns <= lease.called_ns) {
            if highest.is_none_or(|highest| highest.token < earlier.token) {
                highest = Some(earlier);
            }
        }
        if let Some(highest) = highest.filter(|highest| highest.token > lease.token) {
            violation(lease.granted_ns, format!("{} came after {}", lease.name(), highest.name()));
        }
    }
}
