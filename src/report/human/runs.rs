//! The stored runs as a table, one line a run.

use crate::report::human::run_tone;
use crate::report::look::{Look, Tone};
use crate::report::table::{Cell, Column, Table};
use crate::report::text::{count, safe};
use crate::results::list::Listed;
use anyhow::Result;
use std::io::Write;

/// Writes the stored runs.
///
/// # Errors
/// The sink's.
pub fn runs(runs: &[Listed], look: &Look, out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new(&[
        ("RUN", Column::Left),
        ("NAME", Column::Flexible),
        ("OUTCOME", Column::Flexible),
        ("PASSED", Column::Right),
        ("UNMEASURED", Column::Right),
        ("TAG", Column::Flexible),
    ]);
    for run in runs {
        let text = |text: &Option<String>| Cell::plain(text.as_deref().map_or("-".into(), safe));
        let outcome = match (&run.error, run.outcome) {
            (Some(error), _) => Cell::new(Tone::Bad, format!("unreadable: {}", safe(error))),
            (None, Some(outcome)) => Cell::new(run_tone(outcome), outcome.as_str()),
            (None, None) => Cell::new(Tone::Doubt, "?"),
        };
        let counts = run.counts.map(|counts| {
            let measured = counts.measured();
            (format!("{} of {}", count(Some(counts.passed)), count(Some(measured))), count(Some(counts.unmeasured())))
        });
        let (passed, unmeasured) = counts.unwrap_or_else(|| ("?".to_owned(), "?".to_owned()));
        table.row(vec![
            Cell::plain(safe(&run.run)),
            text(&run.name),
            outcome,
            Cell::plain(passed),
            Cell::plain(unmeasured),
            text(&run.tag),
        ]);
    }
    table.without_empty("-").write(look, out)
}
