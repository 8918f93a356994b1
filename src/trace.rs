//! Where a run's time goes: spans of its steps and of its docker calls, written in Chrome's trace format where `--trace`
//! asks for it (one event object a span, times in microseconds; https://ui.perfetto.dev reads it). Off, it costs nothing.

use anyhow::{Context, Result};
use camino::Utf8Path;
use serde_json::json;
use std::collections::HashMap;
use std::io::{BufWriter, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Instant;

/// A collector of spans; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Trace(Option<Arc<Collector>>);

#[derive(Debug)]
struct Collector {
    begun: Instant,
    spans: Mutex<Vec<Taken>>,
}

#[derive(Debug)]
struct Taken {
    name: String,
    thread: ThreadId,
    start: u128,
    duration: u128,
}

/// A span that ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    collector: Option<Arc<Collector>>,
    name: String,
    begun: Instant,
}

impl Trace {
    /// Collects nothing.
    pub fn off() -> Self {
        Self::default()
    }

    /// Collects from now on.
    pub fn on() -> Self {
        Self(Some(Arc::new(Collector { begun: Instant::now(), spans: Mutex::default() })))
    }

    /// Begins a span; only a trace that is on makes its name.
    pub fn span(&self, name: impl FnOnce() -> String) -> Span {
        let name = if self.0.is_some() { name() } else { String::new() };
        Span { collector: self.0.clone(), name, begun: Instant::now() }
    }

    /// Writes the file; nothing where the trace is off.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&self, file: &Utf8Path) -> Result<()> {
        let Some(collector) = &self.0 else { return Ok(()) };
        let spans = collector.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut threads: HashMap<ThreadId, usize> = HashMap::new();
        let mut out = BufWriter::new(std::fs::File::create(file).with_context(|| format!("failed to make {file}"))?);
        let mut lines = Vec::new();
        for span in spans.iter() {
            let next = threads.len() + 1;
            let thread = *threads.entry(span.thread).or_insert(next);
            let category = if span.name.starts_with("docker ") { "docker" } else { "step" };
            lines.push(json!({
                "name": span.name, "cat": category, "ph": "X", "pid": 1, "tid": thread,
                "ts": u64::try_from(span.start).unwrap_or(u64::MAX), "dur": u64::try_from(span.duration).unwrap_or(u64::MAX),
            }));
        }
        let document = json!({"displayTimeUnit": "ms", "traceEvents": lines});
        serde_json::to_writer(&mut out, &document).with_context(|| format!("failed to write {file}"))?;
        out.flush().with_context(|| format!("failed to write {file}"))
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(collector) = &self.collector {
            let taken = Taken {
                name: std::mem::take(&mut self.name),
                thread: std::thread::current().id(),
                start: self.begun.duration_since(collector.begun).as_micros(),
                duration: self.begun.elapsed().as_micros(),
            };
            collector.spans.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_becomes_a_complete_event_and_a_trace_that_is_off_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = Utf8Path::from_path(folder.path()).unwrap().join("trace.json");
        Trace::off().write(&file).unwrap();
        assert!(!file.exists());
        let trace = Trace::on();
        drop(trace.span(|| "docker create".to_owned()));
        trace.write(&file).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let event = &written["traceEvents"][0];
        assert_eq!(
            (&event["name"], &event["ph"], &event["cat"]),
            (&json!("docker create"), &json!("X"), &json!("docker"))
        );
    }
}
