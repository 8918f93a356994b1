//! Limits that hold: each hog alone in its trial, all of them at once, beside a neighbour that must not notice. What is
//! stored says how each one stopped.

use crate::support::{BUSYBOX, Package, Ran, Wrapper, objects_of};
use serde_json::{Value, json};

/// One target for all: its case says what it overdoes.
const HOGS: &str = r#"
import json, os, signal, socket, subprocess, sys, threading, time

def memory():
    blocks = []
    while True:
        blocks.append(b"x" * (1 << 20))

def child_memory():
    child = os.fork()
    if child == 0:
        memory()
    _, status = os.waitpid(child, 0)
    # The engine hears of a lack of memory and of a container's end by different ways, and believes the first.
    time.sleep(0.5)
    return {"ok": os.WIFSIGNALED(status), "signal": os.WTERMSIG(status)}

def forks():
    count = 0
    try:
        while True:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            count += 1
    except BlockingIOError:
        return {"ok": count <= 32, "count": count}

def spin():
    for _ in range(4):
        if os.fork() == 0:
            while True:
                pass
    while True:
        pass

def spin_a_while():
    end = time.monotonic() + 2
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            while time.monotonic() < end:
                pass
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    used = os.times().children_user + os.times().children_system
    return {"ok": used < 2 * 0.5 * 1.6, "used": used}

def files():
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        return {"ok": error.errno == 24 and len(held) <= 64, "count": len(held)}

def lines():
    while True:
        sys.stdout.write("a line of output\n" * 1000)

def one_line():
    while True:
        os.write(2, b"x" * 65536)

def fill():
    told = {}
    for place in ["/tmp", "/work", "/dev/shm"]:
        written = 0
        try:
            with open(place + "/filler", "wb", buffering=0) as file:
                while True:
                    written += file.write(b"x" * 4096)
        except OSError as error:
            told[place] = [error.errno, written]
    try:
        open("/dev/mqueue/filler", "w")
        told["/dev/mqueue"] = "written"
    except OSError:
        pass
    wanted = {"/tmp": [28, 4 << 20], "/work": [28, 1 << 20], "/dev/shm": [28, 2 << 20]}
    return {"ok": told == wanted, "told": told}

def core():
    os.chdir("/tmp")
    child = os.fork()
    if child == 0:
        os.abort()
    _, status = os.waitpid(child, 0)
    # A handler of the host's gets what crashes, whatever the limit: the kernel asks no limit before it starts one.
    handler = open("/proc/sys/kernel/core_pattern").read()[0] in "|@"
    if os.listdir("/tmp") or os.WCOREDUMP(status) != handler:
        os._exit(1)
    os.abort()

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def sleeper():
    for name in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]:
        signal.signal(name, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                open("/tmp/alive", "w").write(str(time.time()))
                time.sleep(0.1)
        os._exit(0)
    print("asleep", flush=True)
    while True:
        time.sleep(60)

def silent():
    os.close(0)
    os.close(1)
    os.close(2)
    time.sleep(60)

def calm():
    # A number of rounds, not a time: it has to get through all of them, however slow the machine is.
    for n in range(20):
        for place in ["/tmp/calm", "/work/calm", "/dev/shm/calm"]:
            open(place, "w").write("calm" * 1000)
        subprocess.run(["true"], check=True)
        assert len(b"x" * (8 << 20)) == 8 << 20
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(32)]
        [os.close(file) for file in held]
        print("round", n, file=sys.stderr, flush=True)
        time.sleep(0.1)
    return {"ok": True}

what = json.load(sys.stdin)["id"].replace("-", "_")
answer = globals()[what]()
print(json.dumps(answer))
"#;

/// What each case comes to.
fn expected() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("memory", "failed", json!({"reason": "out_of_memory", "code": null})),
        ("child-memory", "passed", json!({"reason": "exited", "code": 0})),
        ("forks", "passed", json!({"reason": "exited", "code": 0})),
        ("spin", "failed", json!({"reason": "wall_time", "code": null})),
        ("spin-a-while", "passed", json!({"reason": "exited", "code": 0})),
        ("files", "passed", json!({"reason": "exited", "code": 0})),
        ("lines", "failed", json!({"reason": "output_limit", "code": null})),
        ("one-line", "failed", json!({"reason": "output_limit", "code": null})),
        ("fill", "passed", json!({"reason": "exited", "code": 0})),
        ("core", "failed", json!({"reason": "signal", "code": 6})),
        ("sleeper", "failed", json!({"reason": "wall_time", "code": null})),
        ("silent", "failed", json!({"reason": "wall_time", "code": null})),
    ]
}

fn hogs(names: &[&str], jobs: &str, wall_time: &str) -> Package {
    Package::new(HOGS).cases(names).args(&["--jobs", jobs]).policy(json!({"sandbox": {
        "memory": "64MiB", "cpus": 0.5, "processes": 32, "open_files": 64, "shared_memory": "2MiB", "output": "64KiB",
        "wall_time": wall_time,
        "writable": [{"path": "/tmp", "size": "4MiB"}, {"path": "/work", "size": "1MiB"}],
    }}))
}

fn as_expected(package: &Package, ran: &Ran) {
    assert_eq!(ran.exit, 1, "{}", ran.stderr);
    for (name, outcome, stop) in expected() {
        let trial = ran.trial(&format!("{name}/1"));
        assert_eq!((&trial["outcome"], &trial["stop"]), (&json!(outcome), &stop), "{name}: {trial}");
    }
    let diagnostics = ran.trial("child-memory/1")["diagnostics"].to_string();
    assert!(diagnostics.contains("sandbox.memory"), "{diagnostics}");
    for (case, stream) in [("lines", "stdout"), ("one-line", "stderr")] {
        stored_is_cut(package, case, stream);
    }
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

#[test]
fn limits_hold_and_a_neighbour_does_not_notice() {
    let mut names: Vec<&str> = expected().iter().map(|(name, ..)| *name).collect();
    names.insert(0, "calm");
    let package = hogs(&names, "13", "8s");
    let ran = package.run();
    as_expected(&package, &ran);
    let calm = ran.trial("calm/1");
    assert_eq!((&calm["outcome"], &calm["diagnostics"]), (&json!("passed"), &json!([])), "{calm}");
}

/// An engine whose word of a target's end came before its word that the target had no memory left: its state never says so.
const OVERTAKEN: &str = r#"
if args[0] == "inspect" and "container" in args:
    done = subprocess.run([REAL, *args], capture_output=True, text=True)
    sys.stdout.write(done.stdout.replace('"OOMKilled":true', '"OOMKilled":false'))
    sys.stderr.write(done.stderr)
    return done.returncode
"#;

#[test]
fn a_lack_of_memory_that_the_engines_state_missed_is_not_taken_for_a_signal_nor_a_signal_for_it() {
    let engine = Wrapper::new(OVERTAKEN);
    let package = hogs(&["memory", "kill"], "2", "30s").env("PATH", &engine.path());
    let ran = package.run();
    let stop = |case: &str| ran.trial(&format!("{case}/1"))["stop"].clone();
    assert_eq!(stop("memory"), json!({"reason": "out_of_memory", "code": null}), "{}", ran.stderr);
    assert_eq!(stop("kill"), json!({"reason": "signal", "code": 9}), "{}", ran.stderr);
}

/// A client that holds a target's streams, although the target has ended.
const HOLDS: &str = r#"
if args[:2] == ["start", "--attach"]:
    name = subprocess.check_output([REAL, "inspect", "--format", "{{.Name}}", args[-1]], text=True)
    code = real()
    if "-target-" in name:
        time.sleep(600)
    return code
"#;

#[test]
fn a_target_that_kept_its_time_is_not_blamed_for_a_client_that_does_not_end() {
    let engine = Wrapper::new(HOLDS);
    let package = Package::new("print('{\"ok\": true}')").policy(json!({"sandbox": {"wall_time": "5s"}}));
    let ran = package.env("PATH", &engine.path()).run();
    let trial = ran.trial("one/1");
    assert_eq!((&trial["outcome"], &trial["reason"]), (&json!("uncertain"), &json!("engine_error")), "{trial}");
    assert!(trial["diagnostics"].to_string().contains("after the target had ended"), "{trial}");
}

/// What the engine keeps of a target on the host's disk, just before it is removed.
const DISK: &str = r#"
if args[0] == "rm":
    form = "{{.SizeRw}} {{len .LogPath}} {{range .Mounts}}{{.Type}} {{end}}{{.Name}}"
    ids = [arg for arg in args[1:] if not arg.startswith("-")]
    done = subprocess.run([REAL, "inspect", "--size", "--type", "container", "--format", form, *ids], capture_output=True, text=True)
    open(FOLDER + "/disk", "a").write(done.stdout)
"#;

#[test]
fn each_limit_holds_alone_and_the_hosts_disk_does_not_grow() {
    let names: Vec<&str> = expected().iter().map(|(name, ..)| *name).collect();
    let engine = Wrapper::new(DISK);
    let package = hogs(&names, "1", "5s").env("PATH", &engine.path());
    let ran = package.run();
    as_expected(&package, &ran);
    let disk = std::fs::read_to_string(engine.file("disk")).unwrap();
    let targets: Vec<&str> = disk.lines().filter(|line| line.contains("-target-")).collect();
    assert_eq!(targets.len(), names.len(), "{disk}");
    for line in targets {
        // Nothing in its own layer, no log, and no mount but the source.
        assert!(line.starts_with("0 0 bind /crashlab-"), "{line}");
    }
}

/// At most the limit and the marker, which says how many bytes were seen.
fn stored_is_cut(package: &Package, case: &str, stream: &str) {
    let kept = std::fs::read(package.run_folder().join(format!("trials/{case}/1/{stream}"))).unwrap();
    assert!(kept.len() <= (64 << 10) + 100, "{case}: {} bytes", kept.len());
    let tail = String::from_utf8_lossy(&kept[kept.len() - 60..]).into_owned();
    assert!(tail.contains("[crashlab: cut after 65536 of "), "{case}: {tail}");
}

/// A5: what is still running when time is up calls its operations on; the world must not hear of it.
const CALLER: &str = r#"
import os, signal, time, urllib.request
for name in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]:
    signal.signal(name, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
url = os.environ["CRASHLAB_URL"] + "/operations/refund"
headers = {"Authorization": "Bearer " + os.environ["CRASHLAB_TOKEN"], "Content-Type": "application/json"}
while True:
    request = urllib.request.Request(url, b'{"order_id": "1", "amount_cents": 1}', headers)
    try:
        urllib.request.urlopen(request, timeout=1).read()
    except OSError:
        pass
    time.sleep(0.05)
"#;

/// Looks twice, with time for many calls in between.
const PATIENT: &str = r#"
import time
from crashlab import Check, Evaluation
evaluation = Evaluation()

@evaluation.world
def world(case):
    return {"refunds": 0}

@evaluation.operation
def refund(world, order_id: str, amount_cents: int) -> dict:
    world["refunds"] += 1
    return {}

@evaluation.verify
def verify(trial):
    before = trial.world["refunds"]
    time.sleep(1)
    yield Check("called", before > 0, str(before))
    yield Check("wall time", trial.stop["reason"] == "wall_time", str(trial.stop))
    yield Check("quiet", len(trial.operations) >= before, str(len(trial.operations)))

if __name__ == "__main__":
    evaluation.serve()
"#;

#[test]
fn what_outlives_its_time_is_dead_before_the_verifier_looks() {
    let package = Package::new(CALLER)
        .file("pkg/evaluation.py", PATIENT)
        .policy(json!({"operations": {"refund": {"calls": 10000}}, "sandbox": {"wall_time": "3s"},
                       "evaluation": {"require_clean_exit": false}}));
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.stderr, ran.json);
    let folder = package.run_folder().join("trials/one/1");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let after: Value = serde_json::from_str(&read("world-after.json")).unwrap();
    let answered = read("operations.jsonl").lines().filter(|line| line.contains("\"result\"")).count();
    assert_eq!(after["refunds"], json!(answered), "every call that was answered is in the world that was judged");
}

/// Contract P4: what targets print goes through, it does not stay.
#[test]
fn memory_does_not_grow_with_what_targets_print() {
    let agent = |mebibytes: u32| {
        format!(
            "import os, sys\nfor _ in range({mebibytes}):\n    os.write(2, b'x' * (1 << 20))\nprint('{{\"ok\": true}}')\n"
        )
    };
    let peak = |mebibytes: u32| {
        let package = Package::new(&agent(mebibytes)).policy(json!({"sandbox": {"output": "64MiB"}}));
        let (ran, peak) = package.args(&["--repeat", "4", "--jobs", "4"]).run_with_peak();
        assert_eq!(ran.json["counts"]["passed"], 4, "{}", ran.stderr);
        peak
    };
    let (quiet, loud) = (peak(0), peak(60));
    assert!(loud < quiet + (12 << 10), "{quiet} KiB with nothing printed, {loud} KiB with 4 × 60 MiB");
}

/// Contract P4: a trial that is over leaves its record in memory, not its output. CRASHLAB_MANY_TRIALS is how many there are.
#[test]
fn memory_does_not_grow_with_the_trials_that_are_done() {
    let peak = |trials: u64| {
        let print = "yes log | head -c 200000 >&2; yes answer | head -c 200000";
        let package = Package::new("").policy(json!({
            "target": {"image": {"reference": BUSYBOX}, "command": ["/bin/busybox", "sh", "-c", print]},
            "evaluation": {"require_clean_exit": true},
        }));
        let package = package.args(&["--repeat", &trials.to_string(), "--jobs", "2"]);
        let (ran, peak) = package.run_with_peak();
        // The answer is no object with "ok": the verifier says so.
        assert_eq!((ran.json["counts"]["failed"].as_u64(), ran.exit), (Some(trials), 1), "{}", ran.stderr);
        peak
    };
    let many = std::env::var("CRASHLAB_MANY_TRIALS").map_or(80, |text| text.parse().unwrap());
    let (few, most) = (peak(16), peak(many));
    // A quarter of what the output alone of the further trials would be.
    assert!(most < few + (many - 16) * 100, "{few} KiB with 16 trials, {most} KiB with {many}");
}
