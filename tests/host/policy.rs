//! The published schemas accept and refuse the same files as the loader: a corpus, read by both. `bad-beyond-schema` holds
//! what only the loader can refuse (quantities, what two keys say together, globs, references), and says so by its name.

use crashlab::policy::{case_schema_text, parse, parse_cases, schema_text};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The policy of the corpus that has every part.
fn whole() -> Vec<u8> {
    corpus("good").into_iter().find(|(path, _)| path.ends_with("whole.json")).unwrap().1
}

fn corpus(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/policy").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder:?} holds policies");
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn validator(schema: &str) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(schema).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

#[test]
fn good_policies_are_accepted_by_the_schema_and_by_the_loader() {
    let schema = validator(schema_text());
    for (path, text) in corpus("good") {
        let document: Value = serde_json::from_slice(&text).unwrap();
        let errors: Vec<String> =
            schema.iter_errors(&document).map(|e| format!("{} at {}", e, e.instance_path())).collect();
        assert!(errors.is_empty(), "{path:?}: the schema refuses it: {errors:?}");
        assert!(parse(&text).is_ok(), "{path:?}: the loader refuses it: {}", parse(&text).unwrap_err());
    }
}

#[test]
fn bad_policies_are_refused_by_the_schema_and_by_the_loader() {
    let schema = validator(schema_text());
    for (path, text) in corpus("bad") {
        let document: Value = serde_json::from_slice(&text).unwrap();
        assert!(!schema.is_valid(&document), "{path:?}: the schema accepts it");
        assert!(parse(&text).is_err(), "{path:?}: the loader accepts it");
    }
}

#[test]
fn what_is_bad_beyond_the_schema_is_refused_by_the_loader_alone() {
    let schema = validator(schema_text());
    for (path, text) in corpus("bad-beyond-schema") {
        let document: Value = serde_json::from_slice(&text).unwrap();
        assert!(schema.is_valid(&document), "{path:?}: the schema refuses it too; it belongs into bad");
        assert!(parse(&text).is_err(), "{path:?}: the loader accepts it");
    }
}

#[test]
fn a_refusal_of_the_corpus_names_file_and_pointer_and_says_what_would_do() {
    for (path, text) in corpus("bad").into_iter().chain(corpus("bad-beyond-schema")) {
        let refusal = parse(&text).unwrap_err();
        let place = refusal.place.clone().unwrap_or_default();
        assert!(place.starts_with("policy.json#/"), "{path:?}: {refusal}");
        assert!(refusal.hint.is_some() || refusal.message.contains(" ("), "{path:?}: {refusal}");
    }
}

#[test]
fn a_case_is_judged_alike_by_its_schema_and_by_the_loader() {
    let schema = validator(case_schema_text());
    let table = [
        (r#"{"id": "a", "input": null}"#, true),
        (r#"{"id": "A.b_c-9", "input": {"n": 1}, "expect": [1], "tags": ["smoke"]}"#, true),
        (r#"{"id": "a"}"#, false),
        (r#"{"input": 1}"#, false),
        (r#"{"id": ".a", "input": 1}"#, false),
        (r#"{"id": "a/b", "input": 1}"#, false),
        (r#"{"id": 1, "input": 1}"#, false),
        (r#"{"id": "a", "input": 1, "expected": 1}"#, false),
        (r#"{"id": "a", "input": 1, "tags": "smoke"}"#, false),
        (r#"{"id": "a", "input": 1, "tags": [""]}"#, false),
        (r#"["a"]"#, false),
    ];
    for (line, wanted) in table {
        assert_eq!(schema.is_valid(&serde_json::from_str(line).unwrap()), wanted, "schema: {line}");
        assert_eq!(parse_cases("cases.jsonl", line.as_bytes()).is_ok(), wanted, "loader: {line}");
    }
}

/// Each place of a document, as a JSON pointer.
fn places(value: &Value, pointer: String, found: &mut Vec<String>) {
    let mut below = |key: &str, value: &Value| {
        places(value, format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), found);
    };
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, value)| below(&i.to_string(), value)),
        _ => {}
    }
    found.push(pointer);
}

#[test]
fn whatever_stands_anywhere_nothing_that_the_schema_refuses_is_loaded() {
    let schema = validator(schema_text());
    let values = ["null", "true", "-1", "1e3", "\"\"", "\"x\"", "[]", "[{}]", "{\"x\": null}"];
    let values: Vec<Value> = values.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let document: Value = serde_json::from_slice(&whole()).unwrap();
    let mut pointers = Vec::new();
    places(&document, String::new(), &mut pointers);
    for (pointer, value) in pointers.iter().flat_map(|pointer| values.iter().map(move |value| (pointer, value))) {
        let mut changed = document.clone();
        *changed.pointer_mut(pointer).unwrap() = value.clone();
        let loaded = parse(changed.to_string().as_bytes());
        assert!(schema.is_valid(&changed) || loaded.is_err(), "{value} at {pointer} is loaded");
    }
}

#[test]
fn a_policy_that_was_cut_anywhere_is_refused() {
    let text = whole();
    for end in 0..text.trim_ascii_end().len() {
        assert!(parse(&text[..end]).is_err(), "up to {end}");
    }
}
