//! Units of the policy: sizes, times and thousandths. Owns how a quantity is written; exact arithmetic only, so that what
//! is enforced is what was written. A quantity that does not come out whole is no quantity.

use std::time::Duration;

const SIZES: [(&str, u128); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
/// In nanoseconds. `ms` stands before `m` and `s`: the longest suffix is looked for first.
const TIMES: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// What [`size`] takes, for a refusal.
pub(super) const A_SIZE: &str = "a size in B, KiB, MiB or GiB such as \"256MiB\"";
/// What [`time`] takes, for a refusal.
pub(super) const A_TIME: &str = "a time in ms, s, m, h or d such as \"120s\"";

/// Bytes of `512B`, `1.5GiB`; at most 1 PiB.
pub fn size(text: &str) -> Option<u64> {
    u64::try_from(quantity(text, &SIZES)?).ok().filter(|bytes| *bytes <= 1 << 50)
}

/// The duration of `250ms`, `1.5h`; at most 3650 days.
pub fn time(text: &str) -> Option<Duration> {
    let nanos = u64::try_from(quantity(text, &TIMES)?).ok()?;
    Some(Duration::from_nanos(nanos)).filter(|time| time.as_secs() <= 3650 * 86_400)
}

/// Whole thousandths of a decimal number as JSON writes one (`1`, `0.25`, `1.50`, `1e-1`).
pub(super) fn thousandths(number: &serde_json::Number) -> Option<u64> {
    const FINEST: u128 = 1_000_000;
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().ok().filter(|n| (-6..=6).contains(n))?;
    let scaled = decimal(mantissa, 1000 * 10_u128.pow(u32::try_from(6 + exponent).ok()?))?;
    scaled.is_multiple_of(FINEST).then_some(scaled / FINEST).and_then(|n| u64::try_from(n).ok())
}

/// The shortest way to write some bytes.
pub fn show_size(bytes: u64) -> String {
    let (unit, factor) = match bytes {
        0 => ("B", 1),
        n if n % (1 << 30) == 0 => ("GiB", 1 << 30),
        n if n % (1 << 20) == 0 => ("MiB", 1 << 20),
        n if n % (1 << 10) == 0 => ("KiB", 1 << 10),
        _ => ("B", 1),
    };
    format!("{}{unit}", bytes / factor)
}

fn quantity(text: &str, units: &[(&str, u128)]) -> Option<u128> {
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    decimal(number, factor)
}

/// `text` times `factor` where that is whole. Digits are bounded so that nothing overflows.
fn decimal(text: &str, factor: u128) -> Option<u128> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (text, ""),
    };
    let digits = |part: &str, most: usize| part.len() <= most && part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole, 15) || !digits(fraction, 9) {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = format!("{whole}{fraction}").parse::<u128>().ok()? * factor;
    scaled.is_multiple_of(scale).then_some(scaled / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_and_a_binary_unit() {
        let table: [(&str, Option<u64>); 20] = [
            ("0B", Some(0)),
            ("512B", Some(512)),
            ("1KiB", Some(1024)),
            ("256MiB", Some(256 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("0.5KiB", Some(512)),
            ("1048576GiB", Some(1 << 50)),
            ("1048577GiB", None),
            ("0.3B", None),
            ("1.5B", None),
            ("64M", None),
            ("64MB", None),
            ("64 MiB", None),
            ("64mib", None),
            ("-1MiB", None),
            ("1.MiB", None),
            (".5MiB", None),
            ("MiB", None),
            ("", None),
            ("99999999999999999999GiB", None),
        ];
        for (text, bytes) in table {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        let table: [(&str, Option<u64>); 16] = [
            ("250ms", Some(250)),
            ("120s", Some(120_000)),
            ("1.5m", Some(90_000)),
            ("2h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("0.5s", Some(500)),
            ("0s", Some(0)),
            ("3650d", Some(315_360_000_000)),
            ("3651d", None),
            ("120", None),
            ("1h30m", None),
            ("10 s", None),
            ("5min", None),
            ("1e3s", None),
            ("-1s", None),
            ("s", None),
        ];
        for (text, millis) in table {
            assert_eq!(time(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn thousandths_are_whole_or_nothing() {
        for (text, wanted) in
            [("1", 1000), ("1.0", 1000), ("0.1", 100), ("0.125", 125), ("2e0", 2000), ("1.5E+1", 15_000), ("1e-3", 1)]
        {
            assert_eq!(thousandths(&text.parse().unwrap()), Some(wanted), "{text}");
        }
        for text in ["0.1234", "-1", "1e-4", "1e300"] {
            assert_eq!(thousandths(&text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn a_shown_size_reads_back() {
        for bytes in [0, 1, 1024, 1536, 1 << 20, 5 << 30] {
            assert_eq!(size(&show_size(bytes)), Some(bytes));
        }
    }
}
