//! Every way in which a run can end badly: what was made goes, what could not go is listed, results stay readable.

use crate::chain::interrupt;
use crate::scope::{bare, builders, clean, small};
use crate::support::{Package, Ran, Wrapper, docker, eventually, listed, objects_of};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

const SLEEPER: &str = "import time\nprint('begun', flush=True)\ntime.sleep(300)\n";
/// Holds for the first target or attestation that is started.
const AT_START: &str = "first = args[:2] == ['start', '--attach'] and not os.path.exists(FOLDER + '/struck')\nif first: open(FOLDER + '/struck', 'w').close()\n";

/// The run's target, running.
pub fn running(run: &str) -> Vec<String> {
    let label = format!("label=crashlab.run={run}");
    listed(&["ps", "--quiet", "--no-trunc", "--filter", &label, "--filter", "label=crashlab.role=target"])
}

pub fn wait_until_running(package: &Package) {
    package.wait_for("running target", |run| !running(run.file_name().unwrap().to_str().unwrap()).is_empty());
}

fn start(package: &Package) -> std::process::Child {
    package.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends a run with SIGKILL once its target runs; gives its id.
pub fn killed_in_a_trial(package: &Package) -> String {
    let mut child = package.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until_running(package);
    child.kill().unwrap();
    child.wait().unwrap();
    package.run_id()
}

#[test]
fn a_second_interruption_shortens_the_waits_and_lists_what_is_left_with_the_command_that_finishes_it() {
    // A call that is not ended within half a minute of the second interruption, of the minute that it would have, says so.
    let rule = "
def leave(name): open(FOLDER + name, 'w').close()
if args[:1] == ['rm']:
    leave('/hangs')
    while not os.path.exists(FOLDER + '/twice'): time.sleep(0.05)
    time.sleep(30)
    leave('/waited')
    time.sleep(270)";
    let wrapper = Wrapper::new(rule);
    let path = std::env::var("PATH").unwrap();
    let package = Package::new(SLEEPER).policy(json!({"sandbox": {"wall_time": "290s"}})).env("PATH", &wrapper.path());
    let child = start(&package);
    package.wait_for("attestation's removal", |_| wrapper.file("hangs").exists());
    wait_until_running(&package);
    interrupt(&child, "INT");
    // The first one has come through once it costs the target its life.
    eventually("end of the target", || wrapper.calls().iter().any(|call| call["args"][0] == "kill"));
    interrupt(&child, "INT");
    std::fs::write(wrapper.file("twice"), "").unwrap();
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!((ran.exit, wrapper.file("waited").exists()), (130, false), "{}", ran.stderr);
    let failures = ran.json["cleanup"]["failures"].as_array().unwrap();
    assert!(!failures.is_empty(), "{}", ran.json);
    let finish = format!("crashlab clean {} --results {}", ran.run(), package.results().display());
    assert!(ran.stderr.contains(&finish), "{}", ran.stderr);
    for failure in failures {
        let text = |key: &str| failure[key].as_str().unwrap();
        assert_eq!((text("kind"), text("id").len()), ("container", 64), "{failure}");
        assert!(ran.stderr.contains(&format!("container {} ({})", text("name"), text("id"))), "{}", ran.stderr);
    }
    let owed = package.env("PATH", &path);
    assert_eq!(clean(&owed, &[]).0, 0);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

/// Its run with another form of standard output.
fn in_format(package: &Package, format: &str) -> Command {
    let planned = package.command();
    let mut command = Command::new(planned.get_program());
    for arg in planned.get_args() {
        command.arg(if arg == "json" { format.as_ref() } else { arg });
    }
    let set = planned.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.envs(set).stdin(Stdio::null());
    command
}

#[test]
fn closed_standard_streams_end_neither_the_run_nor_its_clean_up() {
    let begun = ["json", "jsonl", "human"].map(|format| {
        let package = bare();
        let mut child = in_format(&package, format).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        (format, package, child)
    });
    for (format, package, mut child) in begun {
        assert_eq!(child.wait().unwrap().code(), Some(0), "{format}");
        assert_eq!(objects_of(&package.run_id()), [""; 0]);
        let run: Value =
            serde_json::from_slice(&std::fs::read(package.run_folder().join("run.json")).unwrap()).unwrap();
        assert_eq!((&run["exit"], &run["outcome"]), (&json!(0), &json!("passed")), "{format}");
    }
}

/// A small disk of its own, until it is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn at(path: &'a Path) -> Self {
        std::fs::create_dir(path).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=8m,mode=0700", "crashlab-test"];
        assert!(
            Command::new("mount").args(mount).arg(path).status().unwrap().success(),
            "this test mounts: run it as root"
        );
        Self(path)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// The run was not measured, everything of the engine is gone, and what else is owed is finished once the disk is well.
fn ends_not_measured(package: &Package, ran: &Ran, words: &str, mend: impl FnOnce()) {
    assert_eq!((ran.exit, &ran.json["counts"]["uncertain"]), (3, &json!(1)), "{}\n{}", ran.json, ran.stderr);
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    mend();
    let (code, cleaned) = clean(package, &[]);
    assert_eq!((code, objects_of(ran.run())), (0, Vec::new()), "{cleaned}");
    assert_eq!(clean(package, &["--dry-run"]).1, json!([]));
}

#[test]
fn a_disk_that_is_full_in_mid_run_costs_the_measure_and_leaves_nothing() {
    let package = bare();
    let results = package.results();
    let disk = SmallDisk::at(&results);
    let filler = results.join("filler");
    let rule = format!(
        "{AT_START}if first:\n    with open('{}', 'wb', 0) as filler:\n        try:\n            while True: filler.write(bytes(4096))\n        except OSError: pass\n",
        filler.display()
    );
    let wrapper = Wrapper::new(&rule);
    let ran = Ran::new(package.command().env("PATH", wrapper.path()).output().unwrap());
    ends_not_measured(&package, &ran, "No space left", || std::fs::remove_file(&filler).unwrap());
    assert!(package.crashlab(&["view", "latest"]).status.success());
    drop(disk);
}

#[test]
fn results_that_turn_read_only_in_mid_run_cost_the_measure_and_leave_nothing() {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::process::CommandExt as _;
    let package = bare();
    let rule = format!(
        "{AT_START}if first: subprocess.check_call(['chmod', '-R', 'a-w', '{}'])\n",
        package.results().display()
    );
    let wrapper = Wrapper::new(&rule);
    // Root writes everywhere: this run is nobody's, with the right to ask the engine.
    let binary = package.path().join("crashlab");
    std::fs::copy(env!("CARGO_BIN_EXE_crashlab"), &binary).unwrap();
    let planned = package.command();
    let mut command = Command::new(binary);
    command.args(planned.get_args()).env("PATH", wrapper.path()).env("HOME", package.path()).stdin(Stdio::null());
    for folder in [package.path(), wrapper.file("").as_path()] {
        assert!(Command::new("chown").args(["-R", "65534"]).arg(folder).status().unwrap().success());
    }
    command.uid(65534).gid(std::fs::metadata("/var/run/docker.sock").unwrap().gid());
    let ran = Ran::new(command.output().unwrap());
    ends_not_measured(&package, &ran, "Permission denied", || {
        assert!(Command::new("chmod").args(["-R", "u+w"]).arg(package.results()).status().unwrap().success());
    });
}

#[test]
fn results_that_are_removed_in_mid_run_cost_the_measure_and_leave_nothing() {
    let package = bare();
    let rule = format!("{AT_START}if first: subprocess.check_call(['rm', '-rf', '{}'])\n", package.results().display());
    let ran = Ran::new(package.command().env("PATH", Wrapper::new(&rule).path()).output().unwrap());
    assert_eq!(ran.exit, 3, "{}", ran.stderr);
}

#[test]
fn a_client_that_is_cut_off_leaves_nothing_although_the_engine_makes_the_thing_later() {
    // As soon as it was looked for in vain, or after a while.
    let later = "
if args[:1] == ['create'] and any('-target-' in word for word in args):
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    wait = 'n=0; while [ ! -e looked ] && [ $n -lt 40 ]; do sleep 0.1; n=$((n + 1)); done; touch made; exec \"$0\" \"$@\"'
    subprocess.Popen(['sh', '-c', wait, REAL, *args], cwd=FOLDER, **quiet)
    sys.stderr.write('error during connect: EOF\\n')
    return 125
if args[:1] == ['ps'] and any('-target-' in word for word in args):
    code = real()
    open(FOLDER + '/looked', 'w').close()
    return code";
    let wrapper = Wrapper::new(later);
    let package = bare().env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!(ran.exit, 3, "{}", ran.stderr);
    assert!(wrapper.file("made").exists(), "the run ended before the engine made it");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

#[test]
fn clean_waits_for_the_docker_clients_that_a_killed_run_left_working() {
    let rule = "
if args[:1] == ['create'] and any('-target-' in word for word in args):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3)
    return real()";
    let wrapper = Wrapper::new(rule);
    let package = bare();
    let status =
        package.command().env("PATH", wrapper.path()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), None);
    let (code, cleaned) = clean(&package, &[]);
    assert_eq!(code, 0, "{cleaned}");
    assert!(cleaned.to_string().contains("-target-"), "{cleaned}");
    assert_eq!(objects_of(&package.run_id()), [""; 0]);
}

fn building(seconds: &str, time: &str) -> Package {
    small()
        .file("pkg/target/Dockerfile", &format!("FROM base\nRUN [\"/bin/busybox\", \"sleep\", \"{seconds}\"]\n"))
        .policy(json!({"target": {"image": {"build": {"time": time}}}, "operations": null}))
}

fn builder_of(run: &str) -> Option<String> {
    let name = format!("name=buildx_buildkit_crashlab-{}-builder-", run.to_ascii_lowercase());
    listed(&["ps", "--quiet", "--no-trunc", "--filter", &name]).pop()
}

fn wait_for_the_build(package: &Package) -> String {
    package.wait_for("build", |run| {
        std::fs::read_to_string(run.join("journal.jsonl")).is_ok_and(|text| text.contains("crashlab/target:"))
    });
    package.run_id()
}

#[test]
fn a_build_over_its_time_and_one_whose_builder_dies_are_not_measured_and_leave_nothing() {
    let before = builders();
    let slow = building("9999", "5s");
    let slow = (start(&slow), slow);
    let (dying, package) = {
        let package = building("9999", "60s");
        (start(&package), package)
    };
    let run = wait_for_the_build(&package);
    let builder = builder_of(&run).expect("the builder runs");
    docker(&["kill", &builder]);
    let ran = Ran::new(dying.wait_with_output().unwrap());
    assert_eq!((ran.exit, &ran.json["counts"]["uncertain"]), (3, &json!(1)), "{}", ran.stderr);
    assert_eq!(objects_of(&run), [""; 0]);
    let ran = Ran::new(slow.0.wait_with_output().unwrap());
    let told = ran.trial("one/1")["diagnostics"].to_string();
    assert!(ran.exit == 3 && told.contains("took longer than 5s"), "{}: {told}", ran.exit);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    assert_eq!(builders(), before, "the user's builders changed");
}

#[test]
fn a_builder_that_was_removed_by_hand_leaves_clean_its_volume_and_its_entry() {
    let package = building("9999", "120s");
    let mut child = package.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = wait_for_the_build(&package);
    child.kill().unwrap();
    child.wait().unwrap();
    docker(&["rm", "--force", &builder_of(&run).expect("the builder runs")]);
    let (code, cleaned) = clean(&package, &[]);
    assert_eq!((code, objects_of(&run)), (0, Vec::new()), "{cleaned}");
    assert!(!package.results().join("scopes").join(&run).exists());
}

#[test]
fn two_builds_at_once_do_not_disturb_each_other() {
    let packages = [building("1", "120s"), building("1", "120s")];
    let children = packages.each_ref().map(start);
    for child in children {
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!(ran.exit, 0, "{}", ran.stderr);
        assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    }
}

#[test]
fn a_clean_that_is_killed_over_and_over_comes_to_its_end() {
    let package = Package::new(SLEEPER).policy(json!({"operations": {"refund": {}}}));
    let run = killed_in_a_trial(&package);
    let wrapper = Wrapper::new("if k % 4 == 0: os.kill(os.getppid(), signal.SIGKILL)");
    let mut ends = Vec::new();
    while ends.last() != Some(&Some(0)) && ends.len() < 30 {
        let mut command = crate::support::crashlab(&package.results());
        ends.push(command.arg("clean").env("PATH", wrapper.path()).output().unwrap().status.code());
    }
    assert!(ends.len() > 2 && ends.last() == Some(&Some(0)), "{ends:?}");
    assert_eq!(objects_of(&run), [""; 0]);
    assert_eq!(clean(&package, &[]).1, json!([]));
}

#[test]
fn two_cleans_at_once_finish_one_run_once() {
    let package = Package::new(SLEEPER);
    let run = killed_in_a_trial(&package);
    let list = package.crashlab(&["list"]);
    let told = String::from_utf8_lossy(&list.stderr).into_owned();
    assert!(told.contains(&format!("crashlab clean {run}")), "list does not mention it: {told}");
    assert!(!objects_of(&run).is_empty(), "list touched it");
    let clean = || {
        let mut command = crate::support::crashlab(&package.results());
        command.args(["clean", "--format", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [clean(), clean()].map(|child| child.wait_with_output().unwrap());
    let mut removed = Vec::new();
    for output in outputs {
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        removed.extend(told.as_array().unwrap().iter().flat_map(|run| run["removed"].as_array().unwrap().clone()));
    }
    let names: std::collections::BTreeSet<String> = removed.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), removed.len(), "{removed:?}");
    assert_eq!(objects_of(&run), [""; 0]);
}

#[test]
fn an_interruption_before_anything_is_made_has_its_own_exit_too() {
    let package = bare();
    for k in [1, 3] {
        let wrapper = Wrapper::new(&format!("if k == {k}: os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5)"));
        let output = package.command().env("PATH", wrapper.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_failed_build_says_its_cause_once_whatever_the_number_of_trials() {
    let package = small()
        .file("pkg/target/Dockerfile", "FROM base\nRUN [\"/bin/busybox\", \"false\"]\n")
        .args(&["--repeat", "5"]);
    let output = in_format(&package, "human").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{out}\n{err}");
    let all = format!("{out}{err}");
    assert_eq!(all.matches("the build failed:").count(), 1, "{all}");
    // However the lines are broken.
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.contains("did not complete successfully") && out.contains("hint: builds have no network"), "{out}");
    assert!(out.contains("4 more trials for the same reason"), "{out}");
}

#[test]
fn a_builder_whose_image_cannot_be_had_is_told_with_the_flag_that_names_another() {
    let package = small().args(&["--buildkit-image", "127.0.0.1:9/no-such-buildkit:1"]);
    let ran = package.run();
    assert_eq!(ran.exit, 3, "{}", ran.stderr);
    let told = "failed to start the dedicated builder";
    assert!(
        ran.stderr.contains(told) && ran.stderr.contains("hint: ") && ran.stderr.contains("--buildkit-image"),
        "{}",
        ran.stderr
    );
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

#[test]
fn runs_in_two_folders_at_once_each_clean_up_their_own() {
    let packages = [bare().args(&["--repeat", "2"]), bare().args(&["--repeat", "2"])];
    let children = packages.each_ref().map(start);
    let runs = children.map(|child| Ran::new(child.wait_with_output().unwrap()));
    for ran in &runs {
        assert_eq!((ran.exit, &ran.json["cleanup"]["failures"]), (0, &json!([])), "{}", ran.stderr);
        assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
        let removed = ran.json["cleanup"]["removed"].to_string();
        let own = std::fs::read_to_string(
            packages[usize::from(ran.run() == runs[1].run())].run_folder().join("journal.jsonl"),
        )
        .unwrap();
        for it in ran.json["cleanup"]["removed"].as_array().unwrap() {
            assert!(own.contains(it["id"].as_str().unwrap()), "{it} is not of its journal: {removed}");
        }
    }
}
