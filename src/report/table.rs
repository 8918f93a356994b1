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
    /// Right, left out where the table would be too wide.
    Spare,
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

    /// The width that a column wants.
    fn wanted(&self) -> Vec<usize> {
        let widest =
            |index: usize| self.rows.iter().filter_map(|row| row.get(index)).map(|cell| width(&cell.text)).max();
        let columns = self.columns.iter().enumerate();
        columns.map(|(index, (name, _))| width(name).max(widest(index).unwrap_or(0))).collect()
    }

    /// The width that each column gets; none where it is left out.
    fn widths(&self, look: &Look) -> Vec<Option<usize>> {
        let mut widths: Vec<Option<usize>> = self.wanted().into_iter().map(Some).collect();
        let least = |index: usize, wanted: usize| match self.columns.get(index) {
            Some((_, Column::Flexible)) => wanted.min(LEAST),
            _ => wanted,
        };
        let total = |widths: &[Option<usize>], least: &dyn Fn(usize, usize) -> usize| -> usize {
            let used = widths.iter().enumerate().filter_map(|(index, width)| Some(least(index, (*width)?) + GAP));
            used.sum::<usize>().saturating_sub(GAP)
        };
        let spare = |index: &usize| self.columns.get(*index).is_some_and(|(_, column)| *column == Column::Spare);
        for index in (0..widths.len()).rev().filter(spare) {
            if total(&widths, &least) > look.width {
                widths[index] = None;
            }
        }
        let mut excess = total(&widths, &|_, wanted| wanted).saturating_sub(look.width);
        for (index, width) in widths.iter_mut().enumerate() {
            let Some(wanted) = *width else { continue };
            let smaller = wanted.saturating_sub(excess).max(least(index, wanted));
            excess -= wanted - smaller;
            *width = Some(smaller);
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

    fn line(&self, row: &[Cell], widths: &[Option<usize>], look: &Look) -> String {
        let mut line = String::new();
        for (index, ((cell, columns), (_, column))) in row.iter().zip(widths).zip(&self.columns).enumerate() {
            let Some(columns) = columns else { continue };
            let text = fit(&cell.text, *columns);
            let pad = " ".repeat(columns.saturating_sub(width(&text)));
            let text = look.paint(cell.tone, &text);
            if index > 0 {
                line.push_str("  ");
            }
            match column {
                Column::Right | Column::Spare => line.extend([pad.as_str(), &text]),
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
    fn a_spare_column_goes_before_another_is_cut_below_its_least() {
        let mut table = Table::new(&[("NAME", Column::Flexible), ("A", Column::Spare), ("B", Column::Spare)]);
        table.row(vec![Cell::plain("abcdefghijklmnop"), Cell::plain("1"), Cell::plain("22222222")]);
        assert_eq!(shown(&table, 40), "NAME              A         B\nabcdefghijklmnop  1  22222222\n");
        assert_eq!(shown(&table, 26), "NAME           A         B\nabcdefghijkl…  1  22222222\n");
        assert_eq!(shown(&table, 20), "NAME              A\nabcdefghijklmnop  1\n");
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
