//! How long a snapshot takes, beside `git checkout-index` and `cp -a` of the same tree: `scripts/bench/snapshot` runs it.
//! All read from a warm cache and write to the same file system; of each the best of some rounds, in turn, so that what
//! else the machine does strikes all of them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement, not a part of the product")]

use camino::{Utf8Path, Utf8PathBuf};
use crashlab::interrupt::Interrupt;
use crashlab::policy::SnapshotLimits;
use crashlab::snapshot::{Source, take};
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;

fn main() {
    // How many small files and large ones; cargo adds an argument of its own.
    let counts: Vec<usize> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let [small, large] = [counts.first().copied().unwrap_or(50_000), counts.get(1).copied().unwrap_or(8)];
    println!(
        "{:<28} {:>12} {:>20} {:>12} {:>10} {:>10}",
        "tree", "snapshot", "git checkout-index", "cp -a", "÷ git", "÷ cp"
    );
    // In folders of 50, 1 to 2 KiB each.
    let path = |n: usize| format!("f{}/d{}/{n}.py", n / 2500, n / 50 % 50);
    measure(&format!("{small} files of 1 to 2 KiB"), |folder| {
        (0..small).for_each(|n| write(folder, &path(n), 1024 + n % 1024))
    });
    measure(&format!("{large} files of 256 MiB"), |folder| {
        (0..large).for_each(|n| write(folder, &format!("{n}.bin"), 256 << 20))
    });
}

fn measure(name: &str, fill: impl Fn(&Utf8Path)) {
    let keep = tempfile::tempdir().unwrap();
    let base = Utf8PathBuf::from_path_buf(keep.path().to_owned()).unwrap();
    let tree = base.join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    // The repository lies beside the tree, so that `cp -a` copies what the others do.
    git(&tree, &["init", "-q", "--separate-git-dir", "../git"]);
    // Nothing here can be compressed: git shall not spend its time on that.
    git(&tree, &["config", "core.compression", "0"]);
    git(&tree, &["config", "gc.auto", "0"]);
    // Straight into one pack, as after a clone: no 50,000 objects that have to be packed again.
    git(&tree, &["-c", "core.bigFileThreshold=1", "add", "."]);
    git(&tree, &["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "all"]);
    let mut best = [Duration::MAX; 3];
    for round in 0..ROUNDS {
        let to: Vec<Utf8PathBuf> = (0..3).map(|way| base.join(format!("to-{round}-{way}"))).collect();
        to.iter().for_each(|to| std::fs::create_dir(to).unwrap());
        let took = [
            timed(|| snapshot(&tree, &to[0])),
            timed(|| git(&tree, &["checkout-index", "-a", &format!("--prefix={}/", to[1])])),
            timed(|| run("cp", &tree, &["-a", ".", to[2].as_str()])),
        ];
        for (best, took) in best.iter_mut().zip(took) {
            *best = took.min(*best);
        }
        to.iter().for_each(|to| std::fs::remove_dir_all(to).unwrap());
    }
    let [ours, checkout, copy] = best.map(|best| best.as_secs_f64());
    println!(
        "{name:<28} {ours:>10.2} s {checkout:>18.2} s {copy:>10.2} s {:>10.2} {:>10.2}",
        ours / checkout,
        ours / copy
    );
}

fn snapshot(tree: &Utf8Path, into: &Utf8Path) {
    let all = ["**".to_owned()];
    let limits = SnapshotLimits { files: u64::MAX, bytes: u64::MAX, file: u64::MAX };
    let taken =
        take(&Source { source: tree, package: None, results: None, files: &all, limits }, into, &Interrupt::never())
            .unwrap();
    assert!(!taken.dirty && taken.files > 0);
}

/// Bytes that do not compress, the same at each start.
fn write(folder: &Utf8Path, path: &str, size: usize) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut state = path
        .as_str()
        .bytes()
        .fold(0x9e37_79b9_7f4a_7c15_u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        | 1;
    let mut content = vec![0; size];
    for piece in content.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    std::fs::write(path, content).unwrap();
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

fn git(folder: &Utf8Path, args: &[&str]) {
    run("git", folder, args);
}

fn run(program: &str, folder: &Utf8Path, args: &[&str]) {
    assert_cmd::Command::new(program).current_dir(folder).args(args).assert().success();
}
