//! The end of a run's page: what was taken out of the stored files, what became of the resources, and where the run came
//! from (target, package, engine, sandbox, gateways), for whoever has to reproduce it.

use super::{Page, escape};
use crate::report::text::{plural, size};
use crate::results::record::RunRecord;
use anyhow::Result;
use serde_json::Value;

/// Redactions and clean-up.
pub(super) fn kept(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    page.put("<h2>Redactions</h2>\n")?;
    if record.redactions.is_empty() {
        page.put("<p>No declared secret was found in what was stored.</p>\n")?;
    }
    for redaction in &record.redactions {
        let (name, file) = (escape(&redaction.name), escape(&redaction.file));
        let times = plural(redaction.count, "time");
        page.put(&format!("<p class=\"doubt\">{name} in <code>{file}</code>, {times}: rotate it</p>\n"))?;
    }
    let cleanup = &record.cleanup;
    let failed = match cleanup.failures.len() as u64 {
        0 => String::new(),
        failed => format!(" {} could not be removed, see above.", plural(failed, "resource")),
    };
    let removed = plural(cleanup.removed.len() as u64, "resource");
    page.put(&format!("<h2>Clean-up</h2>\n<p>{removed} removed.{failed}</p>\n"))?;
    for kept in &cleanup.kept {
        let name = escape(kept.name.as_deref().or(kept.id.as_deref()).unwrap_or("?"));
        let (kind, reason) = (escape(&kept.kind), escape(&kept.reason));
        page.put(&format!("<p class=\"doubt\">kept: {kind} <code>{name}</code>: {reason}</p>\n"))?;
    }
    Ok(())
}

/// Where it came from.
pub(super) fn origin(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    page.put("<h2>Origin</h2>\n")?;
    let mut facts = target(record);
    let evaluation = &record.evaluation;
    facts.push(("Package", format!("<code>{}</code>", evaluation.digest)));
    let lock = evaluation.lock.as_ref().map(|lock| escape(lock.path.as_str()));
    let lock = lock.unwrap_or_else(|| "<span class=\"doubt\">none: not reproducible</span>".to_owned());
    facts.push(("Dependency lock", lock));
    facts.push(("Policy", format!("<code>{}</code>", evaluation.policy)));
    if let Some(engine) = &record.engine {
        let known = |text: &Option<String>| escape(text.as_deref().unwrap_or("?"));
        let (version, os, runtime) = (known(&engine.version), known(&engine.os), known(&engine.runtime));
        facts.push(("Engine", format!("{version} on {os}, runtime {runtime}")));
    }
    for (name, gateway) in &record.gateways {
        let models: Vec<String> = gateway.models.iter().map(|model| escape(model)).collect();
        let text = format!(
            "{}: {} at {}, {}",
            escape(name),
            escape(&gateway.dialect),
            escape(&gateway.upstream),
            models.join(", ")
        );
        facts.push(("Gateway", text));
    }
    if let Some(seed) = record.seed {
        facts.push(("Seed", seed.to_string()));
    }
    let finished = record.finished.as_deref().unwrap_or("not finished");
    facts.push(("Time", format!("{} to {}", escape(&record.started), escape(finished))));
    facts.push(("CrashLab", escape(&record.crashlab)));
    page.facts(&facts)?;
    sandbox(page, record)
}

fn target(record: &RunRecord) -> Vec<(&'static str, String)> {
    let Some(target) = &record.target else { return Vec::new() };
    let commit =
        target.commit.as_deref().map_or_else(String::new, |commit| format!(" at <code>{}</code>", escape(commit)));
    let dirty = if target.dirty == Some(true) { " (changed)" } else { "" };
    let mut facts = vec![
        ("Target", format!("{}{commit}{dirty}", escape(&target.source))),
        (
            "Snapshot",
            format!("<code>{}</code>, {}, {}", target.snapshot, plural(target.files, "file"), size(target.bytes)),
        ),
    ];
    if let Some(image) = &target.image {
        facts.push(("Image", format!("<code>{}</code>", image.id)));
    }
    facts
}

/// What was asked for beside what was seen from inside.
fn sandbox(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    let sandbox = &record.sandbox;
    if sandbox.requested.is_empty() && sandbox.attested.is_empty() {
        return Ok(());
    }
    page.put(
        "<details class=\"more\"><summary>Sandbox: what was asked for, and what was seen from inside</summary>\n\
         <div class=\"wide card\" role=\"region\" aria-label=\"sandbox\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">Requirement</th>\
         <th scope=\"col\">Asked for</th><th scope=\"col\">Attested</th></tr></thead>\n<tbody>\n",
    )?;
    let extra = sandbox.attested.keys().filter(|name| !sandbox.requested.contains_key(*name));
    for name in sandbox.requested.keys().chain(extra) {
        let words = |value: Option<&Value>| match value {
            None => "–".to_owned(),
            Some(Value::String(text)) => escape(text),
            Some(value) => escape(&value.to_string()),
        };
        page.put(&format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
            escape(name),
            words(sandbox.requested.get(name)),
            words(sandbox.attested.get(name))
        ))?;
    }
    page.put("</tbody>\n</table></div>\n</details>\n")
}
