//! The docker clients that a killed process leaves behind: they go on with what they were asked to do. Each carries the
//! scope's own buildx configuration in its environment, which no other process has. They are waited for, never ended; one
//! that is attached to a target makes nothing, and lives as long as the target does.

use crate::interrupt::Interrupt;
use camino::Utf8Path;
use std::fs;
use std::time::{Duration, Instant};

/// How long they are waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until no client of this scope is left; gives the one that still works after the wait.
pub(super) fn wait_for_none(buildx_config: &Utf8Path, stop: &Interrupt) -> Option<u32> {
    let begun = Instant::now();
    loop {
        let found = find(buildx_config);
        if found.is_none() || begun.elapsed() > PATIENCE || stop.is_raised() {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
}

/// A process of this user that has the configuration in its environment.
fn find(buildx_config: &Utf8Path) -> Option<u32> {
    let wanted = format!("BUILDX_CONFIG={buildx_config}").into_bytes();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let words = |pid: &u32, file: &str| -> Vec<Vec<u8>> {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
    };
    let is_attached =
        |pid: &u32| words(pid, "cmdline").windows(2).any(|pair| pair == [b"start".to_vec(), b"--attach".to_vec()]);
    let has_it = |pid: &u32| words(pid, "environ").contains(&wanted) && !is_attached(pid);
    pids.filter(|pid| *pid != std::process::id()).find(has_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Environment, Program};

    #[test]
    fn a_client_is_known_by_the_scopes_own_configuration() {
        let config = Utf8Path::new("/tmp/crashlab-orphans-test/scopes/one/buildx");
        let environment = Environment::empty().with("BUILDX_CONFIG", config.as_str());
        let client = Program::new("/bin/sleep", environment).arg("60").spawn().unwrap();
        let begun = Instant::now();
        // The environment shows once the program has been started.
        while find(config).is_none() && begun.elapsed() < Duration::from_secs(10) {}
        assert!(find(config).is_some());
        assert_eq!(find(Utf8Path::new("/tmp/crashlab-orphans-test/scopes/two/buildx")), None);
        drop(client);
        assert_eq!(wait_for_none(config, &Interrupt::never()), None);
    }
}
