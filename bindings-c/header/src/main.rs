//! Writes `include/onelock.h`, and the list of exported functions beside it. `--check` only says whether they are up to
//! date.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn header(binding: &Path) -> Result<String, String> {
    let mut config = cbindgen::Config::from_file(binding.join("cbindgen.toml"))?;
    let [major, minor, patch] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    config.after_includes = Some(format!(
        "\n#define ONELOCK_VERSION \"{}\"\n#define ONELOCK_VERSION_MAJOR {major}\n#define ONELOCK_VERSION_MINOR {minor}\n\
         #define ONELOCK_VERSION_PATCH {patch}",
        env!("CARGO_PKG_VERSION")
    ));
    // the modules are found from there
    let builder = cbindgen::Builder::new().with_config(config).with_src(binding.join("src/lib.rs"));
    let mut text = Vec::new();
    builder.generate().map_err(|error| error.to_string())?.write(&mut text);
    String::from_utf8(text).map_err(|error| error.to_string())
}

/// The exported functions, one a line.
fn symbols(header: &str) -> String {
    let mut names: Vec<&str> = header
        .split(|character: char| !character.is_ascii_alphanumeric() && character != '_' && character != '(')
        .filter_map(|word| word.strip_suffix('(').or_else(|| word.split_once('(').map(|(name, _)| name)))
        .filter(|word| word.starts_with("onelock_"))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.join("\n") + "\n"
}

fn run() -> Result<bool, String> {
    let check = env::args().any(|argument| argument == "--check");
    let binding = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    let header = header(binding)?;
    let mut clean = true;
    for (path, text) in [("include/onelock.h", &header), ("abi/symbols.txt", &symbols(&header))] {
        let path = binding.join(path);
        if fs::read_to_string(&path).is_ok_and(|present| present == *text) {
            continue;
        }
        clean = false;
        if !check {
            let folder = path.parent().ok_or("no parent folder")?;
            fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).map_err(|error| error.to_string())?;
        }
    }
    Ok(clean || !check)
}

#[allow(clippy::print_stderr)] // a command-line tool
fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("onelock.h or abi/symbols.txt is out of date: run `make header` and commit the result");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
