//! Who this process is to the kernel and what it may use: identity, capabilities, control groups, limits, namespaces,
//! devices, masked paths. Reads; tries nothing.

use super::json::Json;
use crate::kernel_text::{Mount, cgroup_path, limit, row};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// What a default engine hides, since it tells of the host or changes it.
const HIDDEN: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// What it leaves to be read only.
const READ_ONLY: [&str; 6] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys"];

fn read(path: impl AsRef<Path>) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = read(path);
    // SELinux ends its label with a zero byte.
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn identity() -> Json {
    let status = read("/proc/self/status");
    let field = |name: &str| -> Json { row(&status, name).into() };
    Json::map([
        ("uid", field("Uid")),
        ("gid", field("Gid")),
        ("groups", field("Groups")),
        ("inheritable", field("CapInh")),
        ("permitted", field("CapPrm")),
        ("effective", field("CapEff")),
        ("bounding", field("CapBnd")),
        ("ambient", field("CapAmb")),
        ("no_new_privileges", field("NoNewPrivs")),
        ("seccomp", field("Seccomp")),
        ("seccomp_filters", field("Seccomp_filters")),
        ("security_label", line("/proc/self/attr/current").into()),
        ("home", std::env::var("HOME").ok().into()),
    ])
}

pub(super) fn limits() -> Json {
    let table = read("/proc/self/limits");
    let pair = |name: &str| -> Json { limit(&table, name).map(|(soft, hard)| format!("{soft}:{hard}")).into() };
    Json::map([
        ("open_files", pair("Max open files")),
        ("core_size", pair("Max core file size")),
        ("message_queues", pair("Max msgqueue size")),
    ])
}

/// The bounds as the kernel has them; what it does not have is null.
pub(super) fn cgroup() -> Json {
    let table = read("/proc/self/cgroup");
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let value = |controller: &str, file: &str| -> Option<String> {
        let base = if unified { "/sys/fs/cgroup".to_owned() } else { format!("/sys/fs/cgroup/{controller}") };
        let path = cgroup_path(&table, if unified { "" } else { controller }).unwrap_or("/");
        // A container that has its own part of the tree sees it at the root; another one sees it at its path.
        line(format!("{base}{path}/{file}")).or_else(|| line(format!("{base}/{file}")))
    };
    if unified {
        let cpu = value("", "cpu.max").unwrap_or_default();
        let mut cpu = cpu.split(' ').map(str::to_owned);
        return Json::map([
            ("version", Json::Number(2)),
            ("memory", value("", "memory.max").into()),
            ("swap", value("", "memory.swap.max").into()),
            ("cpu_quota", cpu.next().filter(|word| !word.is_empty()).into()),
            ("cpu_period", cpu.next().into()),
            ("processes", value("", "pids.max").into()),
        ]);
    }
    let cpu = |file: &str| value("cpu", file).or_else(|| line(format!("/sys/fs/cgroup/cpu,cpuacct/{file}")));
    Json::map([
        ("version", Json::Number(1)),
        ("memory", value("memory", "memory.limit_in_bytes").into()),
        ("memory_and_swap", value("memory", "memory.memsw.limit_in_bytes").into()),
        ("cpu_quota", cpu("cpu.cfs_quota_us").into()),
        ("cpu_period", cpu("cpu.cfs_period_us").into()),
        ("processes", value("pids", "pids.max").into()),
    ])
}

/// Its own place among processes, users and machines.
pub(super) fn namespaces() -> Json {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = numbers.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).count();
    Json::map([
        ("own_number", Json::Number(u64::from(std::process::id()))),
        ("first_process", line("/proc/1/comm").into()),
        ("processes", Json::Number(processes as u64)),
        ("users", line("/proc/self/uid_map").map(|map| map.split_whitespace().collect::<Vec<_>>().join(" ")).into()),
        ("host_name", line("/proc/sys/kernel/hostname").into()),
        ("kernel", line("/proc/sys/kernel/osrelease").into()),
        ("kernel_version", line("/proc/version").into()),
        ("core_handler", core_handler().into()),
    ])
}

/// Who gets the core of a process that crashes, where it goes to no file: the host's pattern holds for containers too, and
/// a size of 0 keeps the kernel from writing files only.
fn core_handler() -> Option<String> {
    line("/proc/sys/kernel/core_pattern").filter(|pattern| pattern.starts_with(['|', '@']))
}

/// Device nodes by name: `null character`.
pub(super) fn devices() -> Json {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let kind = entry.file_type().ok()?;
        let what = match () {
            () if kind.is_block_device() => "block",
            () if kind.is_char_device() => "character",
            () => return None,
        };
        Some(format!("{} {what}", entry.file_name().to_string_lossy()))
    };
    let mut nodes: Vec<String> = entries.filter_map(node).collect();
    nodes.sort();
    Json::texts(nodes)
}

/// Paths that exist and are not mounted over, and paths that are not mounted read-only.
pub(super) fn open_paths(mounts: &[Mount]) -> Json {
    let mounted = |place: &str| mounts.iter().rev().find(|mount| mount.place == place);
    let there = |place: &&str| fs::symlink_metadata(place).is_ok();
    let hidden = HIDDEN.iter().copied().filter(there).filter(|place| mounted(place).is_none());
    let read_only = READ_ONLY.iter().copied().filter(there);
    let open = read_only.filter(|place| mounted(place).is_none_or(|mount| !mount.has("ro")));
    Json::texts(hidden.map(str::to_owned).chain(open.map(|place| format!("{place} (writable)"))))
}
