//! Case × drill on a run's page: the pass rate of each case undisturbed and under each drill, beside each other.

use super::{Page, chart, escape};
use crate::report::text::{count, percent};
use crate::results::matrix::Matrix;
use crate::results::record::CaseRecord;
use anyhow::Result;

/// Case × drill: the pass rates, undisturbed ones first.
pub(super) fn drills(page: &mut Page<'_>, matrix: &Matrix<'_>) -> Result<()> {
    page.put(
        "<h2>Drills</h2>\n<div class=\"wide card\" role=\"region\" aria-label=\"pass rates by case and drill\" tabindex=\"0\">\
         <table id=\"drills\">\n<thead><tr><th scope=\"col\">Case</th>",
    )?;
    for drill in &matrix.columns {
        let heading = drill.map_or_else(|| "Undisturbed".to_owned(), escape);
        page.put(&format!("<th scope=\"col\" class=\"number\">{heading}</th>"))?;
    }
    page.put("</tr></thead>\n<tbody>\n")?;
    for (id, places) in &matrix.rows {
        page.put(&format!("<tr><th scope=\"row\">{}</th>", escape(id.as_str())))?;
        places.iter().try_for_each(|place| page.put(&place.map_or_else(|| "<td></td>".to_owned(), drilled)))?;
        page.put("</tr>\n")?;
    }
    page.put("</tbody>\n</table></div>\n")
}

/// A rate, always with what was not measured.
fn drilled(place: &CaseRecord) -> String {
    let counts = place.counts();
    let unmeasured = match counts.unmeasured() {
        0 => String::new(),
        unmeasured => format!(" <span class=\"doubt\">({} not measured)</span>", count(Some(unmeasured))),
    };
    let of = format!("{} of {} passed", count(Some(place.passed)), count(Some(counts.measured())));
    let (tone, rate) = (chart::tone(place), percent(place.pass_rate));
    format!("<td class=\"number\" title=\"{of}\"><span class=\"{tone}\">{rate}</span>{unmeasured}</td>")
}
