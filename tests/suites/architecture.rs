//! The rooms of the core, as ARCHITECTURE.md draws them, hold in the code.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of logic has at most this many lines.
const LINES_MAX: usize = 450;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn page() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// The files below `folder` with this ending, sorted.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

/// The code of a file without its comments and its unit tests, which may use anything.
fn code(path: &Path) -> String {
    if path.to_string_lossy().ends_with("_tests.rs") {
        return String::new();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// What stands between backticks in a text.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The table of rooms: each with what it may use of the crate.
fn rooms() -> BTreeMap<String, BTreeSet<String>> {
    let page = page();
    let rows = page.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let rooms: BTreeMap<_, _> = rows
        .map(|row| {
            let words = quoted(row);
            (words[0].to_owned(), words[1..].iter().map(|&word| word.to_owned()).collect())
        })
        .collect();
    let expected = ["config", "driver", "event_loop", "machine", "store", "sys"];
    assert_eq!(rooms.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    rooms
}

/// The modules above a file, from the root of the crate: `store`, `redis`, `node` for `store/redis/node/mod.rs` as for
/// `store/redis/node.rs`.
fn module(path: &Path) -> Vec<String> {
    let inside = path.strip_prefix(root().join("core/src")).unwrap().with_extension("");
    let mut names: Vec<String> = inside.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|name| name == "mod");
    names
}

/// What a piece of code in `module` names of the crate: the room of each path that begins with `crate` or `super`. A type
/// that is exported at the root (an error) counts as where it comes from.
fn used(code: &str, module: &[String]) -> BTreeSet<String> {
    let room = |name: &str| match name.trim_matches(|c: char| !c.is_alphanumeric() && c != '_') {
        "Error" | "ErrorKind" => "error".to_owned(),
        name => name.to_owned(),
    };
    let mut found = BTreeSet::new();
    let paths = code.match_indices("crate::").chain(code.match_indices("super::"));
    for (at, word) in paths {
        let whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
        if !whole {
            continue;
        }
        let mut rest = &code[at..];
        let mut above = module;
        if word == "crate::" {
            (rest, above) = (&rest["crate::".len()..], &[]);
        }
        while let Some(behind) = rest.strip_prefix("super::") {
            (rest, above) = (behind, &above[..above.len() - 1]);
        }
        if let Some(first) = above.first() {
            found.insert(first.clone());
        } else if let Some(list) = rest.strip_prefix('{') {
            found.extend(
                list.split('}').next().unwrap().split(',').map(|item| room(item.trim().split("::").next().unwrap())),
            );
        } else {
            found.insert(room(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()));
        }
    }
    found
}

/// The files of a room: a folder, a file, or both.
fn files_of(room: &str) -> Vec<PathBuf> {
    let folder = root().join("core/src").join(room);
    let file = folder.with_extension("rs");
    let mut found = if folder.is_dir() { files(&folder, "rs") } else { Vec::new() };
    found.extend(file.is_file().then_some(file));
    assert!(!found.is_empty(), "there is no room {room}");
    found
}

#[test]
fn each_room_uses_only_what_the_table_allows() {
    for (room, allowed) in rooms() {
        for path in files_of(&room) {
            let strangers: Vec<_> = used(&code(&path), &module(&path)).difference(&allowed).cloned().collect();
            assert!(strangers.is_empty(), "{} uses {strangers:?}; ARCHITECTURE.md allows {allowed:?}", path.display());
        }
    }
}

#[test]
fn the_look_at_what_is_used_sees_every_form() {
    let code = "use crate::machine::{Op, Time};\nuse crate::{Error, lease::Lease};\nlet now = crate::sys::clock::now();\n\
                fn f(x: crate::client::Client) {}\nuse super::super::super::driver::acquire;\nuse super::super::redlock;";
    let module = ["store", "redis", "node"].map(str::to_owned);
    let expected = ["client", "driver", "error", "lease", "machine", "store", "sys"];
    assert_eq!(used(code, &module).iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

/// Imports that close a circle of files, each to be opened some day: from, to.
const CIRCLES: [[&str; 2]; 5] = [
    ["driver::engine", "driver::background"],
    ["driver::engine", "driver::wait_queues"],
    // the process knows its directories, whose leases its thread ends, and whose waiters it wakes
    ["store::file::process", "store::file::directory"],
    ["store::file::watcher", "store::file::directory"],
    ["store::redis::connection::context", "store::redis::topology::sentinel"],
];

/// The paths that a tree of imports names, such as `a::b` and `a::c` of `a::{b, c}`.
fn expand(tree: &str) -> Vec<String> {
    let Some((front, list)) = tree.trim().split_once('{') else { return vec![tree.trim().to_owned()] };
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => items.push(String::new()),
            c => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                items.last_mut().unwrap().push(c);
            }
        }
    }
    items.iter().flat_map(|item| expand(item)).map(|path| format!("{front}{path}")).collect()
}

/// The files of the crate that a piece of code in `module` names, in a list of imports or by a path.
fn imported(code: &str, module: &[String], all: &BTreeSet<String>) -> BTreeSet<String> {
    let trees = code.split("use ").skip(1).filter_map(|rest| rest.split_once(';')).map(|(tree, _)| tree);
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = code.split(|c| !is_path(c)).filter(|word| word.contains("::")).map(str::to_owned);
    let mut found = BTreeSet::new();
    for path in trees.flat_map(expand).chain(paths) {
        let mut words: Vec<&str> = path.split("::").map(str::trim).collect();
        let mut at: Vec<String> = match words.first() {
            Some(&"crate") => Vec::new(),
            Some(&("super" | "self")) => module.to_vec(),
            _ => continue,
        };
        while words.first().is_some_and(|word| ["crate", "self", "super"].contains(word)) {
            if words.remove(0) == "super" {
                at.pop();
            }
        }
        for word in words {
            at.push(word.to_owned());
            if !all.contains(&at.join("::")) {
                at.pop();
                break;
            }
        }
        found.insert(at.join("::"));
    }
    found
}

/// Whether one is the other, or the module around it: a folder and its files use each other.
fn is_around(one: &str, other: &str) -> bool {
    one == other || one.starts_with(&format!("{other}::")) || other.starts_with(&format!("{one}::"))
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let paths: Vec<PathBuf> = rooms().keys().flat_map(|room| files_of(room)).collect();
    let all: BTreeSet<String> = paths.iter().map(|path| module(path).join("::")).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in &paths {
        let (code, module) = (code(path), module(path));
        let name = module.join("::");
        let mut found = imported(&code, &module, &all);
        found.retain(|other| all.contains(other) && !is_around(&name, other));
        imports.entry(name).or_default().extend(found);
    }
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 300);
    for [from, to] in CIRCLES {
        assert!(imports.get_mut(from).unwrap().remove(to), "{from} imports {to} no more: strike it from the list");
    }
    // files that import no file that is left are in no circle
    while let Some(name) = imports.iter().find(|(_, others)| others.is_empty()).map(|(name, _)| name.clone()) {
        imports.remove(&name);
        for others in imports.values_mut() {
            others.remove(&name);
        }
    }
    assert!(imports.is_empty(), "in a circle, or on the way to one: {imports:#?}");
}

#[test]
fn the_look_at_imports_sees_every_form() {
    let all = ["a", "a::b", "a::b::c", "a::d", "d", "e"].map(str::to_owned).into();
    let code = "use crate::d::{Type, self};\nuse super::{super::d, c::Other};\nuse std::fmt;\nlet x = [crate::e::X];";
    let module = ["a", "b", "x"].map(str::to_owned);
    assert_eq!(imported(code, &module, &all), ["a::b", "a::b::c", "a::d", "d", "e"].map(str::to_owned).into());
    assert_eq!(expand("a::{b, c::{d, e}}"), ["a::b", "a::c::d", "a::c::e"]);
}

/// Types of the API that exist in an async and in a blocking form.
const TWICE: [&str; 6] = ["Client", "Lease", "Listing", "Lock", "MultiLock", "RwLock"];

/// The types that a piece of code defines outside of functions and implementations.
fn types(code: &str) -> Vec<&str> {
    let defined = code.lines().filter_map(|line| {
        let line = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
            Some(rest) => rest,
            None => line,
        };
        let (word, name) = line.strip_prefix(' ').unwrap_or(line).split_once(' ')?;
        let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        ["struct", "enum", "trait", "type", "union"].contains(&word).then_some(name)
    });
    defined.collect()
}

#[test]
fn no_two_types_of_the_core_share_a_name() {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    // of two files of which one takes the place of the other on WebAssembly, one is looked at
    let is_twin = |path: &PathBuf| path.to_string_lossy().ends_with("_hosted.rs");
    for path in files(&root().join("core/src"), "rs").into_iter().filter(|path| !is_twin(path)) {
        for name in types(&code(&path)) {
            places.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    assert!(places.len() > 200, "{}", places.len());
    let shared: Vec<_> = places.iter().filter(|(name, at)| at.len() > 1 && !TWICE.contains(&name.as_str())).collect();
    assert!(shared.is_empty(), "one name, several types: {shared:#?}");
}

#[test]
fn the_look_at_types_sees_every_form() {
    let code =
        "pub struct A;\npub(crate) enum B {}\ntrait C {\n    type D;\n}\npub(super) type E<T> = Vec<T>;\nuse struct_f;";
    assert_eq!(types(code), ["A", "B", "C", "E"]);
}

#[test]
fn the_machine_room_names_no_clock_thread_socket_or_runtime() {
    let forbidden = [
        "tokio",
        "redis::",
        "Instant",
        "SystemTime",
        "std::net",
        "std::thread",
        "std::fs",
        "std::io",
        "std::env",
        "std::process",
        "getrandom",
        "rustix",
        "thread_local",
        "static mut",
        "async fn",
        "Mutex<",
        "Condvar",
    ];
    for path in files(&root().join("core/src/machine"), "rs") {
        let code = code(&path);
        for word in forbidden {
            assert!(!code.contains(word), "{} names {word}", path.display());
        }
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for path in files(&root().join("core/src"), "rs") {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
    }
}

#[test]
fn the_page_names_files_that_exist() {
    let all: Vec<String> = ["cli/src", "core/src", "tests", "demo"]
        .iter()
        .flat_map(|folder| [files(&root().join(folder), "rs"), files(&root().join("core/src"), "lua")].concat())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let page = page();
    let names: Vec<&str> = quoted(&page)
        .into_iter()
        .filter(|word| word.split_once(".rs").is_some_and(|(_, end)| end.is_empty()))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(all.iter().any(|path| path.ends_with(&format!("/{name}"))), "there is no {name}");
    }
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the crates that the core is built from.
fn dependencies(features: &[&str]) -> BTreeSet<String> {
    let mut arguments = vec!["tree", "--package", "onelock", "--edges", "normal", "--prefix", "none", "--locked"];
    arguments.extend(features);
    let tree = cargo(&arguments);
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn the_core_knows_no_other_language() {
    let found = dependencies(&[]);
    assert!(found.contains("tokio") && found.contains("redis"), "{found:?}");
    for stranger in ["pyo3", "napi", "napi-derive", "cbindgen", "libffi", "uniffi"] {
        assert!(!found.contains(stranger), "the core depends on {stranger}");
    }
}

#[test]
fn the_machine_room_builds_alone() {
    let found = dependencies(&["--no-default-features"]);
    let expected = BTreeSet::from(["onelock".to_owned(), "percent-encoding".to_owned()]);
    assert_eq!(found, expected);
    check_core(&[]);
}

/// Builds the core with these features alone, without a warning.
fn check_core(features: &[&str]) {
    // a folder of its own, so that this does not wait for another build and spoils none
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine-room");
    let mut command = Command::new(env!("CARGO"));
    command.args(["check", "--package", "onelock", "--no-default-features", "--locked", "--target-dir"]).arg(folder);
    let output = command.args(features).current_dir(root()).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !complaint.contains("warning: "), "{features:?}: {complaint}");
}

#[test]
fn each_store_builds_alone() {
    let redis = dependencies(&["--no-default-features", "--features", "redis"]);
    assert!(redis.contains("redis") && redis.contains("rustls"), "{redis:?}");
    let memory = dependencies(&["--no-default-features", "--features", "client"]);
    assert!(memory.contains("tokio") && !memory.contains("redis") && !memory.contains("rustls"), "{memory:?}");
    let file = dependencies(&["--no-default-features", "--features", "file"]);
    assert_eq!(file, memory, "locks in files need no further crate");
    let postgres = dependencies(&["--no-default-features", "--features", "postgres"]);
    assert!(postgres.contains("tokio-postgres") && !postgres.contains("redis"), "{postgres:?}");
    assert!(
        postgres.contains("ring") && !postgres.contains("aws-lc-rs") && !postgres.contains("openssl"),
        "{postgres:?}"
    );
    let memcached = dependencies(&["--no-default-features", "--features", "memcached"]);
    assert!(memcached.is_subset(&redis), "a cache needs no crate that Redis does not need: {memcached:?}");
    let etcd = dependencies(&["--no-default-features", "--features", "etcd"]);
    assert!(etcd.contains("h2") && etcd.contains("ring") && !etcd.contains("redis"), "{etcd:?}");
    assert!(!etcd.contains("prost") && !etcd.contains("tonic") && !etcd.contains("tokio-postgres"), "{etcd:?}");
    let usual = dependencies(&[]);
    assert!(!usual.contains("tokio-postgres") && !usual.contains("h2"), "a driver that not everybody needs");
    check_core(&["--features", "client"]);
    check_core(&["--features", "redis"]);
    check_core(&["--features", "file"]);
    check_core(&["--features", "postgres"]);
    check_core(&["--features", "memcached"]);
    check_core(&["--features", "etcd"]);
}
