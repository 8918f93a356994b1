//! Which keys exist, as one tree. Owns the refusal of unknown keys, file by file and before merging: a misspelt `null`
//! would otherwise delete nothing, silently. Says nothing about values.

use serde_json::Value;

/// What may stand at a place. Where the type does not fit, the checks after merging say so.
#[derive(Debug)]
pub(super) enum Shape {
    /// No keys of ours below.
    Any,
    /// These keys.
    Keys(&'static [(&'static str, Shape)]),
    /// Names of the user's choice.
    Names(&'static Shape),
    /// A list of such.
    List(&'static Shape),
}

use Shape::{Any, Keys, List, Names};

/// A policy file.
pub(super) static POLICY: Shape = Keys(&[
    ("$schema", Any),
    ("version", Any),
    ("name", Any),
    ("extends", Any),
    (
        "target",
        Keys(&[
            ("source", Any),
            ("files", Any),
            ("mount", Any),
            (
                "image",
                Keys(&[
                    ("reference", Any),
                    ("pull", Any),
                    (
                        "build",
                        Keys(&[
                            ("dockerfile", Any),
                            ("args", Names(&Any)),
                            ("contexts", Names(&Any)),
                            ("network", Any),
                            ("time", Any),
                        ]),
                    ),
                ]),
            ),
            ("command", Any),
            ("env", Names(&Any)),
            ("limits", Keys(&[("files", Any), ("bytes", Any), ("file", Any)])),
        ]),
    ),
    (
        "sandbox",
        Keys(&[
            ("user", Any),
            ("cpus", Any),
            ("memory", Any),
            ("processes", Any),
            ("open_files", Any),
            ("shared_memory", Any),
            ("wall_time", Any),
            ("output", Any),
            ("writable", List(&Keys(&[("path", Any), ("size", Any), ("exec", Any)]))),
            ("runtime", Any),
        ]),
    ),
    ("operations", Names(&Keys(&[("description", Any), ("arguments", Any), ("calls", Any)]))),
    (
        "gateways",
        Names(&Keys(&[
            ("dialect", Any),
            ("upstream", Keys(&[("script", Any)])),
            ("secret", Keys(&[("name", Any), ("env_file", Any)])),
            ("auth", Any),
            ("target_path", Any),
            ("routes", Any),
            ("models", Any),
            ("grants", Any),
            (
                "limits",
                Keys(&[
                    ("requests", Any),
                    ("request_size", Any),
                    ("response_size", Any),
                    ("request_time", Any),
                    ("first_byte", Any),
                    ("idle", Any),
                    ("tokens", Any),
                    ("cost_usd", Any),
                ]),
            ),
            ("env", Names(&Any)),
            (
                "prices",
                Names(&Keys(&[
                    ("input", Any),
                    ("cached_input", Any),
                    ("cache_write", Any),
                    ("output", Any),
                    (
                        "long_prompt",
                        Keys(&[
                            ("above", Any),
                            ("input", Any),
                            ("cached_input", Any),
                            ("cache_write", Any),
                            ("output", Any),
                        ]),
                    ),
                ])),
            ),
        ])),
    ),
    ("evaluation", Keys(&[("command", Any), ("lock", Any), ("timeout", Any), ("require_clean_exit", Any)])),
    ("cases", Any),
    ("repeat", Any),
    (
        "drills",
        Names(&Keys(&[(
            "faults",
            List(&Keys(&[
                ("on", Any),
                ("kind", Any),
                ("route", Any),
                ("nth", Any),
                ("every", Any),
                ("probability", Any),
                ("times", Any),
                ("code", Any),
                ("retry_after", Any),
                ("time", Any),
                ("events", Any),
                ("calls", Any),
                ("text", Any),
            ])),
        )])),
    ),
]);

/// Every unknown key of `value`: its JSON pointer, the key, and what would do.
pub(super) fn unknown_keys(shape: &Shape, value: &Value) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    walk(shape, value, "", &mut found);
    found
}

fn walk(shape: &Shape, value: &Value, pointer: &str, found: &mut Vec<(String, String, String)>) {
    match (shape, value) {
        (Keys(keys), Value::Object(object)) => {
            for (key, inner) in object {
                let below = join(pointer, key);
                match keys.iter().find(|(name, _)| name == key) {
                    Some((_, shape)) => walk(shape, inner, &below, found),
                    None => found.push((below, key.clone(), advice(key, keys))),
                }
            }
        }
        (Names(shape), Value::Object(object)) => {
            object.iter().for_each(|(key, inner)| walk(shape, inner, &join(pointer, key), found));
        }
        (List(shape), Value::Array(items)) => {
            items.iter().enumerate().for_each(|(i, inner)| walk(shape, inner, &format!("{pointer}/{i}"), found));
        }
        _ => {}
    }
}

fn advice(key: &str, keys: &[(&str, Shape)]) -> String {
    let nearest = keys.iter().map(|(name, _)| (distance(key, name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= 2 && distance < name.len() => format!("did you mean \"{name}\"?"),
        _ => format!("the keys here are {}", keys.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
    }
}

/// A JSON pointer one key longer.
pub(super) fn join(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Levenshtein's, over bytes; a key that is far longer than any of ours is simply far.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let best = (corner + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}
