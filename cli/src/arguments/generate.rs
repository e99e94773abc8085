//! `onelock completions` and `onelock man`.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

/// Write a completion script for a shell to standard output
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  onelock completions bash > /etc/bash_completion.d/onelock")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Write the man pages into a folder
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  onelock man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The folder
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
}
