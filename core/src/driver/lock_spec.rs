//! What a caller wants of a lock: kind, name and options. The async and the blocking lock share it.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Options, check_name, check_wait, check_words};
use crate::driver::hold::{Hold, OnJeopardy};
use crate::error::{Error, invalid};
use crate::machine::multi::terms_while_acquiring;
use crate::machine::token::PERMITS_MAX;
use crate::machine::{Key, Kind, LossReason, Owner, Terms};
use crate::store::Capabilities;

pub(crate) type LossCallback = Arc<dyn Fn(LossReason) + Send + Sync>;

/// A reader that waits asks so often.
const READER_LOOKS: Duration = Duration::from_millis(200);

/// Everything about a lock but the client.
#[derive(Clone)]
pub(crate) struct LockSpec {
    /// What the store can do.
    pub(crate) capabilities: &'static Capabilities,
    pub(crate) kind: Kind,
    pub(crate) name: Arc<[u8]>,
    pub(crate) key: Key,
    pub(crate) terms: Arc<Terms>,
    pub(crate) fencing: bool,
    /// How many permits a semaphore has in all; `None` for as many as are set.
    pub(crate) permits: Option<u32>,
    /// How many of them one acquire takes.
    pub(crate) count: u32,
    pub(crate) owner: Option<Owner>,
    on_lost: Option<LossCallback>,
    on_jeopardy: Option<OnJeopardy>,
}

impl LockSpec {
    pub(crate) fn new(options: &Options, capabilities: &'static Capabilities, kind: Kind, name: &[u8]) -> LockSpec {
        let name: Arc<[u8]> = name.into();
        let key =
            if options.prefix.is_empty() { name.clone() } else { [options.prefix.as_slice(), &name].concat().into() };
        LockSpec {
            capabilities,
            kind,
            name,
            key,
            terms: options.terms.clone(),
            fencing: options.fencing && kind != Kind::Semaphore,
            permits: None,
            count: 1,
            owner: None,
            on_lost: None,
            on_jeopardy: None,
        }
    }

    /// What belongs to an acquire in the log.
    pub(crate) fn acquire_span(&self, wait: Option<Duration>) -> tracing::Span {
        tracing::debug_span!(
            "acquire",
            lock = %self.name.escape_ascii(),
            kind = self.kind.as_str(),
            wait_ms = wait.map(|wait| wait.as_millis() as u64),
        )
    }

    /// The same with a ttl that does not outlive `max_hold` by much.
    pub(crate) fn bounded(&self) -> LockSpec {
        LockSpec { terms: Arc::new((*self.terms).clone().within_max_hold()), ..self.clone() }
    }

    /// The same as a member of several locks, while the later ones are waited for: it is renewed, and the whole has the
    /// callbacks.
    pub(crate) fn while_acquiring(&self) -> LockSpec {
        let terms = Arc::new(terms_while_acquiring(&self.terms));
        LockSpec { terms, on_lost: None, on_jeopardy: None, ..self.clone() }
    }

    /// Whether the length of its hold has a limit, which counts from the moment when the holder gets it.
    pub(crate) fn limits_hold(&self) -> bool {
        !self.terms.auto_renew || self.terms.max_hold.is_some() || !self.terms.min_hold.is_zero()
    }

    /// The callbacks of the description.
    pub(crate) fn callbacks(&self) -> (Option<LossCallback>, Option<OnJeopardy>) {
        (self.on_lost.clone(), self.on_jeopardy.clone())
    }

    /// The same for so many permits.
    pub(crate) fn with_count(&self, count: u32) -> LockSpec {
        LockSpec { count, ..self.clone() }
    }

    /// Whether everything about it makes sense, before any I/O.
    pub(crate) fn check(&self, tried: &str) -> Result<(), Error> {
        check_name(&self.name)
            .and_then(|()| check_words(&self.key, "the name behind its prefix"))
            .and_then(|()| self.terms.check())
            .and_then(|()| self.check_permits())
            .map_err(|detail| invalid(tried, detail))
            .and_then(|()| self.capabilities.check_lock(self.kind, &self.terms, tried))
            .map_err(|error| error.on(&self.name))
    }

    /// How often an acquire asks that waits without a message, where the server has to know that it does.
    pub(crate) fn look_every(&self) -> Option<Duration> {
        (self.kind == Kind::Read).then_some(READER_LOOKS)
    }

    /// Whether the store has an option or method, as [`Capabilities::require`] names it.
    pub(crate) fn require(&self, wanted: &str, tried: &str) -> Result<(), Error> {
        self.capabilities.require(wanted, tried).map_err(|error| error.on(&self.name))
    }

    fn check_permits(&self) -> Result<(), String> {
        if self.kind != Kind::Semaphore {
            let plain = self.permits.is_none() && self.count == 1;
            return if plain {
                Ok(())
            } else {
                Err(format!("permits are for semaphores, and this is a {}", self.kind.as_str()))
            };
        }
        let range = 1..=PERMITS_MAX;
        match self.permits {
            Some(total) if !range.contains(&total) => {
                Err(format!("permits must be between 1 and {PERMITS_MAX}, not {total}"))
            }
            Some(total) if self.count > total => {
                Err(format!("{} permits were asked for, and this semaphore has {total}", self.count))
            }
            _ if !range.contains(&self.count) => {
                Err(format!("one acquire takes between 1 and {PERMITS_MAX} permits, not {}", self.count))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_is_semaphore(&self, tried: &str) -> Result<(), Error> {
        if self.kind == Kind::Semaphore {
            return Ok(());
        }
        Err(invalid(tried, format!("only a semaphore has permits, and this is a {}", self.kind.as_str()))
            .on(&self.name))
    }

    pub(crate) fn check_wait(&self, tried: &str, wait: Option<Duration>) -> Result<(), Error> {
        self.check(tried)?;
        check_wait(wait).map_err(|detail| invalid(tried, detail).on(&self.name))
    }

    /// Whether it may be acquired like this, before any I/O.
    pub(crate) fn check_use(&self, tried: &str, wait: Option<Duration>) -> Result<(), Error> {
        self.check_wait(tried, wait)?;
        self.check_owner(tried)
    }

    /// Registers the callbacks of the description with a fresh hold.
    pub(crate) fn listen(&self, hold: &Hold) {
        if let Some(callback) = self.on_lost.clone() {
            // a fresh hold cannot have been notified of a loss
            drop(hold.on_lost(Box::new(move |reason| callback(reason))));
        }
        if let Some(callback) = self.on_jeopardy.clone() {
            hold.on_jeopardy(callback);
        }
    }

    pub(crate) fn on_lost(&mut self, callback: LossCallback) {
        self.on_lost = Some(callback);
    }

    pub(crate) fn on_jeopardy(&mut self, callback: OnJeopardy) {
        self.on_jeopardy = Some(callback);
    }

    /// An owner means re-entry, which not every kind has.
    pub(crate) fn check_owner(&self, tried: &str) -> Result<(), Error> {
        if self.owner.is_some() && !self.kind.row().reentrant {
            return Err(invalid(tried, "owner is for reentrant locks; this kind is not re-entrant").on(&self.name));
        }
        Ok(())
    }
}
