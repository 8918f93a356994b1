//! Many trials at once (contract P1): the default address pools hold about thirty networks, a run holds what it needs.

use crate::support::{Package, docker, objects_of};
use serde_json::json;

#[test]
fn sixty_four_trials_at_once_find_a_network_each() {
    // Each target waits until all of them run at the same time, or for a while.
    let agent = r#"
import json, os, time, urllib.request
url, token = os.environ["CRASHLAB_URL"] + "/operations/refund", os.environ["CRASHLAB_TOKEN"]
body = json.dumps({"order_id": "A1", "amount_cents": 1}).encode()
request = urllib.request.Request(url, body, {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
status = urllib.request.urlopen(request, timeout=60).status
time.sleep(20)
print(json.dumps({"ok": status == 200}))
"#;
    let networks = || docker(&["network", "ls", "--quiet"]).lines().count();
    let package = Package::new(agent)
        .policy(
            json!({"operations": {"refund": {}}, "sandbox": {"wall_time": "300s", "memory": "64MiB", "writable": []}}),
        )
        .args(&["--repeat", "64", "--jobs", "64"]);
    // Files, not pipes: nobody reads while it runs.
    let file = |name: &str| std::fs::File::create(package.path().join(name)).unwrap();
    let mut child = package.command().stdout(file("out")).stderr(file("err")).spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(networks());
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let read = |name: &str| std::fs::read(package.path().join(name)).unwrap();
    let status = child.wait().unwrap();
    let ran = crate::support::Ran::new(std::process::Output { status, stdout: read("out"), stderr: read("err") });
    assert_eq!(
        ran.json["counts"],
        json!({"trials": 64, "passed": 64, "failed": 0, "uncertain": 0, "not_run": 0}),
        "{}",
        ran.stderr
    );
    assert!(most > 31, "only {most} networks at once: the default pools would have done");
    assert_eq!(objects_of(ran.run()), [""; 0]);
}
