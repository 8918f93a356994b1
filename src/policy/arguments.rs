//! Schemas of operations' arguments: JSON Schema 2020-12, complete in itself. Owns how one is compiled; never fetches.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Compiles a schema for the arguments of an operation: an object's, draft 2020-12, no reference to elsewhere.
/// Patterns are matched in linear time: the target chooses the text that they are tried on.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    let object = schema.as_object().ok_or("not an object")?;
    match object.get("type") {
        None => {}
        Some(Value::String(name)) if name == "object" => {}
        Some(_) => return Err("arguments are a JSON object, and \"type\" says otherwise".to_owned()),
    }
    refuse_elsewhere(schema)?;
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex())
        .offline()
        .build(schema)
        .map_err(|error| format!("{} (at {})", one_line(&error.to_string()), error.instance_path()))
}

/// `$ref` into the schema itself only, and no other dialect. Data (`const`, `enum`, `default`, `examples`) is not looked at.
fn refuse_elsewhere(schema: &Value) -> Result<(), String> {
    match schema {
        Value::Array(items) => items.iter().try_for_each(refuse_elsewhere),
        Value::Object(object) => object.iter().try_for_each(|(key, value)| match (key.as_str(), value) {
            ("$ref" | "$dynamicRef", Value::String(to)) if !to.starts_with('#') => {
                Err(format!("{key} to {to:?} leaves the schema; put it below \"$defs\""))
            }
            ("$schema", Value::String(draft)) if draft.trim_end_matches('#') != DRAFT => {
                Err(format!("$schema {draft:?} is not draft 2020-12 ({DRAFT})"))
            }
            ("const" | "enum" | "default" | "examples", _) => Ok(()),
            _ => refuse_elsewhere(value),
        }),
        _ => Ok(()),
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_complete_in_itself() {
        for good in [
            json!({}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}),
            json!({"$schema": DRAFT, "type": "object"}),
            json!({"properties": {"$ref": {"const": {"$ref": "http://x"}}}}),
        ] {
            assert!(compile(&good).is_ok(), "{good}");
        }
        for bad in [
            json!(true),
            json!([]),
            json!({"type": "string"}),
            json!({"type": ["object", "null"]}),
            json!({"properties": {"a": {"type": "text"}}}),
            json!({"properties": {"a": {"$ref": "https://example.com/a.json"}}}),
            json!({"properties": {"a": {"$ref": "other.json"}}}),
            json!({"$ref": "#/$defs/none"}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            json!({"properties": {"a": {"pattern": "("}}}),
            json!({"properties": {"a": {"pattern": "(?=a)b"}}}),
        ] {
            assert!(compile(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn arguments_are_judged() {
        let validator =
            compile(&json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})).unwrap();
        assert!(validator.is_valid(&json!({"n": 1})));
        assert!(!validator.is_valid(&json!({"n": "1"})) && !validator.is_valid(&json!({})));
    }
}
