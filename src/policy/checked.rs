//! From the policy as written to the policy as checked, whole. Each part has a file of its own beside this one; what spans
//! parts is here: files that the target must not see, and names that two parts want.

use super::forms;
use super::problem::{Node, Sheet, show_name};
use super::written::{Written, read_file};
use super::{EvaluationRule, OperationRule, Policy};
use super::{arguments, drills, gateways, sandbox, target};
use crate::exit::Refusal;
use crate::ids::Digest;
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn check(written: Written) -> Result<(Policy, Written), Refusal> {
    let sheet = Sheet::new(written);
    let root = sheet.root();
    version(&root.key("version"));
    let gateways = gateways::check(&root.key("gateways"));
    let operations = operations(&root.key("operations"));
    let drills = drills::check(&root.key("drills"), &gateways, &operations);
    let target = target::check(&root.key("target"), &gateways);
    let sandbox = sandbox::check(&root.key("sandbox"), &target.mount);
    let policy = Policy {
        name: name(&root.key("name")),
        digest: Digest::of(canonical(&sheet.written.value).as_bytes()),
        evaluation: evaluation(&root.key("evaluation")),
        cases: file(&root.key("cases")).unwrap_or_else(|| "cases.jsonl".into()),
        repeat: root.key("repeat").count(1, 1_000_000).and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        target,
        sandbox,
        operations,
        gateways,
        drills,
        written: Value::Null,
    };
    keep_from_target(&root, &policy);
    let written = sheet.settle()?;
    Ok((Policy { written: written.value.clone(), ..policy }, written))
}

/// Files that the policy names and that must be there: the lock, scripts of replies. The target's folder is not among them
/// (`--target` may name another), nor an environment file (its absence is a missing credential's).
pub(super) fn look_at_files(package: &Utf8Path, policy: &Policy, written: &Written) -> Result<(), Refusal> {
    let lock = policy
        .evaluation
        .lock
        .iter()
        .map(|lock| ("/evaluation/lock".to_owned(), lock, "the package's dependency lock"));
    let script = |(name, rule): (&String, &'_ super::GatewayRule)| match &rule.upstream {
        super::Upstream::Script(file) => Some((format!("/gateways/{name}/upstream"), file.clone())),
        super::Upstream::Origin(_) => None,
    };
    let scripts: Vec<(String, Utf8PathBuf)> = policy.gateways.iter().filter_map(script).collect();
    let named =
        lock.chain(scripts.iter().map(|(pointer, file)| (pointer.clone(), file, "a file of replies, one a line")));
    let missing = named.filter_map(|(pointer, file, what)| {
        let why = read_file(&package.join(file), 64 << 20).err()?;
        Some(
            Refusal::new(format!("the file {file} {why}")).at(written.place(&pointer)).hint(format!("{what}, or null")),
        )
    });
    super::problem::refuse_all(missing.collect())
}

fn version(node: &Node<'_>) {
    if node.value().and_then(Value::as_f64) != Some(1.0) {
        node.wrong("1: the version of this format");
    }
}

fn name(node: &Node<'_>) -> String {
    let would_do = "1 to 40 of a-z, 0-9 and -";
    node.require(would_do);
    node.text(would_do, |text| forms::is_label(text).then(|| text.to_owned())).unwrap_or_default()
}

/// A file of the package.
fn file(node: &Node<'_>) -> Option<Utf8PathBuf> {
    node.text(forms::A_RELATIVE_PATH, forms::relative_path)
}

fn operations(node: &Node<'_>) -> BTreeMap<String, OperationRule> {
    let would_do = "an object of operations by name ([a-z][a-z0-9_]{0,63})";
    node.entries(would_do).into_iter().map(|(name, node)| (name.to_owned(), operation(name, &node))).collect()
}

fn operation(name: &str, node: &Node<'_>) -> OperationRule {
    if !forms::is_name(name, false) {
        node.refuse(format!("found the name {}", show_name(name)), "an operation's name is [a-z][a-z0-9_]{0,63}");
    }
    node.entries("an object with description, arguments and calls, each optional");
    OperationRule {
        description: node.key("description").text("a text of at most 4096 bytes", |text| {
            (text.len() <= 4096 && forms::is_argument(text)).then(|| text.to_owned())
        }),
        arguments: schema(&node.key("arguments")),
        calls: node.key("calls").count(1, 1_000_000_000).unwrap_or(100),
    }
}

fn schema(node: &Node<'_>) -> Option<Value> {
    let schema = node.value()?;
    if let Err(why) = arguments::compile(schema) {
        node.refuse(why, "a JSON Schema (draft 2020-12) for an object, without references to elsewhere");
    }
    Some(schema.clone())
}

fn evaluation(node: &Node<'_>) -> EvaluationRule {
    node.entries("an object with command, lock, timeout and require_clean_exit");
    EvaluationRule {
        command: command(&node.key("command")),
        lock: file(&node.key("lock")),
        timeout: node.key("timeout").time().unwrap_or(Duration::from_secs(60)),
        require_clean_exit: node.key("require_clean_exit").flag(true),
    }
}

/// A program and its arguments.
pub(super) fn command(node: &Node<'_>) -> Vec<String> {
    let would_do = "a non-empty list of texts: a program and its arguments";
    node.require(would_do);
    let words = node.texts(would_do, |text| forms::is_argument(text).then(|| text.to_owned())).unwrap_or_default();
    let no_program = |items: &Vec<Value>| items.first().is_none_or(|first| first == "") || items.len() > 1024;
    if node.value().and_then(Value::as_array).is_some_and(no_program) {
        node.wrong(would_do);
    }
    words
}

/// Cases, the lock, scripts and environment files never lie in a folder that enters the sandbox and is outside the package's
/// digest (T2, T4): the target's, and the folders `target-*` beside it.
fn keep_from_target(root: &Node<'_>, policy: &Policy) {
    let source = &policy.target.source;
    let refuse = |node: &Node<'_>, path: &Utf8PathBuf| {
        let beside = path.strip_prefix(source.parent().unwrap_or(Utf8Path::new(""))).ok();
        let sibling = beside.is_some_and(|rest| rest.as_str().starts_with("target-") && rest.components().count() > 1);
        if path.starts_with(source) || sibling {
            node.refuse(
                format!("found {path:?}, inside a folder of the target"),
                "a file that the target cannot see and the package's digest covers",
            );
        }
    };
    refuse(&root.key("cases"), &policy.cases);
    if let Some(lock) = &policy.evaluation.lock {
        refuse(&root.key("evaluation").key("lock"), lock);
    }
    for (name, rule) in &policy.gateways {
        let node = root.key("gateways").key(name);
        if let super::Upstream::Script(script) = &rule.upstream {
            refuse(&node.key("upstream"), script);
        }
        if let Some(env_file) = rule.secret.as_ref().and_then(|secret| secret.env_file.as_ref()) {
            refuse(&node.key("secret"), env_file);
        }
    }
}

/// JSON with sorted keys and without white space: the same policy has the same text.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let sorted: BTreeMap<&String, &Value> = object.iter().collect();
            let members: Vec<String> = sorted
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
