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

/// The exact two-sided McNemar test on paired repetitions: how likely a split at least as uneven is, if a pair that
/// differs is as likely to have got worse as better. 1 where no pair differs.
pub fn mcnemar(worse: u64, better: u64) -> f64 {
    let n = worse + better;
    if n == 0 || worse == better {
        return 1.0;
    }
    let logs = LogFactorials::up_to(n);
    let tail: f64 =
        (0..=worse.min(better)).map(|k| (logs.choose(n, k) - as_f64(n) * std::f64::consts::LN_2).exp()).sum();
    (2.0 * tail).min(1.0)
}

/// The exact two-sided Fisher test on two groups of (passed, failed): the sum over all tables with the same margins that
/// are not more likely than the one that was seen.
pub fn fisher(base: (u64, u64), candidate: (u64, u64)) -> f64 {
    let (first, second) = (base.0 + base.1, candidate.0 + candidate.1);
    let (passed, all) = (base.0 + candidate.0, first + second);
    let logs = LogFactorials::up_to(all);
    let log_p = |k: u64| logs.choose(first, k) + logs.choose(second, passed - k) - logs.choose(all, passed);
    let seen = log_p(base.0);
    // Tables that are equally likely must not drop out by rounding.
    let tables = passed.saturating_sub(second)..=passed.min(first);
    tables.map(log_p).filter(|p| *p <= seen + 1e-7).map(f64::exp).sum::<f64>().min(1.0)
}

/// Holm's correction of a family of p-values, in the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut floor = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "the number of cases is far below 2^52")]
        let factor = (p.len() - rank) as f64;
        floor = floor.max((factor * p[index]).min(1.0));
        adjusted[index] = floor;
    }
    adjusted
}

/// pass@k: the chance that at least one of `k` of these trials passed. None where there are fewer than `k`.
pub fn pass_any(n: u64, passed: u64, k: u64) -> Option<f64> {
    let failed = n.checked_sub(passed)?;
    (k > 0 && k <= n).then(|| 1.0 - share(failed, n, k))
}

/// pass^k: the chance that all of `k` of these trials passed. None where there are fewer than `k`.
pub fn pass_all(n: u64, passed: u64, k: u64) -> Option<f64> {
    (passed <= n && k > 0 && k <= n).then(|| share(passed, n, k))
}

/// The chance that `k` drawn from `n` without putting back all come from `some` of them.
fn share(some: u64, n: u64, k: u64) -> f64 {
    if some < k {
        return 0.0;
    }
    (0..k).map(|drawn| as_f64(some - drawn) / as_f64(n - drawn)).product()
}

/// A percentile (0 to 100), linear between neighbours; none of nothing.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "the number of trials is far below 2^52")]
    let place = (percent / 100.0).clamp(0.0, 1.0) * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the last index")]
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * place.fract())
}

#[expect(clippy::cast_precision_loss, reason = "counts of trials are far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// ln(n!) for every n up to a bound.
struct LogFactorials(Vec<f64>);

impl LogFactorials {
    fn up_to(n: u64) -> Self {
        let mut logs = vec![0.0];
        let mut sum = 0.0;
        for k in 1..=n {
            sum += as_f64(k).ln();
            logs.push(sum);
        }
        Self(logs)
    }

    fn of(&self, n: u64) -> f64 {
        usize::try_from(n).ok().and_then(|n| self.0.get(n)).copied().unwrap_or(f64::NAN)
    }

    fn choose(&self, n: u64, k: u64) -> f64 {
        self.of(n) - self.of(k) - self.of(n - k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// What scipy and statsmodels say.
    fn fixture(name: &str) -> Vec<Value> {
        let all: Value = serde_json::from_str(include_str!("../../fixtures/statistics.json")).unwrap();
        let rows = all[name].as_array().unwrap().clone();
        assert!(rows.len() > 4, "{name}");
        rows
    }

    fn near(ours: f64, theirs: &Value, row: &Value) {
        let theirs = theirs.as_f64().unwrap();
        assert!((ours - theirs).abs() <= 1e-9 * theirs.abs().max(1e-3), "{ours} is not {theirs}: {row}");
    }

    fn count(value: &Value) -> u64 {
        value.as_u64().unwrap()
    }

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    }

    #[test]
    fn wilson_is_what_statsmodels_says() {
        for row in fixture("wilson") {
            let (low, high) = wilson(count(&row["passed"]), count(&row["measured"])).unwrap();
            near(low, &row["low"], &row);
            near(high, &row["high"], &row);
        }
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn mcnemar_is_what_statsmodels_says() {
        for row in fixture("mcnemar") {
            near(mcnemar(count(&row["worse"]), count(&row["better"])), &row["p"], &row);
        }
    }

    #[test]
    fn fisher_is_what_scipy_says() {
        for row in fixture("fisher") {
            let pair = |key: &str| (count(&row[key][0]), count(&row[key][1]));
            near(fisher(pair("base"), pair("candidate")), &row["p"], &row);
        }
    }

    #[test]
    fn holm_is_what_statsmodels_says() {
        for row in fixture("holm") {
            for (ours, theirs) in holm(&numbers(&row["p"])).into_iter().zip(row["adjusted"].as_array().unwrap()) {
                near(ours, theirs, &row);
            }
        }
        assert_eq!(holm(&[]), Vec::<f64>::new());
    }

    #[test]
    fn pass_at_k_and_pass_hat_k_are_what_counting_says() {
        for row in fixture("passes") {
            let (n, passed, k) = (count(&row["n"]), count(&row["passed"]), count(&row["k"]));
            near(pass_any(n, passed, k).unwrap(), &row["any"], &row);
            near(pass_all(n, passed, k).unwrap(), &row["all"], &row);
        }
        for (n, passed, k) in [(2, 1, 3), (0, 0, 1), (3, 3, 0), (2, 3, 1)] {
            assert_eq!((pass_any(n, passed, k), pass_all(n, passed, k)), (None, None));
        }
    }

    #[test]
    fn percentiles_are_what_numpy_says() {
        for row in fixture("percentiles") {
            let values = numbers(&row["values"]);
            near(percentile(&values, 50.0).unwrap(), &row["p50"], &row);
            near(percentile(&values, 95.0).unwrap(), &row["p95"], &row);
        }
        assert_eq!(percentile(&[], 50.0), None);
    }
}
