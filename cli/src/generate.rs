//! Completion scripts and man pages, made of the same definitions as the parser.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use crate::arguments::{Arguments, Completions, Man};
use crate::print;
use crate::status::{Failure, Status};

pub(crate) fn completions(options: &Completions) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "onelock", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Done)
}

pub(crate) fn man(options: &Man) -> Result<Status, Failure> {
    let mut command = Arguments::command();
    command.build();
    page(&options.folder, &command, "onelock")?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        page(&options.folder, sub, &format!("onelock-{}", sub.get_name()))?;
    }
    Ok(Status::Done)
}

fn page(folder: &Path, command: &clap::Command, name: &str) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    let written = clap_mangen::Man::new(command.clone().name(name.to_owned()))
        .render(&mut text)
        .and_then(|()| fs::create_dir_all(folder))
        .and_then(|()| fs::write(&path, &text));
    written.map_err(|error| Failure::new(Status::Software, format!("{}: {error}", path.display())))
}
