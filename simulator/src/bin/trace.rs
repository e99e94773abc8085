//! Prints what happens in a schedule as JSON, as the page of the simulator gets it.
//!
//! `onelock-simulator-trace` prints the stories; with `STORY SEED [BUG]` one schedule; with `-` one a line for each line of
//! standard input that says so.

#![allow(clippy::print_stdout, reason = "it is a command")]

use std::process::ExitCode;

use onelock_simulator::story::{Story, catalog};

fn main() -> ExitCode {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    let told = match &words[..] {
        [] => {
            println!("{}", catalog());
            Some(())
        }
        [dash] if dash == "-" => std::io::stdin().lines().try_for_each(|line| tell(&line.ok()?)),
        words => tell(&words.join(" ")),
    };
    if told.is_some() { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

/// One schedule, or nothing where the words say none.
fn tell(words: &str) -> Option<()> {
    let words = words.split_whitespace().collect::<Vec<_>>();
    let [story, seed, bug @ ..] = &words[..] else { return None };
    let story = Story::named(story)?;
    let bug = match bug {
        [] => None,
        [bug] => Some(story.bug(bug)?),
        _ => return None,
    };
    println!("{}", story.play(seed.parse().ok()?, bug).to_json());
    Some(())
}
