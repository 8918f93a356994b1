//! What is not the scope's own stays, however much it looks like it: recreated under its names, tagged by the user, or
//! written into its journal by hand.

use crate::scope::{clean, small};
use crate::scope_endings::killed_in_a_trial;
use crate::support::{BUSYBOX, Package, Wrapper, docker, objects_of};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_network_a_builder_and_a_volume_recreated_under_their_names_stay_and_are_reported() {
    let rule = "
def ask(*words): return subprocess.check_output([REAL, *words], text=True).strip()
if args[:2] == ['network', 'rm']:
    name = ask('network', 'inspect', '--format', '{{.Name}}', args[2])
    if '-relays-' in name:
        run = ask('network', 'inspect', '--format', '{{index .Labels \"crashlab.run\"}}', args[2])
        subnet = ask('network', 'inspect', '--format', '{{(index .IPAM.Config 0).Subnet}}', args[2])
        code = real()
        ask('network', 'create', '--internal', '--subnet', subnet, '--label', 'crashlab.run=' + run, name)
        return code
if args[:2] == ['buildx', 'build']:
    code = real()
    container = 'buildx_buildkit_' + args[args.index('--builder') + 1] + '0'
    ask('rm', '--force', container)
    ask('volume', 'rm', container + '_state')
    time.sleep(1.1)
    ask('create', '--name', container, '--volume', container + '_state:/state', 'crashlab/busybox:1', 'true')
    return code";
    let wrapper = Wrapper::new(rule);
    let package = small().env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.json, ran.stderr);
    let mut left = objects_of(ran.run());
    left.sort();
    left.dedup();
    let kinds: Vec<&str> = left.iter().map(|it| it.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["container", "network", "volume"], "{left:?}\n{}", ran.stderr);
    let kept: Vec<&str> =
        ran.json["cleanup"]["kept"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kept, ["network", "builder", "volume"], "{}", ran.json["cleanup"]);
    for kind in kept {
        assert!(ran.stderr.contains(&format!("kept {kind}")), "{}", ran.stderr);
    }
    for object in left {
        let (kind, name) = object.split_once(' ').unwrap();
        docker(&[kind, "rm", name]);
    }
}

#[test]
fn an_image_that_the_user_tagged_stays_under_that_tag_alone() {
    let rule = "
if args[:2] == ['start', '--attach']:
    image = subprocess.check_output([REAL, 'inspect', '--format', '{{.Image}} {{index .Config.Labels \"crashlab.run\"}}', args[-1]], text=True).split()
    subprocess.check_call([REAL, 'tag', image[0], 'crashlab-test-keep-' + image[1].lower() + ':me'])";
    let wrapper = Wrapper::new(rule);
    let package = small().policy(json!({"operations": null})).env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!((ran.exit, &ran.json["cleanup"]["failures"]), (0, &json!([])), "{}\n{}", ran.json, ran.stderr);
    let keep = format!("crashlab-test-keep-{}:me", ran.run().to_ascii_lowercase());
    assert_eq!(objects_of(ran.run()), [format!("image {keep}")]);
    assert_eq!(
        docker(&["image", "inspect", "--format", "{{.Id}}", &keep]),
        ran.json["target"]["image"]["id"].as_str().unwrap()
    );
    docker(&["image", "rm", &keep]);
}

#[test]
fn a_journal_that_was_edited_by_hand_leads_to_nothing_of_the_users() {
    let package = Package::new("import time\ntime.sleep(300)\n");
    let run = killed_in_a_trial(&package);
    let label = format!("crashlab.run={run}");
    let container = docker(&["create", "--label", &label, BUSYBOX, "/bin/busybox", "true"]);
    let volume = docker(&["volume", "create", "--label", &label]);
    let made = docker(&["volume", "inspect", "--format", "{{.CreatedAt}}", &volume]);
    let journal = package.run_folder().join("journal.jsonl");
    let mut lines: Vec<Value> =
        std::fs::read_to_string(&journal).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = |step: &str, kind: &str, name: &str, id: Value, created: Value| {
        json!({
            "at": "2026-01-01T00:00:00.000Z", "step": step, "kind": kind, "name": name, "id": id, "created": created,
            "labels": {"crashlab.run": run}, "reason": null,
        })
    };
    // The volume with everything right but its name; an image and a folder that nobody meant to make; no full id.
    lines.push(line("intent", "volume", &volume, Value::Null, Value::Null));
    lines.push(line("created", "volume", &volume, Value::Null, json!(made)));
    let image = docker(&["image", "inspect", "--format", "{{.Id}}", BUSYBOX]);
    lines.push(line("created", "image", BUSYBOX, json!(image), Value::Null));
    let precious = package.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    lines.push(line("intent", "folder", precious.to_str().unwrap(), Value::Null, Value::Null));
    let own = format!("crashlab-{run}-target-99");
    lines.push(line("intent", "container", &own, Value::Null, Value::Null));
    lines.push(line("created", "container", &own, json!("--all"), Value::Null));
    // The target's own line points at the user's container.
    let target =
        lines.iter_mut().find(|line| line["step"] == "created" && line["labels"]["crashlab.role"] == "target").unwrap();
    target["id"] = json!(container);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&journal, text).unwrap();
    let (code, cleaned) = clean(&package, &[]);
    assert_eq!((code, cleaned[0]["kept"].as_array().map(Vec::len)), (0, Some(5)), "{cleaned}");
    docker(&["container", "inspect", &container]);
    docker(&["volume", "inspect", &volume]);
    docker(&["image", "inspect", BUSYBOX]);
    assert!(precious.exists());
    // The run's own target has lost its line: it is reported by that, and a person's to remove.
    let own = crate::scope_endings::running(&run);
    docker(&["rm", "--force", &own[0], &container]);
    docker(&["volume", "rm", &volume]);
    assert_eq!(objects_of(&run), [""; 0]);
}

/// F5: a results folder that somebody prepared may name any engine to buildx, which would reach for it by `ssh`.
#[test]
fn clean_asks_buildx_for_no_entry_that_somebody_planted() {
    let (run, name) = ("20260101T000000Z-pl4n", "crashlab-20260101t000000z-pl4n-builder-1");
    let folder = tempfile::tempdir().unwrap();
    let (ssh, mark) = (folder.path().join("ssh"), folder.path().join("ssh-was-called"));
    std::fs::write(&ssh, format!("#!/bin/sh\n: >'{}'\nexit 1\n", mark.display())).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let package = Package::new("").env("PATH", &path);
    let own = package.results().join("scopes").join(run);
    let buildx = own.join("buildx");
    let node =
        json!({"Name": "one", "Endpoint": "ssh://host.invalid", "Platforms": [], "Flags": null, "DriverOpts": {}});
    let entry = json!({"Name": name, "Driver": "docker-container", "Nodes": [node], "Dynamic": false}).to_string();
    let line = |kind: &str, name: &str| {
        json!({"at": "2026-01-01T00:00:00.000Z", "step": "intent", "kind": kind, "name": name, "id": null,
            "created": null, "labels": {}, "reason": null})
    };
    let package = package
        .file(&format!("results/scopes/{run}/buildx/instances/{name}"), &entry)
        .file(&format!("results/runs/{run}/journal.jsonl"), "");
    let own = own.canonicalize().unwrap();
    let lines = [line("folder", own.to_str().unwrap()), line("builder", name)];
    let journal = lines.map(|line| format!("{line}\n")).concat();
    std::fs::write(package.results().join("runs").join(run).join("journal.jsonl"), journal).unwrap();
    let (code, cleaned) = clean(&package, &[run]);
    assert_eq!((code, mark.exists(), own.exists()), (0, false, false), "{cleaned}");
    // The control: buildx itself, asked to remove the entry.
    std::fs::create_dir_all(buildx.join("instances")).unwrap();
    std::fs::write(buildx.join("instances").join(name), entry).unwrap();
    let mut docker = std::process::Command::new("docker");
    docker.args(["buildx", "rm", "--keep-daemon", "--keep-state", name]);
    docker.env("PATH", &path).env("BUILDX_CONFIG", &buildx).output().unwrap();
    assert!(mark.exists(), "buildx did not reach for it, so nothing is proven");
}
