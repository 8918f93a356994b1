//! The examples for pipelines (`scripts/examples`): what can be shown without a cluster. Each command in them has the
//! options that it is given, and the Slurm script numbers its shards right. The one for GNU parallel runs on the engine.

use assert_cmd::Command;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/examples")
}

/// The calls of crashlab in a text, each with its words; lines that go on are joined.
fn calls(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ").replace("\n              --", " --");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let from = |line: &str| {
        let (_, rest) = line.split_once("crashlab ").filter(|(before, _)| !before.ends_with(['/', '-', ':']))?;
        let end = rest.find([';', '|', '>', ')']).unwrap_or(rest.len());
        Some(rest[..end].split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect())
    };
    lines.filter_map(from).collect()
}

#[test]
fn the_commands_in_the_examples_have_the_options_that_they_are_given() {
    let mut seen = 0;
    for name in ["github-actions.yml", "kubernetes-job.yaml", "slurm.sh", "parallel.sh"] {
        let text = std::fs::read_to_string(examples().join(name)).unwrap();
        for words in calls(&text) {
            let known = ["run", "merge", "view"];
            let Some(command) = words.iter().find(|word| known.contains(&word.as_str())) else { continue };
            let help = Command::cargo_bin("crashlab").unwrap().args([command, "--help"]).output().unwrap();
            let help = String::from_utf8(help.stdout).unwrap();
            for word in words.iter().filter(|word| word.starts_with("--")) {
                let option = word.split('=').next().unwrap();
                assert!(
                    help.contains(&format!("{option} "))
                        || help.contains(&format!("{option}["))
                        || help.contains(&format!("{option}\n")),
                    "{name}: crashlab {command} has no {option}"
                );
            }
            seen += 1;
        }
        assert!(text.contains("--shard") && text.contains("merge"), "{name}");
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn the_slurm_tasks_are_the_shards_and_the_merge_takes_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let stub = folder.path().join("crashlab");
    std::fs::write(&stub, "#!/bin/sh\necho \"$@\"\n").unwrap();
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(folder.path().join("results/runs/a")).unwrap();
    std::fs::create_dir_all(folder.path().join("results/runs/b")).unwrap();
    let ran = |task: &str, args: &[&str]| {
        let path = format!("{}:{}", folder.path().display(), std::env::var_os("PATH").unwrap().to_str().unwrap());
        let results = folder.path().join("results");
        let mut command = Command::new("bash");
        command.arg(examples().join("slurm.sh")).args(args).env("PATH", path).env("CRASHLAB_RESULTS", results);
        command.env("CRASHLAB_DIGEST", "sha256:00").env("SLURM_ARRAY_TASK_ID", task).env("SLURM_ARRAY_TASK_COUNT", "8");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for task in ["1", "8"] {
        let said = ran(task, &[]);
        assert!(
            said.contains(&format!("--shard {task}/8")) && said.contains("--trust-evaluation-code=sha256:00"),
            "{said}"
        );
    }
    let merged = ran("1", &["merge"]);
    assert!(merged.contains("runs/a ") && merged.contains("runs/b"), "{merged}");
}
