//! `check` for people: verdict first, then what a review wants to see, then what to do. Everything that a package wrote is
//! shown safely.

use super::report::{Report, Secret};
use crate::report::look::{Look, Tone};
use crate::report::text::{plural, safe, size};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::io::Write;

pub(super) fn write(report: &Report, look: &Look, out: &mut dyn Write) -> Result<()> {
    let mut text = verdict(report, look);
    for (label, value) in facts(report) {
        let _ = writeln!(text, "  {label:<11} {}", safe(&value));
    }
    section(&mut text, look, "Credentials", report.secrets.iter().map(secret));
    section(
        &mut text,
        look,
        "Files that the digest covers",
        report.files.iter().map(|file| {
            format!("{}  {:>9}  {}", file.sha256.hex().get(..12).unwrap_or_default(), size(file.size), file.path)
        }),
    );
    let env_files = report.env_files.iter().map(|file| format!("{} ({})", file.path, git(file.git)));
    section(&mut text, look, "Files that look like .env", env_files);
    section(&mut text, look, "Warnings", report.warnings.iter().cloned());
    section(&mut text, look, "Keys and .env files", report.advice.iter().map(|line| (*line).to_owned()));
    if !report.trust.started {
        let _ = write!(
            text,
            "\nThe package's code was not started. It runs with your rights, outside the sandbox: review it, then\n  crashlab run {} {}\n",
            safe(report.trust.named.as_str()),
            report.trust.flag
        );
    }
    out.write_all(text.as_bytes()).context("failed to write to standard output")
}

fn verdict(report: &Report, look: &Look) -> String {
    let missing = report.secrets.iter().filter(|secret| !secret.present).count() as u64;
    let (tone, words) = if report.accepted {
        (Tone::Good, "would be accepted".to_owned())
    } else {
        (Tone::Bad, format!("would be refused: {} missing", plural(missing, "credential")))
    };
    format!("{} {}\n", look.paint(Tone::Strong, &safe(&report.name)), look.paint(tone, &words))
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let lock = report.evaluation.lock.as_ref();
    let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let gateway = |it: &super::report::Gateway| format!("{} → {} ({})", it.name, it.upstream, it.models.join(" "));
    let cases = &report.cases;
    vec![
        ("digest", report.digest.to_string()),
        ("policy", report.policy.digest.to_string()),
        ("would run", format!("{}  in {}", report.evaluation.command.join(" "), report.evaluation.folder)),
        ("lock", lock.map_or("none".to_owned(), |lock| format!("{} {}", lock.path, lock.sha256))),
        ("target", format!("{}  in {}", report.target.command.join(" "), report.target.folder)),
        ("snapshot", format!("{}, {}", plural(report.target.files as u64, "file"), size(report.target.bytes))),
        ("image", report.target.image.clone()),
        ("cases", format!("{} in {}: {}", cases.count, cases.file, first(&cases.ids))),
        ("trials", format!("{} ({} of each case)", cases.trials, plural(u64::from(cases.repeat), "repetition"))),
        ("operations", list(report.operations.iter().map(|it| it.name.clone()).collect())),
        ("gateways", list(report.gateways.iter().map(gateway).collect())),
        ("drills", list(report.drills.clone())),
    ]
}

fn first(ids: &[String]) -> String {
    match ids.len().checked_sub(12) {
        Some(more) if more > 0 => format!("{} and {more} more", ids[..12].join(", ")),
        _ => ids.join(", "),
    }
}

fn secret(secret: &Secret) -> String {
    let from = secret.env_file.as_ref().map(|file| format!(" from {file}")).unwrap_or_default();
    let state = match &secret.problem {
        None => "there".to_owned(),
        Some(problem) => format!("missing: {}", problem.replace("\nhint: ", "; ")),
    };
    format!("{}{from} (gateway {}): {state}", secret.name, secret.gateway)
}

fn git(known: super::dotenv::Known) -> &'static str {
    use super::dotenv::Known;
    match known {
        Known::Ignored => "ignored",
        Known::Tracked => "tracked",
        Known::Untracked => "not ignored",
        Known::NoRepository => "no repository",
    }
}

fn section(text: &mut String, look: &Look, title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", look.paint(Tone::Strong, title));
    for line in lines {
        let _ = writeln!(text, "  {}", safe(&line));
    }
}
