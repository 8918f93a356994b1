//! What a target finds around it, asked from inside by a target: who it is, what it can write, whom it can reach, which
//! environment it has; what an image says of itself changes nothing of it; and ordinary agents work.

use crate::support::{BUSYBOX, PYTHON, Package, Ran, docker, eventually, listed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};

/// Tells everything that it finds; what to connect to and to resolve comes as its input.
const SPY: &str = r#"
import concurrent.futures, json, os, socket, sys

asked = json.load(sys.stdin)
threads = concurrent.futures.ThreadPoolExecutor(16)

def attempt(path):
    try:
        with open(path, "w") as file:
            file.write("x")
        os.remove(path)
        return "written"
    except OSError as error:
        return os.strerror(error.errno)

def connect(address, patience=1):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        with socket.socket(family) as stream:
            stream.settimeout(patience)
            stream.connect(tuple(address))
            return "connected"
    except OSError as error:
        return type(error).__name__ if isinstance(error, ConnectionRefusedError) else "unreachable"

def resolve(name):
    try:
        return socket.gethostbyname(name)
    except OSError:
        return "fails"

def each(what, names, asked):
    return dict(zip(names, threads.map(what, asked)))

connected, resolved = asked.get("connect", []), asked.get("resolve", [])
status = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
mounts = [line.split() for line in open("/proc/self/mountinfo")]
print(json.dumps({
    "ok": True,
    "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(),
    "status": {name: status[name] for name in
               ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"]},
    "written": {place: attempt(place + "/x") for place in
                ["", "/target", "/var/tmp", "/usr", "/tmp", "/dev/shm", "/dev/mqueue", "/dev", "/data"]},
    "mounts": {mount[4]: " ".join(mount[5:]) for mount in mounts},
    "environment": dict(os.environ),
    "interfaces": os.listdir("/sys/class/net"),
    "connected": each(connect, [address for address, _ in connected], connected),
    "resolved": each(resolve, resolved, resolved),
    "resolvers": open("/etc/resolv.conf").read(),
    "gateway": connect(("gateway", 8080), 60) if "CRASHLAB_URL" in os.environ else None,
    "argv": open("/proc/1/cmdline").read().split("\0"),
}))
"#;

fn answer(package: &Package, ran: &Ran) -> Value {
    assert_eq!(ran.exit, 0, "{}\n{}", ran.stderr, ran.json);
    let text = std::fs::read_to_string(package.run_folder().join("trials/one/1/stdout")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Every address of this host in both families, at these ports.
pub fn own_addresses(v4: u16, v6: u16) -> Vec<(String, u16)> {
    use crashlab::relay::kernel_text::{local_v4, local_v6};
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let four = local_v4(&read("/proc/net/fib_trie")).into_iter().filter(|address| !address.is_loopback());
    let six = local_v6(&read("/proc/net/if_inet6")).into_iter().filter(|(address, _)| !address.is_loopback());
    four.map(|address| (address.to_string(), v4)).chain(six.map(|(address, _)| (address.to_string(), v6))).collect()
}

fn case(input: &Value) -> String {
    json!({"id": "one", "input": input}).to_string()
}

#[test]
fn a_target_without_a_way_out_is_nobody_and_finds_nothing() {
    let configuration = tempfile::tempdir().unwrap();
    let proxies = json!({"proxies": {"default": {"httpProxy": "http://127.0.0.1:9", "noProxy": "all"}}});
    std::fs::write(configuration.path().join("config.json"), proxies.to_string()).unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let addresses = own_addresses(listener.local_addr().unwrap().port(), 9);
    let input = json!({"connect": addresses, "resolve": ["example.com"]});
    let package = Package::new(SPY)
        .file("pkg/cases.jsonl", &case(&input))
        .env("DOCKER_CONFIG", configuration.path().to_str().unwrap())
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("OF_THE_HOST", "a value of the host")
        .policy(json!({"target": {"env": {"DECLARED": "yes"}}}));
    let ran = package.run();
    let seen = answer(&package, &ran);
    assert_eq!((&seen["uid"], &seen["gid"]), (&json!([65534, 65534, 65534]), &json!([65534, 65534, 65534])));
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(seen["status"][set], "0000000000000000", "{set}");
    }
    assert_eq!((&seen["status"]["NoNewPrivs"], &seen["status"]["Seccomp"]), (&json!("1"), &json!("2")));
    for place in ["", "/target", "/var/tmp", "/usr"] {
        assert_eq!(seen["written"][place], "Read-only file system", "{place}");
    }
    assert_eq!((&seen["written"]["/tmp"], &seen["written"]["/dev/shm"]), (&json!("written"), &json!("written")));
    assert_eq!(seen["written"]["/dev"], "Permission denied");
    assert_ne!(seen["written"]["/dev/mqueue"], "written");
    let names: Vec<&String> = seen["environment"].as_object().unwrap().keys().collect();
    let image: Vec<String> =
        serde_json::from_str(&docker(&["image", "inspect", "--format", "{{json .Config.Env}}", PYTHON])).unwrap();
    for name in names {
        let declared = ["PATH", "HOSTNAME", "HOME", "DECLARED", "CRASHLAB_CASE", "CRASHLAB_REPETITION", "LC_CTYPE"];
        let known = declared.contains(&name.as_str()) || image.iter().any(|it| it.starts_with(&format!("{name}=")));
        assert!(known, "{name} came from somewhere");
    }
    assert_eq!(seen["environment"]["HOME"], "/tmp");
    assert_eq!(seen["interfaces"], json!(["lo"]));
    for (address, outcome) in seen["connected"].as_object().unwrap() {
        assert_eq!(outcome, "unreachable", "{address}");
    }
    assert_eq!(seen["resolved"]["example.com"], "fails");
    let own = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    for server in own.lines().filter_map(|line| line.strip_prefix("nameserver ")) {
        assert!(!seen["resolvers"].as_str().unwrap().contains(server.trim()), "the host's resolver is told");
    }
}

#[test]
fn a_target_with_a_way_out_reaches_its_relay_and_nothing_else() {
    let four = TcpListener::bind("0.0.0.0:0").unwrap();
    let six = TcpListener::bind("[::]:0");
    // With a listener on the resolvers' port of every address whatever is passed on from the host is seen.
    let names = UdpSocket::bind("0.0.0.0:53").ok();
    let neighbour = docker(&["run", "--detach", "--rm", "--network", "bridge", PYTHON, "sleep", "600"]);
    let format = "{{.NetworkSettings.Networks.bridge.IPAddress}}";
    let address = docker(&["inspect", "--type", "container", "--format", format, &neighbour]);
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let mut connect = own_addresses(port(&four), six.as_ref().map_or(9, port));
    connect.extend([(address, 9), ("198.51.100.1".to_owned(), 80), ("2001:db8::1".to_owned(), 80)]);
    let package = Package::new(SPY)
        .file("pkg/cases.jsonl", &case(&json!({"connect": connect, "resolve": ["a-secret.probe.test", "example.com"]})))
        .policy(json!({"operations": {"refund": {"calls": 1}}}));
    let ran = package.run();
    docker(&["rm", "--force", &neighbour]);
    let seen = answer(&package, &ran);
    assert_eq!(seen["gateway"], "connected");
    for (address, outcome) in seen["connected"].as_object().unwrap() {
        assert_eq!(outcome, "unreachable", "{address}");
    }
    assert_eq!(seen["resolved"], json!({"a-secret.probe.test": "fails", "example.com": "fails"}));
    if let Some(names) = names {
        names.set_nonblocking(true).unwrap();
        let mut packet = [0_u8; 512];
        while let Ok(count) = names.recv(&mut packet) {
            let text = String::from_utf8_lossy(&packet[..count]).into_owned();
            assert!(!text.contains("a-secret"), "the name was passed on: {text:?}");
        }
    }
    // The relay's name stands in the hosts file; nothing of the host's resolver is told.
    assert!(seen["environment"]["CRASHLAB_URL"].as_str().unwrap().starts_with("http://gateway:"));
}

/// An image that says everything that an image can say to widen its sandbox.
fn loud_image() -> String {
    build(&format!(
        "FROM {BUSYBOX}\nUSER root\nVOLUME /data\nENTRYPOINT [\"/bin/false\"]\nCMD [\"nothing\"]\n\
         HEALTHCHECK --interval=1s CMD touch /tmp/healthy\nENV IMAGE_OWN=1\nENV HOME=/root\nSTOPSIGNAL SIGCONT\n\
         ENV http_proxy=http://192.0.2.9:1\nONBUILD RUN touch /built\nEXPOSE 80\nLABEL test={}\n",
        std::process::id()
    ))
}

/// An image of the engine itself, as somebody else would have made it; gives its id.
pub fn build(text: &str) -> String {
    let mut build = Command::new("docker")
        .args(["build", "--quiet", "-"])
        .env("DOCKER_BUILDKIT", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    build.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = build.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn what_an_image_says_of_itself_widens_nothing() {
    let image = loud_image();
    let agent = "import sys\n";
    let script = r#"
b() { /bin/busybox "$@"; }
printf '{"ok": true, "id": "%s", "own": "%s", "home": "%s", "data": "%s", "built": "%s", "healthy": "%s", "proxy": "%s"}' \
    "$(b id -u):$(b id -g)" "$IMAGE_OWN" "$HOME" "$(b grep ' /data ' /proc/mounts | b cut -d' ' -f1,3)" \
    "$(b ls / | b grep -c built)" "$(b sleep 2; b ls /tmp | b grep -c healthy)" "$http_proxy"
[ "$CRASHLAB_CASE" != slow ] || b sleep 600
"#;
    let named =
        json!({"target": {"image": {"reference": image}, "command": ["/bin/busybox", "sh", "/target/agent.sh"]}});
    let place = |path: &str| json!({"path": path, "size": "1MiB"});
    let before = dangling();
    let package = || Package::new(agent).file("pkg/target/agent.sh", script).policy(named.clone());
    let covering = |wall_time: &str| {
        let writable = [place("/tmp"), place("/data")];
        package().policy(json!({"sandbox": {"writable": writable, "wall_time": wall_time}}))
    };
    let (refused, covered, slow) = (package(), covering("300s"), covering("3s").cases(&["slow"]));
    let (refused, ran, slow) = std::thread::scope(|threads| {
        let (refused, slow) = (threads.spawn(|| refused.run()), threads.spawn(|| slow.run()));
        (refused.join().unwrap(), covered.run(), slow.join().unwrap())
    });
    docker(&["image", "rm", &image]);
    assert_eq!(refused.exit, 3, "{}", refused.stderr);
    let told = refused.trial("one/1")["diagnostics"].to_string();
    assert!(told.contains("/data") && told.contains("sandbox.writable"), "{told}");
    // Its stop signal is one that ends nothing: a trial that is over is killed.
    assert_eq!(slow.trial("slow/1")["stop"], json!({"reason": "wall_time", "code": null}));
    let text = std::fs::read_to_string(covered.run_folder().join("trials/one/1/stdout")).unwrap();
    let seen: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} {}", ran.json));
    let expected = json!({"ok": true, "id": "65534:65534", "own": "1", "home": "/tmp", "data": "tmpfs tmpfs", "built": "0",
                          "healthy": "0", "proxy": ""});
    assert_eq!(seen, expected);
    // What other tests make meanwhile is in use, or for a moment on its way.
    eventually("removal of the image's anonymous volume", || dangling().is_subset(&before));
}

/// The volumes that nobody uses, as an image's is that was left behind: those are anonymous, with 64 digits for a name.
fn dangling() -> BTreeSet<String> {
    let all = listed(&["volume", "ls", "--quiet", "--filter", "dangling=true"]);
    all.into_iter().filter(|name| name.len() == 64).collect()
}

/// Accounts that are named like numbers, a program of root's, devices of the host: whatever an image may hold.
#[test]
fn an_image_that_was_built_to_deceive_gets_no_further() {
    let step = |words: &str| format!("RUN [\"/bin/busybox\", \"sh\", \"-c\", \"{words}\"]\n");
    let image = build(&format!(
        "FROM {BUSYBOX}\n{}{}{}{}",
        step("/bin/busybox mkdir -p /etc; echo 65534:x:0:0:root:/:/bin/busybox >/etc/passwd"),
        step("echo root:x:0:65534,nobody >/etc/group; echo docker:x:999:65534 >>/etc/group"),
        step("/bin/busybox cp /bin/busybox /bin/busybox-su; /bin/busybox chmod 6755 /bin/busybox-su"),
        step(
            "/bin/busybox mknod -m 666 /mem c 1 1; /bin/busybox mknod -m 666 /disk b 254 0; /bin/busybox mknod -m 666 /disk8 b 8 0"
        ),
    ));
    let script = r#"
b() { /bin/busybox "$@"; }
opens() { b head -c 1 "$1" >/dev/null 2>&1 && echo open || echo closed; }
printf '{"ok": true, "id": "%s", "groups": "%s", "su": "%s", "devices": "%s"}' \
    "$(b id -u):$(b id -g)" "$(b id -G)" "$(/bin/busybox-su id -u):$(/bin/busybox-su id -g)" "$(opens /mem) $(opens /disk) $(opens /disk8)"
"#;
    let package = Package::new("").file("pkg/target/run.sh", script).policy(json!({
        "target": {"image": {"reference": image}, "command": ["/bin/busybox", "sh", "/target/run.sh"]},
    }));
    let ran = package.run();
    docker(&["image", "rm", &image]);
    let expected = json!({"ok": true, "id": "65534:65534", "groups": "65534", "su": "65534:65534",
                          "devices": "closed closed closed"});
    assert_eq!(answer(&package, &ran), expected);
}

/// Links where the sandbox mounts something: what is then somewhere else is not what was asked for.
#[test]
fn a_place_that_an_image_leads_elsewhere_is_not_proven() {
    let links = [("/target", "/tmp"), ("/tmp", "/dev/shm"), ("/tmp", "/proc/self"), ("/target", "/proc/self/fd/8")];
    std::thread::scope(|threads| {
        for (place, to) in links {
            threads.spawn(move || {
                let image = build(&format!(
                    "FROM {BUSYBOX}\nRUN [\"/bin/busybox\", \"ln\", \"-s\", \"{to}\", \"{place}\"]\n"
                ));
                let ran = Package::new("")
                    .policy(json!({"target": {"image": {"reference": image}, "command": ["/bin/busybox", "echo", "{\"ok\": true}"]}}))
                    .run();
                docker(&["image", "rm", &image]);
                let trial = ran.trial("one/1");
                assert_eq!((ran.exit, &trial["outcome"], &trial["stop"]), (3, &json!("uncertain"), &json!(null)), "{place} {to}: {trial}");
            });
        }
    });
}

/// What agents do every day.
const ORDINARY: &str = r##"
import json, multiprocessing, os, pathlib, subprocess, sys, tempfile, venv

def double(n):
    return 2 * n

def main():
    home = pathlib.Path.home()
    (home / ".cache").mkdir()
    (home / ".cache" / "x").write_text("x")
    made = subprocess.run(["mktemp"], capture_output=True, text=True, check=True).stdout.strip()
    script = pathlib.Path("/work/run.sh")
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o700)
    ran = subprocess.run([script], capture_output=True, text=True, check=True).stdout
    venv.create("/work/env", with_pip=False, symlinks=True)
    prefix = subprocess.run(["/work/env/bin/python", "-c", "import sys; print(sys.prefix)"],
                            capture_output=True, text=True, check=True).stdout
    with multiprocessing.Pool(2) as pool:
        doubled = pool.map(double, range(4))
    # Orphans: each child leaves a grandchild to the init.
    for _ in range(120):
        subprocess.run(["sh", "-c", "true & exit"], check=True)
    pipeline = subprocess.run(["sh", "-c", "seq 1 200 | xargs -n 1 echo | sort -n | tail -n 1"],
                              capture_output=True, text=True, check=True).stdout
    print(json.dumps({"ok": True, "home": str(home), "mktemp": os.path.dirname(made), "script": ran.strip(),
                      "venv": prefix.strip(), "doubled": doubled, "pipeline": pipeline.strip()}))

if __name__ == "__main__":
    main()
"##;

#[test]
fn ordinary_agents_work() {
    let package = Package::new(ORDINARY).policy(json!({"sandbox": {
        "processes": 32,
        "user": "10001:10001",
        "writable": [{"path": "/tmp", "size": "16MiB"}, {"path": "/work", "size": "16MiB", "exec": true}],
    }}));
    let ran = package.run();
    let seen = answer(&package, &ran);
    let expected = json!({"ok": true, "home": "/tmp", "mktemp": "/tmp", "script": "ran", "venv": "/work/env",
                          "doubled": [0, 2, 4, 6], "pipeline": "200"});
    assert_eq!(seen, expected);
}

#[test]
fn a_failure_that_the_hardening_causes_is_explained() {
    let agent = "import os, sys\nopen('/tmp/run.sh', 'w').write('#!/bin/sh\\n')\nos.chmod('/tmp/run.sh', 0o700)\n\
                 os.execv('/tmp/run.sh', ['run.sh'])\n";
    let ran = Package::new(agent).run();
    assert_eq!(ran.exit, 1, "{}", ran.stderr);
    let told = ran.trial("one/1")["diagnostics"].to_string();
    assert!(told.contains("/tmp") && told.contains("exec"), "{told}");
}

#[test]
fn a_sandbox_of_one_process_and_no_shared_memory_is_what_it_says() {
    let agent = "import json, os\ntry:\n    os.fork()\n    ok = False\nexcept OSError:\n    ok = True\n\
                 print(json.dumps({'ok': ok, 'pid': os.getpid(), 'shm': os.access('/dev/shm', os.W_OK)}))";
    let package = Package::new(agent).policy(json!({"sandbox": {"processes": 1, "shared_memory": "0B"}}));
    let ran = package.run();
    assert_eq!(answer(&package, &ran), json!({"ok": true, "pid": 1, "shm": false}));
}
