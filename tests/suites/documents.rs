//! What the documents say about the code is true.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

use onelock::machine::naming;
use onelock::{Client, ErrorKind, Grade, Kind, LossReason};

const DOCUMENTS: [&str; 9] = [
    "README.md",
    "GUARANTEES.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "cli/README.md",
    "core/README.md",
    "tests/README.md",
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

/// The rows of the table whose head begins with `head`, cell by cell.
fn table(document: &str, head: &str) -> Vec<Vec<String>> {
    let text = read(document);
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows: Vec<Vec<String>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('|').to_owned()).collect())
        .collect();
    assert!(rows.len() > 1, "{document} has no table {head}");
    rows
}

fn plain(cell: &str) -> &str {
    cell.trim().trim_matches('`')
}

#[test]
fn what_stands_in_the_query_of_an_address_is_read() {
    for query in ["db=1", "protocol=resp2", "username=u", "password=p", "ca_file=f", "tls_insecure=1"] {
        let word = query.split_once('=').unwrap().0;
        assert!(read("README.md").contains(&format!("`{word}")), "{word} is missing");
        Client::new(&format!("rediss://host/?{query}")).unwrap_or_else(|error| panic!("{query}: {error}"));
    }
}

#[test]
fn every_suite_is_run() {
    let manifest: toml::Table = read("tests/Cargo.toml").parse().unwrap();
    let listed: BTreeSet<String> = manifest["test"]
        .as_array()
        .unwrap()
        .iter()
        .map(|test| {
            test["path"].as_str().unwrap().trim_start_matches("suites/").trim_end_matches("/main.rs").to_owned()
        })
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
    let there: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "common")
        .collect();
    assert_eq!(listed, there, "tests/Cargo.toml lists the files and folders of tests/suites");
}

#[test]
fn links_lead_somewhere() {
    for document in DOCUMENTS {
        let text = read(document);
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") {
                continue;
            }
            let folder = Path::new(document).parent().unwrap();
            let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(folder).join(link);
            assert!(path.exists(), "{document} links to {link}");
        }
    }
}

#[test]
fn every_picture_is_shown_and_is_one_of_a_run() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/pictures"));
    let (readme, cli, script) = (read("README.md"), read("cli/README.md"), read("tools/cli/pictures.py"));
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".svg").unwrap_or_else(|| panic!("{file} is no SVG"));
        let picture = read(&format!("cli/pictures/{file}"));
        assert!(cli.contains(&format!("](pictures/{file})")), "cli/README.md does not show {file}");
        assert!(
            script.contains(&format!("\"{name}\", \"onelock {name}\"")),
            "tools/cli/pictures.py does not draw {file}"
        );
        assert!(picture.starts_with("<svg xmlns=") && picture.trim_end().ends_with("</svg>"), "{file}");
        assert!(picture.contains(&format!("<title>onelock {name}</title>")), "{file}");
        // as `<` and `>` are escaped, nothing of a terminal is left
        assert!(!picture.contains('\u{1b}') && picture.matches("<text").count() > 5, "{file}");
        names.insert(name.to_owned());
    }
    assert_eq!(names, ["doctor", "list", "top"].map(str::to_owned).into());
    for name in ["list", "top"] {
        assert!(readme.contains(&format!("](cli/pictures/{name}.svg)")), "README.md does not show {name}.svg");
    }
}

#[test]
fn commands_are_in_the_makefile() {
    let makefile = read("Makefile");
    for document in DOCUMENTS {
        let text = read(document);
        for command in text.split("make ").skip(1).filter_map(|rest| {
            let name: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            let quoted = rest[name.len()..].starts_with('`') || rest[name.len()..].starts_with("  ");
            (quoted && !name.is_empty()).then_some(name)
        }) {
            assert!(makefile.contains(&format!("\n{command}: ##")), "{document} names `make {command}`");
        }
    }
}

#[test]
fn keys_and_channels_are_those_of_the_code() {
    let rows = table("GUARANTEES.md", "| key or channel |");
    let named: Vec<&str> = rows.iter().map(|row| plain(&row[0])).collect();
    let text = |name: Vec<u8>| String::from_utf8(name).unwrap();
    let expected = [
        "NAME".to_owned(),
        "NAME".to_owned(),
        "NAME".to_owned(),
        "NAME".to_owned(),
        text(naming::timeout_key(b"NAME", "OWNER")),
        text(naming::readers_key(b"NAME")),
        text(naming::queue_key(b"NAME")),
        text(naming::waiters_key(b"NAME")),
        text(naming::fence_key(b"NAME")),
        "NAME".to_owned(),
        text(naming::permits_key(b"NAME")),
        text(naming::channel(Kind::Mutex, b"NAME")),
        text(naming::channel(Kind::Reentrant, b"NAME")),
        text(naming::permits_channel(b"NAME")),
        text(naming::channel(Kind::Read, b"NAME")),
        text(naming::channel(Kind::Fair, b"NAME")) + ":CLIENT",
    ];
    assert_eq!(named, expected);
    for word in [naming::VALUE_PREFIX, naming::FENCE_FIELD, naming::INFO_FIELD] {
        assert!(rows.iter().flatten().any(|cell| cell.contains(word)), "{word}");
    }
}

#[test]
fn names_of_kinds_reasons_and_grades_are_those_of_the_code() {
    let readme = read("README.md");
    for kind in [ErrorKind::Busy, ErrorKind::Timeout, ErrorKind::Cancelled, ErrorKind::Lost, ErrorKind::NotHeld] {
        assert!(readme.contains(&format!("`{}`", kind.name())), "{kind:?}");
    }
    let guarantees = read("GUARANTEES.md");
    let reasons =
        [LossReason::Expired, LossReason::Taken, LossReason::MaxHold, LossReason::ClockAnomaly, LossReason::Closed];
    let named: Vec<String> = table("GUARANTEES.md", "| reason |").iter().map(|row| plain(&row[0]).to_owned()).collect();
    assert_eq!(named, reasons.map(LossReason::as_str));
    for grade in [Grade::Strict, Grade::ClockBounded, Grade::BestEffort, Grade::None] {
        assert!(guarantees.contains(&format!("`{}`", grade.as_str())), "{grade:?}");
    }
}
