//! Columns of a table in the room that a terminal has: which of them are shown, and how wide.

/// The spaces between two columns.
const GAP: usize = 2;

/// How wide a column may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// What its widest cell takes; it needs no more.
    pub(crate) widest: usize,
    /// Rather than have less, others are left out.
    pub(crate) least: usize,
}

impl Column {
    pub(crate) fn new(widest: usize, least: usize) -> Column {
        Column { widest, least: least.min(widest) }
    }
}

/// How wide each column is in a line of so many terminal columns; `None` for one that is left out. Those of `optional` are
/// left out if there is no room, the first one first. What is left of the line goes to the narrowest of those that lack some.
pub(crate) fn share(columns: &[Column], optional: &[usize], line: usize) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = columns.iter().map(|column| Some(column.least)).collect();
    for column in optional {
        if taken(&widths) > line {
            widths[*column] = None;
        }
    }
    for _ in taken(&widths)..line {
        let lacks = widths.iter_mut().zip(columns).filter_map(|(width, column)| {
            let width = width.as_mut()?;
            (*width < column.widest).then_some(width)
        });
        match lacks.min_by_key(|width| **width) {
            Some(width) => *width += 1,
            None => break,
        }
    }
    widths
}

/// How much of a line such columns take.
pub(crate) fn taken(widths: &[Option<usize>]) -> usize {
    let shown: Vec<usize> = widths.iter().copied().flatten().collect();
    shown.iter().sum::<usize>() + GAP * shown.len().saturating_sub(1)
}

/// One line of cells, each in its column.
pub(crate) fn line<'a>(cells: impl IntoIterator<Item = &'a str>, widths: &[Option<usize>]) -> String {
    let shown = cells.into_iter().zip(widths).filter_map(|(cell, width)| Some(crate::width::padded(cell, (*width)?)));
    shown.collect::<Vec<_>>().join(&" ".repeat(GAP))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(columns: &[(usize, usize)], optional: &[usize], line: usize) -> Vec<Option<usize>> {
        let columns: Vec<Column> = columns.iter().map(|(widest, least)| Column::new(*widest, *least)).collect();
        share(&columns, optional, line)
    }

    #[test]
    fn where_there_is_room_each_is_as_wide_as_its_widest_cell() {
        assert_eq!(shared(&[(20, 4), (3, 3), (0, 5)], &[1], 200), [Some(20), Some(3), Some(0)]);
        assert_eq!(shared(&[], &[], 10), []);
    }

    #[test]
    fn some_are_left_out_and_the_others_share_the_rest() {
        // all at their least take 4 + 3 + 4 and two gaps
        assert_eq!(shared(&[(20, 4), (3, 3), (6, 4)], &[1], 15), [Some(4), Some(3), Some(4)]);
        assert_eq!(shared(&[(20, 4), (3, 3), (6, 4)], &[1], 14), [Some(6), None, Some(6)]);
        assert_eq!(shared(&[(20, 4), (3, 3), (6, 4)], &[1], 18), [Some(6), Some(3), Some(5)]);
        // no room for what has to be there: the line is cut
        assert_eq!(shared(&[(20, 4), (3, 3), (6, 4)], &[1], 5), [Some(4), None, Some(4)]);
    }

    #[test]
    fn a_line_has_each_cell_in_its_column() {
        assert_eq!(line(["abc", "x", "dd"], &[Some(2), None, Some(3)]), "a~  dd ");
    }
}
