//! The few drawings of the pages, as SVG with attributes only: the page's policy allows no inline style. Numbers in, markup
//! out; nothing foreign gets here. Each drawing repeats what stands beside it in words, so it is hidden from screen readers.

use crate::results::record::CaseRecord;
use crate::verdict::Counts;
use std::fmt::Write as _;

/// The mark of the brand: the target that is glued on a crash-test dummy.
pub(super) const MARK: &str = "<svg viewBox=\"0 0 24 24\" aria-hidden=\"true\"><circle class=\"light\" cx=\"12\" cy=\"12\" r=\"11\"/>\
     <path class=\"dark\" d=\"M12 12V1A11 11 0 0 1 23 12ZM12 12V23A11 11 0 0 1 1 12Z\"/>\
     <circle class=\"ring\" cx=\"12\" cy=\"12\" r=\"11\"/></svg>";

/// A bar of all trials, by outcome.
pub(super) fn outcomes(counts: &Counts) -> String {
    let parts = [
        ("passed", counts.passed),
        ("failed", counts.failed),
        ("uncertain", counts.uncertain),
        ("not_run", counts.not_run),
    ];
    let mut svg =
        "<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">".to_owned();
    let all = u128::from(counts.trials.max(1));
    let mut from = 0;
    for (class, number) in parts.into_iter().filter(|(_, number)| *number > 0) {
        let width = u128::from(number) * 1000 / all;
        let _ = write!(svg, "<rect class=\"{class}\" x=\"{from}\" width=\"{width}\" height=\"10\"/>");
        from += width;
    }
    svg + "</svg>"
}

/// Rates with their intervals on one axis from 0 to 100 %, one lane for each.
pub(super) fn ranges(lanes: &[(&CaseRecord, &str)]) -> String {
    let height = 10 * lanes.len();
    let mut svg = format!(
        "<svg class=\"range\" viewBox=\"0 0 1000 {height}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"axis\" width=\"1000\" height=\"{height}\"/>"
    );
    for (lane, (case, class)) in lanes.iter().enumerate() {
        let top = 10 * lane;
        if let Some(interval) = &case.interval {
            let (low, high) = (interval.low * 1000.0, interval.high * 1000.0);
            let (y, width) = (top + 2, high - low);
            let _ = write!(
                svg,
                "<rect class=\"interval {class}\" x=\"{low:.0}\" y=\"{y}\" width=\"{width:.0}\" height=\"6\"/>"
            );
        }
        if let Some(rate) = case.pass_rate {
            let x = (rate * 1000.0 - 6.0).clamp(0.0, 988.0);
            let _ = write!(svg, "<rect class=\"{class}\" x=\"{x:.0}\" y=\"{top}\" width=\"12\" height=\"10\"/>");
        }
    }
    svg + "</svg>"
}

/// What a case's rate means for the eye.
pub(super) fn tone(case: &CaseRecord) -> &'static str {
    match (case.counts().measured(), case.failed) {
        (0, _) => "doubt",
        (_, 0) => "good",
        _ => "bad",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CaseId;

    #[test]
    fn a_drawing_stays_in_its_box_whatever_the_counts() {
        let many = u64::from(u32::MAX);
        for (passed, failed, uncertain, not_run) in [(0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 1, 1), (many, 0, many, 7)] {
            let counts = Counts { trials: passed + failed + uncertain + not_run, passed, failed, uncertain, not_run };
            let case = CaseRecord::new(CaseId::try_from("a".to_owned()).unwrap(), None, &counts);
            for svg in [outcomes(&counts), ranges(&[(&case, "bad"), (&case, "good")])] {
                for rect in svg.split("<rect ").skip(1) {
                    let of = |name: &str| -> f64 {
                        let value =
                            rect.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split('"').next());
                        value.map_or(0.0, |value| value.parse().unwrap())
                    };
                    assert!(of("x") >= 0.0 && of("x") + of("width") <= 1000.5, "{svg}");
                }
            }
        }
    }
}
