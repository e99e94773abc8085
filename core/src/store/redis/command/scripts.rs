//! The scripts, each with the hash by which servers know it.

use std::ops::Deref;

use once_cell::race::OnceBox;

/// A script.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) sha: String,
}

impl Script {
    fn new(text: &'static str) -> Script {
        Script { text, sha: redis::Script::new(text).get_hash().to_owned() }
    }
}

/// All of them.
pub(crate) struct Scripts {
    pub(crate) acquire_lock: Script,
    pub(crate) acquire_many: Script,
    pub(crate) release_many: Script,
    pub(crate) acquire_reentrant: Script,
    pub(crate) fair_lock: Script,
    pub(crate) attach: Script,
    pub(crate) renew: Script,
    pub(crate) set_count: Script,
    pub(crate) release: Script,
    pub(crate) retain: Script,
    pub(crate) inspect: Script,
    pub(crate) waiters: Script,
    pub(crate) force_release: Script,
    pub(crate) write_back: Script,
    pub(crate) semaphore: Script,
    pub(crate) rw_lock: Script,
}

impl Scripts {
    pub(crate) fn all(&self) -> [&Script; 16] {
        [
            &self.acquire_lock,
            &self.acquire_many,
            &self.release_many,
            &self.acquire_reentrant,
            &self.fair_lock,
            &self.attach,
            &self.renew,
            &self.set_count,
            &self.release,
            &self.retain,
            &self.inspect,
            &self.waiters,
            &self.force_release,
            &self.write_back,
            &self.semaphore,
            &self.rw_lock,
        ]
    }
}

pub(crate) static SCRIPTS: Hashed = Hashed(OnceBox::new());

/// The scripts, hashed at their first use. Not behind a lock: in a child that is forked during the first use, it would
/// stay locked.
pub(crate) struct Hashed(OnceBox<Scripts>);

impl Deref for Hashed {
    type Target = Scripts;

    fn deref(&self) -> &Scripts {
        self.0.get_or_init(|| Box::new(scripts()))
    }
}

/// The text of a kind with a queue on the server: what all of them have in common, and its own.
macro_rules! queue_script {
    ($file:literal) => {
        concat!(include_str!("scripts/queue.lua"), include_str!(concat!("scripts/", $file)))
    };
}

fn scripts() -> Scripts {
    Scripts {
        acquire_lock: Script::new(include_str!("scripts/lock/acquire.lua")),
        acquire_many: Script::new(include_str!("scripts/multi_lock/acquire.lua")),
        release_many: Script::new(include_str!("scripts/multi_lock/release.lua")),
        acquire_reentrant: Script::new(include_str!("scripts/reentrant_lock/acquire.lua")),
        fair_lock: Script::new(queue_script!("fair_lock/fair.lua")),
        attach: Script::new(include_str!("scripts/attach.lua")),
        renew: Script::new(include_str!("scripts/renew.lua")),
        set_count: Script::new(include_str!("scripts/set_count.lua")),
        release: Script::new(include_str!("scripts/release.lua")),
        retain: Script::new(include_str!("scripts/retain.lua")),
        inspect: Script::new(include_str!("scripts/inspect.lua")),
        waiters: Script::new(include_str!("scripts/waiters.lua")),
        force_release: Script::new(include_str!("scripts/force_release.lua")),
        write_back: Script::new(include_str!("scripts/write_back.lua")),
        semaphore: Script::new(queue_script!("semaphore/permits.lua")),
        rw_lock: Script::new(queue_script!("rw_lock/rw.lua")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that the scripts spell out must be those of `naming`, which the other stores and the tests use.
    #[test]
    fn scripts_speak_of_the_same_names() {
        use crate::machine::naming;
        let (lock, reentrant) = (SCRIPTS.acquire_lock.text, SCRIPTS.acquire_reentrant.text);
        assert!(lock.contains(&format!("'{}'", naming::VALUE_PREFIX)));
        assert!(lock.contains(&format!("1, {}) ==", naming::VALUE_PREFIX.len())));
        for field in [naming::FENCE_FIELD, naming::INFO_FIELD] {
            assert!(reentrant.contains(&format!("'{field}'")));
            assert!(SCRIPTS.inspect.text.contains(&format!("'{field}'")));
            assert!(SCRIPTS.attach.text.contains(&format!("'{field}'")));
        }
        let many = SCRIPTS.acquire_many.text;
        assert!(many.contains(&format!("'{}'", naming::VALUE_PREFIX)));
        assert!(many.contains(&format!("1, {}) ==", naming::VALUE_PREFIX.len())));
        for script in [&SCRIPTS.semaphore, &SCRIPTS.inspect, &SCRIPTS.acquire_lock, &SCRIPTS.acquire_many] {
            assert!(script.text.contains(&format!("'{}'", naming::SEMAPHORE_MARK)));
        }
        assert!(SCRIPTS.renew.text.contains(&format!("math.max({}, ", naming::FENCE_TTL_MIN_MS)));
        for script in [&SCRIPTS.retain, &SCRIPTS.rw_lock, &SCRIPTS.renew] {
            assert!(script.text.contains(&format!("'{}'", naming::RELEASED_VALUE)));
        }
        let retain = SCRIPTS.retain.text;
        assert!(retain.contains(&format!("'{}'", naming::INFO_FIELD)));
        for script in [&SCRIPTS.release, &SCRIPTS.retain, &SCRIPTS.release_many] {
            assert!(script.text.contains(&format!("'{}')", naming::RELEASE_MESSAGE)));
        }
        for message in [naming::RELEASE_MESSAGE, naming::RW_MESSAGE] {
            assert!(SCRIPTS.force_release.text.contains(&format!("'{message}'\n")));
        }
        assert!(SCRIPTS.rw_lock.text.contains(&format!("'{}')", naming::RW_MESSAGE)));
    }
}
