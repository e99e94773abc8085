//! One table of everything that was measured.

use std::fmt::Write as _;

/// What is demanded of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// It may not be more.
    AtMost(f64),
    /// It may not be less.
    AtLeast(f64),
    /// Nothing: it stands there for comparison.
    None,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    what: String,
    target: Target,
    value: f64,
    measured: String,
    detail: String,
}

impl Row {
    /// A measurement: what, how much in words, and what is known besides.
    pub(crate) fn new(what: &str, target: Target, value: f64, measured: &impl ToString, detail: &impl ToString) -> Row {
        Row { what: what.to_owned(), target, value, measured: measured.to_string(), detail: detail.to_string() }
    }

    fn target(&self) -> String {
        match self.target {
            Target::AtMost(limit) => format!("at most {limit}"),
            Target::AtLeast(limit) => format!("at least {limit}"),
            Target::None => "-".to_owned(),
        }
    }

    fn verdict(&self) -> &'static str {
        let met = match self.target {
            Target::AtMost(limit) => self.value <= limit,
            Target::AtLeast(limit) => self.value >= limit,
            Target::None => return "-",
        };
        if met { "met" } else { "MISSED" }
    }
}

/// The table, in Markdown that also reads well in a terminal.
pub(crate) fn table(rows: &[Row]) -> String {
    let head = ["what", "target", "measured", "verdict", "of which"].map(str::to_owned);
    let mut lines = vec![head];
    lines.extend(rows.iter().map(|row| {
        [row.what.clone(), row.target(), row.measured.clone(), row.verdict().to_owned(), row.detail.clone()]
    }));
    let widths: Vec<usize> =
        (0..5).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_told() {
        let row = |target, value: f64| Row::new("x", target, value, &value, &"");
        assert_eq!(row(Target::AtMost(1.15), 1.16).verdict(), "MISSED");
        assert_eq!(row(Target::AtMost(1.15), 1.15).verdict(), "met");
        assert_eq!(row(Target::AtLeast(0.85), 0.8).verdict(), "MISSED");
        assert!(table(&[row(Target::None, 1.0)]).contains("| x    | -      | 1        | -       |"));
    }
}
