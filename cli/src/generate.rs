//! Completion scripts and man pages, made of the same definitions as the parser.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use crate::arguments::{Arguments, Completions, Man};
use crate::print;
use crate::status::{Failure, STATUSES, Status};

pub(crate) fn completions(options: &Completions) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "onelock", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Done)
}

pub(crate) fn man(options: &Man) -> Result<Status, Failure> {
    // whoever reads a page needs no command that shows the same
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    page(&options.folder, &command, "onelock")?;
    for sub in command.get_subcommands() {
        page(&options.folder, sub, &format!("onelock-{}", sub.get_name()))?;
    }
    Ok(Status::Done)
}

fn page(folder: &Path, command: &clap::Command, name: &str) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, rendered(command, name)?));
    written.map_err(|error| Failure::new(Status::Software, format!("{}: {error}", path.display())))
}

fn rendered(command: &clap::Command, name: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // the parts that begin with a title of their own: examples, exit status
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let page = clap_mangen::Man::new(command.clone().name(name.to_owned()));
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect();
    section(&mut text, "SYNOPSIS", &usage.join("\n"))?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    for (title, lines) in parts(&after) {
        section(&mut text, &title, &lines)?;
    }
    if !command.has_subcommands() {
        for (title, lines) in parts(STATUSES) {
            section(&mut text, &title, &lines)?;
        }
    }
    let mut environment = Vec::new();
    if command.has_subcommands() || command.get_arguments().any(|argument| argument.get_id() == "url") {
        environment.push("ONELOCK_URL             the address of the server, where --url does not say it");
    }
    if command.get_name() == "run" {
        environment.push("ONELOCK_NAME            set for the command: the name of the lock");
        environment.push("ONELOCK_FENCING_TOKEN   set for the command: grows with every grant; not with --limit");
        environment.push("ONELOCK_OWNER           set for the command with --owner: lets an onelock run inside enter;");
        environment.push("                        sudo, ssh and env -i drop it (sudo --preserve-env=ONELOCK_OWNER)");
    }
    if command.get_name() == "top" {
        environment.push("NO_COLOR                set to anything: no colours");
    }
    if !environment.is_empty() {
        section(&mut text, "ENVIRONMENT", &environment.join("\n"))?;
    }
    section(&mut text, "SEE ALSO", &see_also(command))?;
    Ok(text)
}

/// The other pages, and the command of one machine.
fn see_also(command: &clap::Command) -> String {
    let pages = command.get_subcommands().map(|sub| format!("onelock-{}(1)", sub.get_name()));
    let mut pages: Vec<String> =
        if command.has_subcommands() { pages.collect() } else { vec!["onelock(1)".to_owned()] };
    pages.push("flock(1)".to_owned());
    pages.join(",\n")
}

/// The parts of a help text, each below a line that ends with a colon and is not indented.
fn parts(text: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
            Some(title) => parts.push((title.to_uppercase(), String::new())),
            None => {
                if let Some((_, lines)) = parts.last_mut() {
                    lines.push_str(line);
                    lines.push('\n');
                }
            }
        }
    }
    parts
}

/// A section whose lines are shown as they are.
fn section(text: &mut Vec<u8>, title: &str, lines: &str) -> io::Result<()> {
    writeln!(text, ".SH \"{title}\"\n.nf")?;
    for line in lines.trim_end().lines() {
        // a point or an apostrophe at the start would be an order
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        writeln!(text, "{guard}{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    writeln!(text, ".fi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_help_stands_in_a_section_of_the_page() {
        let mut command = Arguments::command();
        command.build();
        for command in std::iter::once(&command).chain(command.get_subcommands()) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let page = String::from_utf8_lossy(&rendered(command, command.get_name()).unwrap_or_default()).into_owned();
            assert_eq!(after.is_empty(), parts(&after).is_empty(), "{}", command.get_name());
            for line in after.lines().filter(|line| line.starts_with(' ')) {
                let line = line.replace('\\', "\\e").replace('-', "\\-");
                assert!(page.contains(&format!("\n{line}\n")), "{line}");
            }
        }
    }

    #[test]
    fn what_would_be_an_order_is_none() {
        let mut text = Vec::new();
        section(&mut text, "A", ".sh\n'x\na\\b --c\n").unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&text), ".SH \"A\"\n.nf\n\\&.sh\n\\&'x\na\\eb \\-\\-c\n.fi\n");
    }
}
