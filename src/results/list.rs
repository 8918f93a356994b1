//! The stored runs at a glance. Reads only the head of each `run.json`, up to its cases, so that a list does not become
//! slower with the number of trials. A run that cannot be read is listed with the reason, and hides no other.

use crate::ids::RunId;
use crate::results::folder::Folder;
use crate::results::read::{outcomes_on_disk, run_ids, schema_fits};
use crate::results::record::RunOutcome;
use crate::verdict::Counts;
use anyhow::{Context as _, Result};
use camino::Utf8Path;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::io::BufReader;

/// A stored run at a glance; what is not known is null.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Listed {
    /// The name of its folder.
    pub run: String,
    /// The policy's name.
    pub name: Option<String>,
    /// When it started.
    pub started: Option<String>,
    /// When it ended.
    pub finished: Option<String>,
    /// What it came to; an unfinished run is interrupted.
    pub outcome: Option<RunOutcome>,
    /// Its exit code.
    pub exit: Option<u8>,
    /// `--tag`.
    pub tag: Option<String>,
    /// Its trials.
    pub counts: Option<Counts>,
    /// Why it could not be read.
    pub error: Option<String>,
}

/// The stored runs, oldest first.
///
/// # Errors
/// Where the folder is there and cannot be read.
pub fn list(results: &Utf8Path) -> Result<Vec<Listed>> {
    let ids = run_ids(results)?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let runs = Folder::open(&results.join("runs"))?;
    Ok(ids.iter().map(|id| listed(&runs, id)).collect())
}

fn listed(runs: &Folder, id: &RunId) -> Listed {
    let mut listed = match head(runs, id) {
        Ok(listed) => listed,
        Err(error) => Listed { error: Some(format!("{error:#}")), ..Listed::default() },
    };
    id.as_str().clone_into(&mut listed.run);
    listed
}

fn head(runs: &Folder, id: &RunId) -> Result<Listed> {
    let folder = runs.folder(id.as_str())?;
    let (file, _) = folder.open_file("run.json")?.context("it has no run.json")?;
    let mut head = Head::default();
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, file));
    let read = (&mut head).deserialize(&mut json);
    schema_fits(head.schema.as_ref())?;
    if !head.complete {
        read.context("its run.json is broken")?;
        anyhow::ensure!(head.listed.counts.is_some(), "its run.json has no counts");
    }
    let mut listed = head.listed;
    if listed.outcome == Some(RunOutcome::Running) {
        listed.outcome = Some(RunOutcome::Interrupted);
        let planned = listed.counts.unwrap_or_default().trials;
        let mut counts = Counts::of(outcomes_on_disk(&folder));
        counts.not_run += planned.saturating_sub(counts.trials);
        counts.trials = counts.trials.max(planned);
        listed.counts = Some(counts);
    }
    Ok(listed)
}

/// What is read of a `run.json` before the reading stops.
#[derive(Debug, Default)]
struct Head {
    schema: Option<Value>,
    listed: Listed,
    complete: bool,
}

impl<'de> DeserializeSeed<'de> for &mut Head {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Head {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stored run")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        #[derive(Deserialize)]
        struct Evaluation {
            name: Option<String>,
        }
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "schema" => self.schema = entries.next_value()?,
                "started" => self.listed.started = entries.next_value()?,
                "finished" => self.listed.finished = entries.next_value()?,
                "outcome" => self.listed.outcome = entries.next_value()?,
                "exit" => self.listed.exit = entries.next_value()?,
                "tag" => self.listed.tag = entries.next_value()?,
                "evaluation" => self.listed.name = entries.next_value::<Evaluation>()?.name,
                "counts" => self.listed.counts = Some(entries.next_value()?),
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
            // The order in which crashlab writes: what follows is by case and by trial.
            if key == "counts" && self.schema.is_some() {
                self.complete = true;
                return Ok(());
            }
        }
        Ok(())
    }
}
