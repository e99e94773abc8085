//! Which drivers there are: the list in `tests/drivers/drivers.toml`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A way to use the library: a language and one of its APIs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverKind {
    /// Its name in reports.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
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
/// When the list is broken, or names a program that is not there.
pub fn kinds() -> Vec<DriverKind> {
    let list: List = toml::from_str(include_str!("../../drivers/drivers.toml")).expect("drivers.toml is well-formed");
    let drivers = Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers");
    let mut kinds = list.driver;
    for kind in &mut kinds {
        for word in &mut kind.command {
            *word = word
                .replace("{programs}", &programs().display().to_string())
                .replace("{drivers}", &drivers.display().to_string());
        }
        let program = Path::new(&kind.command[0]);
        assert!(!program.is_absolute() || program.exists(), "{} is missing", program.display());
    }
    kinds
}
