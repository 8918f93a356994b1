//! Fault injection: at the k-th docker call of one small run with a builder, a relay and one trial, crashlab is killed or
//! interrupted, or the call fails, hangs, or answers wrongly. Whatever happens, what is left is told, `clean` finishes it,
//! and foreign objects that look like the run's are all still there.
//!
//! `CRASHLAB_FAULTS=all` (`make test-faults`) strikes at every call, `CRASHLAB_FAULTS=10-20` at some; else it is a sample. Cells are independent: several
//! run at once, those that hang beside those that work.

#![allow(clippy::print_stdout, reason = "the table of outcomes is what this test shows")]

use crate::scope::{clean, small};
use crate::support::{BUSYBOX, Package, Wrapper, docker, objects_of};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What becomes of the k-th call: the column's name and the body of the wrapper's rule at that call.
const FAULTS: [(&str, &str); 7] = [
    ("killed before", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(0.2); return 1"),
    ("killed after", "code = real(); os.kill(os.getppid(), signal.SIGKILL); return code"),
    ("fails", "sys.stderr.write('Error response from daemon: broken\\n'); return 1"),
    ("done, then 125", "real(); sys.stderr.write('broken pipe\\n'); return 125"),
    ("done, nonsense", "quiet(); print('{\"half'); return 0"),
    // Every other one after the engine has done it.
    ("hangs", "k % 2 or quiet(); open(FOLDER + '/hangs', 'w').close(); time.sleep(3600)"),
    ("interrupted", "os.kill(os.getppid(), signal.SIGINT); return None"),
];
const HANGS: usize = 5;
/// How many cells run at once: of those that work, and of those that mostly wait.
const AT_ONCE: (usize, usize) = (4, 8);
/// A call may take a minute; one that may take longer (a builder's start, a build) is ended as a person would.
const PATIENCE: Duration = Duration::from_secs(170);

/// One struck run.
struct Cell {
    k: usize,
    fault: usize,
    step: String,
    outcome: String,
    trouble: Vec<String>,
}

/// The words of a call that say what it does: `network create`, `inspect container`.
fn step_of(call: &Value) -> String {
    let words: Vec<&str> = call["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    match words.as_slice() {
        ["inspect", "--type", kind, ..] => format!("inspect {kind}"),
        ["buildx" | "network" | "volume" | "image" | "context", verb, ..] => format!("{} {verb}", words[0]),
        _ => words[0].to_owned(),
    }
}

/// The exits that a struck run may have. A removal that was hindered once may be made good by the next look, or be told.
fn allowed(fault: usize, step: &str) -> &'static [Option<i32>] {
    let (any, unmeasured, cleanup) = (&[Some(0), Some(3), Some(4)], &[Some(3)], &[Some(0), Some(4)]);
    match (FAULTS[fault].0, step) {
        ("killed before" | "killed after", _) => &[None],
        ("interrupted", _) => &[Some(130)],
        // Its version is only for the record.
        (_, "buildx version") => &[Some(0)],
        // What may take long by itself ends with the person's patience.
        ("hangs", "buildx inspect" | "buildx build" | "save") => &[Some(130)],
        ("hangs", "start") | (_, "version" | "info" | "context inspect") => unmeasured,
        (_, "rm" | "network rm" | "volume rm" | "image rm" | "buildx rm") => cleanup,
        // What these print is not read.
        (
            "done, nonsense",
            "save" | "volume create" | "buildx create" | "buildx inspect" | "buildx build" | "network connect",
        ) => any,
        // What the client prints is what the target says: nobody can tell that it is not.
        ("done, nonsense", "start") => &[Some(1), Some(3)],
        (
            _,
            "create" | "run" | "network create" | "network connect" | "volume create" | "buildx create"
            | "buildx build" | "buildx inspect" | "import" | "save",
        ) => unmeasured,
        // A look before a step, or one after a removal; on how a start went, the engine has the last word.
        _ => any,
    }
}

/// Runs it to its end; one that waits for a call without a limit of its own is interrupted.
fn run_struck(package: &Package, wrapper: &Wrapper) -> Output {
    let mut command = package.command();
    command.env("PATH", wrapper.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut hangs = None;
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(100));
        if hangs.is_none() && wrapper.file("hangs").exists() {
            hangs = Some(Instant::now());
        }
        if hangs.is_some_and(|since| since.elapsed() > PATIENCE) {
            crate::chain::interrupt(&child, "INT");
            break;
        }
    }
    child.wait_with_output().unwrap()
}

/// What looks like the run's and is not: the beginning of its names, its label, a tag beside its own.
fn foreign(run: &str) -> Vec<[String; 3]> {
    let label = format!("crashlab.run={run}");
    let lower = run.to_ascii_lowercase();
    let named = |what: &str| format!("crashlab-{run}-{what}-foreign");
    let volume = format!("buildx_buildkit_crashlab-{lower}-builder-foreign0_state");
    let image = format!("crashlab/target:{run}-foreign");
    let (container, network) = (named("target"), named("net"));
    docker(&["create", "--label", &label, "--name", &container, BUSYBOX, "/bin/busybox", "true"]);
    docker(&["network", "create", "--internal", "--label", &label, "--subnet", &free_subnet(), &network]);
    docker(&["volume", "create", "--label", &label, &volume]);
    docker(&["tag", BUSYBOX, &image]);
    [["container", &container], ["network", &network], ["volume", &volume], ["image", &image]]
        .map(|[kind, name]| [kind.to_owned(), name.to_owned(), format!("{kind} {name}")])
        .to_vec()
}

/// A small block that neither another cell nor a run takes; the engine's own pool is small.
fn free_subnet() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let nth = NEXT.fetch_add(1, Ordering::SeqCst) + std::process::id() as usize % 256 * 32 * 32;
    format!("100.{}.{}.{}/29", 64 + nth / 8192 % 64, nth / 32 % 256, nth % 32 * 8)
}

/// One fault at one call.
fn strike(k: usize, fault: usize) -> Cell {
    let (_, rule) = FAULTS[fault];
    let quiet =
        "def quiet(): return subprocess.call([REAL, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)";
    let wrapper = Wrapper::new(&format!("{quiet}\nif k == {k}: {rule}"));
    // A start that hangs is noticed once the target's time is over.
    let package = small().policy(json!({"sandbox": {"wall_time": "60s"}}));
    let output = run_struck(&package, &wrapper);
    let exit = output.status.code();
    let step = wrapper.calls().get(k - 1).map_or_else(|| "no such call".to_owned(), step_of);
    let mut cell = Cell { k, fault, step, outcome: String::new(), trouble: Vec::new() };
    let shown = exit.map_or_else(|| format!("signal {}", output.status.signal().unwrap_or(0)), |exit| exit.to_string());
    let reached = cell.step != "no such call";
    let allowed = if reached { allowed(fault, &cell.step) } else { &[Some(0)] };
    if !allowed.contains(&exit) {
        cell.trouble.push(format!("exit {shown} is none of {allowed:?}"));
    }
    let run = std::fs::read_dir(package.results().join("runs")).into_iter().flatten().flatten().next();
    let Some(run) = run.and_then(|run| run.file_name().into_string().ok()) else {
        cell.outcome = format!("{shown}, nothing stored");
        return cell;
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let left = objects_of(&run);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if let Some(exit) = exit {
        cell.trouble.extend(untold(exit, &told, &stderr, &left));
    }
    if !package.crashlab(&["view", "latest"]).status.success() {
        cell.trouble.push("the stored run cannot be viewed".to_owned());
    }
    if clean(&package, &["--dry-run"]).1 == json!([]) {
        cell.outcome = format!("{shown}, left {}, owes nothing", left.len());
        if !left.is_empty() {
            cell.trouble.push(format!("owes nothing, and left {left:?}"));
        }
        return with_words(cell, &told, &stderr);
    }
    let foreign = foreign(&run);
    let (code, cleaned) = clean(&package, &[]);
    let again = clean(&package, &["--dry-run"]).1;
    cell.outcome = format!("{shown}, left {}, clean {code}", left.len());
    if code != 0 || again != json!([]) {
        cell.trouble.push(format!("clean ended with {code}: {cleaned}; then it still owed {again}"));
    }
    let names: BTreeSet<String> = foreign.iter().map(|[.., shown]| shown.clone()).collect();
    let now: BTreeSet<String> = objects_of(&run).into_iter().collect();
    // A tag beside the run's own carries no label: it is asked for by name.
    let kept = |[kind, name, _]: &[String; 3]| {
        std::process::Command::new("docker").args([kind, "inspect", name]).output().unwrap().status.success()
    };
    let gone: Vec<_> = foreign.iter().filter(|it| !kept(it)).collect();
    let leaked: Vec<_> = now.difference(&names).collect();
    if !gone.is_empty() || !leaked.is_empty() {
        cell.trouble.push(format!("removed what is foreign: {gone:?}; leaked: {leaked:?}; {cleaned}"));
    }
    for [kind, name, _] in &foreign {
        docker(&[kind, "rm", name]);
    }
    with_words(cell, &told, &stderr)
}

/// Where something is wrong, with everything that the run said.
fn with_words(mut cell: Cell, told: &Value, stderr: &str) -> Cell {
    if !cell.trouble.is_empty() {
        cell.trouble.push(format!("{told}\n{stderr}"));
    }
    cell
}

/// What an ended run left without a word, or said that does not fit its exit.
fn untold(exit: i32, told: &Value, stderr: &str, left: &[String]) -> Vec<String> {
    let mut trouble = Vec::new();
    let failures = told["cleanup"]["failures"].as_array().cloned().unwrap_or_default();
    let listed: Vec<&str> = failures.iter().filter_map(|it| it["name"].as_str()).collect();
    for object in left {
        let (_, name) = object.split_once(' ').unwrap();
        // A builder is told by its own name, which is part of its container's and its volume's.
        if !listed.iter().any(|listed| name.contains(listed)) {
            trouble.push(format!("{object} was left without a word"));
        }
    }
    for name in &listed {
        if !stderr.contains(name) || !stderr.contains("crashlab clean ") {
            trouble.push(format!("{name} is not on standard error with what finishes it"));
        }
    }
    if told["exit"] != json!(exit) || (exit == 0 && !failures.is_empty()) || (exit == 4 && failures.is_empty()) {
        trouble.push(format!("exit {exit} with {} failures, stored as {}", failures.len(), told["exit"]));
    }
    trouble
}

/// Every chosen cell, several at once.
fn strike_all(mut cells: Vec<(usize, usize)>) -> Vec<Cell> {
    // The longest first.
    cells.sort_by_key(|(_, fault)| *fault != HANGS);
    let (waiting, working): (Vec<_>, Vec<_>) = cells.into_iter().partition(|(_, fault)| *fault == HANGS);
    let done = Mutex::new(Vec::new());
    let next = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|threads| {
        for (cells, next, workers) in [(&working, &next[0], AT_ONCE.0), (&waiting, &next[1], AT_ONCE.1)] {
            for _ in 0..workers.min(cells.len()) {
                let done = &done;
                threads.spawn(move || {
                    while let Some((k, fault)) = cells.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let cell = strike(*k, *fault);
                        let trouble = if cell.trouble.is_empty() { "" } else { "  <- WRONG" };
                        println!("{k:>3} {:<17} {:<17} {}{trouble}", cell.step, FAULTS[*fault].0, cell.outcome);
                        done.lock().unwrap().push(cell);
                    }
                });
            }
        }
    });
    done.into_inner().unwrap()
}

/// Steps down, faults across.
fn print_table(steps: &[String], cells: &[Cell]) {
    println!("\noutcome: exit of the run, objects left on the engine, exit of clean");
    println!("{:>3} {:<17} {}", "k", "step", FAULTS.map(|(name, _)| format!("{name:<29}")).concat());
    for (k, step) in steps.iter().enumerate().map(|(nth, step)| (nth + 1, step)) {
        let row = (0..FAULTS.len()).map(|fault| {
            let Some(cell) = cells.iter().find(|cell| (cell.k, cell.fault) == (k, fault)) else {
                return format!("{:<29}", "");
            };
            // Trial and attestation go on at the same time: another call may have been the k-th.
            let other = if cell.step == *step { String::new() } else { format!(" [{}]", cell.step) };
            format!("{:<29}", format!("{}{other}", cell.outcome))
        });
        let row: String = row.collect();
        if !row.trim().is_empty() {
            println!("{k:>3} {step:<17} {}", row.trim_end());
        }
    }
}

#[test]
fn faults_at_any_docker_call_leave_nothing_after_clean() {
    let probe = Wrapper::new("return None");
    let ran = small().env("PATH", &probe.path()).run();
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    let steps: Vec<String> = probe.calls().iter().map(step_of).collect();
    let calls = steps.len();
    let chosen = std::env::var("CRASHLAB_FAULTS").ok().filter(|value| !value.is_empty());
    let cells: Vec<(usize, usize)> = if let Some(chosen) = chosen {
        let ends = chosen.split_once('-').map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
        let (from, to) = ends.unwrap_or((1, calls));
        (from..=to.min(calls)).flat_map(|k| (0..FAULTS.len()).map(move |fault| (k, fault))).collect()
    } else {
        // A sample in the everyday suite: another call for each fault each time the list of calls changes. The engine's
        // greeting is the hang that costs least.
        let spread = |fault: usize| [8 + fault * 3, calls / 2 + fault * 2].map(|k| (k.min(calls), fault));
        (0..FAULTS.len()).flat_map(|fault| if fault == HANGS { [(2, fault); 2] } else { spread(fault) }).collect()
    };
    let cells = strike_all(cells.into_iter().collect::<BTreeSet<_>>().into_iter().collect());
    print_table(&steps, &cells);
    let trouble: Vec<String> = cells
        .iter()
        .filter(|cell| !cell.trouble.is_empty())
        .map(|cell| format!("{} {} at {}: {}", cell.k, FAULTS[cell.fault].0, cell.step, cell.trouble.join("\n  ")))
        .collect();
    println!("{} cells, {} wrong", cells.len(), trouble.len());
    assert!(trouble.is_empty(), "{}", trouble.join("\n"));
}
