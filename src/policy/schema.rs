//! The published schemas of what people write: `policy.json` and a line of `cases.jsonl`. They accept and refuse the same
//! files as the loader, as far as JSON Schema can say it (a corpus in `tests/corpus` holds both to that).

/// JSON Schema (2020-12) of `policy.json`.
pub fn schema_text() -> &'static str {
    include_str!("schema/policy.schema.json")
}

/// JSON Schema (2020-12) of a case.
pub fn case_schema_text() -> &'static str {
    include_str!("schema/case.schema.json")
}
