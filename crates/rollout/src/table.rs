//! Rows under headings, lined up for a terminal.

/// To which side a column leans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under their headings, lined up. If they are wider than `columns`, the first column is cut.
pub(crate) fn table(
    headings: &[&str],
    aligned: &[Align],
    rows: impl IntoIterator<Item = Vec<String>>,
    columns: usize,
) -> String {
    let mut lines = vec![headings.iter().map(|heading| (*heading).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|line| length(line.get(column))).max().unwrap_or_default();
    let mut widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let whole = widths.iter().sum::<usize>() + 2 * headings.len().saturating_sub(1);
    if let Some(first) = widths.first_mut() {
        *first = (*first).saturating_sub(whole.saturating_sub(columns)).max(8.min(*first));
    }
    let laid_out = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).zip(aligned).map(|((cell, width), align)| match align {
            Align::Left => format!("{:width$}", fitted(cell, *width)),
            Align::Right => format!("{:>width$}", cell),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(laid_out).collect::<Vec<_>>().join("\n")
}

fn length(cell: Option<&String>) -> usize {
    cell.map_or(0, |cell| cell.chars().count())
}

/// The text, cut to so many characters.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_fit() {
        let rows = || [vec!["short".to_owned(), "1".into()], vec!["a-very-long-name".into(), "1000".into()]];
        let shown = table(&["GROUP", "HOSTS"], &[Align::Left, Align::Right], rows(), 100);
        assert_eq!(shown, "GROUP             HOSTS\nshort                 1\na-very-long-name   1000");
        let cut = table(&["GROUP", "HOSTS"], &[Align::Left, Align::Right], rows(), 17);
        assert_eq!(cut, "GROUP       HOSTS\nshort           1\na-very-lo…   1000");
    }
}
