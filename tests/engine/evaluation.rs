//! Evaluation packages in a whole run: trust (T1, T2), the lock (T3), the world's place on the host (T4), and what each
//! way to break an evaluation does to its trial and to no other.

use crate::support::{PYTHON, Package, Ran, Wrapper, eventually, objects_of};
use serde_json::{Value, json};
use std::path::Path;

const GOOD: &str = "import json, sys\njson.load(sys.stdin)\nprint(json.dumps({'ok': True}))\n";

/// Breaks in the way that the case's id says, in the world or in the verifier. Its children write their pids beside it.
const BREAKS: &str = r#"
import ctypes, os, subprocess, sys, time
from crashlab import Check, Evaluation

evaluation = Evaluation()
print("printed while it is imported", flush=True)

def grandchild():
    child = subprocess.Popen(["sleep", "600"], start_new_session=False)
    with open(os.environ["PIDS"], "a") as pids:
        pids.write(f"{child.pid}\n")

@evaluation.world
def world(case):
    print("printed by the world", flush=True)
    os.write(1, b"written by the world\n")
    ctypes.CDLL(None).puts(b"put by the world")
    if case["id"] == "nan": return {"a": [float("nan")]}
    if case["id"] == "raises": raise ValueError("boom " + "x" * 1_000_000)
    return {}

@evaluation.verify
def verify(trial):
    how = trial.case["id"]
    grandchild()
    if how == "crash": os._exit(7)
    if how == "hang": time.sleep(600)
    if how == "garbage": os.write(protocol(), b"garbage\n")
    if how == "large":
        for _ in range(100): os.write(protocol(), b"x" * 1_000_000)
    if how == "none": return []
    if how == "pipe": os.set_inheritable(protocol(), True); grandchild(); os._exit(0)
    return [Check("right", True)]

def protocol():
    import crashlab
    return crashlab._Streams.claim()._replies

evaluation.serve()
"#;

/// Each way, and how it is told. Only the one that hangs has to come to the end of its time.
const WAYS: [(&str, &str); 8] = [
    ("nan", "world.a[0] is nan"),
    ("raises", "ValueError: boom xxx"),
    ("crash", "exit status: 7"),
    ("hang", "no answer within 10s"),
    ("garbage", "not one JSON value"),
    ("large", "longer than 64 MiB"),
    ("none", "no check at all"),
    ("pipe", "exit status: 0"),
];

#[test]
fn each_way_to_break_an_evaluation_makes_its_own_trial_uncertain() {
    let mut cases: Vec<&str> = WAYS.iter().map(|(way, _)| *way).filter(|way| *way != "hang").collect();
    cases.extend(["first", "last"]);
    let broken = |cases: &[&str], timeout: &str| {
        let package = Package::new(GOOD).file("pkg/evaluation.py", BREAKS).cases(cases);
        let package = package.policy(json!({"evaluation": {"timeout": timeout}})).args(&["--jobs", "4"]);
        let pids = package.path().join("pids");
        package.env("PIDS", pids.to_str().unwrap())
    };
    let (package, hanging) = (broken(&cases, "280s"), broken(&["hang"], "10s"));
    let (ran, hung) = std::thread::scope(|threads| {
        let hung = threads.spawn(|| hanging.run());
        (package.run(), hung.join().unwrap())
    });
    assert_eq!((ran.exit, hung.exit), (3, 3), "{}\n{}", ran.stderr, hung.stderr);
    let told: Vec<_> = ["first/1", "last/1"].iter().map(|id| ran.trial(id)["diagnostics"].clone()).collect();
    assert_eq!(told, [json!([]), json!([])]);
    assert_eq!(ran.json["counts"], json!({"trials": 9, "passed": 2, "failed": 0, "uncertain": 7, "not_run": 0}));
    for (way, words) in WAYS {
        let trial = if way == "hang" { hung.trial("hang/1") } else { ran.trial(&format!("{way}/1")) };
        assert_eq!((&trial["outcome"], &trial["reason"]), (&json!("uncertain"), &json!("evaluation_error")), "{way}");
        let told = trial["diagnostics"].to_string();
        assert!(told.contains(words), "{way}: {told}");
        assert!(told.len() < 10_000, "{way}: {}", told.len());
    }
    let folder = package.run_folder().join("trials");
    let log = std::fs::read_to_string(folder.join("raises/1/evaluation.log")).unwrap();
    assert!(log.contains("Traceback (most recent call last)") && log.contains("in world"), "{log}");
    assert!(log.len() < 100_000, "{}", log.len());
    let log = std::fs::read_to_string(folder.join("first/1/evaluation.log")).unwrap();
    for words in ["printed while it is imported", "printed by the world", "written by the world", "put by the world"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    let view = package.crashlab(&["view", "latest", "--trial", "raises/1"]);
    assert!(String::from_utf8_lossy(&view.stdout).contains("boom"), "{}", String::from_utf8_lossy(&view.stdout));
    let pids = |package: &Package| std::fs::read_to_string(package.path().join("pids")).unwrap_or_default();
    assert!(!pids(&package).is_empty());
    for pid in (pids(&package) + &pids(&hanging)).lines() {
        // Killed before the run ended; on a loaded machine it takes a moment to be gone.
        eventually(&format!("end of an evaluation's process {pid}"), || !is_sleeping(pid));
    }
    for ran in [&ran, &hung] {
        assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    }
}

/// Whether this number is still the `sleep` that the evaluation started.
fn is_sleeping(pid: &str) -> bool {
    let command = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
    command.starts_with(b"sleep\x00600")
}

fn digest(package: &Package) -> String {
    let policy = package.command();
    drop(policy);
    let root = package.path().join("pkg");
    let check = package.crashlab(&["check", root.to_str().unwrap(), "--format", "json"]);
    let told: Value = serde_json::from_slice(&check.stdout).unwrap();
    told["digest"].as_str().unwrap_or_else(|| panic!("no digest: {told}")).to_owned()
}

#[test]
fn a_pinned_digest_runs_what_was_reviewed_and_one_changed_byte_refuses() {
    let wrapper = Wrapper::new("return None");
    let package = Package::new(GOOD).file("pkg/requirements.lock", "# nothing\n");
    let package = package.policy(json!({"evaluation": {"lock": "requirements.lock"}}));
    let pin = format!("--trust-evaluation-code={}", digest(&package));
    let pinned = |package: &Package| {
        let command = package.command();
        let mut args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        args.retain(|arg| arg != "--trust-evaluation-code");
        let mut command = std::process::Command::new(command.get_program());
        command.args(args).arg(&pin).env("PATH", wrapper.path()).stdin(std::process::Stdio::null());
        Ran::new(command.output().unwrap())
    };
    let ran = pinned(&package);
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    let evaluation = &ran.json["evaluation"];
    assert_eq!(evaluation["digest"], json!(pin.split_once('=').unwrap().1));
    assert_eq!((&evaluation["reproducible"], &evaluation["lock"]["path"]), (&json!(true), &json!("requirements.lock")));
    assert!(evaluation["lock"]["sha256"].as_str().unwrap().starts_with("sha256:"));

    let calls = wrapper.calls().len();
    let package = package.file("pkg/requirements.lock", "# nothinG\n");
    let refused = pinned(&package);
    assert_eq!(refused.exit, 2, "{}", refused.json);
    let told = refused.json["message"].as_str().unwrap();
    assert!(told.contains("not the one that was reviewed"), "{told}");
    assert_eq!(wrapper.calls().len(), calls, "docker was called");
}

#[test]
fn a_package_without_a_lock_runs_and_says_that_it_is_not_reproducible() {
    let ran = Package::new(GOOD).run();
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    assert_eq!(ran.json["evaluation"]["reproducible"], json!(false));
    assert_eq!(ran.json["evaluation"]["lock"], Value::Null);
}

#[test]
fn the_world_and_the_verifier_are_nowhere_in_the_sandbox() {
    // Looks through every file that it may read, its environment and its mounts, and at every process that it can see.
    let agent = r#"
import json, os, sys
case = json.load(sys.stdin)
marks = [part.encode() for part in ("host-only-" + "verifier", "host-only-" + "world", "host-only-" + "expected")]
found = [name for name, value in os.environ.items() if any(mark.decode() in value for mark in marks)]
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys")]
    for name in files:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.R_OK) and os.path.getsize(path) < 5_000_000:
            with open(path, "rb") as file:
                content = file.read()
            if any(mark in content for mark in marks):
                found.append(path)
for name in filter(str.isdigit, os.listdir("/proc")):
    for file in ("cmdline", "environ"):
        try:
            content = open(f"/proc/{name}/{file}", "rb").read()
        except OSError:
            continue
        if b"evaluation.py" in content or any(mark in content for mark in marks):
            found.append(f"/proc/{name}/{file}")
mounts = open("/proc/self/mountinfo").read()
if "evaluation" in mounts:
    found.append(mounts)
print(json.dumps({"ok": not found, "found": found, "case": case}))
"#;
    let evaluation = r#"
from crashlab import Check, Evaluation
evaluation = Evaluation()

@evaluation.world
def world(case): return {"mark": "host-only-world"}

@evaluation.verify
def verify(trial):
    yield Check("host-only-verifier", trial.answer["ok"], trial.answer["found"])
    yield Check("only the input", trial.answer["case"] == {"seen": True} and trial.world["mark"] == "host-only-world")

evaluation.serve()
"#;
    let case = json!({"id": "one", "input": {"seen": true}, "expect": "host-only-expected"});
    let package = Package::new(agent)
        .file("pkg/evaluation.py", evaluation)
        .file("pkg/cases.jsonl", &format!("{case}\n"))
        .env("HOST_MARK", "host-only-world");
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.json["trials"], ran.stderr);
}

#[test]
fn what_init_writes_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let desk = folder.path().join("desk");
    let results = folder.path().join("results");
    let desk = desk.to_str().unwrap();
    let written = crate::support::crashlab(&results).args(["init", desk, "--image", PYTHON]).output().unwrap();
    assert!(written.status.success());
    let output = crate::support::crashlab(&results)
        .args(["run", desk, "--trust-evaluation-code", "--format", "json"])
        .output()
        .unwrap();
    let ran = Ran::new(output);
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    assert_eq!(ran.json["counts"]["passed"], json!(2));
}

#[test]
fn an_interruption_while_the_evaluation_starts_is_no_refusal() {
    let wrapper = Wrapper::new("return None");
    let package = Package::new(GOOD).file(
        "pkg/evaluation.py",
        "import os, time\nopen(os.environ['PIDS'], 'w').write(str(os.getpid()))\ntime.sleep(280)\n",
    );
    let pids = package.path().join("pids");
    let package = package.env("PIDS", pids.to_str().unwrap()).env("PATH", &wrapper.path());
    let mut command = package.command();
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let pid = || std::fs::read_to_string(&pids).unwrap_or_default();
    eventually("start of the evaluation", || !pid().is_empty());
    let pid = pid();
    crate::chain::interrupt(&child, "TERM");
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!((ran.exit, &ran.json["exit"]), (143, &json!(143)), "{}", ran.stderr);
    assert_eq!(wrapper.calls().len(), 0);
    let command = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&command).contains("evaluation.py"), "the evaluation is still there");
}
