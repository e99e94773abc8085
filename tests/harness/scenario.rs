//! Declarative cases, run by the drivers of every language. They stand in `tests/scenarios/*.toml`, whose form is
//! described in `tests/drivers/README.md`.

mod expect;
mod run;
mod step;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

pub(crate) use run::leftovers;
pub use run::{EtcdNamespace, Failed, PostgresTable, Store, run};
pub use step::Step;

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name in reports: a sentence about what holds.
    pub name: String,
    /// The file that it stands in, without ending.
    #[serde(skip)]
    pub group: String,
    /// The options of clients, by name. A client that is not listed has the defaults.
    #[serde(default)]
    pub clients: BTreeMap<String, Table>,
    /// Keys that are left on the server by hand and may be there at the end.
    #[serde(default)]
    pub leaves: Vec<String>,
    /// Whether it can run on `memory://`: when nothing in it concerns a server, unless said otherwise.
    memory: Option<bool>,
    /// Whether it can run on `file://`: as in memory, and when it asks for nothing that files lack, unless said otherwise.
    files: Option<bool>,
    /// Whether it can run on `postgres://`: as in memory, where it asks for no other kind of lock, unless said otherwise.
    postgres: Option<bool>,
    /// Whether it can run on `memcached://`: as on `postgres://`, where it asks for nothing that a cache lacks, unless said otherwise.
    memcached: Option<bool>,
    /// Whether it can run on `etcd://`: as on `postgres://`, where it asks for nothing that keys with leases lack, unless said otherwise.
    etcd: Option<bool>,
    /// Whether it says something that holds on one server only, not behind Sentinels or in a cluster.
    #[serde(default)]
    pub one_server: bool,
    /// Whether it runs on several independent servers, too.
    #[serde(default = "yes")]
    pub redlock: bool,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

const fn yes() -> bool {
    true
}

impl Scenario {
    /// Whether it makes sense on `memory://`.
    pub fn runs_in_memory(&self) -> bool {
        self.memory.unwrap_or_else(|| !self.steps.iter().any(Step::needs_server))
    }

    /// Whether it makes sense on `postgres://`. What that refuses is the subject of the suite `store_contract`.
    pub fn runs_in_postgres(&self) -> bool {
        self.postgres.unwrap_or_else(|| self.runs_in_memory() && !self.steps.iter().any(Step::needs_other_kinds))
    }

    /// Whether it makes sense on `memcached://`. What that refuses is the subject of the suite `store_contract`.
    pub fn runs_in_memcached(&self) -> bool {
        const LACKING: [&str; 2] = ["min_hold_ms", "min_fencing_grade"];
        let lacks = |options: &Table| LACKING.iter().any(|word| options.contains_key(*word));
        self.memcached.unwrap_or_else(|| {
            self.runs_in_postgres()
                && !self.steps.iter().any(|step| step.lists() || step.expects_token() || lacks(&step.args))
                && !self.clients.values().any(lacks)
        })
    }

    /// Whether it makes sense on `etcd://`. What that refuses is the subject of the suite `store_contract`.
    pub fn runs_in_etcd(&self) -> bool {
        let lacks = |options: &Table| options.contains_key("min_hold_ms");
        self.etcd.unwrap_or_else(|| {
            self.runs_in_postgres()
                && !self.steps.iter().any(|step| step.hands_over() || lacks(&step.args))
                && !self.clients.values().any(lacks)
        })
    }

    /// Whether a hold in it lasts less long than a lease of etcd, which counts whole seconds.
    pub(crate) fn has_short_holds(&self) -> bool {
        let is_short = |options: &Table| options.get("ttl_ms").and_then(Value::as_integer).is_some_and(|ms| ms < 2000);
        self.clients.values().any(is_short) || self.steps.iter().any(|step| is_short(&step.args))
    }

    /// Whether it leaves servers as they were but for their data: it stops none of them.
    pub fn is_gentle(&self) -> bool {
        !self.steps.iter().any(|step| step.server.as_ref().is_some_and(Value::is_str))
    }

    /// Whether it makes sense on a majority of stores of several kinds.
    pub fn runs_on_a_mixture(&self) -> bool {
        self.redlock && self.runs_in_postgres()
    }

    /// Whether it makes sense on `file://`. What that refuses is the subject of the suite `store_contract`.
    pub fn runs_in_files(&self) -> bool {
        const LACKING: [&str; 2] = ["min_hold_ms", "lock_delay_ms"];
        let lacks = |options: &Table| LACKING.iter().any(|word| options.contains_key(*word));
        self.files.unwrap_or_else(|| {
            self.runs_in_memory()
                && !self.steps.iter().any(|step| step.needs_other_kinds() || step.hands_over() || lacks(&step.args))
                && !self.clients.values().any(lacks)
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scenario: Vec<Scenario>,
}

/// Every scenario of `tests/scenarios`, in the order of files and lines.
///
/// # Panics
/// When a file is broken or two scenarios have the same name.
pub fn load() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).expect("tests/scenarios is there").map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    let mut all: Vec<Scenario> = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let group = path.file_stem().unwrap().to_string_lossy().into_owned();
        all.extend(file.scenario.into_iter().map(|scenario| Scenario { group: group.clone(), ..scenario }));
    }
    for (at, scenario) in all.iter().enumerate() {
        assert!(!all[..at].iter().any(|other| other.name == scenario.name), "twice: {}", scenario.name);
    }
    all
}
