//! A build is untrusted too (contract I11): its steps, those that a base image left for whoever builds on it included, reach
//! nothing; nothing of the host is in it but the snapshot and the declared images; its time is bounded.

use crate::isolation::{build, own_addresses};
use crate::support::{BUSYBOX, Package, Wrapper, docker, objects_of};
use serde_json::{Value, json};
use std::net::TcpListener;

#[test]
fn a_build_reaches_nothing_whether_its_steps_are_its_own_or_its_bases() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let fetch: Vec<String> = own_addresses(port, port)
        .into_iter()
        .filter(|(address, _)| !address.contains(':') && !address.starts_with("10."))
        .map(|(address, port)| format!("/bin/busybox wget -q -T 1 -O /got http://{address}:{port}/"))
        .collect();
    let step =
        |name: &str| json!(["/bin/busybox", "sh", "-c", format!("{}; /bin/busybox id -u >/{name}", fetch.join("; "))]);
    let base = build(&format!("FROM {BUSYBOX}\nONBUILD RUN {}\n", step("by-base")));
    let script = r#"
b() { /bin/busybox "$@"; }
printf '{"ok": true, "base": "%s", "own": "%s", "got": "%s", "id": "%s", "host": "%s"}' \
    "$(b cat /by-base)" "$(b cat /by-own)" "$(b ls / | b grep -c got)" "$(b id -u)" "$(b ls / | b grep -c outside)"
"#;
    let package = Package::new("")
        .file("pkg/target/run.sh", script)
        .file("outside", "of the snapshot")
        .file("pkg/target/Dockerfile", &format!("FROM base\nRUN {}\n", step("by-own")))
        .policy(json!({"target": {
            "image": {"reference": null, "pull": null, "build": {"contexts": {"base": base}}},
            "command": ["/bin/busybox", "sh", "/target/run.sh"],
        }}));
    let ran = package.run();
    docker(&["image", "rm", &base]);
    assert_eq!(ran.exit, 0, "{}\n{}", ran.stderr, ran.json);
    let text = std::fs::read_to_string(package.run_folder().join("trials/one/1/stdout")).unwrap();
    // Both steps ran, as root of the build, and got nothing; the trial is nobody's all the same.
    let expected = json!({"ok": true, "base": "0", "own": "0", "got": "0", "id": "65534", "host": "0"});
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    assert!(listener.accept().is_err(), "a build's step reached the host");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

#[test]
fn a_build_copies_nothing_from_outside_of_the_snapshot() {
    let package = Package::new("")
        .file("outside", "of the snapshot")
        .file("pkg/target/Dockerfile", "FROM base\nCOPY ../../outside /outside\n");
    let package = package.policy(json!({"target": {
        "image": {"reference": null, "pull": null, "build": {"contexts": {"base": BUSYBOX}}},
        "command": ["/bin/busybox", "true"],
    }}));
    let ran = package.run();
    assert_eq!(ran.exit, 3, "{}", ran.json);
    let told = ran.trial("one/1")["diagnostics"].to_string();
    assert!(told.contains("the build failed") && told.contains("outside"), "{told}");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

/// Looks, while a target runs, at the image that it was made of, by the id that its container names.
const IDENTITY: &str = r#"
if args[:2] == ["start", "--attach"]:
    ask = lambda *words: json.loads(subprocess.check_output([REAL, *words, "--format", "{{json .}}"]))
    container = ask("inspect", "--type", "container", args[-1])
    if "-target-" in container["Name"]:
        image = ask("image", "inspect", container["Image"])
        ran = subprocess.check_output([REAL, "run", "--rm", "--network", "none", image["Id"], "/bin/busybox", "cat", "/made"])
        found = {"asked": container["Config"]["Image"], "id": image["Id"], "labels": image["Config"]["Labels"],
                 "tags": image["RepoTags"], "ran": ran.decode()}
        open(FOLDER + "/found", "w").write(json.dumps(found))
"#;

/// An engine that knows nothing of the image that was just built.
const FORGETS: &str = r#"
if args[:3] == ["inspect", "--type", "image"] and "crashlab/target" in args[-1]:
    sys.stderr.write("Error: No such image: " + args[-1] + "\n")
    return 1
"#;

fn made() -> Package {
    let step = json!(["/bin/busybox", "sh", "-c", "echo made >/made"]);
    Package::new("").file("pkg/target/Dockerfile", &format!("FROM base\nRUN {step}\n")).policy(json!({"target": {
        "image": {"reference": null, "pull": null, "build": {"contexts": {"base": BUSYBOX}}},
        "command": ["/bin/busybox", "echo", "{\"ok\": true}"],
    }}))
}

/// F7: whether an engine's ids are those of configurations or of manifests, the recorded one is what it runs and inspects;
/// builds carry no attestations, which would make every id another.
#[test]
fn the_recorded_id_of_a_built_image_is_the_one_that_runs() {
    let wrapper = Wrapper::new(IDENTITY);
    let ran = made().env("PATH", &wrapper.path()).run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.stderr, ran.json);
    let found: Value = serde_json::from_slice(&std::fs::read(wrapper.file("found")).unwrap()).unwrap();
    let id = &ran.json["target"]["image"]["id"];
    assert_eq!((&found["id"], &found["asked"], &found["ran"]), (id, id, &json!("made\n")), "{found}");
    assert_eq!(found["labels"]["crashlab.run"], ran.json["run"], "{found}");
    assert_eq!(found["tags"], json!([format!("crashlab/target:{}", ran.run())]), "{found}");
    let calls = wrapper.calls();
    let build = calls.iter().find(|call| call["args"][0] == "buildx" && call["args"][1] == "build").unwrap();
    assert!(build["args"].to_string().contains(r#""--provenance","false","--sbom","false""#), "{build}");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

#[test]
fn a_build_whose_image_the_engine_does_not_have_runs_nothing() {
    let wrapper = Wrapper::new(FORGETS);
    let ran = made().env("PATH", &wrapper.path()).run();
    assert_eq!(ran.exit, 3, "{}\n{}", ran.stderr, ran.json);
    let trial = ran.trial("one/1");
    assert!(trial["diagnostics"].to_string().contains("the engine has no image of it"), "{trial}");
    assert_eq!(trial["stop"], json!(null), "{trial}");
    // The forgetful engine has it still, under its name.
    docker(&["image", "rm", &format!("crashlab/target:{}", ran.run())]);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}
