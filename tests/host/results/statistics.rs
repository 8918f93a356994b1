//! The statistics' fixture is what scipy and statsmodels say today: made anew by its script and compared. The rules' own
//! test (`src/results/statistics.rs`) reads the fixture. Wants CRASHLAB_STATISTICS_PYTHON, a Python that has both; CI has.

use assert_cmd::Command;
use serde_json::Value;

const FIXTURE: &str = include_str!("../../../fixtures/statistics.json");

#[test]
fn the_fixture_is_what_scipy_and_statsmodels_say() {
    let Some(python) = std::env::var_os("CRASHLAB_STATISTICS_PYTHON") else {
        return eprintln!("no CRASHLAB_STATISTICS_PYTHON: the fixture was not made anew");
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/statistics-fixture.py");
    let output = Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut made, mut kept): (Value, Value) =
        (serde_json::from_slice(&output.stdout).unwrap(), serde_json::from_str(FIXTURE).unwrap());
    for value in [&mut made, &mut kept] {
        assert!(value.as_object_mut().unwrap().remove("made_by").is_some());
    }
    assert_close("", &made, &kept);
}

/// The same shape, and numbers that differ by rounding at most: versions add up in another order.
fn assert_close(place: &str, made: &Value, kept: &Value) {
    match (made, kept) {
        (Value::Object(a), Value::Object(b)) => {
            assert!(a.keys().eq(b.keys()), "{place}");
            a.iter().for_each(|(key, value)| assert_close(&format!("{place}/{key}"), value, &b[key]));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{place}");
            a.iter().zip(b).enumerate().for_each(|(at, (a, b))| assert_close(&format!("{place}/{at}"), a, b));
        }
        (a, b) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{place}: {a} is not {b}"),
            _ => assert_eq!(a, b, "{place}"),
        },
    }
}
