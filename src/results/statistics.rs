//! The statistics of a run and of a comparison: Wilson's interval, pass@k and pass^k, exact tests, Holm's correction.
//! Pure functions of counts; checked against scipy's and statsmodels' values (`scripts/statistics-fixture.py`).

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % interval of a rate; none of nothing.
#[expect(clippy::cast_precision_loss, reason = "counts of trials are far below 2^52")]
pub fn wilson(passed: u64, measured: u64) -> Option<(f64, f64)> {
    if measured == 0 {
        return None;
    }
    let (n, rate) = (measured as f64, passed as f64 / measured as f64);
    let scale = 1.0 + Z * Z / n;
    let centre = rate + Z * Z / (2.0 * n);
    let spread = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
    let low = if passed == 0 { 0.0 } else { (centre - spread) / scale };
    let high = if passed >= measured { 1.0 } else { (centre + spread) / scale };
    Some((low.max(0.0), high.min(1.0)))
}
