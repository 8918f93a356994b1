//! Case × drill on a terminal: the pass rate of each case undisturbed and under each drill. What is too wide goes on below,
//! again beside the undisturbed rates. A rate always says how many trials were not measured.

use crate::report::look::{Look, Tone};
use crate::report::table::{Cell, Column, Table};
use crate::report::text::{count, percent, safe, width};
use crate::results::matrix::Matrix;
use crate::results::record::CaseRecord;
use anyhow::{Context as _, Result};
use std::io::Write;

const UNDISTURBED: &str = "UNDISTURBED";
/// Columns that a case's name may take here.
const NAME: usize = 28;
const GAP: usize = 2;

/// Writes a matrix, in as many parts as the width wants.
///
/// # Errors
/// The sink's.
pub(super) fn matrix(matrix: &Matrix<'_>, look: &Look, out: &mut dyn Write) -> Result<()> {
    for part in parts(matrix, look) {
        table(matrix, &part).write(look, out)?;
        writeln!(out).context("failed to write")?;
    }
    let unmeasured = |place: &&CaseRecord| place.counts().unmeasured() > 0;
    if matrix.rows.iter().flat_map(|(_, places)| places.iter().flatten().copied()).any(|place| unmeasured(&place)) {
        let words = look.paint(Tone::Faint, "(N ?): so many trials were not measured and do not count");
        writeln!(out, "{words}\n").context("failed to write")?;
    }
    Ok(())
}

/// The columns of each part; the undisturbed one, where there is one, stands in each of them.
fn parts(matrix: &Matrix<'_>, look: &Look) -> Vec<Vec<usize>> {
    let names = matrix.rows.iter().map(|(id, _)| width(id.as_str())).max().unwrap_or(0).min(NAME);
    let first: Vec<usize> = if matrix.columns.first() == Some(&None) { vec![0] } else { Vec::new() };
    let used = |columns: &[usize]| names + columns.iter().map(|column| GAP + wanted(matrix, *column)).sum::<usize>();
    let mut parts = vec![first.clone()];
    for column in first.len()..matrix.columns.len() {
        let Some(part) = parts.last_mut() else { break };
        part.push(column);
        if used(part) > look.width && part.len() > first.len() + 1 {
            part.pop();
            parts.push(first.iter().copied().chain([column]).collect());
        }
    }
    parts
}

fn wanted(matrix: &Matrix<'_>, column: usize) -> usize {
    let places = matrix.rows.iter().filter_map(|(_, places)| *places.get(column)?);
    let heading = width(&heading(matrix, column));
    places.map(|place| width(&words(place))).fold(heading, usize::max)
}

fn heading(matrix: &Matrix<'_>, column: usize) -> String {
    match matrix.columns.get(column) {
        Some(Some(drill)) => safe(drill).into_owned(),
        _ => UNDISTURBED.to_owned(),
    }
}

fn table(matrix: &Matrix<'_>, part: &[usize]) -> Table {
    let headings: Vec<String> = part.iter().map(|column| heading(matrix, *column)).collect();
    let columns: Vec<(&str, Column)> = std::iter::once(("CASE", Column::Flexible))
        .chain(headings.iter().map(|heading| (heading.as_str(), Column::Right)))
        .collect();
    let mut table = Table::new(&columns);
    for (id, places) in &matrix.rows {
        let cell = |column: &usize| places.get(*column).copied().flatten().map_or_else(|| Cell::plain(""), cell);
        table.row(std::iter::once(Cell::plain(id.as_str())).chain(part.iter().map(cell)).collect());
    }
    table
}

fn cell(place: &CaseRecord) -> Cell {
    let tone = match (place.counts().measured(), place.failed) {
        (0, _) => Tone::Doubt,
        (_, 0) => Tone::Good,
        _ => Tone::Bad,
    };
    Cell::new(tone, words(place))
}

fn words(place: &CaseRecord) -> String {
    let rate = percent(place.pass_rate);
    match place.counts().unmeasured() {
        0 => rate,
        unmeasured => format!("{rate} ({} ?)", count(Some(unmeasured))),
    }
}
