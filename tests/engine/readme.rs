//! The README's word: the package that it writes down runs as it stands there, its commands exist, and so do the files that
//! it points at.

use crate::support::{Ran, crashlab};
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../README.md");

/// The fenced blocks: what follows the language, and the text.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = README.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn the_package_of_the_readme_passes_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = 0;
    for (head, text) in blocks() {
        let Some((_, title)) = head.split_once("title=\"") else { continue };
        let path = folder.path().join(title.trim_end_matches('"'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
        files += 1;
    }
    assert_eq!(files, 5);
    let git = Command::new("git").args(["init", "--quiet"]).arg(folder.path()).status().unwrap();
    assert!(git.success());
    let mut run = crashlab(&folder.path().join("results"));
    run.arg("run").arg(folder.path().join("room-desk")).args(["--trust-evaluation-code", "--format", "json"]);
    let ran = Ran::new(run.output().unwrap());
    assert_eq!((ran.exit, &ran.json["counts"]["passed"]), (0, &3.into()), "{}\n{}", ran.json, ran.stderr);
    assert_eq!(ran.json["evaluation"]["reproducible"], true);
}

#[test]
fn the_commands_and_files_of_the_readme_exist() {
    let lines = blocks().into_iter().filter(|(head, _)| head.starts_with("console")).flat_map(|(_, text)| text.lines());
    let commands: Vec<&str> = lines.filter_map(|line| line.strip_prefix("$ crashlab ")?.split(' ').next()).collect();
    assert!(commands.len() > 6, "{commands:?}");
    for command in commands {
        let help = crashlab(Path::new("results")).args([command, "--help"]).output().unwrap();
        assert!(help.status.success(), "crashlab {command}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let links = README.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = README.split('`').filter(|word| word.starts_with("tests/") || word.starts_with("scripts/"));
    let pictures =
        README.split("src=\"").chain(README.split("srcset=\"")).skip(1).filter_map(|rest| rest.split('"').next());
    let pictures = pictures.filter(|path| path.starts_with("docs/"));
    for path in links.chain(named).chain(pictures) {
        assert!(root.join(path).exists(), "{path}");
    }
}
