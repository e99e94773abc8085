//! The calls of a lease, which is known by its number.

use onelock::{ErrorKind, Release};

use crate::bridge::{self, begin, lease as held, refuse};
use crate::data::{Failure, loss_code};
use crate::memory::{Arguments, NOTHING, leave};
use crate::options::span;
use crate::records::{Message, Outcome};

fn not_held(tried: &str) -> Failure {
    Failure::new(ErrorKind::NotHeld, tried, "this lease was released or handed away")
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_extend(call: u32, lease: f64, ttl: f64) -> u32 {
    let lease = held(lease);
    begin(call, async move {
        let lease = lease.ok_or_else(|| not_held("extend"))?;
        match lease.extend(span(ttl)).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Err(Failure::from(error).because_of_loss(lease.loss())),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_downgrade(call: u32, lease: f64) -> u32 {
    let lease = held(lease);
    begin(call, async move {
        let lease = lease.ok_or_else(|| not_held("downgrade"))?;
        match lease.downgrade().await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Err(Failure::from(error).because_of_loss(lease.loss())),
        }
    })
}

/// Whether there are messages, and twice the code of the loss if the lease was lost before.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_release(call: u32, lease: f64) -> u32 {
    let handle = held(lease);
    let loss = loss_code(handle.as_ref().and_then(|lease| lease.loss()));
    let messages = begin(call, async move {
        let Some(handle) = handle else {
            return Ok(Outcome::Released { outcome: Release::AlreadyReleased, loss: None });
        };
        let outcome = handle.release().await?;
        Ok(Outcome::Released { outcome, loss: handle.loss() })
    });
    bridge::with(|state| {
        if let Some(call) = state.calls.get_mut(&call) {
            call.releases = Some(lease as u64);
        }
    });
    messages + 2 * loss
}

/// The proof for another process; nothing when the lease cannot be detached: then the error is payload 0.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_detach(lease: f64) -> i32 {
    let Some(handle) = held(lease) else {
        refuse(not_held("detach"));
        return NOTHING;
    };
    let proof = handle.detach();
    onelock::host::turn();
    match proof {
        Ok(proof) => {
            let gone = bridge::with(|state| state.leases.remove(&(lease as u64)));
            drop(gone);
            leave(proof)
        }
        Err(error) => {
            refuse(Failure::from(error).because_of_loss(handle.loss()));
            NOTHING
        }
    }
}

/// Drops a lease. 1 when it was still held, and is released now.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_forget(lease: f64) -> u32 {
    let gone = bridge::with(|state| state.leases.remove(&(lease as u64)));
    let was_held = gone.is_some_and(|lease| lease.is_held());
    onelock::host::turn();
    was_held.into()
}

/// Whether a lease is that of a writer.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_writes(lease: f64) -> u32 {
    held(lease).is_some_and(|lease| lease.kind() == onelock::Kind::Write).into()
}

/// The fencing token of one of the locks that a lease holds; -1 without.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_fencing_token_of(lease: f64, name: usize) -> f64 {
    let token = held(lease).and_then(|lease| lease.fencing_token_of(Arguments::take(name).bytes(name)));
    token.map_or(-1.0, |token| token as f64)
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_is_held(lease: f64) -> u32 {
    held(lease).is_some_and(|lease| lease.is_held()).into()
}

/// In milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_remaining(lease: f64) -> f64 {
    held(lease).map_or(0.0, |lease| lease.remaining().as_secs_f64() * 1e3)
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_loss(lease: f64) -> u32 {
    loss_code(held(lease).and_then(|lease| lease.loss()))
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_hold_count(lease: f64) -> f64 {
    held(lease).map_or(0.0, |lease| lease.hold_count() as f64)
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_fencing_grade(lease: f64) -> i32 {
    leave(held(lease).map_or("None", |lease| lease.fencing_grade().as_str()))
}

/// Reports the loss of this lease as a record; soon if it is lost already.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_watch_loss(lease: f64) {
    let Some(handle) = held(lease) else { return };
    let lease = lease as u64;
    handle.on_lost(move |reason| bridge::push(Message::Lost { lease, reason }));
}

/// Reports every missed renewal of this lease as a record.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_watch_jeopardy(lease: f64) {
    let Some(handle) = held(lease) else { return };
    let lease = lease as u64;
    handle.on_jeopardy(move || bridge::push(Message::Jeopardy { lease }));
}
