//! Completion in the shells themselves, as it is installed: the tab key on a pseudo-terminal.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::screen::Screen;
use common::{Place, SOON, text};
use onelock_tests::wait::wait_until;

/// What is typed, and what the command is called with then: a subcommand, an option, a value.
const TYPED: [(&str, &str); 4] = [
    ("ru\t", "run"),
    ("force\t", "force-release"),
    ("run --min-h\t", "run --min-hold"),
    ("list --client red\t", "list --client redisson"),
];

/// Where `tools/shells.sh` puts the shells.
fn shells() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let fetched = Command::new(root.join("tools/shells.sh")).output().unwrap();
    assert!(fetched.status.success(), "{}", text(&fetched.stderr));
    root.join(".tools/shells")
}

/// Types into a shell that is ready, and looks what it does.
fn completes(place: &Place, shell: &str, command: Command) {
    let mut screen = Screen::run(place, command, true);
    screen.resize(120, 40);
    screen.wait_shown("ready>");
    for (typed, meant) in TYPED {
        screen.clear();
        screen.press(format!("onelock {typed}").as_bytes());
        // the shell may draw anew what it has completed: what it calls is what counts
        let last = meant.split(' ').next_back().unwrap();
        wait_until(SOON, &format!("{shell} completes {typed:?}"), || screen.shown().contains(last));
        screen.press(b"\r");
        wait_until(SOON, &format!("{shell} calls it after {typed:?}"), || screen.shown().contains(":called"));
        let shown = screen.shown();
        assert!(shown.contains(&format!("<{meant}>:called")), "{shell}, {typed:?}: {shown:?}");
    }
}

fn write(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.file(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn script(place: &Place, shell: &str) -> String {
    text(&place.output(&["completions", shell]).stdout)
}

fn clean(program: impl AsRef<std::ffi::OsStr>, place: &Place) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place.path("home")).env("TERM", "xterm");
    command.env("LANG", "C.UTF-8").env("ZDOTDIR", place.path("home"));
    command
}

#[test]
fn the_tab_key_completes_in_bash() {
    let place = Place::new();
    let rc = format!("{}\nonelock() {{ echo \"<$*>:called\"; }}\nPS1='ready> '\n", script(&place, "bash"));
    let rc = write(&place, "home/rc", &rc);
    let mut command = clean("bash", &place);
    command.args(["--noprofile", "--rcfile"]).arg(rc).arg("-i");
    completes(&place, "bash", command);
}

#[test]
fn the_tab_key_completes_in_zsh() {
    let (place, shells) = (Place::new(), shells());
    write(&place, "home/.zshenv", &fs::read_to_string(shells.join("zshenv")).unwrap());
    write(&place, "home/functions/_onelock", &script(&place, "zsh"));
    let functions = place.path("home/functions");
    let rc = format!(
        "fpath=({functions} $fpath)\nautoload -Uz compinit\ncompinit -u -D\nonelock() {{ echo \"<$*>:called\" }}\nPS1='ready> '\n"
    );
    write(&place, "home/.zshrc", &rc);
    let mut command = clean(shells.join("bin/zsh"), &place);
    command.args(["--no-global-rcs", "-i"]);
    completes(&place, "zsh", command);
}

#[test]
fn the_tab_key_completes_in_fish() {
    let (place, shells) = (Place::new(), shells());
    write(&place, "home/.config/fish/completions/onelock.fish", &script(&place, "fish"));
    let functions = "function onelock; echo \"<$argv>:called\"; end\nfunction fish_prompt; echo 'ready> '; end\n";
    // what its own configuration does, which it does not find where it is unpacked
    let path = format!("set -g fish_complete_path {}", place.path("home/.config/fish/completions"));
    write(&place, "home/.config/fish/config.fish", &format!("set -g fish_greeting\n{path}\n{functions}"));
    let mut command = clean(shells.join("bin/fish"), &place);
    command.arg("--interactive");
    completes(&place, "fish", command);
}
