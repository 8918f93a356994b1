//! `crashlab init`: a package that is accepted as it is, and that overwrites nothing.

use assert_cmd::Command;
use camino::{Utf8Path, Utf8PathBuf};
use crashlab::evaluation::{self, Launch, OperationSeen, Reply, VerifyInput};
use crashlab::policy;
use serde_json::{Value, json};

fn crashlab() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("crashlab"))
}

fn folder() -> (tempfile::TempDir, Utf8PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = Utf8Path::from_path(folder.path()).unwrap().canonicalize_utf8().unwrap();
    (folder, path)
}

#[test]
fn the_written_package_is_accepted_and_judges_right_and_wrong() {
    let (_keep, above) = folder();
    let root = above.join("my-desk");
    crashlab().args(["init", root.as_str(), "--image", "crashlab/python:1"]).assert().success();
    let policy = policy::load(&root, &[]).unwrap();
    assert_eq!((policy.name.as_str(), policy.operations.len()), ("my-desk", 2));
    let cases = policy::load_cases(&root, &policy).unwrap();
    assert_eq!(cases.len(), 2);
    let package = evaluation::open(&root, &policy).unwrap();
    assert!(package.reproducible);
    let sdk = above.join("sdk");
    std::fs::create_dir(&sdk).unwrap();
    evaluation::write_sdk(&sdk).unwrap();
    let launch =
        Launch { package: &package, policy: &policy, python: None, secrets_to_hide: &[], sdk: &sdk, stop: None };
    let mut introduced = evaluation::introduce(&launch).unwrap_or_else(|error| panic!("{error}"));
    assert!(evaluation::agree(&policy, &introduced.declared).unwrap().is_empty());

    let case = json!({"id": "pays-a-bill", "input": {"payee": "Ann", "amount_cents": 3000}, "expect": {"paid": true}});
    let host = &mut introduced.host;
    host.create_world(&case).unwrap();
    let before = host.snapshot().unwrap();
    let refused = host.call("pay", json!({"payee": "Ann", "amount_cents": 99_999}).as_object().unwrap()).unwrap();
    assert!(matches!(refused, Reply::Refused { code, .. } if code == "insufficient_funds"));
    host.call("pay", json!({"payee": "Ann", "amount_cents": 3000}).as_object().unwrap()).unwrap();
    let world = host.snapshot().unwrap();
    assert_eq!(world["balance_cents"], json!(7000));
    let mut passes = |world: &Value| {
        let input = VerifyInput {
            case: &case,
            answer: &json!({"paid": true}),
            stop: None,
            world_before: &before,
            world,
            operations: &[] as &[OperationSeen],
            log: "",
        };
        host.verify(&input).unwrap().iter().all(|check| check.passed)
    };
    assert!(passes(&world) && !passes(&before));
}

#[test]
fn it_says_what_it_wrote_and_what_comes_next() {
    let (_keep, above) = folder();
    let output = crashlab().args(["init", "a desk", "--format", "json"]).current_dir(&above).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["next"], json!("crashlab run 'a desk' --trust-evaluation-code"));
    assert_eq!(document["files"].as_array().unwrap().len(), 7);
    assert_eq!(policy::load(&above.join("a desk"), &[]).unwrap().name, "a-desk");
    let ignored = std::fs::read_to_string(above.join("a desk/.gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == ".env"));
    let example = std::fs::read_to_string(above.join("a desk/.env.example")).unwrap();
    let values = example.lines().filter(|line| !line.starts_with('#')).filter(|line| !line.ends_with('='));
    assert_eq!(values.count(), 0, "names only");
}

#[test]
fn it_makes_a_repository_where_none_holds_the_package() {
    let (_keep, above) = folder();
    let init = |name: &str| {
        let output = crashlab().args(["init", name, "--format", "json"]).current_dir(&above).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (document["repository"].clone(), above.join(name).join(".git").exists())
    };
    assert_eq!(init("alone"), (json!(true), true));
    Command::new("git").args(["init", "--quiet"]).current_dir(&above).assert().success();
    std::fs::write(above.join(".gitignore"), "ignored/\n").unwrap();
    assert_eq!(init("inside"), (json!(false), false));
    assert_eq!(init("ignored"), (json!(true), true));
}

#[test]
fn it_overwrites_nothing_and_then_writes_nothing() {
    let (_keep, above) = folder();
    let root = above.join("desk");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("evaluation.py"), "mine").unwrap();
    let output = crashlab().args(["init", root.as_str()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("desk/evaluation.py") && told.contains("nothing is overwritten"), "{told}");
    assert_eq!(std::fs::read_to_string(root.join("evaluation.py")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
    std::os::unix::fs::symlink("/nonexistent/place", above.join("policy.json")).unwrap();
    crashlab().args(["init", above.as_str()]).assert().code(2);
}

#[test]
fn an_image_that_is_none_is_refused() {
    let (_keep, above) = folder();
    for bad in ["", "a b", "a\",\"x\":\"b"] {
        crashlab().args(["init", above.join("x").as_str(), "--image", bad]).assert().code(2);
    }
    assert!(!above.join("x").exists());
}
