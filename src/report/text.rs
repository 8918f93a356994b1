//! Text that somebody else wrote, made safe for a terminal, and the few ways in which numbers are shown. Owns which
//! characters are never let through; loses nothing silently: what is escaped or cut can be seen.

use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// One line: control, direction and invisible characters are shown as escapes.
pub fn safe(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unsafe) {
        Cow::Owned(text.chars().fold(String::new(), push_safe))
    } else {
        Cow::Borrowed(text)
    }
}

/// Lines: as [`safe`], but line ends and tabs stay what they are.
pub fn safe_lines(text: &str) -> Vec<String> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let line = |line: &str| safe(&line.replace('\t', "    ")).into_owned();
    text.split('\n').map(|each| line(each.strip_suffix('\r').unwrap_or(each))).collect()
}

/// What stands for a character that markup, XML or HTML, would read as its own.
pub(crate) fn entity(char: char) -> Option<&'static str> {
    match char {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '"' => Some("&quot;"),
        '\'' => Some("&#39;"),
        _ => None,
    }
}

/// Adds a character, or the escape that stands for it.
pub(crate) fn push_safe(mut out: String, char: char) -> String {
    match char {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        char if !is_unsafe(char) => out.push(char),
        char if u32::from(char) < 0x100 => out.push_str(&format!("\\x{:02x}", u32::from(char))),
        char => out.extend(char.escape_unicode()),
    }
    out
}

/// What could move the cursor, hide text, or make it read otherwise than it is.
fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(u32::from(char),
            0xAD | 0x34F | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F | 0x200B..=0x200F
            | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0E | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB
            | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF | 0xFDD0..=0xFDEF)
        // The two last of each plane are no characters: XML cannot hold them, and readers do what they like with them.
        || u32::from(char) & 0xFFFE == 0xFFFE
}

/// Columns that safe text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Safe text cut to so many columns, with an ellipsis where it was cut.
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut used = 0;
    for char in text.chars() {
        used += char.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        out.push(char);
    }
    out.push('…');
    Cow::Owned(out)
}

/// Safe text broken into lines of so many columns, at spaces where there are some.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(8);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        push_word(&mut lines, word, columns);
    }
    lines
}

fn push_word(lines: &mut Vec<String>, word: &str, columns: usize) {
    let Some(line) = lines.last_mut() else { return };
    let space = usize::from(!line.is_empty());
    if line.width() + space + word.width() <= columns {
        line.extend(std::iter::repeat_n(' ', space));
        line.push_str(word);
        return;
    }
    if line.is_empty() {
        lines.pop();
    }
    let mut line = String::new();
    for char in word.chars() {
        if line.width() + char.width().unwrap_or(0) > columns {
            lines.push(std::mem::take(&mut line));
        }
        line.push(char);
    }
    lines.push(line);
}

/// Milliseconds for people: `812 ms`, `12.5 s`, `3 m 20 s`.
pub fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60_000..3_600_000 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// USD: cents are often too coarse for one trial.
pub fn money(usd: Option<f64>) -> String {
    match usd {
        None => "?".to_owned(),
        Some(0.0) => "$0".to_owned(),
        Some(usd) if usd.abs() < 0.00005 => "<$0.0001".to_owned(),
        Some(usd) if usd.abs() < 1.0 => format!("${usd:.4}"),
        Some(usd) => format!("${usd:.2}"),
    }
}

/// A count in groups: `12,345`; unknown is `?`.
pub fn count(number: Option<u64>) -> String {
    let Some(number) = number else { return "?".to_owned() };
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes: `1.2 KiB`.
pub fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit < 4 {
        tenths /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        unit => format!("{}.{} {}", tenths / 10, tenths % 10, ["B", "KiB", "MiB", "GiB", "TiB"][unit]),
    }
}

/// A rate: `67 %`; none is a dash.
pub fn percent(rate: Option<f64>) -> String {
    rate.map_or_else(|| "–".to_owned(), |rate| format!("{:.0} %", rate * 100.0))
}

/// One thing or several: `1 trial`, `3 trials`.
pub fn plural(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(Some(number)), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_drive_a_terminal_is_shown_not_sent() {
        let table = [
            ("plain é 日本 👍", "plain é 日本 👍"),
            ("\u{1b}[2J\u{1b}]0;owned\u{7}", "\\x1b[2J\\x1b]0;owned\\x07"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{9b}31m", "\\x9b31m"),
            ("abc\u{202e}txt.exe", "abc\\u{202e}txt.exe"),
            ("\u{2066}\u{feff}\u{e0041}\u{200b}", "\\u{2066}\\u{feff}\\u{e0041}\\u{200b}"),
            ("nul\0", "nul\\x00"),
            ("\u{fffe}\u{1ffff}\u{fdd0}", "\\u{fffe}\\u{1ffff}\\u{fdd0}"),
        ];
        for (hostile, shown) in table {
            assert_eq!(safe(hostile), shown);
        }
        assert_eq!(safe_lines("a\tb\r\n\u{1b}c\n"), ["a    b", "\\x1bc"]);
    }

    #[test]
    fn text_fits_and_wraps_by_columns_not_by_bytes() {
        assert_eq!(fit("日本語日本語", 7), "日本語…");
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("longer", 5), "long…");
        assert_eq!(wrap("one two three", 9), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijklmnop xy", 8), ["abcdefgh", "ijklmnop", "xy"]);
        assert_eq!(wrap("", 20), [""]);
        for line in wrap(&"日本".repeat(40), 21) {
            assert!(width(&line) <= 21);
        }
    }

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        let durations =
            [(0, "0 ms"), (999, "999 ms"), (12_550, "12.5 s"), (200_000, "3 m 20 s"), (7_260_000, "2 h 1 m")];
        for (milliseconds, shown) in durations {
            assert_eq!(duration(milliseconds), shown);
        }
        let prices = [
            (None, "?"),
            (Some(0.0), "$0"),
            (Some(0.00001), "<$0.0001"),
            (Some(0.0004), "$0.0004"),
            (Some(12.3), "$12.30"),
        ];
        for (usd, shown) in prices {
            assert_eq!(money(usd), shown);
        }
        for (number, shown) in [(None, "?"), (Some(7), "7"), (Some(1234), "1,234"), (Some(1_234_567), "1,234,567")] {
            assert_eq!(count(number), shown);
        }
        for (bytes, shown) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "16777215.9 TiB")]
        {
            assert_eq!(size(bytes), shown);
        }
    }
}
