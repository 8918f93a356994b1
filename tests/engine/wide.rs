//! Many trials: at once (contract P1), where the default address pools hold about thirty networks and a run holds what it
//! needs; and what each of them takes (P3), by the record of docker's calls.

use crate::support::{Package, Wrapper, docker, objects_of};
use serde_json::json;
use std::collections::BTreeMap;

#[test]
fn sixty_four_trials_at_once_find_a_network_each() {
    // Each target waits until all of them run at the same time, or for a while.
    let agent = r#"
import json, os, time, urllib.request
url, token = os.environ["CRASHLAB_URL"] + "/operations/refund", os.environ["CRASHLAB_TOKEN"]
body = json.dumps({"order_id": "A1", "amount_cents": 1}).encode()
request = urllib.request.Request(url, body, {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
status = urllib.request.urlopen(request, timeout=60).status
time.sleep(20)
print(json.dumps({"ok": status == 200}))
"#;
    let networks = || docker(&["network", "ls", "--quiet"]).lines().count();
    let package = Package::new(agent)
        .policy(
            json!({"operations": {"refund": {}}, "sandbox": {"wall_time": "300s", "memory": "64MiB", "writable": []}}),
        )
        .args(&["--repeat", "64", "--jobs", "64"]);
    // Files, not pipes: nobody reads while it runs.
    let file = |name: &str| std::fs::File::create(package.path().join(name)).unwrap();
    let mut child = package.command().stdout(file("out")).stderr(file("err")).spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(networks());
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let read = |name: &str| std::fs::read(package.path().join(name)).unwrap();
    let status = child.wait().unwrap();
    let ran = crate::support::Ran::new(std::process::Output { status, stdout: read("out"), stderr: read("err") });
    assert_eq!(
        ran.json["counts"],
        json!({"trials": 64, "passed": 64, "failed": 0, "uncertain": 0, "not_run": 0}),
        "{}",
        ran.stderr
    );
    assert!(most > 31, "only {most} networks at once: the default pools would have done");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

/// How often each verb of docker was called in a run of so many trials.
fn calls_of(trials: u64, operations: bool) -> BTreeMap<String, u64> {
    let wrapper = Wrapper::new("return None");
    let agent = "import time; time.sleep(1); print('{\"ok\": true}')";
    let policy = if operations { json!({"operations": {"refund": {}}}) } else { json!({"operations": null}) };
    let package = Package::new(agent).policy(policy);
    let package = package.args(&["--repeat", &trials.to_string(), "--jobs", "2"]).env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!(ran.json["counts"]["passed"], trials, "{}", ran.stderr);
    let mut counts = BTreeMap::new();
    for call in wrapper.calls() {
        let words: Vec<&str> = call["args"].as_array().unwrap().iter().filter_map(serde_json::Value::as_str).collect();
        let verb = match words.as_slice() {
            ["network" | "image", verb, ..] => format!("{} {verb}", words[0]),
            ["inspect", "--type", kind, ..] => format!("inspect {kind}"),
            [verb, ..] => (*verb).to_owned(),
            [] => String::new(),
        };
        *counts.entry(verb).or_default() += 1;
    }
    counts
}

/// The table in `src/docker/mod.rs`, row by row.
#[test]
fn a_trial_takes_few_docker_calls_and_what_is_the_same_for_all_is_done_once() {
    for operations in [false, true] {
        let (few, many) = (calls_of(2, operations), calls_of(8, operations));
        let more = |verb: &str| many.get(verb).copied().unwrap_or(0) - few.get(verb).copied().unwrap_or(0);
        let each = if operations { 6 } else { 0 };
        for (verb, wanted) in [("create", 6), ("start", 6), ("run", each), ("network create", each)] {
            assert_eq!(more(verb), wanted, "{verb}: {few:?} {many:?}");
        }
        for verb in ["network connect", "network disconnect"] {
            assert_eq!(more(verb), each, "{verb}: {few:?} {many:?}");
        }
        // Before its start and after its end; and one look for each removal, in which several trials may go together.
        assert!((12..=18).contains(&more("inspect container")), "{few:?} {many:?}");
        assert!((1..=6).contains(&more("rm")), "{few:?} {many:?}");
        assert!(more("network rm") <= each && more("inspect network") <= each, "{few:?} {many:?}");
        for once in ["info", "version", "context", "import", "image ls", "inspect image", "network ls"] {
            assert_eq!(more(once), 0, "{once}: {few:?} {many:?}");
        }
        let known = ["create", "start", "run", "network create", "network connect", "inspect container", "rm"];
        let known =
            known.into_iter().chain(["network disconnect", "network rm", "inspect network"]).collect::<Vec<_>>();
        let others: Vec<&String> = many.keys().filter(|verb| !known.contains(&verb.as_str())).collect();
        assert!(others.iter().all(|verb| more(verb) == 0), "{others:?}: {few:?} {many:?}");
    }
}

/// While a target works (its streams are open), the next sandbox is made and the last one removed: neither waits for the
/// other's end (P2). A client of `start` that waits for both ends only where they do not wait for it.
#[test]
fn the_next_sandbox_is_made_and_the_last_one_removed_while_a_target_works() {
    let rule = r#"
def note(what, word):
    with open(os.path.join(FOLDER, what), "a") as file:
        file.write(word + "\n")

def count(what):
    try:
        return len(open(os.path.join(FOLDER, what)).read().split())
    except FileNotFoundError:
        return 0

if args[0] == "create" and "-target-" in args[args.index("--name") + 1]:
    done = subprocess.run([REAL, *args], capture_output=True, text=True)
    note("made", done.stdout.strip())
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode
if args[0] == "rm":
    code = real()
    made = open(os.path.join(FOLDER, "made")).read().split()
    for word in set(args) & set(made):
        note("removed", word)
    return code
if args[0] == "start" and args[-1] in open(os.path.join(FOLDER, "made")).read().split():
    code = real()
    note("started", args[-1])
    started = count("started")
    end = time.monotonic() + 40
    while time.monotonic() < end:
        if count("made") >= min(started + 1, 4) and count("removed") >= started - 1:
            return code
        time.sleep(0.05)
    note("late", f"{started}:{count('made')}:{count('removed')}")
    return code
return None
"#;
    for operations in [json!(null), json!({"refund": {}})] {
        let wrapper = Wrapper::new(rule);
        let package = Package::new("print('{\"ok\": true}')").policy(json!({"operations": operations}));
        let ran = package.args(&["--repeat", "4", "--jobs", "1"]).env("PATH", &wrapper.path()).run();
        assert_eq!(ran.json["counts"]["passed"], 4, "{}", ran.stderr);
        let lines = |name: &str| std::fs::read_to_string(wrapper.file(name)).unwrap_or_default();
        assert_eq!((lines("late").as_str(), lines("started").lines().count()), ("", 4), "{operations}");
    }
}

/// Engines lose count of who is on a network where several come or go at once, and keep it then until their next start.
#[test]
fn relays_come_to_their_shared_network_and_go_from_it_one_at_a_time() {
    let rule = r#"
if args[:1] == ["run"] or args[:2] in (["network", "connect"], ["network", "disconnect"]) or args[:1] == ["rm"]:
    def note(what):
        with open(os.path.join(FOLDER, "turns"), "a") as turns:
            turns.write(json.dumps({"call": k, "what": what, "args": args}) + "\n")
    note("begins")
    if args[0] == "network":
        time.sleep(0.3)
    code = real()
    note("ends")
    return code
return None
"#;
    let wrapper = Wrapper::new(rule);
    let package = Package::new("print('{\"ok\": true}')").policy(json!({"operations": {"refund": {}}}));
    let ran = package.args(&["--repeat", "12", "--jobs", "6"]).env("PATH", &wrapper.path()).run();
    assert_eq!(ran.json["counts"]["passed"], 12, "{}", ran.stderr);
    let turns = std::fs::read_to_string(wrapper.file("turns")).unwrap();
    let turns: Vec<serde_json::Value> = turns.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = |turn: &serde_json::Value| -> Vec<String> {
        turn["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    // The attestation's relay among them.
    let (mut on, mut most, mut open) = (std::collections::BTreeSet::new(), 0, None);
    for turn in &turns {
        let words = words(turn);
        match (words[0].as_str(), words[1].as_str(), turn["what"].as_str().unwrap()) {
            ("network", _, "begins") => assert_eq!(open.replace(turn["call"].clone()), None, "two at once: {turns:?}"),
            ("network", "connect", _) => {
                assert_eq!(open.take(), Some(turn["call"].clone()));
                assert!(on.insert((words[2].clone(), words[3].clone())), "twice: {turn}");
                most = most.max(on.len());
            }
            ("network", _, _) => {
                assert_eq!(open.take(), Some(turn["call"].clone()));
                assert!(on.remove(&(words[2].clone(), words[3].clone())), "never came: {turn}");
            }
            // Neither by its own start nor by its removal.
            ("run", _, _) => assert!(!on.iter().any(|(network, _)| words.contains(network)), "{turn}"),
            _ => assert!(!on.iter().any(|(_, relay)| words.contains(relay)), "{turn}"),
        }
    }
    assert_eq!((on.len(), most > 1), (0, true), "{turns:?}");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}
