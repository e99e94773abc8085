//! That the options are sound, and that what is written about them holds.

#![allow(clippy::unwrap_used, reason = "tests")]

use clap::{CommandFactory, Parser};

use super::Arguments;
use crate::status::STATUSES;

/// The words of a line as a shell would split it, up to where it goes on with something else.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            '|' | '>' | '<' | '&' if !quoted => break,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn the_definitions_are_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn a_letter_stands_for_one_thing_in_all_subcommands() {
    let mut seen: std::collections::HashMap<char, (String, Vec<String>)> = std::collections::HashMap::new();
    let command = Arguments::command();
    for sub in command.get_subcommands() {
        for argument in sub.get_arguments() {
            let mut names: Vec<String> = argument.get_long().map(str::to_owned).into_iter().collect();
            names.extend(argument.get_all_aliases().into_iter().flatten().map(str::to_owned));
            for letter in argument.get_short_and_visible_aliases().into_iter().flatten() {
                let place = format!("{} -{letter}", sub.get_name());
                let (before, others) = seen.entry(letter).or_insert_with(|| (place.clone(), names.clone()));
                assert!(names.iter().any(|name| others.contains(name)), "{place} {names:?}, {before} {others:?}");
            }
        }
    }
    assert!(seen.len() > 4, "{seen:?}");
    for line in ["wait x -w 5m", "wait x --wait 5m", "wait x -t 5m", "wait x --timeout 5m"] {
        let words = std::iter::once("onelock").chain(line.split(' '));
        assert!(Arguments::try_parse_from(words).is_ok(), "{line}");
    }
}

#[test]
fn help_fits_into_eighty_columns() {
    let mut command = Arguments::command().term_width(80);
    command.build();
    let mut texts = Vec::new();
    let mut of = |command: &mut clap::Command| {
        // what stands in columns is not to be broken anywhere else
        texts.extend(
            [command.get_before_help(), command.get_after_help()].into_iter().flatten().map(ToString::to_string),
        );
        texts.extend([command.render_help(), command.render_long_help()].map(|help| help.to_string()));
    };
    command.get_subcommands_mut().for_each(&mut of);
    of(&mut command);
    let is_wide = |line: &&str| unicode_width::UnicodeWidthStr::width(*line) > 80;
    let wide: Vec<&str> = texts.iter().flat_map(|text| text.lines()).filter(is_wide).collect();
    assert!(texts.len() > 30 && wide.is_empty(), "{wide:#?}");
}

#[test]
fn every_example_is_a_command_line() {
    let mut command = Arguments::command();
    command.build();
    let texts =
        command.get_subcommands().map(|sub| (sub.get_name().to_owned(), sub.get_after_help().map(ToString::to_string)));
    let mut examples = 0;
    for (name, text) in texts.filter(|(name, _)| name != "help") {
        let text = text.unwrap_or_else(|| panic!("{name} has no examples"));
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| line.starts_with("onelock ")).collect();
        assert!(!lines.is_empty(), "{name}");
        for line in lines {
            Arguments::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
            examples += 1;
        }
    }
    let readme = include_str!("../../README.md");
    for line in readme.lines().filter(|line| line.starts_with("onelock ")) {
        let line = line.split(" #").next().unwrap().trim();
        Arguments::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
        examples += 1;
    }
    assert!(examples > 15, "{examples}");
}

#[test]
fn the_readme_lists_the_statuses_that_help_lists() {
    let rows = include_str!("../../README.md").lines().filter(|line| line.starts_with("| ")).map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        cells.next().unwrap_or_default().to_owned()
    });
    let numbers: Vec<String> = rows.filter(|cell| cell.starts_with(|letter: char| letter.is_ascii_digit())).collect();
    let listed: Vec<String> = STATUSES
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter_map(|line| line.get(..16).map(|cell| cell.trim().to_owned()))
        .filter(|cell| cell.starts_with(|letter: char| letter.is_ascii_digit()))
        .collect();
    assert_eq!(numbers, listed);
}
