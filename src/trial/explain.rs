//! Why the sandbox may be the cause of a target's failure: what its own words and exit code are known for, beside the
//! policy's key that would change it. A guess for people, kept with the trial's diagnostics; it decides nothing.

use super::Exited;
use crate::policy::Sandbox;
use crate::verdict::{Stop, StopReason};

/// What the hardening had to do with it; nothing where the target ended well.
pub fn explain(exited: &Exited, sandbox: &Sandbox) -> Vec<String> {
    let Some(Stop { reason: StopReason::Exited, code: Some(code @ 1..) }) = exited.stop else { return Vec::new() };
    let log = String::from_utf8_lossy(exited.stderr.end());
    explanations(code, &log, sandbox)
}

fn explanations(code: i32, log: &str, sandbox: &Sandbox) -> Vec<String> {
    let says = |words: &[&str]| words.iter().any(|words| log.contains(words));
    let places: Vec<&str> = sandbox.writable.iter().map(|place| place.path.as_str()).collect();
    let places = if places.is_empty() { "none".to_owned() } else { places.join(", ") };
    let mut found = Vec::new();
    let denied = code == 126 || says(&["Permission denied", "permission denied", "PermissionError"]);
    let noexec = sandbox.writable.iter().find(|place| !place.exec && log.contains(&format!("{}/", place.path)));
    if let Some(place) = noexec.filter(|_| denied) {
        found.push(format!("programs may not be run from {}: \"exec\": true at that place would allow it", place.path));
    } else if denied {
        found.push(format!(
            "the target runs as {}:{} without a capability, and owns only its writable places",
            sandbox.user.uid, sandbox.user.gid
        ));
    }
    if says(&["Read-only file system"]) {
        found.push(format!("only sandbox.writable can be written: {places}"));
    }
    if says(&["No space left on device"]) {
        found.push("a writable place is full: its size stands in sandbox.writable".to_owned());
    }
    if says(&["Operation not permitted", "must be setuid root", "no new privileges"]) {
        found.push("every capability is dropped and new privileges are forbidden: chown, sudo, mount fail".to_owned());
    }
    if says(&["Resource temporarily unavailable", "can't start new thread", "fork: retry", "BlockingIOError"]) {
        found.push(format!("at most {} processes and threads at a time (sandbox.processes)", sandbox.processes));
    }
    if says(&["Too many open files"]) {
        found.push(format!("at most {} open files (sandbox.open_files)", sandbox.open_files));
    }
    if says(&["MemoryError", "Cannot allocate memory", "Killed"]) {
        found.push(format!("at most {} bytes of memory (sandbox.memory)", sandbox.memory));
    }
    if says(&[
        "name resolution",
        "Name or service not known",
        "Could not resolve host",
        "Network is unreachable",
        "getaddrinfo",
        "ENOTFOUND",
    ]) {
        found.push("a target reaches its declared gateways and operations, nothing else".to_owned());
    }
    found.into_iter().map(|words| format!("sandbox: this may be why: {words}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{User, Writable};
    use std::time::Duration;

    #[test]
    fn a_failure_that_the_hardening_causes_is_explained() {
        let table: [(i32, &str, &[&str]); 9] = [
            (126, "sh: 1: /tmp/run.sh: Permission denied", &["\"exec\": true"]),
            (1, "PermissionError: [Errno 13] Permission denied: '/root/x'", &["65534:65534"]),
            (1, "OSError: [Errno 30] Read-only file system: '/var/x'", &["sandbox.writable can be written: /tmp"]),
            (1, "OSError: [Errno 28] No space left on device", &["is full"]),
            (1, "chown: changing ownership of 'x': Operation not permitted", &["every capability"]),
            (1, "RuntimeError: can't start new thread", &["sandbox.processes"]),
            (1, "OSError: [Errno 24] Too many open files", &["sandbox.open_files"]),
            (6, "curl: (6) Could not resolve host: example.com", &["declared gateways"]),
            (1, "Traceback: KeyError", &[]),
        ];
        let sandbox = Sandbox {
            user: User { uid: 65534, gid: 65534 },
            milli_cpus: 1000,
            memory: 64 << 20,
            processes: 8,
            open_files: 16,
            shared_memory: 4096,
            wall_time: Duration::from_secs(1),
            output: 1,
            writable: vec![Writable { path: "/tmp".to_owned(), size: 4096, exec: false }],
            runtime: None,
        };
        for (code, log, wanted) in table {
            let found = explanations(code, log, &sandbox);
            assert_eq!(found.len(), wanted.len(), "{log}: {found:?}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(found.contains(wanted), "{found}");
            }
        }
    }
}
