//! Every row of the policy's table: what is accepted, and for each wrong value where, what was found, and what would do.

use super::example::EXAMPLE;
use super::wrong::WRONG;
use super::*;
use serde_json::json;

/// The example with a merge patch over it, checked.
fn patched(patch: &Value) -> Result<Policy, Refusal> {
    let mut document: Value = serde_json::from_str(EXAMPLE).unwrap();
    json_patch::merge(&mut document, patch);
    parse(document.to_string().as_bytes())
}

/// A package with this policy, and overlays beside it.
fn package(policy: &Value, overlays: &[Value]) -> (tempfile::TempDir, Result<Policy, Refusal>) {
    let folder = tempfile::tempdir().unwrap();
    let path = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
    std::fs::write(path.join("policy.json"), policy.to_string()).unwrap();
    std::fs::write(path.join("requirements.lock"), "").unwrap();
    let mut files = Vec::new();
    for (i, overlay) in overlays.iter().enumerate() {
        files.push(path.join(format!("over-{i}.json")));
        std::fs::write(&files[i], overlay.to_string()).unwrap();
    }
    let policy = load(&path, &files);
    (folder, policy)
}

fn minimal() -> Value {
    json!({"version": 1, "name": "p", "target": {"image": {"reference": "a/b:1"}, "command": ["/agent"]},
           "evaluation": {"command": ["python3", "evaluation.py"]}})
}

/// The minimal policy with more keys.
fn with(more: Value) -> Value {
    let mut policy = minimal();
    json_patch::merge(&mut policy, &more);
    policy
}

#[test]
fn the_example_of_the_documentation_is_accepted() {
    let policy = parse(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(policy.name, "refund-desk");
    assert_eq!(policy.gateways["openai"].limits.cost_usd, Some(1.0));
    assert_eq!(policy.drills["busy"].faults[0].when, FaultTime::Nth(1));
    assert_eq!(policy.written["name"], "refund-desk");
    assert_eq!(policy.written.get("$schema"), None);
}

#[test]
fn each_wrong_value_is_refused_with_file_pointer_what_was_found_and_what_would_do() {
    for (patch, pointer, found, would_do) in WRONG {
        let patch_value: Value = serde_json::from_str(patch).unwrap();
        let Err(refusal) = patched(&patch_value) else { panic!("{patch} was accepted") };
        let text = refusal.to_string();
        let line = text.split('\n').find(|line| line.contains(&format!("policy.json{pointer}: ")));
        let line = line.unwrap_or_else(|| panic!("{patch} was not refused at {pointer}: {text}"));
        assert!(line.contains(found), "{patch}: {line} lacks {found}");
        assert!(text.contains(would_do), "{patch}: {text} lacks {would_do}");
    }
}

#[test]
fn a_refusal_quotes_no_credential() {
    let key = ["sk-", "proj-0123456789"].concat();
    for patch in [
        json!({"target": {"env": {"X": key}}}),
        json!({"target": {"env": {"OPENAI_KEY": key}}}),
        json!({"target": {"image": {"build": {"args": {"X": key}}}}}),
        json!({"gateways": {"openai": {"secret": key}}}),
        json!({"gateways": {"openai": {"secret": {"name": key}}}}),
        json!({"gateways": {"openai": {"auth": {"bearer": key}}}}),
        json!({"sandbox": {"user": [key]}}),
        json!({key.clone(): 1}),
        json!({"target": {"env": {key.clone(): "x"}}}),
        json!({"gateways": {key.clone(): {}}}),
    ] {
        let refusal = patched(&patch).unwrap_err();
        assert!(!refusal.to_string().contains("0123456789"), "{refusal}");
    }
}

#[test]
fn one_mistake_is_told_once_and_on_a_line_of_bounded_length() {
    for patch in [
        json!({"target": {"env": "x"}}),
        json!({"target": {"command": "x"}}),
        json!({"target": {"files": "x"}}),
        json!({"target": {"image": {"build": {"args": [1]}}}}),
        json!({"sandbox": {"user": "x".repeat(100_000)}}),
        json!({"x".repeat(100_000): 1}),
        json!({"operations": {"X".repeat(100_000): {}}}),
    ] {
        let refusal = patched(&patch).unwrap_err();
        assert!(!refusal.message.contains('\n'), "{}", refusal.message);
        assert!(refusal.to_string().len() < 1000, "{}", refusal.to_string().len());
    }
}

#[test]
fn what_is_left_out_has_the_default_of_the_table() {
    let policy = parse(minimal().to_string().as_bytes()).unwrap();
    let Target { source, files, mount, limits, env, .. } = policy.target;
    assert_eq!((source.as_str(), files, mount.as_str(), env.len()), ("target", vec!["**".to_owned()], "/target", 0));
    assert_eq!(limits, SnapshotLimits { files: 100_000, bytes: 1 << 30, file: 256 << 20 });
    let sandbox = policy.sandbox;
    assert_eq!(sandbox.user, User { uid: 65534, gid: 65534 });
    assert_eq!(
        (sandbox.milli_cpus, sandbox.memory, sandbox.processes, sandbox.open_files),
        (1000, 512 << 20, 128, 1024)
    );
    assert_eq!((sandbox.shared_memory, sandbox.output, sandbox.wall_time.as_secs()), (16 << 20, 1 << 20, 120));
    assert_eq!(sandbox.writable, [Writable { path: "/tmp".to_owned(), size: 64 << 20, exec: false }]);
    assert_eq!(sandbox.runtime, None);
    let evaluation = policy.evaluation;
    assert_eq!((evaluation.lock, evaluation.timeout.as_secs(), evaluation.require_clean_exit), (None, 60, true));
    assert_eq!((policy.cases.as_str(), policy.repeat, policy.drills.len()), ("cases.jsonl", 1, 0));
}

#[test]
fn a_build_an_operation_and_a_gateway_have_the_defaults_of_the_table() {
    let policy = with(json!({
        "target": {"image": {"reference": null, "build": {}}},
        "operations": {"get_order": {}},
        "gateways": {"a": {"dialect": "anthropic", "upstream": "https://a", "routes": ["POST /v1/messages"], "models": ["m"]}}
    }));
    let policy = parse(policy.to_string().as_bytes()).unwrap();
    let ImageSource::Build(build) = policy.target.image else { panic!("no build") };
    assert_eq!(
        (build.dockerfile.as_str(), build.network, build.time.as_secs()),
        ("Dockerfile", BuildNetwork::None, 600)
    );
    assert_eq!((policy.operations["get_order"].calls, policy.operations["get_order"].arguments.is_none()), (100, true));
    let gateway = &policy.gateways["a"];
    assert_eq!((gateway.auth, gateway.target_path.as_str()), (Auth::XApiKey, ""));
    assert!(
        gateway.grants.is_empty() && gateway.env.is_empty() && gateway.prices.is_empty() && gateway.secret.is_none()
    );
    let limits = GatewayLimits {
        requests: 100,
        request_size: 4 << 20,
        response_size: 16 << 20,
        request_time: None,
        first_byte: Duration::from_secs(60),
        idle: Duration::from_secs(60),
        tokens: None,
        cost_usd: None,
    };
    assert_eq!(gateway.limits, limits);
}

#[test]
fn a_deleted_bound_is_the_default_again_and_never_no_bound() {
    let keys =
        ["user", "cpus", "memory", "processes", "open_files", "shared_memory", "wall_time", "output", "writable"];
    let nulls: Value =
        keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
    let deleted = parse(with_null(&json!({"sandbox": nulls})).to_string().as_bytes()).unwrap().sandbox;
    let base = parse(minimal().to_string().as_bytes()).unwrap().sandbox;
    assert_eq!(format!("{deleted:?}"), format!("{base:?}"), "sandbox/strict and the defaults agree");
}

/// The minimal policy with keys whose nulls stay.
fn with_null(more: &Value) -> Value {
    let mut policy = minimal();
    for (key, value) in more.as_object().unwrap() {
        policy[key] = value.clone();
    }
    policy
}

#[test]
fn each_built_in_piece_can_be_extended_and_drills_strike_all_that_is_declared() {
    for (name, _) in builtin::PIECES {
        let (what, short) = name.split_once('/').unwrap();
        let mut more = json!({"extends": [name]});
        match (what, short) {
            ("provider", "azure-openai") => {
                more["gateways"] = json!({short: {"upstream": "https://x.openai.azure.com", "models": ["mini"]}});
            }
            ("provider", "openrouter") => more["gateways"] = json!({short: {"models": ["openai/gpt-5-mini"]}}),
            ("provider", _) => more["gateways"] = json!({short: {"limits": {"cost_usd": 1}}}),
            ("drills", _) => {
                more["extends"] = json!(["provider/openai", "provider/gemini", name]);
                more["operations"] = json!({"get_order": {}, "refund": {}});
            }
            _ => {}
        }
        let policy = parse(with(more).to_string().as_bytes()).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        if what == "provider" {
            let gateway = &policy.gateways[short];
            assert_eq!(gateway.dialect.as_str(), short);
            assert_eq!(gateway.env.values().filter(|binding| **binding == Binding::Url).count(), 1, "{name}");
        }
        if what == "drills" {
            let places: std::collections::BTreeSet<String> =
                policy.drills[short].faults.iter().map(|fault| format!("{:?}", fault.on)).collect();
            assert_eq!(places.len(), 2, "{name}: {places:?}");
        }
    }
}

#[test]
fn a_drill_with_nothing_to_strike_is_refused() {
    for name in ["drills/rate-limited", "drills/lost-write"] {
        let refusal = parse(with(json!({"extends": [name]})).to_string().as_bytes()).unwrap_err();
        assert!(refusal.to_string().contains("none is declared"), "{refusal}");
        assert!(refusal.place.unwrap().starts_with(name), "the piece is named");
    }
}

#[test]
fn the_documented_models_and_price_load_over_the_built_in_provider() {
    let policy = with(json!({"extends": ["provider/openai"], "gateways": {"openai": {
        "models": ["gpt-5*"], "limits": {"cost_usd": 1.0},
        "prices": {"gpt-5-mini": {"input": 0.25, "cached_input": 0.025, "cache_write": 0.25, "output": 2.0}}}}}));
    let policy = parse(policy.to_string().as_bytes()).unwrap();
    let prices = &policy.gateways["openai"].prices;
    assert_eq!(glob::lookup(prices, "gpt-5-mini").unwrap().rates.cache_write, Some(0.25));
    assert_eq!(glob::lookup(prices, "gpt-5-mini-2025-08-07").unwrap().rates.input, 0.25);
    assert_eq!(glob::lookup(prices, "gpt-5-unheard-of").unwrap().rates.output, 180.0);
    assert_eq!(glob::lookup(prices, "llama"), None);
}

#[test]
fn a_script_needs_no_key_also_over_a_piece_that_names_one() {
    let policy =
        with(json!({"extends": ["provider/openai"], "gateways": {"openai": {"upstream": {"script": "r.jsonl"}}}}));
    let policy = parse(policy.to_string().as_bytes()).unwrap();
    assert_eq!(policy.gateways["openai"].secret, None);
    assert_eq!(policy.gateways["openai"].upstream, Upstream::Script("r.jsonl".into()));
}

#[test]
fn overlays_are_merged_in_order_arrays_replace_and_null_deletes() {
    let own =
        with(json!({"sandbox": {"memory": "256MiB"}, "target": {"env": {"A": "1", "B": "2"}, "files": ["**", "!x"]}}));
    let over = [
        json!({"$schema": "x", "sandbox": {"memory": "1GiB", "cpus": 2}, "target": {"files": ["src/**"], "env": {"A": null}}}),
        json!({"sandbox": {"memory": "2GiB"}, "repeat": 7}),
    ];
    let policy = package(&own, &over).1.unwrap();
    assert_eq!((policy.sandbox.memory, policy.sandbox.milli_cpus, policy.repeat), (2 << 30, 2000, 7));
    assert_eq!(policy.target.files, ["src/**"]);
    assert_eq!(policy.target.env.into_iter().collect::<Vec<_>>(), [("B".to_owned(), "2".to_owned())]);
}

#[test]
fn an_overlay_may_give_what_is_required() {
    let policy =
        json!({"version": 1, "name": "p", "target": {"command": ["/agent"]}, "evaluation": {"command": ["x"]}});
    assert!(package(&policy, &[]).1.is_err());
    assert!(package(&policy, &[json!({"target": {"image": {"reference": "a/b:1"}}})]).1.is_ok());
}

#[test]
fn an_error_names_the_file_that_the_value_came_from() {
    let table = [
        (json!({"sandbox": {"memory": "1MB"}}), "over-0.json#/sandbox/memory", "found \"1MB\""),
        (json!({"sandbox": {"memroy": null}}), "over-0.json#/sandbox/memroy", "unknown key"),
        (json!({"extends": ["provider/openai"]}), "over-0.json#/extends", "not allowed here"),
        (json!({"target": {"command": null}}), "over-0.json#/target/command", "is missing"),
        (json!({"target": null}), "over-0.json#/target/image", "is missing"),
        (json!({"target": {"source": ".."}}), "over-0.json#/target/source", "found \"..\""),
        (json!({"sandbox": {"shared_memory": "512MiB"}}), "over-0.json#/sandbox/shared_memory", "together are 576MiB"),
        (json!([1]), "over-0.json#", "found [1]"),
    ];
    for (overlay, place, message) in table {
        let refusal = package(&minimal(), std::slice::from_ref(&overlay)).1.unwrap_err();
        assert!(refusal.place.as_ref().unwrap().ends_with(place), "{overlay}: {refusal}");
        assert!(refusal.message.contains(message), "{overlay}: {refusal}");
    }
    let own = package(&with(json!({"sandbox": {"memory": "1MB"}})), &[json!({"sandbox": {"cpus": 2}})]).1.unwrap_err();
    assert_eq!(own.place.as_deref(), Some("policy.json#/sandbox/memory"));
}

#[test]
fn every_problem_is_told_at_once() {
    let refusal = parse(br#"{"version": 2, "name": "X", "sandbox": {"user": "0:0"}}"#).unwrap_err().to_string();
    for place in ["/version", "/name", "/sandbox/user", "/target/image", "/target/command", "/evaluation/command"] {
        assert!(refusal.contains(&format!("policy.json#{place}: ")), "{place}: {refusal}");
    }
}

#[test]
fn a_null_inside_a_schema_of_arguments_is_not_lost_silently() {
    let schema = json!({"operations": {"a": {"arguments": {"type": "object", "properties": {"x": {"const": null}}}}}});
    let refusal = parse(with_null(&schema).to_string().as_bytes()).unwrap_err();
    assert_eq!(refusal.place.as_deref(), Some("policy.json#/operations/a/arguments/properties/x/const"));
    let own = with(json!({"operations": {"a": {"arguments": {"properties": {"x": {"type": "string"}}}}}}));
    let policy = package(&own, &[json!({"operations": {"a": {"arguments": {"properties": {"x": null}}}}})]).1.unwrap();
    assert_eq!(policy.operations["a"].arguments, Some(json!({"properties": {}})), "what exists can be deleted");
}

#[test]
fn a_file_that_is_no_strict_json_is_refused_where_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let path = Utf8Path::from_path(folder.path()).unwrap();
    assert!(load(path, &[]).unwrap_err().message.contains("there is no"));
    for (text, message) in [
        (&b"{\"version\": 1, \"version\": 1}"[..], "duplicate key \"version\""),
        (b"{\"version\": 1,}", "line 1 column"),
        (b"[]", "found []"),
        (b"", "not strict JSON"),
        (b"{\"name\": \"\xff\"}", "not strict JSON"),
        (&[b' '; (1 << 20) + 1], "larger than 1MiB"),
    ] {
        std::fs::write(path.join("policy.json"), text).unwrap();
        let refusal = load(path, &[]).unwrap_err();
        assert!(refusal.message.contains(message), "{refusal}");
        assert!(refusal.place.unwrap().starts_with("policy.json"));
    }
    std::fs::remove_file(path.join("policy.json")).unwrap();
    std::fs::create_dir(path.join("policy.json")).unwrap();
    assert_eq!(load(path, &[]).unwrap_err().message, "is not a regular file");
    let missing = load(path, &[path.join("none.json")]).unwrap_err();
    assert!(missing.place.is_some());
}

#[test]
fn a_lock_and_a_script_that_are_declared_must_be_there() {
    assert!(package(&with(json!({"evaluation": {"lock": "requirements.lock"}})), &[]).1.is_ok());
    let refusal = package(&with(json!({"evaluation": {"lock": "uv.lock"}})), &[]).1.unwrap_err();
    assert_eq!(refusal.place.as_deref(), Some("policy.json#/evaluation/lock"));
    assert!(refusal.message.contains("uv.lock does not exist"), "{refusal}");
    let script =
        json!({"extends": ["provider/openai"], "gateways": {"openai": {"upstream": {"script": "replies.jsonl"}}}});
    let refusal = package(&with(script), &[]).1.unwrap_err();
    assert_eq!(refusal.place.as_deref(), Some("policy.json#/gateways/openai/upstream"));
    assert!(refusal.message.contains("replies.jsonl does not exist"), "{refusal}");
}

#[test]
fn the_digest_is_of_what_the_policy_says_and_not_of_how_it_is_written() {
    let digest = |text: &str| parse(text.as_bytes()).unwrap().digest;
    let one = r#"{"version":1,"name":"p","target":{"image":{"reference":"a"},"command":["x"]},"evaluation":{"command":["y"]}}"#;
    let same = r#"{"$schema":"s","name":"p", "version": 1,"evaluation":{"command":["y"]},
        "target":{"command":["x"],"image":{"reference":"a"}},"extends":[],"sandbox":{"memory":"512MiB"}}"#;
    let other = one.replace("\"x\"", "\"z\"");
    assert_eq!(digest(one), digest(same));
    assert_ne!(digest(one), digest(&other));
}

#[test]
fn the_published_schema_knows_the_built_in_pieces() {
    let schema: Value = serde_json::from_str(schema_text()).unwrap();
    let names: Vec<&str> = schema["properties"]["extends"]["items"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect();
    assert_eq!(names, builtin::PIECES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}
