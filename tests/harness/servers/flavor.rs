//! Which servers there are, and where their programs stand.

use std::path::PathBuf;

/// One of the servers that the tests run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flavor {
    /// Redis 6.2: scripts without flags, ACL without selectors, errors of scripts wrapped in more text.
    Redis62,
    /// Redis 7.0, the only one of the four that is built with TLS.
    Redis70,
    /// Redis 8.2.
    Redis82,
    /// Valkey 9.1, the server that tests use when it does not matter which.
    Valkey91,
}

impl Flavor {
    /// Every flavor.
    pub const ALL: [Flavor; 4] = [Flavor::Redis62, Flavor::Redis70, Flavor::Redis82, Flavor::Valkey91];

    /// The file name of its program, as `tools/servers.sh` knows it.
    pub const fn program(self) -> &'static str {
        match self {
            Flavor::Redis62 => "redis-server-6.2",
            Flavor::Redis70 => "redis-server-7.0",
            Flavor::Redis82 => "redis-server-8.2",
            Flavor::Valkey91 => "valkey-server-9.1",
        }
    }

    /// Where its program is: in `$ONELOCK_SERVERS`, or in `.tools/bin` of the project.
    ///
    /// # Panics
    /// When it is not there. A test that needs a server fails without it; it is never skipped.
    pub fn path(self) -> PathBuf {
        let folder = std::env::var_os("ONELOCK_SERVERS")
            .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.tools/bin")), PathBuf::from);
        let path = folder.join(self.program());
        assert!(path.exists(), "{} is missing; `make servers` fetches it", path.display());
        path
    }

    /// Whether it can be asked for TLS.
    pub const fn has_tls(self) -> bool {
        matches!(self, Flavor::Redis70)
    }

    /// Whether `DEBUG` must be switched on in its configuration (6.2 always allows it).
    pub(super) const fn guards_debug(self) -> bool {
        !matches!(self, Flavor::Redis62)
    }
}
