//! Which drivers there are: the list in `tests/drivers/drivers.toml`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// A way to use the library: a language and one of its APIs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverKind {
    /// Its name in reports.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What is run once before the first start, for instance a compiler; nothing if it is empty.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Run the scenarios on the main server and in memory only: for a language beyond those that have met every server.
    #[serde(default)]
    pub main_server_only: bool,
}

#[derive(Deserialize)]
struct List {
    driver: Vec<DriverKind>,
}

/// Where cargo has put the programs of this package: beside the folder of the running test.
fn programs() -> PathBuf {
    let own = std::env::current_exe().expect("a process knows its program");
    own.ancestors().nth(2).expect("a test runs from target/<profile>/deps").to_owned()
}

/// Every driver, in the order of the list.
///
/// # Panics
/// When the list is broken, names a program that is not there, or one that cannot be prepared.
pub fn kinds() -> Vec<DriverKind> {
    let own = std::env::var_os("ONELOCK_DRIVERS").map(|path| std::fs::read_to_string(path).expect("a list of drivers"));
    let list = own.as_deref().unwrap_or(include_str!("../../drivers/drivers.toml"));
    let list: List = toml::from_str(list).expect("the list of drivers is well-formed");
    let drivers = Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers");
    let mut kinds = list.driver;
    for kind in &mut kinds {
        for word in kind.command.iter_mut().chain(&mut kind.prepare) {
            *word = word
                .replace("{programs}", &programs().display().to_string())
                .replace("{drivers}", &drivers.display().to_string());
        }
        if let Some((program, arguments)) = kind.prepare.split_first() {
            let done = Command::new(program).args(arguments).status();
            assert!(done.is_ok_and(|status| status.success()), "{} could not be prepared", kind.name);
        }
        let program = Path::new(&kind.command[0]);
        assert!(!program.is_absolute() || program.exists(), "{} is missing", program.display());
    }
    kinds
}
