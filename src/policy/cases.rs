//! `cases.jsonl`: one case a line. Owns what a line must be and which cases a filter selects; what `expect` means is the
//! verifier's business.

use super::Policy;
use super::glob;
use super::problem::{refuse_all, show};
use super::written::read_file;
use crate::exit::Refusal;
use crate::ids::CaseId;
use camino::Utf8Path;
use serde_json::Value;
use std::collections::BTreeMap;

/// Read whole, so bounded.
const MOST_BYTES: u64 = 256 << 20;
/// A longer line is no case but a data set in one.
const MOST_LINE: usize = 8 << 20;
/// More cases than this are a mistake.
const MOST_CASES: usize = 100_000;
const KEYS: [&str; 4] = ["id", "input", "expect", "tags"];

/// One case of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Unique in its file, whatever its case.
    pub id: CaseId,
    /// The whole line, for `world.create` and `verify`; `expect` is in here alone, never for the target (T4).
    pub line: Value,
    /// What the target gets on its standard input.
    pub input: Value,
    /// Words to select by; kept with the run.
    pub tags: Vec<String>,
}

/// Reads the policy's file of cases, in its order.
///
/// # Errors
/// A refusal with every wrong line: `cases.jsonl:3`, what was found, what would do.
pub fn load_cases(package: &Utf8Path, policy: &Policy) -> Result<Vec<Case>, Refusal> {
    let bytes = read_file(&package.join(&policy.cases), MOST_BYTES).map_err(|why| {
        Refusal::new(format!("the file of cases {why}"))
            .at(policy.cases.as_str())
            .hint("one case a line: {\"id\": \"…\", \"input\": …, \"expect\": …}")
    })?;
    parse_cases(policy.cases.as_str(), &bytes)
}

/// Reads cases from a file's content; `name` is how the file is called in a refusal. Empty lines are passed over.
///
/// # Errors
/// As [`load_cases`].
pub fn parse_cases(name: &str, bytes: &[u8]) -> Result<Vec<Case>, Refusal> {
    let mut cases: Vec<Case> = Vec::new();
    let mut problems = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let lines = bytes.split(|byte| *byte == b'\n').enumerate().map(|(i, line)| (i + 1, line.trim_ascii()));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let place = format!("{name}:{number}");
        match case(line) {
            Ok(case) => {
                if let Some(first) = seen.insert(case.id.as_str().to_ascii_lowercase(), number) {
                    let message = format!("the id {:?} stands in line {first} too", case.id.as_str());
                    problems.push(Refusal::new(message).at(place).hint("ids are unique, whatever their case"));
                }
                cases.push(case);
            }
            Err(problem) => problems.push(problem.at(place)),
        }
        if cases.len() > MOST_CASES {
            return Err(Refusal::new(format!("has more than {MOST_CASES} cases")).at(name).hint("split the package"));
        }
    }
    refuse_all(problems)?;
    if cases.is_empty() {
        return Err(Refusal::new("has no case").at(name).hint("one case a line: {\"id\": \"…\", \"input\": …}"));
    }
    Ok(cases)
}

fn case(line: &[u8]) -> Result<Case, Refusal> {
    if line.len() > MOST_LINE {
        return Err(Refusal::new("the line is longer than 8MiB").hint("keep large data in a file of the package"));
    }
    let value = crate::json::parse(line)
        .map_err(|error| Refusal::new(format!("is not strict JSON: {error}")).hint("one JSON object a line"))?;
    let Some(object) = value.as_object() else {
        return Err(Refusal::new(format!("found {}", show(&value))).hint("one JSON object a line"));
    };
    if let Some(unknown) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(Refusal::new(format!("unknown key {unknown:?}")).hint("the keys are id, input, expect and tags"));
    }
    let id = id(object.get("id"))?;
    let input = object.get("input").cloned();
    let input = input.ok_or_else(|| Refusal::new("\"input\" is missing").hint("any JSON value, also null"))?;
    let tags = tags(object.get("tags"))?;
    Ok(Case { id, input, tags, line: value })
}

fn id(value: Option<&Value>) -> Result<CaseId, Refusal> {
    let would_do = "an id of [A-Za-z0-9][A-Za-z0-9._-]{0,63}";
    let Some(value) = value else { return Err(Refusal::new("\"id\" is missing").hint(would_do)) };
    let id = value.as_str().and_then(|text| CaseId::try_from(text.to_owned()).ok());
    id.ok_or_else(|| Refusal::new(format!("found the id {}", show(value))).hint(would_do))
}

fn tags(value: Option<&Value>) -> Result<Vec<String>, Refusal> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let word = |item: &Value| item.as_str().filter(|text| (1..=64).contains(&text.len())).map(str::to_owned);
    let tags = value.as_array().and_then(|items| items.iter().map(word).collect());
    tags.ok_or_else(|| Refusal::new(format!("found the tags {}", show(value))).hint("a list of texts of 1 to 64 bytes"))
}

/// The cases whose id matches one of `filters` (globs), in their own order; no filter selects all.
///
/// # Errors
/// A refusal that names each filter that is no glob or matches nothing.
pub fn select(cases: Vec<Case>, filters: &[String]) -> Result<Vec<Case>, Refusal> {
    if filters.is_empty() {
        return Ok(cases);
    }
    let mut globs = Vec::new();
    let mut problems = Vec::new();
    for filter in filters {
        let place = format!("--case {filter}");
        match glob::name(filter) {
            None => problems.push(Refusal::new("is no glob").at(place).hint("such as \"refund-*\"")),
            Some(glob) if !cases.iter().any(|case| glob.is_match(case.id.as_str())) => {
                problems.push(Refusal::new("matches no case").at(place).hint(known(&cases)));
            }
            Some(glob) => globs.push(glob),
        }
    }
    refuse_all(problems)?;
    Ok(cases.into_iter().filter(|case| globs.iter().any(|glob| glob.is_match(case.id.as_str()))).collect())
}

fn known(cases: &[Case]) -> String {
    let shown: Vec<&str> = cases.iter().take(10).map(|case| case.id.as_str()).collect();
    let more =
        if cases.len() > shown.len() { format!(" and {} more", cases.len() - shown.len()) } else { String::new() };
    format!("the cases are {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(cases: &[Case]) -> Vec<&str> {
        cases.iter().map(|case| case.id.as_str()).collect()
    }

    #[test]
    fn a_case_keeps_its_whole_line_and_its_order() {
        let text = "{\"id\": \"b\", \"input\": {\"n\": 1.0}, \"expect\": [1], \"tags\": [\"x\"]}\r\n\n{\"id\":\"a\",\"input\":null}\n";
        let cases = parse_cases("cases.jsonl", text.as_bytes()).unwrap();
        assert_eq!(ids(&cases), ["b", "a"]);
        assert_eq!(cases[0].line.to_string(), r#"{"id":"b","input":{"n":1.0},"expect":[1],"tags":["x"]}"#);
        assert_eq!(
            (cases[0].input.to_string(), &cases[0].tags[..]),
            (r#"{"n":1.0}"#.to_owned(), &["x".to_owned()][..])
        );
        assert_eq!(cases[1].input, Value::Null);
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        let long = format!("{{\"id\":\"x\",\"input\":\"{}\"}}", "a".repeat(MOST_LINE));
        let table = [
            ("{\"id\":\"a\"", "cases.jsonl:2", "strict JSON"),
            ("{\"id\":\"a\",\"id\":\"b\",\"input\":1}", "cases.jsonl:2", "duplicate key"),
            ("[1]", "cases.jsonl:2", "found [1]"),
            ("{\"input\":1}", "cases.jsonl:2", "\"id\" is missing"),
            ("{\"id\":\"a b\",\"input\":1}", "cases.jsonl:2", "found the id \"a b\""),
            ("{\"id\":3,\"input\":1}", "cases.jsonl:2", "found the id 3"),
            ("{\"id\":\"x\"}", "cases.jsonl:2", "\"input\" is missing"),
            ("{\"id\":\"x\",\"input\":1,\"inputs\":2}", "cases.jsonl:2", "unknown key \"inputs\""),
            ("{\"id\":\"x\",\"input\":1,\"tags\":\"x\"}", "cases.jsonl:2", "found the tags \"x\""),
            ("{\"id\":\"x\",\"input\":1,\"tags\":[\"\"]}", "cases.jsonl:2", "found the tags"),
            ("{\"id\":\"FIRST\",\"input\":1}", "cases.jsonl:2", "stands in line 1 too"),
            (&long, "cases.jsonl:2", "longer than 8MiB"),
        ];
        for (line, place, message) in table {
            let text = format!("{{\"id\":\"first\",\"input\":1}}\n{line}\n");
            let refusal = parse_cases("cases.jsonl", text.as_bytes()).unwrap_err();
            assert_eq!(refusal.place.as_deref(), Some(place), "{message}");
            assert!(refusal.message.contains(message), "{} lacks {message}", refusal.message);
            assert!(refusal.hint.is_some());
        }
        assert_eq!(parse_cases("c", b"\n \n").unwrap_err().message, "has no case");
    }

    #[test]
    fn a_filter_selects_by_glob_and_one_that_matches_nothing_is_refused() {
        let text =
            "{\"id\":\"refund-1\",\"input\":1}\n{\"id\":\"refund-2\",\"input\":1}\n{\"id\":\"order-1\",\"input\":1}";
        let cases = || parse_cases("c", text.as_bytes()).unwrap();
        let filters = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (list, wanted) in [
            (&[][..], &["refund-1", "refund-2", "order-1"][..]),
            (&["refund-*"], &["refund-1", "refund-2"]),
            (&["order-1", "*-2"], &["refund-2", "order-1"]),
        ] {
            assert_eq!(ids(&select(cases(), &filters(list)).unwrap()), wanted);
        }
        let refusal = select(cases(), &filters(&["refund-*", "nothing-*"])).unwrap_err();
        assert_eq!(refusal.place.as_deref(), Some("--case nothing-*"));
        assert!(refusal.hint.unwrap().contains("refund-1, refund-2, order-1"));
        assert!(select(cases(), &filters(&["[a"])).is_err());
    }
}
