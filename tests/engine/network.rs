//! What a target can reach: its gateway, and nothing else (contract I7). Asked from inside a real target, which gets told
//! every address that there is to try: the host's, the bridges', the neighbour trial's, the gateway's own listener.

use crate::support::{PYTHON, Package, docker, eventually, objects_of};
use serde_json::json;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Serves on port 9000 for its neighbour to try, and tries everything that it is told of.
const AGENT: &str = r#"
import concurrent.futures, json, os, socket, sys, urllib.request

def operation(name, **arguments):
    head = {"Authorization": "Bearer " + os.environ["CRASHLAB_TOKEN"], "Content-Type": "application/json"}
    url = os.environ["CRASHLAB_URL"] + "/operations/" + name
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(arguments).encode(), head)) as answer:
        return json.load(answer)["result"]

def reaches(place):
    try:
        socket.create_connection(tuple(place), timeout=3).close()
        return True
    except OSError:
        return False

def resolves(name):
    try:
        return bool(socket.getaddrinfo(name, 80))
    except OSError:
        return False

server = socket.create_server(("0.0.0.0", 9000), backlog=64)
places = operation("meet", case=os.environ["CRASHLAB_CASE"])["places"]
with concurrent.futures.ThreadPoolExecutor(32) as threads:
    reached = [place for place, open in zip(places, threads.map(reaches, places)) if open]
names = [name for name in ("example.org", "host.docker.internal", "gateway.docker.internal") if resolves(name)]
own = reaches(("127.0.0.1", 9000))
interfaces = sorted(name for _, name in socket.if_nameindex())
operation("part", case=os.environ["CRASHLAB_CASE"])
print(json.dumps({"ok": not reached and not names and own, "reached": reached, "names": names, "own": own,
                  "interfaces": interfaces, "tried": places}))
"#;

/// The host's side. Both trials meet before they try, and part when both have tried, so that each has a live neighbour.
const EVALUATION: &str = r#"
import ipaddress, json, os, pathlib, subprocess, time
from crashlab import Check, Evaluation

evaluation = Evaluation()
FOLDER = pathlib.Path(os.environ["MEETING"])

@evaluation.world
def world(case):
    return {}

def both(what, case):
    (FOLDER / f"{what}-{case}").touch()
    for _ in range(5000):
        if len(list(FOLDER.glob(f"{what}-*"))) == 2:
            return
        time.sleep(0.05)
    raise RuntimeError("the neighbour did not come")

def docker(*args):
    return subprocess.run(["docker", *args], check=True, capture_output=True, text=True).stdout

@evaluation.operation
def meet(world, case: str) -> dict:
    both("meet", case)
    return {"places": [*host(), *neighbourhood(case)]}

def host():
    """The listener of the test, under each address that the host has."""
    port = int(os.environ["PORT"])
    addresses = subprocess.check_output(["hostname", "-I"], text=True).split()
    for line in open("/proc/net/if_inet6"):
        digits, *_, name = line.split()
        if name != "lo":
            address = ":".join(digits[at:at + 4] for at in range(0, 32, 4))
            addresses.append(address + "%eth0" if address.startswith("fe80") else address)
    return [[address, port] for address in addresses]

def neighbourhood(case):
    """The other target, every relay but the own one, the gateway's listener, and the first address of each network."""
    containers = list(running())
    own = next(attached(it) for it in containers if f"CRASHLAB_CASE={case}" in it["Config"]["Env"] or [])
    for container in containers:
        networks, command = attached(container), container["Args"]
        for identity, (address, first) in networks.items():
            yield [first, int(os.environ["PORT"])]
            if identity not in own:
                yield from ([address, port] for port in (8080, 9000))
        if "--to" in command:
            address, port = command[command.index("--to") + 1].split(":")
            yield [address, int(port)]

def attached(container):
    networks = container["NetworkSettings"]["Networks"].values()
    subnet = lambda it: ipaddress.ip_network(f"{it['IPAddress']}/{it['IPPrefixLen']}", strict=False)
    return {it["NetworkID"]: (it["IPAddress"], str(subnet(it)[1])) for it in networks if it["IPAddress"]}

def running():
    """One by one: the run has containers that come and go meanwhile."""
    run = next(pathlib.Path(os.environ["RESULTS"]).glob("runs/*")).name
    for container in docker("ps", "-q", "--filter", f"label=crashlab.run={run}").split():
        try:
            yield from json.loads(docker("inspect", container))
        except subprocess.CalledProcessError:
            pass

@evaluation.operation
def part(world, case: str) -> dict:
    both("part", case)
    return {}

@evaluation.verify
def verify(trial):
    answer = trial.answer if isinstance(trial.answer, dict) else {}
    yield Check("nothing but the gateway is reached", answer.get("ok") is True, trial.answer)
    ports = {port for _, port in answer.get("tried", [])}
    yield Check("the host, relays and a target were tried", len(ports) == 4, trial.answer)

if __name__ == "__main__":
    evaluation.serve()
"#;

/// Connects to the host at its own network's gateway address.
const ORDINARY: &str = r"
import socket
default = next(line.split() for line in open('/proc/net/route') if line.split()[1] == '00000000')
host = socket.inet_ntoa(bytes.fromhex(default[2])[::-1])
socket.create_connection((host, @PORT@), timeout=10)
";

/// Counts who gets through, on every address of the host of one family.
fn listener(address: &str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(address).unwrap();
    let (port, heard) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let its = Arc::clone(&heard);
    std::thread::spawn(move || {
        for _ in listener.incoming().flatten() {
            its.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, heard)
}

#[test]
fn a_target_reaches_its_gateway_and_nothing_else() {
    // One socket hears both families: `::` with IPv4 mapped, as most servers listen.
    let (port, heard) = listener("[::]:0");
    let package = Package::new(AGENT).cases(&["left", "right"]).file("pkg/evaluation.py", EVALUATION);
    let meeting = package.path().join("meeting");
    std::fs::create_dir(&meeting).unwrap();
    let results = package.results();
    let package = package
        .policy(json!({"operations": {"meet": {}, "part": {}}, "evaluation": {"timeout": "280s"}}))
        .env("MEETING", meeting.to_str().unwrap())
        .env("RESULTS", results.to_str().unwrap())
        .env("PORT", &port.to_string())
        .args(&["--jobs", "2"]);
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.json, ran.stderr);
    assert_eq!(heard.load(Ordering::SeqCst), 0, "a target reached the host");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    // The same attempt from an ordinary container gets through: the listener is one that can be reached.
    docker(&["run", "--rm", PYTHON, "python3", "-c", &ORDINARY.replace("@PORT@", &port.to_string())]);
    eventually("connection from an ordinary container", || heard.load(Ordering::SeqCst) == 1);
}
