//! What a store can do: asked before any I/O, so that nothing is ever done by halves in silence.

use std::time::Duration;

use crate::config::Options;
use crate::error::{Error, ErrorKind, invalid};
use crate::machine::{Kind, Terms, terms};

/// What a store can do. A kind or an option that it lacks is `Unsupported` when the lock is described or the client made,
/// before any I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The store's name, which is the scheme of its address.
    pub store: &'static str,
    /// The kinds of lock that it keeps.
    pub kinds: &'static [Kind],
    /// Whether grants carry fencing tokens.
    pub fencing: bool,
    /// Whether a hold can be handed over: [`Lease::detach`](crate::Lease::detach) and
    /// [`Lock::attach`](crate::Lock::attach).
    pub attach: bool,
    /// Whether its locks can be listed.
    pub list: bool,
    /// Whether a lock can be taken away from its holder.
    pub force_release: bool,
    /// Whether a key can stay behind its hold, held by nobody (`min_hold`).
    pub min_hold: bool,
    /// Whether a key can outlive its lease after an unclean end (`lock_delay`).
    pub lock_delay: bool,
    /// Whether replicas can confirm a grant (`min_replicas`).
    pub min_replicas: bool,
    /// Whether a release wakes those who wait in other processes. If not, they look again and again.
    pub wake_ups: bool,
    /// Whether mutexes of one [shard](crate::store::Store::shard) can be taken and released together, by one request.
    pub together: bool,
    /// Where a waiting acquire of any kind has a place in a queue on the server, first come, first served: for how long a
    /// place lasts at least without being kept. `None` where only kinds that are made for it have one.
    pub place_min: Option<Duration>,
    /// The shortest lease that it keeps.
    pub ttl_min: Duration,
    /// The longest.
    pub ttl_max: Duration,
}

impl Capabilities {
    /// Everything that can be asked for, of the kind of store that another one is described by; but several locks by one
    /// request, which a store has to claim.
    pub(crate) const fn all(store: &'static str, kinds: &'static [Kind]) -> Capabilities {
        Capabilities {
            store,
            kinds,
            fencing: true,
            attach: true,
            list: true,
            force_release: true,
            min_hold: true,
            lock_delay: true,
            min_replicas: true,
            wake_ups: true,
            together: false,
            place_min: None,
            ttl_min: terms::TTL_MIN,
            ttl_max: terms::SPAN_MAX,
        }
    }

    /// What can be asked for beside a kind, as the options and methods of the API call it, and whether it is there.
    fn optional(&self) -> [(&'static str, bool); 7] {
        [
            ("min_fencing_grade", self.fencing),
            ("attach", self.attach),
            ("list", self.list),
            ("force_release", self.force_release),
            ("min_hold", self.min_hold),
            ("lock_delay", self.lock_delay),
            ("min_replicas", self.min_replicas),
        ]
    }

    /// Whether it has this option or method.
    ///
    /// # Errors
    /// `Unsupported`, with what it has.
    pub(crate) fn require(&self, wanted: &str, tried: &str) -> Result<(), Error> {
        let all = self.optional();
        if all.iter().any(|(name, has)| *has && *name == wanted) {
            return Ok(());
        }
        let there: Vec<&str> = all.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        let detail = format!("{}:// has no {wanted}; it has {}", self.store, there.join(", "));
        Err(Error::new(ErrorKind::Unsupported, tried, detail))
    }

    /// Whether a lock of this kind, with these terms, can be kept.
    ///
    /// # Errors
    /// `Unsupported` for what it lacks, with what it has; `InvalidArgument` for a ttl that it does not keep.
    pub(crate) fn check_lock(&self, kind: Kind, terms: &Terms, tried: &str) -> Result<(), Error> {
        if !self.kinds.contains(&kind) {
            let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.as_str()).collect();
            let why = match kind {
                _ if self.store == "postgres" => "; a row has one holder at a time and no queue",
                _ if self.store == "memcached" => "; an item has one holder at a time and no queue",
                Kind::Read | Kind::Write => "; who goes first, readers or a writer, needs one server that decides",
                Kind::Semaphore => "; majorities do not count permits, so one server has to",
                _ if kind.row().queues => "; a queue needs one server that decides",
                _ => "",
            };
            let detail = format!("{}:// has no {}; it has {}{why}", self.store, kind.as_str(), kinds.join(", "));
            return Err(Error::new(ErrorKind::Unsupported, tried, detail));
        }
        self.check_terms(terms, tried)
    }

    /// Whether it does what the options of a client ask for.
    ///
    /// # Errors
    /// As [`Capabilities::check_lock`].
    pub(crate) fn check_client(&self, options: &Options) -> Result<(), Error> {
        const TRIED: &str = "make a client";
        if options.min_replicas > 0 {
            self.require("min_replicas", TRIED)?;
        }
        if options.min_fencing_grade != crate::machine::Grade::None {
            self.require("min_fencing_grade", TRIED)?;
        }
        self.check_terms(&options.terms, TRIED)
    }

    /// Whether it keeps leases of this length.
    ///
    /// # Errors
    /// `InvalidArgument`, which names the limits.
    pub(crate) fn check_ttl(&self, ttl: Duration, tried: &str) -> Result<(), Error> {
        if ttl >= self.ttl_min && ttl <= self.ttl_max {
            return Ok(());
        }
        let (store, least, most) = (self.store, self.ttl_min, self.ttl_max);
        Err(invalid(tried, format!("ttl is {ttl:?}; on {store}:// it must be between {least:?} and {most:?}")))
    }

    fn check_terms(&self, terms: &Terms, tried: &str) -> Result<(), Error> {
        if !terms.min_hold.is_zero() {
            self.require("min_hold", tried)?;
        }
        if !terms.lock_delay.is_zero() {
            self.require("lock_delay", tried)?;
        }
        self.check_ttl(terms.ttl, tried)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::machine::Grade;

    const SECOND: Duration = Duration::from_secs(1);
    const FULL: Capabilities = Capabilities::all("full", &[Kind::Mutex, Kind::Reentrant]);
    const POOR: Capabilities = Capabilities {
        store: "poor",
        kinds: &[Kind::Mutex],
        fencing: false,
        attach: false,
        list: true,
        force_release: false,
        min_hold: false,
        lock_delay: false,
        min_replicas: false,
        wake_ups: false,
        together: false,
        place_min: None,
        ttl_min: SECOND,
        ttl_max: Duration::from_secs(60),
    };

    fn refused(result: Result<(), Error>, kind: ErrorKind) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        error.to_string()
    }

    #[test]
    fn what_a_store_lacks_is_unsupported_and_what_it_has_is_said() {
        let terms = Terms::default();
        assert!(POOR.check_lock(Kind::Mutex, &terms, "acquire").is_ok());
        let text = refused(POOR.check_lock(Kind::Reentrant, &terms, "acquire"), ErrorKind::Unsupported);
        assert!(text.contains("poor:// has no reentrant_lock; it has lock"), "{text}");
        let delayed = Terms { lock_delay: SECOND, ..Terms::default() };
        let retained = Terms { min_hold: SECOND, ..Terms::default() };
        for (terms, word) in [(&delayed, "lock_delay"), (&retained, "min_hold")] {
            let text = refused(POOR.check_lock(Kind::Mutex, terms, "acquire"), ErrorKind::Unsupported);
            assert!(text.contains(&format!("poor:// has no {word}; it has list")), "{text}");
            assert!(FULL.check_lock(Kind::Reentrant, terms, "acquire").is_ok());
        }
        for wanted in ["attach", "force_release"] {
            assert!(refused(POOR.require(wanted, "x"), ErrorKind::Unsupported).contains(wanted));
            assert!(FULL.require(wanted, "x").is_ok());
        }
        assert!(POOR.require("list", "x").is_ok());
    }

    #[test]
    fn the_options_of_a_client_are_checked_too() {
        let changed = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options
        };
        assert!(POOR.check_client(&Options::default()).is_ok());
        for (change, word) in [
            ((|options| options.min_replicas = 1) as fn(&mut Options), "min_replicas"),
            (|options| options.min_fencing_grade = Grade::BestEffort, "min_fencing_grade"),
            (|options| Arc::make_mut(&mut options.terms).lock_delay = SECOND, "lock_delay"),
            (|options| Arc::make_mut(&mut options.terms).min_hold = SECOND, "min_hold"),
        ] {
            let options = changed(change);
            let text = refused(POOR.check_client(&options), ErrorKind::Unsupported);
            assert!(text.contains(word) && FULL.check_client(&options).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_ttl_that_a_store_does_not_keep_is_named_with_its_limits() {
        for ttl in [Duration::from_millis(999), Duration::from_secs(61)] {
            let terms = Terms { ttl, ..Terms::default() };
            let text = refused(POOR.check_lock(Kind::Mutex, &terms, "acquire"), ErrorKind::InvalidArgument);
            assert!(text.contains("poor://") && text.contains("between 1s and 60s"), "{text}");
            refused(POOR.check_ttl(ttl, "extend"), ErrorKind::InvalidArgument);
            assert!(FULL.check_lock(Kind::Mutex, &terms, "acquire").is_ok());
        }
    }
}
