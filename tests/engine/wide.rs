//! Many trials: at once (contract P1), where the default address pools hold about thirty networks and a run holds what it
//! needs; and what each of them takes (P3), by the record of docker's calls.

use crate::support::{Package, Wrapper, listed, objects_of};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Asks until all of them are there.
const MEETING: &str = r#"
import json, os, urllib.request
url, token = os.environ["CRASHLAB_URL"] + "/operations/meet", os.environ["CRASHLAB_TOKEN"]
head = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
body = json.dumps({"name": os.environ["CRASHLAB_REPETITION"]}).encode()
networks = None
while networks is None:
    with urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=120) as answer:
        networks = json.load(answer)["result"]["networks"]
print(json.dumps({"ok": True, "networks": networks}))
"#;

/// Once 64 have come the last one counts the engine's networks, and then all may go.
const HALL: &str = r#"
import os, pathlib, subprocess, time
from crashlab import Check, Evaluation

evaluation = Evaluation()
FOLDER = pathlib.Path(os.environ["MEETING"])

@evaluation.world
def world(case):
    return {}

@evaluation.operation
def meet(world, name: str) -> dict:
    (FOLDER / f"here-{name}").touch()
    for _ in range(40):
        if len(list(FOLDER.glob("here-*"))) == 64:
            return {"networks": counted()}
        time.sleep(0.25)
    return {"networks": None}

def counted():
    count = FOLDER / "networks"
    try:
        with open(FOLDER / "counting", "x"):
            pass
        networks = subprocess.check_output(["docker", "network", "ls", "--quiet"], text=True)
        (FOLDER / "counted").write_text(str(len(networks.split())))
        (FOLDER / "counted").rename(count)
    except FileExistsError:
        while not count.exists():
            time.sleep(0.05)
    return int(count.read_text())

@evaluation.verify
def verify(trial):
    yield Check("ok", trial.answer["ok"] is True, "")

if __name__ == "__main__":
    evaluation.serve()
"#;

#[test]
fn sixty_four_trials_at_once_find_a_network_each() {
    let package = Package::new(MEETING).file("pkg/evaluation.py", HALL);
    let meeting = package.path().join("meeting");
    std::fs::create_dir(&meeting).unwrap();
    let package = package
        .env("MEETING", meeting.to_str().unwrap())
        .policy(json!({
            "operations": {"meet": {"calls": 1000}}, "evaluation": {"timeout": "280s"},
            "sandbox": {"wall_time": "15m", "memory": "64MiB", "writable": []},
        }))
        .args(&["--repeat", "64", "--jobs", "64"]);
    let ran = package.run();
    assert_eq!(
        ran.json["counts"],
        json!({"trials": 64, "passed": 64, "failed": 0, "uncertain": 0, "not_run": 0}),
        "{}",
        ran.stderr
    );
    // The default address pools hold about thirty.
    let networks: usize = std::fs::read_to_string(meeting.join("networks")).unwrap().parse().unwrap();
    assert!(networks > 64, "only {networks} networks while 64 targets ran");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

/// Somebody else's networks, by id, until this is dropped.
struct Foreign(Vec<String>);

impl Foreign {
    /// As many as the engine's own address pools give, about thirty.
    fn filling_the_pools() -> Self {
        let mut foreign = Self(Vec::new());
        loop {
            let name = format!("foreign-test-{}-{}", std::process::id(), foreign.0.len());
            let made = Command::new("docker").args(["network", "create", &name]).output().unwrap();
            if !made.status.success() {
                let complaint = String::from_utf8_lossy(&made.stderr).into_owned();
                assert!(complaint.contains("address pool"), "{complaint}");
                return foreign;
            }
            foreign.0.push(String::from_utf8(made.stdout).unwrap().trim().to_owned());
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        drop(Command::new("docker").args(["network", "rm"]).args(&self.0).output());
    }
}

/// Field case H1. `CRASHLAB_MANY_TRIALS` runs so many, one after another, instead of 8.
#[test]
fn full_address_pools_hinder_no_trial_and_other_peoples_networks_stay() {
    let many = std::env::var("CRASHLAB_MANY_TRIALS").ok();
    let (trials, jobs) = many.as_deref().map_or(("8", "4"), |many| (many, "1"));
    let foreign = Foreign::filling_the_pools();
    let package = Package::new("print('{\"ok\": true}')").policy(json!({"operations": {"refund": {}}}));
    let ran = package.args(&["--repeat", trials, "--jobs", jobs]).run();
    assert_eq!(ran.json["counts"]["passed"], trials.parse::<u64>().unwrap(), "{}", ran.stderr);
    let networks = listed(&["network", "ls", "--quiet", "--no-trunc"]);
    let gone: Vec<&String> = foreign.0.iter().filter(|id| !networks.contains(id)).collect();
    assert!(gone.is_empty() && foreign.0.len() >= 10, "{gone:?} of {}", foreign.0.len());
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

/// How often each verb of docker was called in a run of so many trials. What is repeated until something is so, a client's
/// end, a relay's readiness, a removal, counts once: how many it takes is the machine's affair.
fn calls_of(trials: u64, operations: bool) -> BTreeMap<String, u64> {
    let wrapper = Wrapper::new("return None");
    let agent = "import time; time.sleep(1); print('{\"ok\": true}')";
    let policy = if operations { json!({"operations": {"refund": {}}}) } else { json!({"operations": null}) };
    let package = Package::new(agent).policy(policy);
    let package = package.args(&["--repeat", &trials.to_string(), "--jobs", "2"]).env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!(ran.json["counts"]["passed"], trials, "{}", ran.stderr);
    let calls: Vec<Vec<String>> = wrapper.calls().iter().map(|call| words(&call["args"])).collect();
    let relays: BTreeSet<&str> =
        calls.iter().filter(|words| words[..2] == ["network", "connect"]).map(|words| words[3].as_str()).collect();
    let waits = |words: &[String]| words[0] == "top" || words.len() == 7 && relays.contains(words[6].as_str());
    let (mut counts, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for words in &calls {
        let is_repeated = !seen.insert(words) && (words[0] == "inspect" || words.contains(&"rm".to_owned()));
        if is_repeated || waits(words) {
            continue;
        }
        let verb = match words[0].as_str() {
            "network" | "image" => format!("{} {}", words[0], words[1]),
            "inspect" => format!("inspect {}", words[2]),
            verb => verb.to_owned(),
        };
        *counts.entry(verb).or_default() += 1;
    }
    counts
}

fn words(args: &serde_json::Value) -> Vec<String> {
    args.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The table in `src/docker/mod.rs`, row by row.
#[test]
fn a_trial_takes_few_docker_calls_and_what_is_the_same_for_all_is_done_once() {
    for operations in [false, true] {
        let (few, many) = std::thread::scope(|threads| {
            let few = threads.spawn(|| calls_of(2, operations));
            let many = calls_of(5, operations);
            (few.join().unwrap(), many)
        });
        let of = |counts: &BTreeMap<String, u64>, verb: &str| counts.get(verb).copied().unwrap_or(0);
        let more = |verb: &str| of(&many, verb).checked_sub(of(&few, verb));
        let each = if operations { 3 } else { 0 };
        for (verb, wanted) in [("create", 3), ("start", 3), ("run", each), ("network create", each)] {
            assert_eq!(more(verb), Some(wanted), "{verb}: {few:?} {many:?}");
        }
        for verb in ["network connect", "network disconnect"] {
            assert_eq!(more(verb), Some(each), "{verb}: {few:?} {many:?}");
        }
        // One removal for as many trials as came together meanwhile: at most one for each, for the proof, and for what holds
        // the image; and one look for each removal. Beside that a look at each container before its start and after its end,
        // which are the same call where there is no relay to look at.
        for (trials, counts) in [(2, &few), (5, &many)] {
            assert!((1..=trials + 2).contains(&of(counts, "rm")), "{few:?} {many:?}");
        }
        let looks = if operations { 2 } else { 1 };
        let beside = |counts, kind: &str, removal: &str, each: u64| of(counts, kind) - of(counts, removal) - each;
        assert_eq!(
            beside(&few, "inspect container", "rm", 2 * looks),
            beside(&many, "inspect container", "rm", 5 * looks),
            "{few:?} {many:?}"
        );
        assert_eq!(
            beside(&few, "inspect network", "network rm", 0),
            beside(&many, "inspect network", "network rm", 0),
            "{few:?} {many:?}"
        );
        for once in ["info", "version", "context", "import", "image ls", "inspect image", "network ls"] {
            assert_eq!(more(once), Some(0), "{once}: {few:?} {many:?}");
        }
        let known = ["create", "start", "run", "network create", "network connect", "inspect container", "rm"];
        let known =
            known.into_iter().chain(["network disconnect", "network rm", "inspect network"]).collect::<Vec<_>>();
        let others: Vec<&String> = many.keys().filter(|verb| !known.contains(&verb.as_str())).collect();
        assert!(others.iter().all(|verb| more(verb) == Some(0)), "{others:?}: {few:?} {many:?}");
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

def noted(what):
    try:
        return open(os.path.join(FOLDER, what)).read().split()
    except FileNotFoundError:
        return []

def count(what):
    return len(noted(what))

if args[0] == "create" and "-target-" in args[args.index("--name") + 1]:
    done = subprocess.run([REAL, *args], capture_output=True, text=True)
    note("made", done.stdout.strip())
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode
if args[0] == "rm":
    code = real()
    for word in set(args) & set(noted("made")):
        note("removed", word)
    return code
if args[0] == "start" and args[-1] in noted("made"):
    code = real()
    note("started", args[-1])
    started = count("started")
    end = time.monotonic() + 200
    while time.monotonic() < end and not noted("late"):
        if count("made") >= min(started + 1, 4) and count("removed") >= started - 1:
            return code
        time.sleep(0.05)
    note("late", f"{started}:{count('made')}:{count('removed')}")
    return code
return None
"#;
    for operations in [json!(null), json!({"refund": {}})] {
        let wrapper = Wrapper::new(rule);
        let package = Package::new("print('{\"ok\": true}')").policy(json!({
            "operations": operations, "sandbox": {"wall_time": "20m", "writable": []},
        }));
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
    let ran = package.args(&["--repeat", "8", "--jobs", "6"]).env("PATH", &wrapper.path()).run();
    assert_eq!(ran.json["counts"]["passed"], 8, "{}", ran.stderr);
    let turns = std::fs::read_to_string(wrapper.file("turns")).unwrap();
    let turns: Vec<serde_json::Value> = turns.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = |turn: &serde_json::Value| words(&turn["args"]);
    // The attestation's relay among them.
    let (mut on, mut most, mut open) = (BTreeSet::new(), 0, None);
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
