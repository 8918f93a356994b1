//! What a drill does to an operation's call: to the world around it, and to its answer. Owns the forms of these faults; what
//! strikes when is decided elsewhere. A fault is never the evaluation's trouble.

use super::operations::{Called, World};
use crate::policy::FaultKind;
use serde_json::{Map, Value, json};

/// Keys of an object that hold free text: an injected one goes where an agent reads on.
const TEXTS: [&str; 8] = ["note", "notes", "comment", "description", "message", "text", "content", "body"];

/// Carries a call out under a fault of the world's. `earlier` are worlds before, the last one the present.
pub(super) fn call(
    world: &mut dyn World,
    kind: &FaultKind,
    earlier: &[Value],
    name: &str,
    arguments: &Map<String, Value>,
) -> anyhow::Result<Called> {
    match kind {
        FaultKind::LostWrite => {
            let before = world.snapshot()?;
            let called = world.call(name, arguments)?;
            world.restore(&before)?;
            Ok(called)
        }
        FaultKind::Duplicate => {
            let called = world.call(name, arguments)?;
            if matches!(called, Called::Result(_)) {
                // The second delivery is nobody's request: what becomes of it shows in the world alone.
                let _ = world.call(name, arguments);
            }
            Ok(called)
        }
        FaultKind::StaleRead(calls) => stale(world, *calls, earlier, name, arguments),
        _ => world.call(name, arguments),
    }
}

/// A read sees an earlier world. A call that writes is carried out on the present one: what it did must not be lost.
fn stale(
    world: &mut dyn World,
    calls: u64,
    earlier: &[Value],
    name: &str,
    arguments: &Map<String, Value>,
) -> anyhow::Result<Called> {
    let back = usize::try_from(calls).unwrap_or(usize::MAX);
    let index = earlier.len().saturating_sub(1).saturating_sub(back);
    let Some(old) = earlier.get(index) else { return world.call(name, arguments) };
    let present = world.snapshot()?;
    world.restore(old)?;
    let called = world.call(name, arguments);
    let is_read = called.is_ok() && world.snapshot()? == *old;
    world.restore(&present)?;
    if is_read { called } else { world.call(name, arguments) }
}

/// What the target gets in place of a result.
pub(super) fn answer(kind: &FaultKind, result: Value) -> Value {
    match kind {
        FaultKind::Partial => partial(result),
        FaultKind::SchemaDrift => drifted(result),
        FaultKind::InjectedText(text) => injected(result, text),
        _ => result,
    }
}

/// The second half is missing, at least one part of it.
fn partial(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.len() / 2;
            Value::Object(map.into_iter().take(kept).collect())
        }
        Value::Array(mut items) => {
            items.truncate(items.len() / 2);
            Value::Array(items)
        }
        Value::String(text) => Value::String(text.chars().take(text.chars().count() / 2).collect()),
        _ => Value::Null,
    }
}

/// Each key in another convention: `order_id` becomes `OrderId`.
fn drifted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (renamed(&key), drifted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(drifted).collect()),
        other => other,
    }
}

fn renamed(key: &str) -> String {
    let word = |word: &str| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    let renamed: String = key.split('_').map(word).collect();
    if renamed == key { key.to_lowercase() } else { renamed }
}

fn injected(value: Value, text: &str) -> Value {
    match value {
        Value::Object(mut map) => {
            let known = TEXTS.iter().find(|key| map.get(**key).is_some_and(Value::is_string));
            let key = known.map_or("notice", |key| *key);
            let before = map.get(key).and_then(Value::as_str).unwrap_or_default();
            let joined = format!("{before}\n{text}").trim_start().to_owned();
            map.insert(key.to_owned(), Value::String(joined));
            Value::Object(map)
        }
        Value::Array(mut items) => {
            match items.first_mut() {
                Some(first) => *first = injected(first.take(), text),
                None => items.push(Value::String(text.to_owned())),
            }
            Value::Array(items)
        }
        Value::String(before) => Value::String(format!("{before}\n{text}").trim_start().to_owned()),
        other => json!({"value": other, "notice": text}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_changed_as_its_kind_says() {
        let table = [
            (FaultKind::Partial, json!({"a": 1, "b": 2, "c": 3}), json!({"a": 1})),
            (FaultKind::Partial, json!({"refunds": [1]}), json!({})),
            (FaultKind::Partial, json!([1, 2, 3]), json!([1])),
            (FaultKind::Partial, json!("grüße"), json!("gr")),
            (
                FaultKind::SchemaDrift,
                json!({"order_id": [{"a_b": 1}], "x": 2}),
                json!({"OrderId": [{"AB": 1}], "X": 2}),
            ),
            (FaultKind::SchemaDrift, json!({"OrderId": 1}), json!({"orderid": 1})),
            (
                FaultKind::InjectedText("do it".into()),
                json!({"a": 1, "note": "n"}),
                json!({"a": 1, "note": "n\ndo it"}),
            ),
            (FaultKind::InjectedText("do it".into()), json!({"a": "x"}), json!({"a": "x", "notice": "do it"})),
            (FaultKind::InjectedText("do it".into()), json!([]), json!(["do it"])),
            (FaultKind::InjectedText("do it".into()), json!(5), json!({"value": 5, "notice": "do it"})),
            (FaultKind::LostWrite, json!({"a": 1}), json!({"a": 1})),
        ];
        for (kind, result, wanted) in table {
            assert_eq!(answer(&kind, result), wanted, "{kind:?}");
        }
    }
}
