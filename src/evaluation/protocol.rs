//! The messages of the evaluation process: JSON-RPC 2.0, one a line. Owns how a request is written and what a reply must
//! be; starts nothing and waits for nothing. Replies come from trusted code, and are read as if they did not.

use crate::policy::SecretRule;
use crate::verdict::{Check, Stop};
use camino::Utf8PathBuf;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Longest message that is read, in bytes.
pub const LONGEST_MESSAGE: usize = 64 << 20;
/// Most checks of one verdict, and characters of a check's name and detail that are kept.
const MOST_CHECKS: usize = 10_000;
const LONGEST_NAME: usize = 1_000;
const LONGEST_DETAIL: usize = 64 << 10;

/// What an evaluation says of itself (`initialize`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Declared {
    /// What it implements; the policy decides what exists for the target.
    pub operations: Vec<DeclaredOperation>,
    /// The credentials that its gateways want, by gateway.
    pub secrets: BTreeMap<String, SecretRule>,
    /// Whether `world.restore` works.
    pub world_restore: bool,
}

/// An operation that the evaluation implements.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredOperation {
    /// `[a-z][a-z0-9_]{0,63}`.
    pub name: String,
    /// For the target; may be empty.
    pub description: String,
    /// JSON Schema of the arguments' object.
    pub arguments: Value,
}

/// What an operation answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Any JSON.
    Result(Value),
    /// The world said no; it is as it was before the call.
    Refused {
        /// For programs.
        code: String,
        /// For people.
        message: String,
    },
}

/// What the verifier gets to see.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyInput<'a> {
    /// The whole line of the cases' file.
    pub case: &'a Value,
    /// The target's answer.
    pub answer: &'a Value,
    /// How the target stopped; null where that is not known.
    pub stop: Option<Stop>,
    /// As created.
    pub world_before: &'a Value,
    /// As it is at the end.
    pub world: &'a Value,
    /// In order.
    pub operations: &'a [OperationSeen],
    /// The target's standard error, bounded.
    pub log: &'a str,
}

/// One call of the target, as the verifier sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationSeen {
    /// Which operation.
    pub name: String,
    /// As they were called.
    pub arguments: Value,
    /// Where it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Where the world refused: `{code, message}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Value>,
    /// Where it failed: `{code, message}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// One request as a line, its end included.
pub(super) fn request(id: u64, method: &str, params: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Request<'a, P> {
        jsonrpc: &'a str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    // serde_json escapes line ends inside strings, so the first line end is the message's.
    let mut line = serde_json::to_vec(&Request { jsonrpc: "2.0", id, method, params })?;
    line.push(b'\n');
    Ok(line)
}

/// Why a reply is no result.
#[derive(Debug, PartialEq)]
pub(super) enum NoResult {
    /// A JSON-RPC error: the evaluation's own doing; the process lives on.
    Raised(String),
    /// Not a reply to this request: nothing that comes after it can be believed.
    Malformed(String),
}

/// The result in a reply to request `id`.
pub(super) fn result(id: u64, line: &[u8]) -> Result<Value, NoResult> {
    let malformed = |what: String| NoResult::Malformed(what);
    let value = crate::json::parse(line).map_err(|error| malformed(format!("not one JSON value: {error}")))?;
    let Value::Object(mut reply) = value else { return Err(malformed("not a JSON object".to_owned())) };
    if reply.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(malformed("no `\"jsonrpc\": \"2.0\"` in it".to_owned()));
    }
    match (reply.remove("result"), reply.remove("error")) {
        // A program that cannot read a request answers with id null (JSON-RPC 2.0, section 5).
        (None, Some(error)) if reply.get("id") == Some(&json!(id)) || reply.get("id") == Some(&Value::Null) => {
            Err(NoResult::Raised(words_of(&error)))
        }
        (Some(result), None) if reply.get("id") == Some(&json!(id)) => Ok(result),
        (Some(_), None) | (None, Some(_)) => {
            let found = reply.get("id").map_or("none".to_owned(), Value::to_string);
            Err(malformed(format!("its id is {} and not {id}", clip(&found, 100))))
        }
        _ => Err(malformed("it has not exactly one of result and error".to_owned())),
    }
}

fn words_of(error: &Value) -> String {
    match error.get("message").and_then(Value::as_str) {
        Some(message) => message.to_owned(),
        None => format!("an error without a message: {}", clip(&error.to_string(), 500)),
    }
}

/// The text, or its first `most` characters and a mark.
pub(super) fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reads the result of `initialize`.
pub(super) fn declared(result: &Value) -> Result<Declared, String> {
    if result.get("protocol").and_then(Value::as_u64) != Some(1) {
        return Err("its protocol is not 1".to_owned());
    }
    let mut declared = Declared {
        world_restore: match result.get("world_restore") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => return Err("world_restore is neither true nor false".to_owned()),
        },
        ..Declared::default()
    };
    for operation in list(result, "operations")? {
        let operation = declared_operation(operation)?;
        if declared.operations.iter().any(|other| other.name == operation.name) {
            return Err(format!("the operation {} is there twice", operation.name));
        }
        declared.operations.push(operation);
    }
    match result.get("secrets") {
        None | Some(Value::Null) => {}
        Some(Value::Object(secrets)) => {
            for (gateway, secret) in secrets {
                declared.secrets.insert(gateway.clone(), declared_secret(gateway, secret)?);
            }
        }
        Some(_) => return Err("secrets is not an object".to_owned()),
    }
    Ok(declared)
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], String> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(format!("{key} is not a list")),
    }
}

fn declared_operation(value: &Value) -> Result<DeclaredOperation, String> {
    let name = value.get("name").and_then(Value::as_str).ok_or("an operation has no name")?;
    if !is_operation_name(name) {
        return Err(format!("{:?} is no name for an operation ([a-z][a-z0-9_]{{0,63}})", clip(name, 100)));
    }
    let arguments = match value.get("arguments") {
        None | Some(Value::Null) => json!({"type": "object"}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(_) => return Err(format!("the arguments of {name} are no JSON Schema")),
    };
    let description = value.get("description").and_then(Value::as_str).unwrap_or_default();
    Ok(DeclaredOperation { name: name.to_owned(), description: description.to_owned(), arguments })
}

fn is_operation_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(inner)
}

fn declared_secret(gateway: &str, value: &Value) -> Result<SecretRule, String> {
    let name = value.get("name").and_then(Value::as_str).filter(|name| is_variable(name));
    let env_file = match value.get("env_file") {
        None | Some(Value::Null) => None,
        Some(Value::String(path)) if !path.is_empty() => Some(Utf8PathBuf::from(path)),
        Some(_) => return Err(format!("the env_file of the secret of {gateway} is no path")),
    };
    let name = name.ok_or_else(|| format!("the secret of {gateway} has no variable's name"))?;
    Ok(SecretRule { name: name.to_owned(), env_file })
}

fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && (1..=200).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads the result of `operation.call`.
pub(super) fn reply(mut result: Value) -> Result<Reply, String> {
    let Some(object) = result.as_object_mut() else { return Err("the answer is not an object".to_owned()) };
    match (object.remove("result"), object.remove("refused")) {
        (Some(value), None) => Ok(Reply::Result(value)),
        (None, Some(refused)) => {
            let text = |key: &str| refused.get(key).and_then(Value::as_str).map(|text| clip(text, LONGEST_DETAIL));
            match (text("code"), text("message")) {
                (Some(code), Some(message)) => Ok(Reply::Refused { code, message }),
                _ => Err("refused has not code and message, both text".to_owned()),
            }
        }
        _ => Err("the answer has not exactly one of result and refused".to_owned()),
    }
}

/// Reads the result of `verify`: at least one check.
pub(super) fn checks(result: &Value) -> Result<Vec<Check>, String> {
    let checks = list(result, "checks")?;
    if checks.is_empty() {
        return Err("the verifier made no check at all".to_owned());
    }
    if checks.len() > MOST_CHECKS {
        return Err(format!("the verifier made more than {MOST_CHECKS} checks"));
    }
    checks.iter().map(check).collect()
}

fn check(value: &Value) -> Result<Check, String> {
    let name = value.get("name").and_then(Value::as_str).ok_or("a check has no name")?;
    let name = clip(name, LONGEST_NAME);
    let Some(Value::Bool(passed)) = value.get("passed") else {
        return Err(format!("the check {name:?} says neither true nor false"));
    };
    let detail = match value.get("detail") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    Ok(Check { name, passed: *passed, detail: detail.map(|text| clip(&text, LONGEST_DETAIL)) })
}

/// A map's arguments as a JSON value.
pub(super) fn call_params(name: &str, arguments: &Map<String, Value>) -> Value {
    json!({"name": name, "arguments": arguments})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_to_this_request_is_believed() {
        let table = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, Ok(json!({}))),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"boom"}}"#, Err(Some("boom"))),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what"}}"#, Err(Some("what"))),
            (r#"{"jsonrpc":"2.0","id":8,"result":{}}"#, Err(None)),
            (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, Err(None)),
            (r#"{"jsonrpc":"2.0","result":{}}"#, Err(None)),
            (r#"{"id":7,"result":{}}"#, Err(None)),
            (r#"{"jsonrpc":"2.0","id":7}"#, Err(None)),
            (r#"{"jsonrpc":"2.0","id":7,"result":1,"error":{}}"#, Err(None)),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#, Err(None)),
            (r#"{"jsonrpc":"2.0","id":7,"result":NaN}"#, Err(None)),
            ("hello", Err(None)),
            ("[]", Err(None)),
        ];
        for (line, right) in table {
            match (result(7, line.as_bytes()), right) {
                (Ok(found), Ok(value)) => assert_eq!(found, value),
                (Err(NoResult::Raised(words)), Err(Some(right))) => assert_eq!(words, right),
                (Err(NoResult::Malformed(_)), Err(None)) => {}
                (found, _) => panic!("{line}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_verdict_without_a_check_is_none() {
        for bad in [
            json!({}),
            json!({"checks": []}),
            json!({"checks": {}}),
            json!({"checks": [{"name": "a"}]}),
            json!({"checks": [{"name": "a", "passed": 1}]}),
            json!({"checks": [{"passed": true}]}),
            json!(null),
        ] {
            assert!(checks(&bad).is_err(), "{bad}");
        }
        let good =
            json!({"checks": [{"name": "a", "passed": true, "detail": {"x": 1}}, {"name": "b", "passed": false}]});
        let found = checks(&good).unwrap();
        assert_eq!(found[0].detail.as_deref(), Some(r#"{"x":1}"#));
        assert_eq!((found[1].passed, found[1].detail.as_deref()), (false, None));
    }

    #[test]
    fn what_an_evaluation_declares_is_checked() {
        let good = json!({"protocol": 1, "operations": [{"name": "get_order", "description": "d"}],
            "secrets": {"openai": {"name": "OPENAI_API_KEY", "env_file": null}}, "world_restore": true});
        let found = declared(&good).unwrap();
        assert_eq!(found.operations[0].arguments, json!({"type": "object"}));
        assert_eq!(found.secrets["openai"], SecretRule { name: "OPENAI_API_KEY".to_owned(), env_file: None });
        assert!(found.world_restore);
        for bad in [
            json!({}),
            json!({"protocol": 2}),
            json!({"protocol": 1, "operations": [{"name": "Get"}]}),
            json!({"protocol": 1, "operations": [{"name": "a"}, {"name": "a"}]}),
            json!({"protocol": 1, "operations": [{"name": "a", "arguments": 3}]}),
            json!({"protocol": 1, "secrets": {"openai": {"name": "not a name"}}}),
            json!({"protocol": 1, "secrets": {"openai": {"name": "A", "env_file": 1}}}),
            json!({"protocol": 1, "world_restore": "yes"}),
        ] {
            assert!(declared(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_answer_is_a_result_or_a_refusal() {
        assert_eq!(reply(json!({"result": null})), Ok(Reply::Result(Value::Null)));
        let refused = Reply::Refused { code: "no".to_owned(), message: "never".to_owned() };
        assert_eq!(reply(json!({"refused": {"code": "no", "message": "never"}})), Ok(refused));
        for bad in
            [json!({}), json!(1), json!({"refused": {"code": 1, "message": ""}}), json!({"result": 1, "refused": {}})]
        {
            assert!(reply(bad.clone()).is_err(), "{bad}");
        }
    }
}
