//! The scripted provider: replies out of a file, without key and network, behind the same admission, limits and evidence
//! as a real one. Owns the file's form, which line answers (each once a trial), and the timing of events.

use super::exchange::{Admitted, Answer, Failure, Life, Pieces};
use crate::exit::Refusal;
use crate::json;
use crate::policy::GatewayLimits;
use globset::GlobMatcher;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most time between two events.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// The replies of one gateway; read once a run.
#[derive(Debug)]
pub struct Script {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    case: Option<GlobMatcher>,
    path: Option<GlobMatcher>,
    model: Option<GlobMatcher>,
    status: u16,
    headers: Vec<(String, String)>,
    body: Arc<Vec<Event>>,
}

/// Bytes, and the pause before them.
#[derive(Debug)]
struct Event {
    after: Duration,
    bytes: Vec<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, rename = "match")]
    fits: WrittenMatch,
    status: Option<u16>,
    #[serde(default)]
    headers: Map<String, Value>,
    body: Option<Value>,
    events: Option<Vec<WrittenEvent>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMatch {
    case: Option<String>,
    path: Option<String>,
    model: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEvent {
    after: Option<String>,
    event: Option<String>,
    data: Value,
}

impl Script {
    /// Reads a script; `place` is its name in refusals.
    ///
    /// # Errors
    /// A refusal with the line.
    pub fn parse(text: &[u8], place: &str) -> Result<Self, Refusal> {
        let mut lines = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                let refuse = |why: String| Refusal::new(why).at(format!("{place}:{}", index + 1));
                lines.push(read_line(line).map_err(refuse)?);
            }
        }
        Ok(Self { lines })
    }

    /// Takes the first unused line that fits, and answers with it; none where no line is left. With
    /// `keep` the line can be taken again.
    ///
    /// # Errors
    /// The first event comes later than the limits allow, or the trial ends before it.
    pub(super) fn answer(
        &self,
        cursor: &Cursor,
        request: &Admitted,
        limits: &GatewayLimits,
        keep: bool,
    ) -> Result<Option<Answer>, Failure> {
        let Some(line) = self.take(cursor, request, keep) else { return Ok(None) };
        let first = line.body.first().map_or(Duration::ZERO, |event| event.after);
        let mut clock = Clock { deadline: request.deadline, life: request.life.clone() };
        clock.wait(first, limits.first_byte, Failure::FirstByte)?;
        let body = Scripted { events: Arc::clone(&line.body), next: 0, idle: limits.idle, clock };
        Ok(Some(Answer { status: line.status, headers: line.headers.clone(), body: Box::new(body) }))
    }

    fn take(&self, cursor: &Cursor, request: &Admitted, keep: bool) -> Option<&Line> {
        let mut used = cursor.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.resize(self.lines.len(), false);
        let (line, used) = self.lines.iter().zip(used.iter_mut()).find(|(line, used)| !**used && line.fits(request))?;
        *used = !keep;
        Some(line)
    }
}

/// Which lines a trial has used up.
#[derive(Debug, Default)]
pub(super) struct Cursor(Mutex<Vec<bool>>);

impl Line {
    fn fits(&self, request: &Admitted) -> bool {
        let fits = |glob: &Option<GlobMatcher>, text: &str| glob.as_ref().is_none_or(|glob| glob.is_match(text));
        fits(&self.case, &request.case)
            && fits(&self.path, &request.path)
            && fits(&self.model, request.asked.model.as_deref().unwrap_or_default())
    }
}

fn read_line(line: &[u8]) -> Result<Line, String> {
    let value = json::parse(line).map_err(|error| error.to_string())?;
    let written: Written = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let status = written.status.unwrap_or(200);
    if !(200..=599).contains(&status) {
        return Err(format!("status {status} is not one from 200 to 599"));
    }
    let mut headers = read_headers(&written.headers)?;
    let (body, kind) = match (written.body, written.events) {
        (Some(body), None) => (vec![Event { after: Duration::ZERO, bytes: text_of(&body) }], "application/json"),
        (None, Some(events)) => (events.into_iter().map(read_event).collect::<Result<_, _>>()?, "text/event-stream"),
        _ => return Err("a line has either body or events".to_owned()),
    };
    if !headers.iter().any(|(name, _)| name == "content-type") {
        headers.push(("content-type".to_owned(), kind.to_owned()));
    }
    let glob = |glob: Option<String>| glob.map(|glob| read_glob(&glob)).transpose();
    let WrittenMatch { case, path, model } = written.fits;
    Ok(Line { case: glob(case)?, path: glob(path)?, model: glob(model)?, status, headers, body: Arc::new(body) })
}

fn read_glob(text: &str) -> Result<GlobMatcher, String> {
    crate::policy::glob::name(text).ok_or_else(|| format!("{text:?} is no glob"))
}

fn read_headers(written: &Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let read = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.to_ascii_lowercase(), text.clone())),
        Value::Number(number) => Ok((name.to_ascii_lowercase(), number.to_string())),
        _ => Err(format!("the header {name} is neither a string nor a number")),
    };
    written.iter().map(read).collect()
}

fn read_event(written: WrittenEvent) -> Result<Event, String> {
    let after = match written.after {
        Some(text) => {
            crate::policy::units::time(&text).ok_or_else(|| format!("after {text:?} is no time (25ms, 2s, 1m)"))?
        }
        None => Duration::ZERO,
    };
    if after > LONGEST_PAUSE {
        return Err("an event comes later than a day after the one before".to_owned());
    }
    let mut bytes = Vec::new();
    if let Some(event) = written.event {
        bytes.extend_from_slice(format!("event: {event}\n").as_bytes());
    }
    for line in text_of(&written.data).split(|byte| *byte == b'\n') {
        bytes.extend_from_slice(b"data: ");
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
    }
    bytes.push(b'\n');
    Ok(Event { after, bytes })
}

/// A string goes as it is, everything else as JSON.
fn text_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    }
}

struct Clock {
    deadline: Option<Instant>,
    life: Life,
}

impl Clock {
    /// Waits for `pause`, unless a limit or the trial's end comes before.
    fn wait(&mut self, pause: Duration, limit: Duration, failure: Failure) -> Result<(), Failure> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let (allowed, failure) = match left {
            Some(left) if left < limit => (left, Failure::RequestTime),
            _ => (limit, failure),
        };
        if !pause.is_zero() && self.life.wait(pause.min(allowed)) {
            return Err(Failure::StillOpen);
        }
        if pause > allowed { Err(failure) } else { Ok(()) }
    }
}

struct Scripted {
    events: Arc<Vec<Event>>,
    next: usize,
    idle: Duration,
    clock: Clock,
}

impl Pieces for Scripted {
    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        let Some(event) = self.events.get(self.next) else { return Ok(None) };
        // The first one was waited for before the head went.
        if self.next > 0 {
            self.clock.wait(event.after, self.idle, Failure::Idle)?;
        }
        self.next += 1;
        Ok(Some(&event.bytes))
    }
}
