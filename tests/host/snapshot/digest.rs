//! W5: the manifest and its digest, recomputed by somebody else; and random trees beside plain git.

use super::Repository;
use super::repository::{Laid, git_command};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

/// The specification in words, of the schema of run.json, as another program.
const RECOMPUTE: &str = include_str!("../../corpus/snapshot/recompute.py");

#[test]
fn the_digest_can_be_recomputed_by_another_program() {
    let it = Repository::new();
    for name in [b"a".as_slice(), b"\xff\xfe", "u\u{2028}\n".as_bytes(), b"folder/quote\"", b"a.b", b"a/b"] {
        let name = if name == b"a/b" { b"folder/b".as_slice() } else { name };
        it.write(OsStr::from_bytes(name), [name, b" content"].concat());
    }
    // Large enough that a file system which can shares its blocks.
    it.write("large", (0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    let tool = it.write("tool", "#!/bin/sh\n");
    std::fs::set_permissions(tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(OsStr::from_bytes(b"\xff\xfe"), it.root.join("link")).unwrap();
    let taken = it.take();
    let manifest = it.outside.join("manifest.json");
    std::fs::write(&manifest, taken.manifest_json().unwrap()).unwrap();
    let mut python = assert_cmd::Command::new("python3");
    let output = python.args(["-c", RECOMPUTE, manifest.as_str(), taken.folder.as_str()]).assert().success();
    assert_eq!(String::from_utf8_lossy(&output.get_output().stdout), taken.digest.as_str());
}

#[test]
fn the_digest_is_of_the_content_alone() {
    let make = |order: &[&str]| {
        let it = Repository::new();
        for path in order {
            it.write(path, path);
        }
        it
    };
    let (one, other) = (make(&["a", "b/c"]), make(&["b/c", "a"]));
    other.commit();
    assert_eq!(one.take().digest, other.take().digest);
    type Change = fn(&Repository);
    let table: [(&str, Change); 5] = [
        ("content", |it| drop(it.write("a", "b"))),
        ("name", |it| std::fs::rename(it.root.join("a"), it.root.join("A")).unwrap()),
        ("mode", |it| std::fs::set_permissions(it.root.join("a"), std::fs::Permissions::from_mode(0o755)).unwrap()),
        ("kind", |it| {
            std::fs::remove_file(it.root.join("a")).unwrap();
            std::os::unix::fs::symlink("a", it.root.join("a")).unwrap();
        }),
        ("more", |it| drop(it.write("d", ""))),
    ];
    for (name, change) in table {
        let it = make(&["a", "b/c"]);
        change(&it);
        assert_ne!(it.take().digest, one.take().digest, "{name}");
    }
}

/// A small generator, so that a failure can be had again from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % sides as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }

    fn path(&mut self) -> Vec<u8> {
        const PARTS: [&[u8]; 14] = [
            b"a",
            b"b",
            b"c d",
            b"x.log",
            b"build",
            b"keep.log",
            b"\xff",
            b"line\nend",
            b"-n",
            b"\"q\"",
            "\u{2028}".as_bytes(),
            b"A",
            b"*",
            b"deep",
        ];
        let parts: Vec<&[u8]> = (0..=self.roll(3)).map(|_| *self.pick(&PARTS)).collect();
        parts.join(&b'/')
    }

    /// One step of somebody's work; what cannot be done is not.
    fn act(&mut self, it: &Repository) {
        let path = self.path();
        let file = it.root.as_std_path().join(OsStr::from_bytes(&path));
        let _ = file.parent().map(std::fs::create_dir_all);
        let literal = [
            OsStr::new("--literal-pathspecs"),
            OsStr::new("add"),
            OsStr::new("-f"),
            OsStr::new("--"),
            file.as_os_str(),
        ];
        match self.roll(12) {
            0..=3 => drop(std::fs::write(&file, self.pick(&["one", "two", "three", ""]))),
            4 => drop(std::fs::remove_file(&file)),
            5 => drop(std::fs::set_permissions(
                &file,
                std::fs::Permissions::from_mode(*self.pick(&[0o644, 0o755, 0o600])),
            )),
            6 => drop(std::os::unix::fs::symlink(self.pick(&["a", "./b/c", "missing"]), &file)),
            7 | 8 => drop(git_command(it.root.as_std_path(), &[]).args(literal).output()),
            9 => {
                let rules = self.pick(&["*.log\n", "build/\n!keep.log\n", "/a\n", "*\n!*/\n!b\n"]);
                let _ = std::fs::write(file.with_file_name(".gitignore"), rules);
            }
            10 => drop(git_command(it.root.as_std_path(), &["commit", "-q", "-m", "x"]).output()),
            _ => drop(git_command(it.root.as_std_path(), &["rm", "-rq", "--cached", "--", "a"]).output()),
        }
    }
}

/// What plain git and the file system say that a snapshot is.
fn expected(it: &Repository) -> Laid {
    let list = it.git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let paths: BTreeSet<&[u8]> = list.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
    let deleted = it.git(&["ls-files", "-z", "--deleted"]);
    let deleted: BTreeSet<&[u8]> = deleted.split(|byte| *byte == 0).collect();
    let mut all = super::repository::laid(it.root.as_std_path());
    all.retain(|path, _| paths.contains(path.as_slice()) && !deleted.contains(path.as_slice()));
    for (path, (kind, _)) in &mut all {
        let mode = it.root.as_std_path().join(OsStr::from_bytes(path)).symlink_metadata().unwrap().permissions().mode();
        if *kind != "link" {
            *kind = if mode & 0o100 != 0 { "exec" } else { "file" };
        }
    }
    all
}

#[test]
fn random_trees_are_taken_as_plain_git_sees_them() {
    for seed in 0..25 {
        let mut dice = Dice(seed);
        let it = Repository::new();
        it.write("always", "here");
        for step in 0..60 {
            dice.act(&it);
            if step % 20 != 19 {
                continue;
            }
            let taken = it.take();
            assert_eq!(taken.laid(), expected(&it), "seed {seed}, step {step}");
            let status = it.git(&["status", "--porcelain", "--ignore-submodules=none"]);
            assert_eq!(
                taken.dirty,
                !status.is_empty(),
                "seed {seed}, step {step}: {}",
                String::from_utf8_lossy(&status)
            );
            let head = git_command(it.root.as_std_path(), &["rev-parse", "-q", "--verify", "HEAD"]).output().unwrap();
            assert_eq!(taken.commit.clone().unwrap_or_default(), String::from_utf8_lossy(&head.stdout).trim());
            if step == 39 {
                it.commit();
                assert!(!it.take().dirty, "seed {seed}: everything is committed");
            }
        }
    }
}
