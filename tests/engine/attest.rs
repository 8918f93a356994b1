//! The attestation tells the truth about a sandbox: each flag that is missing turns its requirement red, an engine that
//! lies is found out, and what a run claims stands in its record.

use crate::support::{PYTHON, Package, Wrapper, docker};
use crashlab::docker::ContainerState;
use crashlab::docker::args::{Attachment, ContainerBounds, ContainerSpec, Tmpfs, create_container};
use crashlab::trial::attest::compare::{Expected, Questions, rows};
use crashlab::trial::attest::{asking, report::Report};
use crashlab::trial::sandbox::compare;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// What a container was made with beside the flags of a sandbox.
enum Change {
    /// These words, wherever they stand next to each other.
    Without(&'static [&'static str]),
    /// Each of these with the word that follows it.
    WithoutFlags(&'static [&'static str]),
    /// This one with the word that follows it.
    WithoutFlag(&'static str),
    /// One piece of text for another, in every word.
    Instead(&'static str, &'static str),
    /// These words, before the image.
    With(&'static [&'static str]),
}

fn changed(mut args: Vec<String>, change: &Change) -> Vec<String> {
    match change {
        Change::Without(words) => {
            let at = args.windows(words.len()).position(|window| window == *words).expect("the flag is there");
            args.drain(at..at + words.len());
        }
        Change::WithoutFlags(flags) => {
            for flag in *flags {
                args = changed(args, &Change::WithoutFlag(flag));
            }
        }
        Change::WithoutFlag(flag) => {
            let at = args.iter().position(|word| word == flag).expect("the flag is there");
            args.drain(at..at + 2);
        }
        Change::Instead(old, new) => {
            assert!(args.iter().any(|word| word.contains(old)), "{old} is there");
            args.iter_mut().for_each(|word| *word = word.replace(old, new));
        }
        Change::With(words) => {
            args.splice(1..1, words.iter().map(|word| (*word).to_owned()));
        }
    }
    args
}

/// A sandbox as a policy would have it, with a folder of the host as its source.
fn spec(source: &str, network: Attachment) -> ContainerSpec {
    ContainerSpec {
        name: format!("attest-test-{:x}", rand()),
        labels: BTreeMap::new(),
        image: PYTHON.to_owned(),
        command: Vec::new(),
        interactive: false,
        terminal: false,
        user: (65534, 65534),
        host_name: "target".to_owned(),
        folder: Some("/target".to_owned()),
        bounds: ContainerBounds {
            memory: 64 << 20,
            milli_cpus: 500,
            processes: 64,
            open_files: 128,
            shared_memory: 1 << 20,
        },
        writable: vec![
            Tmpfs { path: "/tmp".to_owned(), size: 4 << 20, exec: false },
            Tmpfs { path: "/work".to_owned(), size: 4096, exec: true },
        ],
        read_only: vec![(source.to_owned(), "/target".to_owned())],
        environment: BTreeMap::from([("HOME".to_owned(), "/tmp".to_owned())]),
        environment_file: None,
        network,
        runtime: None,
    }
}

fn rand() -> u64 {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

fn image_env() -> Vec<String> {
    serde_json::from_str(&docker(&["image", "inspect", "--format", "{{json .Config.Env}}", PYTHON])).unwrap()
}

/// Makes a container of these arguments by a client whose configuration would add proxies; gives its id.
fn create(args: &[String]) -> String {
    let configuration = tempfile::tempdir().unwrap();
    let proxies = json!({"proxies": {"default": {"httpProxy": "http://127.0.0.1:9", "noProxy": "x"}}});
    std::fs::write(configuration.path().join("config.json"), proxies.to_string()).unwrap();
    let mut create = Command::new("docker");
    create.args(args).env("DOCKER_CONFIG", configuration.path());
    for name in crashlab::docker::args::PROXY_NAMES {
        create.env_remove(name);
    }
    let made = create.output().unwrap();
    assert!(made.status.success(), "{args:?}: {}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// The requirements that are not seen to hold in a container of these arguments.
fn shortfalls(spec: &ContainerSpec, questions: &Questions, change: Option<&Change>) -> BTreeSet<String> {
    let args = create_container(spec);
    let image_env = image_env();
    let id = create(&change.map_or(args.clone(), |change| changed(args, change)));
    let seen = Command::new("docker").args(["start", "--attach", &id]).output().unwrap();
    docker(&["rm", "--force", "--volumes", &id]);
    let report: Report = serde_json::from_slice(&seen.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&seen.stderr)));
    let expected = Expected { spec, image_env: &image_env, seccomp_profile: Some("default".to_owned()), questions };
    let red = rows(&report, &expected).into_iter().filter(|row| !row.holds());
    red.map(|row| row.requirement.to_owned()).collect()
}

/// A source folder and the attesting program, as the scope of a run would hold them.
fn ground() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("source"), folder.path().join("attest"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(&program, crashlab::relay::PROGRAM).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let paths = (text(&source), text(&program));
    (folder, paths.0, paths.1)
}

/// A listener on all addresses of this host, and where it is.
fn host_ear() -> (TcpListener, Vec<SocketAddr>) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let trie = std::fs::read_to_string("/proc/net/fib_trie").unwrap();
    let own = crashlab::relay::kernel_text::local_v4(&trie).into_iter().filter(|address| !address.is_loopback());
    let addresses = own.map(|address| SocketAddr::from((address, port))).collect();
    let its = listener.try_clone().unwrap();
    std::thread::spawn(move || its.incoming().flatten().for_each(|mut stream| drop(stream.write_all(b"the host"))));
    (listener, addresses)
}

/// What is taken out or changed, and which requirements turn red.
type Line = (Option<Change>, &'static [&'static str]);

/// A flag that comes to the list gets its line in a table.
#[test]
fn every_flag_of_a_sandbox_is_taken_out_of_one_of_the_tables() {
    let table: Vec<Line> = seen_from_inside().into_iter().chain(said_by_the_engine()).collect();
    let taken_out = |flag: &str| {
        table.iter().any(|(change, _)| match change {
            Some(Change::Without(words)) => words.contains(&flag),
            Some(Change::WithoutFlag(name)) => *name == flag,
            Some(Change::WithoutFlags(names)) => names.contains(&flag),
            // The mode of --ipc is the engine's own default: another one takes its place.
            Some(Change::Instead(old, _)) => *old == "private" && flag == "--ipc",
            Some(Change::With(_)) | None => false,
        })
    };
    // Of the call, not of the sandbox.
    let of_the_call = ["--name", "--pull"];
    for network in [Attachment::None, attached("network")] {
        for flag in create_container(&spec("/source", network)).iter().filter(|word| word.starts_with("--")) {
            assert!(flag == "--" || taken_out(flag) || of_the_call.contains(&flag.as_str()), "no line for {flag}");
        }
    }
}

fn seen_from_inside() -> Vec<Line> {
    use Change::{Instead, With, Without, WithoutFlag, WithoutFlags};
    vec![
        (None, &[]),
        // root without capabilities can write to what belongs to root, and not to what belongs to the user.
        (Some(WithoutFlag("--user")), &["groups", "user", "writable"]),
        (Some(Without(&["--read-only"])), &["root", "writable"]),
        (Some(WithoutFlag("--cap-drop")), &["capabilities"]),
        (Some(With(&["--cap-add", "NET_RAW"])), &["capabilities"]),
        (Some(WithoutFlag("--security-opt")), &["no_new_privileges"]),
        (Some(With(&["--security-opt", "seccomp=unconfined"])), &["seccomp"]),
        (Some(With(&["--security-opt", "systempaths=unconfined"])), &["masked_paths"]),
        (Some(With(&["--device", "/dev/loop-control"])), &["devices"]),
        (Some(With(&["--volume", "/var/run/docker.sock:/run/docker.sock"])), &["host_paths"]),
        (Some(Without(&["--init"])), &["init"]),
        (Some(With(&["--pid", "host"])), &["processes_seen"]),
        (Some(Instead("private", "host")), &["shared_memory"]),
        (Some(WithoutFlags(&["--memory", "--memory-swap"])), &["memory", "memory_swap"]),
        (Some(WithoutFlag("--memory-swap")), &["memory_swap"]),
        (Some(WithoutFlag("--cpus")), &["cpus"]),
        (Some(WithoutFlag("--pids-limit")), &["processes"]),
        (Some(Without(&["--ulimit", "nofile=128:128"])), &["open_files"]),
        (Some(Without(&["--ulimit", "core=0:0"])), &["core_size"]),
        // With a size for queues, /dev/mqueue is one more writable place.
        (Some(Without(&["--ulimit", "msgqueue=0:0"])), &["message_queues", "writable"]),
        (Some(WithoutFlag("--shm-size")), &["shared_memory"]),
        (Some(WithoutFlag("--tmpfs")), &["writable"]),
        (Some(Instead(",noexec", "")), &[]),
        (Some(Instead(",noexec", ",exec")), &["writable"]),
        (Some(Instead("size=4194304,", "")), &["writable"]),
        (Some(Instead("uid=65534,gid=65534,", "")), &["writable"]),
        (Some(Instead(",readonly", "")), &["source"]),
        (Some(WithoutFlag("--hostname")), &["host_name"]),
        // The engine sets a HOME of its own.
        (Some(Without(&["--env", "HOME=/tmp"])), &["home"]),
        (Some(Without(&["--env", "HTTP_PROXY"])), &["environment"]),
        (Some(With(&["--env", "EXTRA=1"])), &["environment"]),
        (Some(Without(&["--network", "none"])), &["host_reach", "network"]),
        (Some(WithoutFlag("--dns")), &["host_resolvers"]),
    ]
}

/// Runs the look at each line, several at once.
fn each(table: Vec<Line>, look: impl Fn(Option<&Change>) -> (BTreeSet<String>, String) + Sync) {
    let table = std::sync::Mutex::new(table.into_iter());
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                loop {
                    let Some((change, red)) = table.lock().unwrap().next() else { break };
                    let (found, told) = look(change.as_ref());
                    let red: BTreeSet<String> = red.iter().map(|name| (*name).to_owned()).collect();
                    assert_eq!(found, red, "{told}");
                }
            });
        }
    });
}

fn told(spec: &ContainerSpec, change: Option<&Change>) -> String {
    format!("{:?}", change.map(|change| changed(create_container(spec), change)))
}

#[test]
fn each_flag_that_is_missing_turns_its_requirement_red() {
    let (_folder, source, program) = ground();
    let (_ear, host) = host_ear();
    let questions = Questions { host, ..Questions::default() };
    each(seen_from_inside(), |change| {
        let spec = asking(spec(&source, Attachment::None), &program, &questions, &[]);
        (shortfalls(&spec, &questions, change), told(&spec, change))
    });
}

/// An address of a block that no run takes its own from, nor another process of these tests.
fn at(last: u8) -> String {
    format!("10.103.{}.{last}", std::process::id() % 256)
}

fn attached(network: &str) -> Attachment {
    Attachment::Network {
        network: network.to_owned(),
        address: Some(at(3)),
        hosts: vec![("gateway".to_owned(), at(2))],
    }
}

/// A network with those addresses, by id, until it is dropped.
struct Network(String);

impl Network {
    fn new() -> Self {
        let (name, subnet) = (format!("attest-test-{:x}", rand()), format!("{}/29", at(0)));
        Self(docker(&["network", "create", "--internal", "--subnet", &subnet, &name]))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["network", "rm", &self.0]).output();
    }
}

/// What cannot be seen from inside, or only where it happens to matter, beside what can.
fn said_by_the_engine() -> Vec<Line> {
    use Change::{Instead, Without, WithoutFlag, WithoutFlags};
    vec![
        (None, &[]),
        (Some(WithoutFlag("--ip")), &["address"]),
        (Some(WithoutFlag("--dns")), &["dns"]),
        (Some(WithoutFlag("--dns-search")), &["dns_search"]),
        (Some(WithoutFlag("--add-host")), &["hosts"]),
        (Some(WithoutFlag("--sysctl")), &["ipv6"]),
        (Some(WithoutFlags(&["--network", "--ip"])), &["address", "network"]),
        (Some(Instead("private", "shareable")), &["ipc"]),
        (Some(Without(&["--no-healthcheck"])), &["healthcheck"]),
        (Some(WithoutFlag("--stop-signal")), &["stop_signal"]),
        (Some(WithoutFlag("--log-driver")), &["log_driver"]),
        (Some(WithoutFlag("--workdir")), &["folder"]),
        (Some(WithoutFlag("--entrypoint")), &["command"]),
        (Some(WithoutFlag("--mount")), &["read_only_mounts"]),
        (Some(WithoutFlag("--tmpfs")), &["writable"]),
        (Some(Instead(",nosuid", "")), &["writable"]),
        (Some(Instead(",nodev", "")), &["writable"]),
        (Some(Instead(",mode=0700", "")), &["writable"]),
    ]
}

/// What the engine says of a container is compared before anything runs in it.
#[test]
fn each_flag_that_the_engine_was_not_told_turns_its_requirement_red() {
    let network = Network::new();
    let (_folder, source, _program) = ground();
    let image_env = image_env();
    each(said_by_the_engine(), |change| {
        let command = ["/bin/true", "x"].map(str::to_owned).to_vec();
        let spec = ContainerSpec { command, ..spec(&source, attached(&network.0)) };
        let args = create_container(&spec);
        let id = create(&change.map_or(args.clone(), |change| changed(args, change)));
        let state: ContainerState = serde_json::from_str(&docker(&["inspect", "--format", "{{json .}}", &id])).unwrap();
        docker(&["rm", &id]);
        let red = compare(&spec, &state, &[], &image_env).into_iter().map(|shortfall| shortfall.requirement);
        (red.collect(), told(&spec, change))
    });
}

/// An engine that says another value than was asked for is not believed: each value of its answer, changed.
#[test]
fn each_other_value_than_was_asked_for_turns_its_requirement_red() {
    let table = [
        ("/HostConfig/Memory", json!(0), "memory"),
        ("/HostConfig/ReadonlyRootfs", json!(false), "root"),
        ("/HostConfig/Privileged", json!(true), "privileged"),
        ("/HostConfig/LogConfig/Type", json!("json-file"), "log_driver"),
        ("/Config/Env/0", json!("SMUGGLED=1"), "environment"),
        ("/Config/Entrypoint", json!(["/bin/false"]), "command"),
        ("/HostConfig/GroupAdd", json!(["0"]), "groups"),
        ("/HostConfig/OomKillDisable", json!(true), "oom_kill"),
        ("/HostConfig/DeviceCgroupRules", json!(["c 1:1 rwm"]), "devices"),
        ("/HostConfig/PidMode", json!("host"), "namespaces"),
        ("/HostConfig/UTSMode", json!("host"), "namespaces"),
        ("/HostConfig/UsernsMode", json!("host"), "namespaces"),
        ("/HostConfig/PublishAllPorts", json!(true), "ports"),
        ("/HostConfig/CapAdd", json!(["NET_RAW"]), "capabilities"),
        ("/HostConfig/SecurityOpt", json!(["no-new-privileges", "seccomp=unconfined"]), "no_new_privileges"),
    ];
    let (_folder, source, _program) = ground();
    let command = ["/bin/true", "x"].map(str::to_owned).to_vec();
    let spec = ContainerSpec { command, ..spec(&source, Attachment::None) };
    let id = create(&create_container(&spec));
    let said: Value = serde_json::from_str(&docker(&["inspect", "--format", "{{json .}}", &id])).unwrap();
    docker(&["rm", &id]);
    let image_env = image_env();
    for (place, value, requirement) in table {
        let mut said = said.clone();
        *said.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = value;
        let state: ContainerState = serde_json::from_value(said).unwrap();
        let red: Vec<String> = compare(&spec, &state, &[], &image_env).into_iter().map(|it| it.requirement).collect();
        assert_eq!(red, [requirement], "{place}");
    }
}

#[test]
fn a_run_records_what_was_seen_of_its_sandbox() {
    let operations = json!({"operations": {"refund": {"calls": 1}}});
    let closed = Package::new("print('{\"ok\": true}')");
    let open = Package::new("print('{\"ok\": true}')").policy(operations);
    let (closed, open) = std::thread::scope(|threads| {
        let open = threads.spawn(|| open.run());
        (closed.run(), open.join().unwrap())
    });
    for (ran, rows) in [(&closed, 31), (&open, 33)] {
        assert_eq!(ran.exit, 0, "{}", ran.stderr);
        let sandbox = &ran.json["sandbox"];
        assert_eq!(sandbox["shortfalls"], json!([]));
        let attested = sandbox["attested"].as_object().unwrap();
        assert!(attested.len() >= rows, "{attested:?}");
        assert_eq!(attested["user"], "65534:65534");
        assert_eq!(attested["capabilities"], "none");
        assert_eq!(attested["memory"], (512 << 20).to_string());
        assert_eq!(attested["host_reach"], "unreachable");
        assert!(attested["kernel"].is_string() && attested["runtime"].is_string());
    }
    assert_eq!(closed.json["sandbox"]["attested"]["network"], "lo");
    let open = &open.json["sandbox"]["attested"];
    assert_eq!((&open["relay_reach"], &open["neighbour_reach"]), (&json!("connected"), &json!("unreachable")));
}

/// Runs a package with this engine in front of the real one; the target must never run.
fn run_on(engine: &str) -> (Vec<String>, String) {
    run_with(engine, json!({}))
}

fn run_with(engine: &str, policy: Value) -> (Vec<String>, String) {
    let wrapper = Wrapper::new(engine);
    let package = Package::new("print('{\"ok\": true}')").cases(&["one", "two"]).env("PATH", &wrapper.path());
    let ran = package.policy(policy).run();
    assert_eq!(ran.exit, 3, "{engine}: {}", ran.stderr);
    for trial in ["one/1", "two/1"] {
        let trial = ran.trial(trial);
        assert_eq!((&trial["outcome"], &trial["reason"]), (&json!("uncertain"), &json!("sandbox_unproven")), "{trial}");
        assert_eq!(trial["stop"], json!(null), "the target has run: {trial}");
    }
    let shortfalls = ran.json["sandbox"]["shortfalls"].as_array().unwrap().clone();
    for shortfall in &shortfalls {
        assert!(shortfall["requested"].is_string() && shortfall["observed"].is_string(), "{shortfall}");
    }
    let mut names: Vec<String> =
        shortfalls.iter().map(|shortfall| shortfall["requirement"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    (names, json!(shortfalls).to_string())
}

/// A rule of the wrapper that leaves a flag and its value out of what is created, and says in `inspect` that it is there.
pub fn liar(flag: &str, said: &str) -> String {
    let rule = r#"
if args[0] == "create" and "@FLAG@" in args:
    at = args.index("@FLAG@")
    return subprocess.call([REAL, *args[:at], *args[at + 2:]])
if args[0] == "inspect" and "container" in args:
    done = subprocess.run([REAL, *args], capture_output=True, text=True)
    # An empty line stands for what is gone.
    for line in filter(None, done.stdout.splitlines()):
        state = json.loads(line)
        @SAID@
        print(json.dumps(state))
    sys.stderr.write(done.stderr)
    return done.returncode
"#;
    rule.replace("@FLAG@", flag).replace("@SAID@", said)
}

#[test]
fn an_engine_that_lies_is_found_out_from_inside() {
    let table = [
        (liar("--pids-limit", "state['HostConfig']['PidsLimit'] = 128"), "processes"),
        (liar("--cap-drop", "state['HostConfig']['CapDrop'] = ['ALL']"), "capabilities"),
        (liar("--memory-swap", "state['HostConfig']['MemorySwap'] = state['HostConfig']['Memory']"), "memory_swap"),
    ];
    std::thread::scope(|threads| {
        for (engine, requirement) in &table {
            threads.spawn(move || assert_eq!(run_on(engine).0, [*requirement], "{engine}"));
        }
    });
}

#[test]
fn a_warning_of_the_client_is_a_shortfall_at_create_and_at_start() {
    let words = "WARNING: Your kernel does not support swap limit capabilities";
    let rule =
        |verb: &str| format!("if args[0] == '{verb}':\n    sys.stderr.write('{words}\\n')\n    sys.stderr.flush()");
    for verb in ["create", "start"] {
        let (names, told) = run_on(&rule(verb));
        assert_eq!(names, ["engine_warning"], "{verb}");
        assert!(told.contains(words) && told.contains("crashlab doctor"), "{told}");
    }
}

/// What each value does is in a table above; here it is told by the engine of a whole run.
#[test]
fn an_engine_that_says_another_value_than_was_asked_for_is_not_believed() {
    let told = [
        ("state['HostConfig']['Memory'] = 0", "memory"),
        ("if '-target-' in state['Name']: state['HostConfig']['GroupAdd'] = ['0']", "groups"),
    ];
    std::thread::scope(|threads| {
        for (said, requirement) in told {
            threads.spawn(move || assert_eq!(run_on(&liar("--no-such-flag", said)).0, [requirement], "{said}"));
        }
    });
}

/// A rule of the wrapper that leaves words (`*` is any) out of what creates an object of this role.
fn without(verb: &[&str], role: &str, words: &[&str]) -> String {
    let rule = r#"
if args[:len(@VERB@)] == @VERB@ and any("-@ROLE@-" in word for word in args):
    words = @WORDS@
    fits = lambda at: all(want in ("*", word) for want, word in zip(words, args[at:at + len(words)]))
    at = next(at for at in range(len(args) - len(words)) if fits(at))
    return subprocess.call([REAL, *args[:at], *args[at + len(words):]])
"#;
    rule.replace("@VERB@", &json!(verb).to_string())
        .replace("@ROLE@", role)
        .replace("@WORDS@", &json!(words).to_string())
}

/// What the flags of networks and relays are for; and that what the engine says of the container that is looked at, and of
/// each target's own, is compared in a run.
#[test]
fn each_flag_of_a_way_out_that_is_missing_turns_its_requirement_red() {
    let (create, network): (&[&str], &[&str]) = (&["create"], &["network", "create"]);
    const INHIBIT: &str = "com.docker.network.bridge.inhibit_ipv4=true";
    const APART: &str = "com.docker.network.bridge.enable_icc=false";
    type Missing<'a> = (&'a [&'a str], &'a str, &'a [&'a str], &'a [&'a str]);
    let table: Vec<Missing<'_>> = vec![
        (network, "target", &["--internal"], &["target_network"]),
        (network, "target", &["--opt", INHIBIT], &["host_reach", "target_network"]),
        (network, "relays", &["--internal"], &["relays_network"]),
        (network, "relays", &["--opt", APART], &["relays_network"]),
        (&["run"], "relay", &["--sysctl", "net.ipv4.ip_forward=0"], &["relay_forwarding"]),
        (&["run"], "relay", &["--ip", "*"], &["relay_address"]),
        (create, "attest", &["--dns-search", "*"], &["dns_search"]),
        (create, "target", &["--workdir", "*"], &["folder"]),
    ];
    let table = std::sync::Mutex::new(table.into_iter());
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                loop {
                    let Some((verb, role, words, red)) = table.lock().unwrap().next() else { break };
                    // Only what networks are for needs one.
                    let policy = if verb == create { json!({}) } else { json!({"operations": {"refund": {}}}) };
                    let found = run_with(&without(verb, role, words), policy);
                    assert_eq!(found.0, red, "{words:?}: {}", found.1);
                }
            });
        }
    });
}

/// I10: a run has one sandbox, and each target's container is made with the flags of the one that was looked at.
#[test]
fn every_target_has_the_flags_of_the_sandbox_that_was_looked_at() {
    let wrapper = Wrapper::new("return None");
    let drills = json!({"slow": {"faults": [{"on": "operation:refund", "kind": "delay", "time": "1ms", "nth": 1}]}});
    let policy = json!({"operations": {"refund": {}}, "repeat": 2, "drills": drills});
    let package = Package::new("print('{\"ok\": true}')").policy(policy);
    let ran = package.args(&["--drill", "all"]).env("PATH", &wrapper.path()).run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.stderr, ran.json);
    let calls = wrapper.calls();
    let words = |call: &Value| -> Vec<String> {
        call["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let made = |role: &str| -> Vec<Vec<String>> {
        let of = |words: &Vec<String>| words[0] == "create" && words.contains(&format!("crashlab.role={role}"));
        calls.iter().map(words).filter(of).map(|words| flags(&words)).collect()
    };
    let (looked_at, targets) = (made("attest"), made("target"));
    assert_eq!((looked_at.len(), targets.len()), (1, 4));
    for target in targets {
        assert_eq!(target, looked_at[0]);
    }
}

/// The flags of a `create`, less what is each container's own and what is run in it.
fn flags(words: &[String]) -> Vec<String> {
    let end = words.iter().position(|word| word == "--entrypoint").unwrap();
    let mut flags: Vec<String> = Vec::new();
    let mut rest = words[..end].iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--name" | "--label" | "--network" | "--ip" | "--add-host" | "--env-file" => drop(rest.next()),
            "--env" | "--mount" => {
                let value = rest.next().unwrap();
                let named = value.split('=').next().unwrap();
                if !value.contains("crashlab-attest") {
                    flags.push(format!("{word} {}", if word == "--env" { named } else { value }));
                }
            }
            _ => flags.push(word.clone()),
        }
    }
    flags
}

/// Each runtime that the engine has: what a run claims is the one that it was run by.
#[test]
fn the_runtime_of_the_policy_is_the_one_that_is_seen() {
    let info: Value = serde_json::from_str(&docker(&["info", "--format", "{{json .Runtimes}}"])).unwrap();
    let known: Vec<&str> = info
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .filter(|name| !name.starts_with("io.containerd"))
        .collect();
    let wanted = std::env::var("CRASHLAB_TEST_RUNTIME").ok();
    assert!(wanted.as_deref().is_none_or(|name| known.contains(&name)), "no {wanted:?} among {known:?}");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for runtime in known {
        let package = Package::new("print('{\"ok\": true}')");
        let ran = package.policy(json!({"sandbox": {"runtime": runtime}, "operations": {"refund": {}}})).run();
        // A runtime that does less than was asked for (crun with version 1 control groups shows the host's, and a writable
        // place with them) is named with what it lacks, and nothing runs in it.
        let (trial, shortfalls) = (ran.trial("one/1"), ran.json["sandbox"]["shortfalls"].as_array().unwrap());
        if ran.exit == 3 && runtime != "runc" && !shortfalls.is_empty() {
            assert_eq!((&trial["reason"], &trial["stop"]), (&json!("sandbox_unproven"), &json!(null)), "{trial}");
        } else {
            assert_eq!((ran.exit, shortfalls.len()), (0, 0), "{runtime}: {}\n{}", ran.json, ran.stderr);
        }
        let attested = &ran.json["sandbox"]["attested"];
        assert_eq!((&attested["runtime"], &attested["kernel"]), (&json!(runtime), &json!(kernel.trim())));
    }
    let refused = Package::new("").policy(json!({"sandbox": {"runtime": "no-such"}})).run();
    assert_eq!(refused.exit, 2, "{}", refused.json);
    assert!(refused.json["hint"].as_str().unwrap().contains("runc"), "{}", refused.json);
}

/// A rule of the wrapper that points one relay of a run at an address where nobody answers. The first two are the proof's
/// own: the world of `AFTER_TWO` is made after them.
pub fn cut_off(relay: u32) -> String {
    let rule = r#"
if args[:2] == ["network", "disconnect"]:
    running = subprocess.check_output([REAL, "inspect", "--format", "{{.State.Running}}", args[3]], text=True)
    open(FOLDER + "/left", "a").write(running)
if args[0] == "run" and "--to" in args:
    number = 1
    while True:
        try:
            open(f"{FOLDER}/relay-{number}", "x")
            break
        except FileExistsError:
            number += 1
    if number == @RELAY@:
        at = args.index("--to") + 1
        # On the relays' own network, so that it is soon clear that nobody is there.
        address, port = args[at].split(":")
        a, b, c, _ = address.split(".")
        return subprocess.call([REAL, *args[:at], f"{a}.{b}.{int(c) + 3}.250:{port}", *args[at + 1:]])
"#;
    rule.replace("@RELAY@", &relay.to_string())
}

/// An evaluation whose trial gets its relay after the two of the proof; the wrapper's folder is in PATH.
pub const AFTER_TWO: &str = r#"
import os, pathlib, time
from crashlab import Check, Evaluation

evaluation = Evaluation()

@evaluation.world
def world(case):
    wrapper = next(it for it in map(pathlib.Path, os.environ["PATH"].split(":")) if (it / "calls").exists())
    while not (wrapper / "relay-2").exists():
        time.sleep(0.02)
    return {}

@evaluation.operation
def refund(world) -> dict:
    return {}

@evaluation.verify
def verify(trial):
    yield Check("never", False, "the target has run")

if __name__ == "__main__":
    evaluation.serve()
"#;

/// B4: a relay that cannot get through to the host (a firewall does that) is told with direction, address and port, be it
/// one of the proof's or the trial's own; nothing is started behind it.
#[test]
fn a_gateway_that_cannot_be_reached_is_told_with_its_address_and_costs_the_measure() {
    std::thread::scope(|threads| {
        for (relay, reason) in [(1, "engine_error"), (2, "engine_error"), (3, "relay_error")] {
            threads.spawn(move || {
                let wrapper = Wrapper::new(&cut_off(relay));
                let package = Package::new("print('{\"ok\": true}')").file("pkg/evaluation.py", AFTER_TWO);
                let package = package.policy(json!({"operations": {"refund": {}}}));
                let ran = package.env("PATH", &wrapper.path()).run();
                assert_eq!(ran.exit, 3, "{}", ran.json);
                let trial = ran.trial("one/1");
                assert_eq!((&trial["reason"], &trial["stop"]), (&json!(reason), &json!(null)), "{relay}: {trial}");
                let told = trial["diagnostics"].to_string();
                for words in ["did not reach the gateway on this host at address", "port", "firewall"] {
                    assert!(told.contains(words), "{relay}: {told}");
                }
                // None ended by itself: it would have left the shared network while others come and go.
                let left = std::fs::read_to_string(wrapper.file("left")).unwrap();
                assert!(left.lines().count() >= 2 && left.lines().all(|it| it == "true"), "{relay}: {left}");
            });
        }
    });
}
