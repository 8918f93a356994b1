//! Tables at the width of the terminal. Owns alignment and which column gives way; cells must be safe text already.

use crate::report::look::{Look, Tone};
use crate::report::text::{fit, width};
use anyhow::{Context as _, Result};
use std::io::Write;

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Left; gives way where the table is too wide.
    Flexible,
    /// Left.
    Left,
    /// Right: numbers.
    Right,
}

/// A cell.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// With a meaning.
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }

    /// Without.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }
}

/// A table that is written row by row once all are known.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(String, Column)>,
    rows: Vec<Vec<Cell>>,
}

/// The smallest width of the flexible column.
const LEAST: usize = 12;
const GAP: usize = 2;

impl Table {
    /// With these headings.
    pub fn new(columns: &[(&str, Column)]) -> Self {
        let columns = columns.iter().map(|(name, column)| ((*name).to_owned(), *column)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Drops the columns that are the same `empty` in every row.
    #[must_use]
    pub fn without_empty(mut self, empty: &str) -> Self {
        let used = |index: usize| self.rows.iter().any(|row| row.get(index).is_some_and(|cell| cell.text != empty));
        let keep: Vec<bool> = (0..self.columns.len()).map(used).collect();
        let kept = |index: usize| keep.get(index).copied().unwrap_or(true);
        let mut index = 0..;
        self.columns.retain(|_| index.next().is_none_or(&kept));
        for row in &mut self.rows {
            let mut index = 0..;
            row.retain(|_| index.next().is_none_or(&kept));
        }
        self
    }

    fn widths(&self, look: &Look) -> Vec<usize> {
        let widest =
            |index: usize| self.rows.iter().filter_map(|row| row.get(index)).map(|cell| width(&cell.text)).max();
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, (name, _))| width(name).max(widest(index).unwrap_or(0)))
            .collect();
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let mut excess = total.saturating_sub(look.width);
        for (index, (_, column)) in self.columns.iter().enumerate() {
            if *column == Column::Flexible {
                let smaller = widths[index].saturating_sub(excess).max(LEAST.min(widths[index]));
                excess -= widths[index] - smaller;
                widths[index] = smaller;
            }
        }
        widths
    }

    /// Writes it; the heading too where there is a row.
    ///
    /// # Errors
    /// The sink's.
    pub fn write(&self, look: &Look, out: &mut dyn Write) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let widths = self.widths(look);
        let heading: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::new(Tone::Faint, name.as_str())).collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let line = self.line(row, &widths, look);
            writeln!(out, "{}", line.trim_end()).context("failed to write a table")?;
        }
        Ok(())
    }

    fn line(&self, row: &[Cell], widths: &[usize], look: &Look) -> String {
        let mut line = String::new();
        for (index, ((cell, columns), (_, column))) in row.iter().zip(widths).zip(&self.columns).enumerate() {
            let text = fit(&cell.text, *columns);
            let pad = " ".repeat(columns.saturating_sub(width(&text)));
            let text = look.paint(cell.tone, &text);
            if index > 0 {
                line.push_str("  ");
            }
            match column {
                Column::Right => line.extend([pad.as_str(), &text]),
                Column::Left | Column::Flexible => line.extend([text.as_str(), &pad]),
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(table: &Table, width: usize) -> String {
        let mut out = Vec::new();
        table.write(&Look::plain(width), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_flexible_column_gives_way_and_numbers_never_do() {
        let mut table = Table::new(&[("CASE", Column::Flexible), ("N", Column::Right), ("TAG", Column::Left)]);
        table.row(vec![Cell::plain("a-very-long-case-name-indeed"), Cell::plain("12345"), Cell::plain("-")]);
        table.row(vec![Cell::plain("日本"), Cell::plain("6"), Cell::plain("-")]);
        assert_eq!(
            shown(&table, 26),
            "CASE                N  TAG\na-very-long-c…  12345  -\n日本                6  -\n"
        );
        let wide = "CASE                              N\na-very-long-case-name-indeed  12345\n日本                              6\n";
        assert_eq!(shown(&table.without_empty("-"), 80), wide);
    }
}
