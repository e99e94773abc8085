//! Prints what happens in a schedule as JSON, as the page of the simulator gets it.
//!
//! `trace` prints the stories; `trace STORY SEED [BUG]` one schedule of a story.

#![allow(clippy::print_stdout, reason = "it is a command")]

use std::process::ExitCode;

use onelock_simulator::story::{Story, catalog};

fn main() -> ExitCode {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    let text = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Some(catalog()),
        [story, seed, bug @ ..] if bug.len() < 2 => trace(story, seed, bug.first().copied()),
        _ => None,
    };
    match text {
        Some(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        None => ExitCode::from(2),
    }
}

fn trace(story: &str, seed: &str, bug: Option<&str>) -> Option<String> {
    let story = Story::named(story)?;
    let bug = bug.map(|bug| story.bug(bug).ok_or(())).transpose().ok()?;
    Some(story.play(seed.parse().ok()?, bug).to_json())
}
