//! The published schemas accept and refuse the same files as the loader: a corpus, read by both. `bad-beyond-schema` holds
//! what only the loader can refuse (quantities, what two keys say together, globs, references), and says so by its name.

use crashlab::policy::{case_schema_text, parse, parse_cases, schema_text};
use serde_json::Value;
use std::path::{Path, PathBuf};

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
