//! What the engine tests share: packages made in a temporary folder, crashlab started as a user starts it, a docker
//! wrapper on PATH that can be told to fail, and questions to the real engine. Tests run at the same time on one engine:
//! they look only at what carries their own run's id.

use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The image that targets run in; `scripts/engine` makes it.
pub const PYTHON: &str = "crashlab/python:1";
/// Busybox alone; `scripts/engine` makes it.
pub const BUSYBOX: &str = "crashlab/busybox:1";
/// The dedicated builder's image; `scripts/engine` makes it.
pub const BUILDKIT: &str = "crashlab/buildkit:1";

/// Long enough that only what hangs runs into it, however loaded the machine is.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// An evaluation that passes where the answer's `ok` is true.
pub const EVALUATION: &str = r#"
from crashlab import Check, Evaluation, Refuse

evaluation = Evaluation()

@evaluation.world
def world(case):
    return {"refunds": []}

@evaluation.operation
def refund(world, order_id: str, amount_cents: int) -> dict:
    if amount_cents > 5000:
        raise Refuse("over_limit", "a supervisor must approve refunds above 50.00")
    world["refunds"].append({"order": order_id, "amount": amount_cents})
    return {"refunded": amount_cents}

@evaluation.operation
def hidden(world) -> str:
    raise RuntimeError("an undeclared operation was called")

@evaluation.verify
def verify(trial):
    if trial.case["id"] == "broken":
        raise RuntimeError("this verifier is broken")
    answer = trial.answer
    yield Check("ok", isinstance(answer, dict) and answer.get("ok") is True, repr(answer)[:500])

if __name__ == "__main__":
    evaluation.serve()
"#;

/// A package in a temporary folder, with its results beside it.
pub struct Package {
    folder: tempfile::TempDir,
    policy: Value,
    env: BTreeMap<String, String>,
    args: Vec<String>,
    results: &'static str,
}

impl Package {
    /// A package whose target is this Python program; one case, `one`.
    pub fn new(agent: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let policy = serde_json::json!({
            "version": 1,
            "name": "engine-test",
            "target": {"image": {"reference": PYTHON, "pull": "never"}, "command": ["python3", "/target/agent.py"]},
            // Only what hangs runs into it, however loaded the machine is.
            "sandbox": {"wall_time": "300s"},
            "evaluation": {"command": ["python3", "evaluation.py"]},
        });
        let package = Self { folder, policy, env: BTreeMap::new(), args: Vec::new(), results: "results" };
        package.file("pkg/target/agent.py", agent).file("pkg/evaluation.py", EVALUATION).cases(&["one"])
    }

    /// Writes a file below the temporary folder (`pkg/` is the package).
    pub fn file(self, path: &str, content: &str) -> Self {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// With these cases.
    pub fn cases(self, ids: &[&str]) -> Self {
        let lines: String =
            ids.iter().map(|id| format!("{{\"id\": \"{id}\", \"input\": {{\"id\": \"{id}\"}}}}\n")).collect();
        self.file("pkg/cases.jsonl", &lines)
    }

    /// With this merged into its policy (RFC 7396).
    pub fn policy(mut self, patch: Value) -> Self {
        merge(&mut self.policy, &patch);
        self
    }

    /// With more arguments of `run`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// With a variable in crashlab's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The temporary folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The results folder.
    pub fn results(&self) -> PathBuf {
        self.folder.path().join(self.results)
    }

    /// With its results in another folder below the temporary one.
    pub fn results_in(mut self, results: &'static str) -> Self {
        self.results = results;
        self
    }

    /// `crashlab run` with everything but its start: standard output is JSON.
    pub fn command(&self) -> Command {
        // The target is a repository of its own: a snapshot is git's list of files.
        let target = self.folder.path().join("pkg/target");
        if !target.join(".git").exists() {
            quiet(Command::new("git").args(["init", "-q"]).arg(&target));
        }
        std::fs::write(self.folder.path().join("pkg/policy.json"), self.policy.to_string()).unwrap();
        let mut command = crashlab(&self.results());
        command.arg("run").arg(self.folder.path().join("pkg")).args(["--trust-evaluation-code", "--format", "json"]);
        command.env("CRASHLAB_BUILDKIT_IMAGE", BUILDKIT);
        command.args(&self.args).envs(&self.env);
        command
    }

    /// Runs it to its end.
    pub fn run(&self) -> Ran {
        Ran::new(self.command().output().unwrap())
    }

    /// Runs it to its end, and gives the highest resident size of its process, in KiB, by the kernel's own mark.
    pub fn run_with_peak(&self) -> (Ran, u64) {
        let file = |name: &str| std::fs::File::create(self.folder.path().join(name)).unwrap();
        let mut child = self.command().stdout(file("out")).stderr(file("err")).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let mark =
                text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
            peak = mark.unwrap_or(0).max(peak);
            std::thread::sleep(Duration::from_millis(20));
        }
        let read = |name: &str| std::fs::read(self.folder.path().join(name)).unwrap();
        let output = Output { status: child.wait().unwrap(), stdout: read("out"), stderr: read("err") };
        (Ran::new(output), peak)
    }

    /// Another command of crashlab over the same results.
    pub fn crashlab(&self, args: &[&str]) -> Output {
        crashlab(&self.results()).args(args).envs(&self.env).output().unwrap()
    }

    /// The folder of its only run.
    pub fn run_folder(&self) -> PathBuf {
        let runs = std::fs::read_dir(self.results().join("runs")).unwrap();
        let folders: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders.into_iter().next().unwrap()
    }

    /// The id of its only run.
    pub fn run_id(&self) -> String {
        self.run_folder().file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Waits until its run has stored something that this looks for.
    pub fn wait_for(&self, what: &str, found: impl Fn(&Path) -> bool) {
        eventually(what, || {
            let runs = std::fs::read_dir(self.results().join("runs")).into_iter().flatten().flatten();
            runs.map(|entry| entry.path()).any(|run| found(&run))
        });
    }
}

/// Waits until this is so; only what never comes takes so long that it fails.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// crashlab, as it was built for this test.
pub fn crashlab(results: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crashlab"));
    command.arg("--results").arg(results).stdin(Stdio::null());
    command
}

/// A run that ended.
pub struct Ran {
    /// The exit code.
    pub exit: i32,
    /// The one JSON document on standard output.
    pub json: Value,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// From what a finished process left.
    pub fn new(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{stderr}", String::from_utf8_lossy(&output.stdout)));
        Self { exit: output.status.code().unwrap_or(-1), json, stderr }
    }

    /// The record of a trial.
    pub fn trial(&self, id: &str) -> &Value {
        let trials = self.json["trials"].as_array().unwrap_or_else(|| panic!("no trials: {}", self.json));
        trials.iter().find(|trial| trial["trial"] == id).unwrap_or_else(|| panic!("no trial {id}: {}", self.json))
    }

    /// The run's id.
    pub fn run(&self) -> &str {
        self.json["run"].as_str().unwrap_or_else(|| panic!("no run: {}\n{}", self.json, self.stderr))
    }
}

/// What the engine still has of a run: by its label, and by the names that a run gives.
pub fn objects_of(run: &str) -> Vec<String> {
    let label = format!("label=crashlab.run={run}");
    let mut found = Vec::new();
    found.extend(listed(&["ps", "--all", "--filter", &label, "--format", "container {{.Names}}"]));
    found.extend(listed(&["network", "ls", "--filter", &label, "--format", "network {{.Name}}"]));
    found.extend(listed(&["image", "ls", "--all", "--filter", &label, "--format", "image {{.Repository}}:{{.Tag}}"]));
    let builder = run.to_ascii_lowercase();
    for line in listed(&["ps", "--all", "--format", "container {{.Names}}"]) {
        if line.contains(&builder) {
            found.push(line);
        }
    }
    found.extend(
        listed(&["volume", "ls", "--format", "volume {{.Name}}"]).into_iter().filter(|it| it.contains(&builder)),
    );
    found
}

/// The lines that docker prints.
pub fn listed(args: &[&str]) -> Vec<String> {
    docker(args).lines().map(str::to_owned).collect()
}

/// What docker prints; the engine must answer.
pub fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().expect("these tests need docker");
    assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn quiet(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// A `docker` in front of the real one. Each call is recorded; a Python rule decides what becomes of it.
pub struct Wrapper {
    folder: tempfile::TempDir,
}

impl Wrapper {
    /// `rule` is the body of a Python function `rule(k, args, real)`: `k` counts the calls from 1, `real()` passes the call
    /// on and gives the exit code. What it gives is the wrapper's exit code; none passes on.
    pub fn new(rule: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let real =
            String::from_utf8(Command::new("sh").args(["-c", "command -v docker"]).output().unwrap().stdout).unwrap();
        let body: String = rule.lines().map(|line| format!("    {line}\n")).collect();
        let text = WRAPPER
            .replace("@REAL@", real.trim())
            .replace("@FOLDER@", folder.path().to_str().unwrap())
            .replace("@RECORD@", &std::env::var("CRASHLAB_DOCKER_RECORD").unwrap_or_default())
            .replace("@RULE@", &body);
        let path = folder.path().join("docker");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    /// The PATH with it in front.
    pub fn path(&self) -> String {
        format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap())
    }

    /// A file that its rule leaves in its folder (`FOLDER`); the folder itself without a name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Every call so far: `{"args": […], "env": {…}}`.
    pub fn calls(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        // A call may be about to be written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

const WRAPPER: &str = r#"#!/usr/bin/python3
import fcntl, json, os, signal, subprocess, sys, time

REAL, FOLDER, RECORD = "@REAL@", "@FOLDER@", "@RECORD@"


def rule(k, args, real):
@RULE@
    return None


def real():
    return subprocess.call([REAL, *sys.argv[1:]])


with open(os.path.join(FOLDER, "calls"), "a+") as calls:
    fcntl.flock(calls, fcntl.LOCK_EX)
    calls.seek(0)
    k = sum(1 for _ in calls) + 1
    calls.write(json.dumps({"args": sys.argv[1:], "env": dict(os.environ)}) + "\n")
if RECORD:
    # The record of the whole suite (scripts/record-docker) takes this program for a part of the test.
    with open(RECORD, "a") as record:
        record.write("\x1f".join(sys.argv[1:]).replace("\n", " ") + "\n")
code = rule(k, sys.argv[1:], real)
if code is None:
    os.execv(REAL, [REAL, *sys.argv[1:]])
sys.exit(code)
"#;
