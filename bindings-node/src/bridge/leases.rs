//! The calls of a lease, which is known by its number.

use napi::Env;
use napi_derive::napi;
use onelock::{ErrorKind, Release};

use super::Bridge;
use crate::client::{Name, bytes};
use crate::data::{Failure, loss_code};
use crate::options::span;
use crate::pump::{Message, Outcome};

#[napi]
impl Bridge {
    #[napi]
    pub fn extend(&self, env: Env, call: u32, lease: f64, ttl: f64) -> napi::Result<()> {
        let lease = self.lease(lease);
        self.begin(env, call, async move {
            let lease = lease.ok_or_else(|| not_held("extend"))?;
            match lease.extend(span(ttl)).await {
                Ok(()) => Ok(Outcome::Done),
                Err(error) => Err(Failure::from(error).because_of_loss(lease.loss())),
            }
        })
    }

    #[napi]
    pub fn downgrade(&self, env: Env, call: u32, lease: f64) -> napi::Result<()> {
        let lease = self.lease(lease);
        self.begin(env, call, async move {
            let lease = lease.ok_or_else(|| not_held("downgrade"))?;
            match lease.downgrade().await {
                Ok(()) => Ok(Outcome::Done),
                Err(error) => Err(Failure::from(error).because_of_loss(lease.loss())),
            }
        })
    }

    /// Returns the code of the loss, if the lease was lost before.
    #[napi]
    pub fn release(&self, env: Env, call: u32, lease: f64) -> napi::Result<u32> {
        let handle = self.lease(lease);
        let loss = loss_code(handle.as_ref().and_then(|lease| lease.loss()));
        self.begin(env, call, async move {
            let Some(handle) = handle else {
                return Ok(Outcome::Released { outcome: Release::AlreadyReleased, loss: None });
            };
            let outcome = handle.release().await?;
            Ok(Outcome::Released { outcome, loss: handle.loss() })
        })?;
        if let Some(call) = self.state.borrow_mut().calls.get_mut(&call) {
            call.releases = Some(lease as u64);
        }
        Ok(loss)
    }

    /// The proof for another process; `null` when the lease cannot be detached: then the error is payload 0.
    #[napi]
    pub fn detach(&self, lease: f64) -> Option<String> {
        let Some(handle) = self.lease(lease) else { return self.refused(not_held("detach")) };
        match handle.detach() {
            Ok(proof) => {
                self.state.borrow_mut().leases.remove(&(lease as u64));
                Some(proof)
            }
            Err(error) => self.refused(Failure::from(error).because_of_loss(handle.loss())),
        }
    }

    /// Drops a lease. True when it was still held, and is released now.
    #[napi]
    pub fn forget(&self, lease: f64) -> bool {
        let lease = self.state.borrow_mut().leases.remove(&(lease as u64));
        lease.is_some_and(|lease| lease.is_held())
    }

    /// Whether a lease is that of a writer.
    #[napi]
    pub fn writes(&self, lease: f64) -> bool {
        self.lease(lease).is_some_and(|lease| lease.kind() == onelock::Kind::Write)
    }

    /// The fencing token of one of the locks that a lease holds; -1 without.
    #[napi]
    pub fn fencing_token_of(&self, lease: f64, name: Name<'_>) -> f64 {
        let token = self.lease(lease).and_then(|lease| lease.fencing_token_of(bytes(&name)));
        token.map_or(-1.0, |token| token as f64)
    }

    #[napi]
    pub fn is_held(&self, lease: f64) -> bool {
        self.lease(lease).is_some_and(|lease| lease.is_held())
    }

    /// In milliseconds.
    #[napi]
    pub fn remaining(&self, lease: f64) -> f64 {
        self.lease(lease).map_or(0.0, |lease| lease.remaining().as_secs_f64() * 1e3)
    }

    #[napi]
    pub fn loss(&self, lease: f64) -> u32 {
        loss_code(self.lease(lease).and_then(|lease| lease.loss()))
    }

    #[napi]
    pub fn hold_count(&self, lease: f64) -> f64 {
        self.lease(lease).map_or(0.0, |lease| lease.hold_count() as f64)
    }

    #[napi]
    pub fn fencing_grade(&self, lease: f64) -> &'static str {
        self.lease(lease).map_or("None", |lease| lease.fencing_grade().as_str())
    }

    /// Reports the loss of this lease as a record; at once if it is lost already.
    #[napi]
    pub fn watch_loss(&self, lease: f64) {
        let Some(handle) = self.lease(lease) else { return };
        let (pump, lease) = (self.pump.clone(), lease as u64);
        handle.on_lost(move |reason| pump.push(Message::Lost { lease, reason }));
    }

    /// Reports every missed renewal of this lease as a record.
    #[napi]
    pub fn watch_jeopardy(&self, lease: f64) {
        let Some(handle) = self.lease(lease) else { return };
        let (pump, lease) = (self.pump.clone(), lease as u64);
        handle.on_jeopardy(move || pump.push(Message::Jeopardy { lease }));
    }
}

fn not_held(tried: &str) -> Failure {
    Failure::new(ErrorKind::NotHeld, tried, "this lease was released or handed away")
}
