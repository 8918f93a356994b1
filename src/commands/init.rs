//! `crashlab init`: writes a small evaluation package that runs as it is. Owns its files; overwrites
//! nothing, and starts git alone.

use crate::cli::{Format, Global, Init};
use crate::exit::{Exit, Refusal};
use crate::interrupt::Interrupt;
use crate::process::{Bounds, Environment, Program};
use crate::snapshot::git::Repository;
use anyhow::{Context as _, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// git has little to do here.
const GIT_TIME: Duration = Duration::from_secs(30);
/// The target's image where none is named: it has Python, which is all that the example needs.
const IMAGE: &str = "python:3.12-slim";

const POLICY: &str = include_str!("init/policy.json");

/// Path in the package, and content. `NAME` and `IMAGE` in the policy are filled in.
const FILES: [(&str, &str); 7] = [
    ("policy.json", POLICY),
    ("cases.jsonl", include_str!("init/cases.jsonl")),
    ("evaluation.py", include_str!("init/evaluation.py")),
    ("requirements.lock", include_str!("init/requirements.lock")),
    ("target/agent.py", include_str!("init/target/agent.py")),
    (".gitignore", include_str!("init/gitignore")),
    (".env.example", include_str!("init/env.example")),
];

/// Writes the package and says what comes next.
///
/// # Errors
/// A refusal where one of the files is there already; what kept one from being written.
pub fn init(global: &Global, args: &Init, out: &mut dyn Write) -> Result<Exit> {
    let written = write(&args.dir, args.image.as_deref())?;
    let repository = make_repository(&args.dir)?;
    let next = format!("crashlab run {} --trust-evaluation-code", quoted(args.dir.as_str()));
    match global.format {
        Format::Json => {
            let document = json!({
                "schema": "crashlab.init/1", "folder": args.dir, "files": written, "repository": repository, "next": next,
            });
            let _ = writeln!(out, "{document}");
        }
        _ => {
            for path in &written {
                let _ = writeln!(out, "{}", args.dir.join(path));
            }
            if repository {
                let _ = writeln!(out, "{}", args.dir.join(".git"));
            }
            let _ = writeln!(out, "\nnext: {next}");
        }
    }
    Ok(Exit::Success)
}

/// Writes the files of a new package into `folder`; gives their paths in it.
fn write(folder: &Utf8Path, image: Option<&str>) -> Result<Vec<&'static str>> {
    for (path, _) in FILES {
        let path = folder.join(path);
        if path.symlink_metadata().is_ok() {
            return Err(Refusal::new("this file is there already, and nothing is overwritten")
                .at(path.as_str())
                .hint("name another folder")
                .into());
        }
    }
    let policy = fill_in(POLICY, &name_of(folder), image.unwrap_or(IMAGE));
    crate::policy::parse(policy.as_bytes()).map_err(|refusal| refusal.at("--image"))?;
    for (path, text) in FILES {
        create(&folder.join(path), if path == "policy.json" { &policy } else { text })?;
    }
    Ok(FILES.iter().map(|(path, _)| *path).collect())
}

/// Makes a repository of the folder, unless one holds it already and does not ignore it: a snapshot of the target is what
/// git lists. Says whether it made one.
fn make_repository(folder: &Utf8Path) -> Result<bool> {
    let whole = folder.canonicalize().with_context(|| format!("cannot open {folder}"))?;
    let holding = Repository::find(&whole, &Interrupt::never())?;
    if holding.map(|repository| repository.listed()).transpose()?.is_some_and(|files| !files.is_empty()) {
        return Ok(false);
    }
    let made = Program::new("git", Environment::only(&["PATH", "HOME", "XDG_CONFIG_HOME"]).with("LC_ALL", "C"))
        .args(["init", "--quiet"])
        .folder(whole)
        .run(&Bounds::time(GIT_TIME))
        .context("failed to make a repository of the package")?;
    if !made.status.success() {
        bail!("failed to make a repository of {folder}: {}", made.complaint());
    }
    Ok(true)
}

fn create(path: &Utf8Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("failed to make the folder {folder}"))?;
    }
    let write = || OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes());
    write().with_context(|| format!("failed to write {path}"))
}

fn fill_in(policy: &str, name: &str, image: &str) -> String {
    policy.replace("\"NAME\"", &json!(name).to_string()).replace("\"IMAGE\"", &json!(image).to_string())
}

/// The policy's name, made of the folder's: `[a-z0-9-]{1,40}`.
fn name_of(folder: &Utf8Path) -> String {
    let whole = camino::absolute_utf8(folder).unwrap_or_else(|_| Utf8PathBuf::from(folder));
    let name: String = whole
        .file_name()
        .unwrap_or_default()
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let name: String = name.trim_matches('-').chars().take(40).collect();
    if name.is_empty() { "evaluation".to_owned() } else { name }
}

fn quoted(path: &str) -> String {
    let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    if plain && !path.is_empty() { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policys_name_is_made_of_the_folders() {
        for (folder, name) in [
            ("/x/refund-desk", "refund-desk"),
            ("/x/My Desk_2/", "my-desk-2"),
            ("/x/…", "evaluation"),
            ("/", "evaluation"),
            (&format!("/x/{}", "a".repeat(60)), &"a".repeat(40)),
        ] {
            assert_eq!(name_of(Utf8Path::new(folder)), name, "{folder}");
        }
    }

    #[test]
    fn what_is_written_is_a_policy_with_the_named_image() {
        let policy = fill_in(POLICY, "desk", "registry.example:5000/agent:1");
        let policy = crate::policy::parse(policy.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}"));
        assert_eq!(policy.name, "desk");
        assert!(format!("{:?}", policy.target.image).contains("registry.example:5000/agent:1"));
    }
}
