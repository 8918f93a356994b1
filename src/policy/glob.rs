//! Globs of the policy: over names (models, cases), where `*` crosses everything, and over the snapshot's paths, where it
//! does not cross `/`. Owns the one way in which each is matched, and when one glob covers another.

use globset::{GlobBuilder, GlobMatcher};

/// A longer pattern is refused: it would only cost time.
const LONGEST: usize = 512;

/// A matcher over names: `*` is anything, also nothing and `/`.
pub fn name(pattern: &str) -> Option<GlobMatcher> {
    build(pattern, false)
}

/// A matcher over paths: `*` does not cross `/`, `**` does, dotfiles match. The leading `!` is not part of it.
pub fn path(pattern: &str) -> Option<GlobMatcher> {
    build(pattern, true)
}

fn build(pattern: &str, literal_separator: bool) -> Option<GlobMatcher> {
    let fits = !pattern.is_empty() && pattern.len() <= LONGEST && !pattern.chars().any(char::is_control);
    let built = || GlobBuilder::new(pattern).literal_separator(literal_separator).backslash_escape(true).build().ok();
    fits.then(built)?.map(|glob| glob.compile_matcher())
}

/// The entry of a table for a name: the exact key, else the longest glob that matches.
pub fn lookup<'a, T>(table: &'a std::collections::BTreeMap<String, T>, text: &str) -> Option<&'a T> {
    let longest = || {
        let matching = table.iter().filter(|(pattern, _)| fits(pattern, text));
        matching.max_by_key(|(pattern, _)| pattern.len()).map(|(_, value)| value)
    };
    table.get(text).or_else(longest)
}

/// Whether a pattern over names matches. One of literals and `*` needs no matcher built: a table is looked up at each call.
fn fits(pattern: &str, text: &str) -> bool {
    if pattern.contains(['?', '[', ']', '{', '}', '\\', '!']) || pattern.len() > LONGEST {
        return name(pattern).is_some_and(|glob| glob.is_match(text));
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether every name that `narrow` matches is matched by `wide`. Sound: a yes is a yes; it knows `*` and `?`, and for
/// classes, alternatives and escapes only the equal text.
pub(super) fn covers(wide: &str, narrow: &str) -> bool {
    let plain = |pattern: &str| !pattern.contains(['[', ']', '{', '}', '\\', '!']);
    if wide == narrow {
        return true;
    }
    if !plain(wide) || !plain(narrow) {
        return false;
    }
    let (wide, narrow): (Vec<char>, Vec<char>) = (wide.chars().collect(), narrow.chars().collect());
    // reachable[j]: the part of `wide` so far covers the first j signs of `narrow`, its own `*` and `?` taken as signs
    let mut reachable = vec![false; narrow.len() + 1];
    reachable[0] = true;
    for sign in wide {
        let mut next = vec![false; narrow.len() + 1];
        next[0] = sign == '*' && reachable[0];
        for (j, other) in narrow.iter().enumerate() {
            next[j + 1] = match sign {
                '*' => reachable[j + 1] || next[j],
                '?' => reachable[j] && *other != '*',
                literal => reachable[j] && *other == literal,
            };
        }
        reachable = next;
    }
    reachable[narrow.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_over_names_crosses_everything_and_over_paths_no_slash() {
        let table = [("gpt-5*", "gpt-5-mini", true), ("*", "openai/gpt-5", true), ("gpt-5", "gpt-5-mini", false)];
        for (pattern, text, wanted) in table {
            assert_eq!(name(pattern).unwrap().is_match(text), wanted, "{pattern} {text}");
        }
        let table = [
            ("**", "a/.env", true),
            ("*", "a/b", false),
            ("*", ".env", true),
            ("src/**", "src/a/b", true),
            ("*.py", "a.py", true),
        ];
        for (pattern, text, wanted) in table {
            assert_eq!(path(pattern).unwrap().is_match(text), wanted, "{pattern} {text}");
        }
        for bad in ["", "[a", "{a", "a\nb", &"a".repeat(600)] {
            assert!(name(bad).is_none() && path(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_exact_key_wins_over_the_longest_glob() {
        let table = ["*", "gpt-5*", "gpt-5-mini*", "gpt-5-mini"].map(|key| (key.to_owned(), key)).into();
        for (text, wanted) in
            [("gpt-5-mini", "gpt-5-mini"), ("gpt-5-mini-1", "gpt-5-mini*"), ("gpt-5", "gpt-5*"), ("x", "*")]
        {
            assert_eq!(lookup(&table, text), Some(&wanted));
        }
    }

    #[test]
    fn what_is_looked_up_fits_as_its_matcher_says() {
        let patterns =
            ["*", "a", "a*", "*a", "*a*", "a*b", "a**b", "ab*ba", "*a*b*", "a?c", "[ab]*", "{a,b}", "\\*", "é*"];
        for pattern in patterns {
            for text in ["", "a", "b", "ab", "ba", "aba", "abba", "ab/ba", "aab", "abc", "a*b", "*", "éa", "aXbXab"] {
                let matcher = name(pattern).unwrap();
                assert_eq!(fits(pattern, text), matcher.is_match(text), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn one_glob_covers_another_only_where_nothing_escapes() {
        let table = [
            ("*", "*", true),
            ("*", "gpt-5*", true),
            ("gpt-5*", "gpt-5-mini*", true),
            ("gpt-5*", "gpt-5", true),
            ("gpt-5-mini", "gpt-5*", false),
            ("gpt-5-mini*", "gpt-5*", false),
            ("gpt-?", "gpt-5", true),
            ("gpt-?", "gpt-*", false),
            ("*-mini", "gpt-*-mini", true),
            ("a*b*c", "a*c", false),
            ("[ab]", "[ab]", true),
            ("[ab]", "a", false),
            ("a", "[a]", false),
            ("", "a", false),
        ];
        for (wide, narrow, wanted) in table {
            assert_eq!(covers(wide, narrow), wanted, "{wide} over {narrow}");
        }
    }
}
