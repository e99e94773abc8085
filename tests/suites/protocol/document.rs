//! Reads the tables of PROTOCOL.md, and compares words with its notation.

use std::collections::BTreeSet;

const TEXT: &str = include_str!("../../../PROTOCOL.md");

/// One row of a table: its cells, and under which heading it stands.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) heading: String,
    pub(crate) cells: Vec<String>,
}

impl Row {
    /// The words in backticks of a cell, in order.
    pub(crate) fn words(&self, cell: usize) -> Vec<&str> {
        self.cells[cell].split('`').skip(1).step_by(2).collect()
    }

    /// Whether the last cell ends with the sign of repetition.
    pub(crate) fn repeats(&self) -> bool {
        self.cells.last().is_some_and(|cell| cell.ends_with('*'))
    }
}

/// Every row of every table, without the tables' headings.
pub(crate) fn rows() -> Vec<Row> {
    let (mut rows, mut heading, mut in_table) = (Vec::new(), String::new(), false);
    let mut lines = TEXT.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix('#') {
            title.trim_start_matches('#').trim().trim_matches('`').clone_into(&mut heading);
        }
        if !line.starts_with('|') {
            in_table = false;
        } else if !in_table {
            // the heading of a table, and the line below it
            in_table = true;
            assert!(lines.next().is_some_and(|rule| rule.starts_with("|---")), "a table without a rule: {line}");
        } else {
            let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
            rows.push(Row { heading: heading.clone(), cells });
        }
    }
    rows
}

/// The rows under a heading.
pub(crate) fn under(heading: &str) -> Vec<Row> {
    let found: Vec<_> = rows().into_iter().filter(|row| row.heading == heading).collect();
    assert!(!found.is_empty(), "PROTOCOL.md has no table under {heading}");
    found
}

/// All words of one column under a heading.
pub(crate) fn column(heading: &str, cell: usize) -> BTreeSet<String> {
    under(heading).iter().flat_map(|row| row.words(cell).into_iter().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether a word is as the notation says, for the lock of this name.
pub(crate) fn fits(pattern: &str, word: &str, name: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("NAME") {
        return word.strip_prefix(name).is_some_and(|word| fits(rest, word, name));
    }
    if let Some((class, rest)) = pattern.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        let ends = (0..=word.len()).filter(|&end| word.is_char_boundary(end));
        return ends.rev().any(|end| is(class, &word[..end]) && fits(rest, &word[end..], name));
    }
    let mut letters = pattern.chars();
    match letters.next() {
        Some(letter) => word.strip_prefix(letter).is_some_and(|word| fits(letters.as_str(), word, name)),
        None => word.is_empty(),
    }
}

fn is(class: &str, word: &str) -> bool {
    let hex = |word: &str, digits: usize| word.len() == digits && word.bytes().all(|it| it.is_ascii_hexdigit());
    match class {
        "int" => word.parse::<i64>().is_ok_and(|number| number.to_string() == word),
        "hex32" => hex(word, 32),
        "hex16" => hex(word, 16),
        "uuid" => {
            let parts: Vec<_> = word.split('-').collect();
            parts.len() == 5 && parts.iter().zip([8, 4, 4, 4, 12]).all(|(part, digits)| hex(part, digits))
        }
        "label" | "host" => word.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_.%".contains(&it)),
        "type" => ["string", "list", "set", "zset", "hash", "stream"].contains(&word),
        "text" => true,
        other => panic!("PROTOCOL.md speaks of <{other}>, which nobody explains"),
    }
}

/// Whether a list of words is as a row says; a repeating row may stand any number of times (the clock of a reply once).
pub(crate) fn all_fit(row: &Row, words: &[String], name: &str) -> bool {
    let patterns = row.words(1);
    patterns.len() == words.len() && patterns.iter().zip(words).all(|(pattern, word)| fits(pattern, word, name))
}

#[test]
fn notation() {
    assert!(fits("onelock1:<hex32>", "onelock1:0123456789abcdef0123456789ABCDEF", "x"));
    assert!(!fits("onelock1:<hex32>", "onelock1:0123456789abcdef0123456789ABCDE", "x"));
    assert!(fits("f:{NAME}", "f:{a b}", "a b") && !fits("f:{NAME}", "f:{a c}", "a b"));
    assert!(fits("<uuid>:<int>", "ffffffff-ffff-4fff-bfff-ffffffffffff:12", "x"));
    assert!(!fits("<int>", "012", "x") && !fits("<int>", "", "x") && fits("<int>", "-1", "x"));
    assert!(fits("<label>,<int>", "a%20b,7", "x") && !fits("<label>,<int>", "a b,7", "x"));
}
