//! The scope: whatever ends a run, what it made goes, and what is not its own stays (contract C, field cases E).

use crate::chain::interrupt;
use crate::support::{BUSYBOX, Package, Ran, Wrapper, docker, listed, objects_of};
use serde_json::{Value, json};
use std::process::Stdio;

/// A small run with a builder, a relay and one trial: every kind of object that a scope creates.
pub fn small() -> Package {
    Package::new("").file("pkg/target/Dockerfile", "FROM base\n").policy(json!({
        "target": {
            "image": {"reference": null, "pull": null, "build": {"contexts": {"base": BUSYBOX}}},
            "command": ["/bin/busybox", "echo", "{\"ok\": true}"],
        },
        "operations": {"refund": {}},
    }))
}

/// A run without builder and relay.
pub fn bare() -> Package {
    Package::new("").policy(json!({
        "target": {"image": {"reference": BUSYBOX}, "command": ["/bin/busybox", "echo", "{\"ok\": true}"]},
    }))
}

/// The user's builders and their nodes; not how they are, which buildx asks each of them within a time.
pub fn builders() -> Vec<String> {
    let name = |line: String| line.split_whitespace().next().map(str::to_owned);
    listed(&["buildx", "ls"]).into_iter().filter_map(name).collect()
}

pub fn clean(package: &Package, args: &[&str]) -> (i32, Value) {
    let output = package.crashlab(&[&["clean", "--format", "json"], args].concat());
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), json)
}

#[test]
fn a_whole_run_leaves_nothing_and_asks_for_nothing_global() {
    let wrapper = Wrapper::new("return None");
    let package = small().env("PATH", &wrapper.path());
    let before = builders();
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.json, ran.stderr);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    assert_eq!(builders(), before, "the user's builders changed");
    let removed: Vec<&str> =
        ran.json["cleanup"]["removed"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    for kind in ["container", "network", "image", "builder", "volume", "folder"] {
        assert!(removed.contains(&kind), "no {kind} among {removed:?}");
    }
    for call in wrapper.calls() {
        let args: Vec<&str> = call["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        assert!(!args.contains(&"prune"), "{args:?}");
        let removal = args.first() == Some(&"rm") || args.get(..2) == Some(&["network", "rm"]);
        assert!(
            !removal || args.iter().skip(1).all(|it| it.starts_with('-') || *it == "rm" || it.len() == 64),
            "{args:?}"
        );
        assert!(
            args.get(..2) != Some(&["image", "rm"]) || !args.iter().any(|it| *it == "--force" || *it == "-f"),
            "{args:?}"
        );
    }
}

#[test]
fn clean_shows_first_refuses_a_live_run_and_keeps_what_is_foreign() {
    let agent = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n";
    let package = Package::new(agent).policy(json!({"sandbox": {"wall_time": "900s"}}));
    let mut child = package.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let container = crate::scope_endings::running;
    package.wait_for("running target", |run| !container(run.file_name().unwrap().to_str().unwrap()).is_empty());
    let run = package.run_id();
    let refused = package.crashlab(&["clean", &run]);
    assert_eq!(refused.status.code(), Some(2), "a live run was cleaned");
    child.kill().unwrap();
    child.wait().unwrap();
    // Foreign things that look like the run's: its label and the beginning of its name; a line of the journal that points
    // at a user's container.
    let label = format!("crashlab.run={run}");
    let foreign = docker(&[
        "create",
        "--label",
        &label,
        "--name",
        &format!("crashlab-{run}-target-99"),
        BUSYBOX,
        "/bin/busybox",
        "true",
    ]);
    let users = docker(&["create", BUSYBOX, "/bin/busybox", "true"]);
    let line = json!({
        "at": "2026-01-01T00:00:00.000Z", "step": "created", "kind": "container", "name": "mine", "id": users,
        "created": null, "labels": {}, "reason": null,
    });
    let journal = package.run_folder().join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, format!("{text}{line}\n{{\"at\": \"torn")).unwrap();
    let (code, shown) = clean(&package, &["--dry-run"]);
    assert_eq!((code, container(&run).len()), (0, 1), "a dry run removed something");
    assert!(shown.to_string().contains("target-"), "{shown}");
    let list = package.crashlab(&["list"]);
    assert!(list.status.success());
    let (code, cleaned) = clean(&package, &[]);
    assert_eq!(code, 0, "{cleaned}");
    assert_eq!(cleaned[0]["kept"][0]["id"], json!(users), "{cleaned}");
    let left: Vec<String> = objects_of(&run);
    assert_eq!(left, [format!("container crashlab-{run}-target-99")]);
    assert_eq!(clean(&package, &[]).1, json!([]), "a second clean found something");
    docker(&["rm", &foreign, &users]);
}

#[test]
fn an_image_whose_name_was_moved_meanwhile_is_kept_and_reported() {
    let wrapper = Wrapper::new(
        "
if args[:2] == ['start', '--attach']:
    run = subprocess.check_output([REAL, 'inspect', '--format', '{{index .Config.Labels \"crashlab.run\"}}', args[-1]], text=True).strip()
    subprocess.check_call([REAL, 'tag', 'crashlab/busybox:1', 'crashlab/target:' + run])",
    );
    let package = small().policy(json!({"operations": null})).env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.json, ran.stderr);
    let kept = &ran.json["cleanup"]["kept"][0];
    assert_eq!(kept["kind"], "image", "{}", ran.json["cleanup"]);
    let name = kept["name"].as_str().unwrap();
    let now = docker(&["image", "inspect", "--format", "{{.Id}}", name]);
    assert_eq!(now, docker(&["image", "inspect", "--format", "{{.Id}}", BUSYBOX]));
    docker(&["image", "rm", "--no-prune", name]);
    // The built image lost its only name: it is found by its label, and removed by its id.
    let id = ran.json["target"]["image"]["id"].as_str().unwrap();
    docker(&["image", "rm", id]);
}

#[test]
fn a_removal_that_the_engine_refuses_is_told_and_turns_0_into_4() {
    let wrapper =
        Wrapper::new("if args[:1] == ['rm']: sys.stderr.write('Error response from daemon: device busy\\n'); return 1");
    let package = bare().env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!((ran.exit, &ran.json["counts"]["passed"]), (4, &json!(1)), "{}", ran.stderr);
    let failure = &ran.json["cleanup"]["failures"][0];
    assert_eq!((failure["kind"].as_str(), failure["id"].as_str().map(str::len)), (Some("container"), Some(64)));
    assert!(failure["reason"].as_str().unwrap().contains("device busy"), "{failure}");
    assert!(
        ran.stderr.contains("device busy") && ran.stderr.contains(&format!("crashlab clean {}", ran.run())),
        "{}",
        ran.stderr
    );
    let output = package.crashlab(&["list"]);
    assert!(output.status.success());
    let (exit, told) = clean(&package, &[]);
    assert_eq!(exit, 4, "{told}");
    let real = std::env::var("PATH").unwrap();
    let package = package.env("PATH", &real);
    assert_eq!(clean(&package, &[]).0, 0);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

#[test]
fn every_signal_ends_a_build_and_a_run_with_its_own_code_and_no_leftovers() {
    let build = "FROM base\nRUN [\"/bin/busybox\", \"sleep\", \"600\"]\n";
    let begun = [("INT", 130), ("TERM", 143), ("HUP", 129)].map(|(signal, exit)| {
        let package = small().file("pkg/target/Dockerfile", build);
        let child = package.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (signal, exit, package, child)
    });
    for (signal, exit, package, child) in begun {
        package.wait_for("build", |run| {
            std::fs::read_to_string(run.join("journal.jsonl")).is_ok_and(|text| text.contains("crashlab/target:"))
        });
        interrupt(&child, signal);
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!(ran.exit, exit, "{signal}: {}", ran.stderr);
        assert_eq!(objects_of(ran.run()), [""; 0], "{signal}");
    }
}

#[test]
fn two_runs_in_one_folder_do_not_disturb_each_other() {
    let package = bare().args(&["--repeat", "3"]);
    let start = || package.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (one, other) = (start(), start());
    for child in [one, other] {
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!(ran.exit, 0, "{}", ran.stderr);
        assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    }
}
