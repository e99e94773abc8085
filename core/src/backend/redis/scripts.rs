//! The scripts, each with its packed command words, made once.

use std::sync::LazyLock;

use super::resp::Packer;

/// A script in the two forms in which it is sent.
pub(crate) struct Script {
    /// The words `EVALSHA <sha>`, packed.
    pub(crate) by_sha: Vec<u8>,
    /// The words `EVAL <text>`, packed.
    pub(crate) by_text: Vec<u8>,
}

impl Script {
    fn new(text: &str) -> Script {
        let mut by_sha = Packer::with_capacity(64);
        by_sha.word("EVALSHA").word(sha1_smol::Sha1::from(text).digest().to_string());
        let mut by_text = Packer::with_capacity(text.len() + 32);
        by_text.word("EVAL").word(text);
        Script { by_sha: by_sha.finish(), by_text: by_text.finish() }
    }
}

/// All of them.
pub(crate) struct Scripts {
    pub(crate) acquire_lock: Script,
    pub(crate) acquire_reentrant: Script,
    pub(crate) renew: Script,
    pub(crate) set_count: Script,
    pub(crate) release: Script,
    pub(crate) inspect: Script,
    pub(crate) force_release: Script,
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire_lock: Script::new(include_str!("scripts/acquire_lock.lua")),
    acquire_reentrant: Script::new(include_str!("scripts/acquire_reentrant.lua")),
    renew: Script::new(include_str!("scripts/renew.lua")),
    set_count: Script::new(include_str!("scripts/set_count.lua")),
    release: Script::new(include_str!("scripts/release.lua")),
    inspect: Script::new(include_str!("scripts/inspect.lua")),
    force_release: Script::new(include_str!("scripts/force_release.lua")),
});

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The words that the scripts spell out must be those of `naming`, which the other stores and the tests use.
    #[test]
    fn scripts_speak_of_the_same_names() {
        use crate::machine::naming;
        let text = |script: &Script| String::from_utf8(script.by_text.clone()).unwrap();
        let (lock, reentrant) = (text(&SCRIPTS.acquire_lock), text(&SCRIPTS.acquire_reentrant));
        assert!(lock.contains(&format!("'{}'", naming::VALUE_PREFIX)));
        assert!(lock.contains(&format!("1, {}) ==", naming::VALUE_PREFIX.len())));
        for field in [naming::FENCE_FIELD, naming::INFO_FIELD] {
            assert!(reentrant.contains(&format!("'{field}'")));
            assert!(text(&SCRIPTS.inspect).contains(&format!("'{field}'")));
        }
        for script in [&SCRIPTS.release, &SCRIPTS.force_release] {
            assert!(text(script).contains(&format!("'{}')", naming::RELEASE_MESSAGE)));
        }
    }
}
