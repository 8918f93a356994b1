//! One evaluation process: the world and the verifier of one trial, on the host. Owns its start, its serial calls, each
//! with a deadline, and its end. Decides nothing about outcomes.
//!
//! Invariant: after a reply that cannot be believed the process is dead; whatever happens, its process group is gone
//! when the host is.

use crate::evaluation::log::Log;
use crate::evaluation::package::Package;
use crate::evaluation::protocol::{self, Declared, LONGEST_MESSAGE, NoResult, Reply, VerifyInput, clip};
use crate::evaluation::trouble::{EvaluationError, LONGEST_MESSAGE_SHOWN, Trouble};
use crate::interrupt::Interrupt;
use crate::policy::Policy;
use crate::process::{Child, Environment, Program};
use crate::verdict::Check;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read, Write as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a wait looks whether the process is still there; a reply ends the wait at once.
const GLANCE: Duration = Duration::from_millis(20);
/// How long a last word may still be on its way after the process has ended (a grandchild may hold the pipe).
const DRAIN: Duration = Duration::from_millis(500);
/// How long a process may take to say good-bye.
const GOODBYE: Duration = Duration::from_secs(5);

/// What starting a process takes.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Trusted already: see [`super::require_trust`].
    pub package: &'a Package,
    /// For the command and the time of one call.
    pub policy: &'a Policy,
    /// `--python`; used where the command is python or python3.
    pub python: Option<&'a Utf8Path>,
    /// Variables that are taken out of the inherited environment.
    pub secrets_to_hide: &'a [String],
    /// The folder that [`super::write_sdk`] filled.
    pub sdk: &'a Utf8Path,
    /// Ends a wait; none for a caller that cannot be interrupted.
    pub stop: Option<&'a Interrupt>,
}

impl Launch<'_> {
    /// The program with its arguments, environment and folder.
    fn program(&self) -> Program {
        let command = &self.policy.evaluation.command;
        let (name, arguments) = command.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
        let mut environment = Environment::inherited();
        for secret in self.secrets_to_hide {
            environment = environment.without(secret);
        }
        let mut path = self.sdk.as_os_str().to_owned();
        if let Some(inherited) = environment.get("PYTHONPATH").filter(|value| !value.is_empty()) {
            path.push(":");
            path.push(inherited);
        }
        // A script's own interpreter is protected from its first line on; one that launches something (`-m poetry run …`)
        // is not, since the program that comes after it needs the streams.
        let script = is_python(name) && arguments.first().is_some_and(|argument| !argument.starts_with('-'));
        let environment = environment
            .with("PYTHONPATH", path)
            .with("PYTHONDONTWRITEBYTECODE", "1")
            .with("CRASHLAB_EVALUATION_PROCESS", if script { "script" } else { "import" });
        Program::new(self.executable(name), environment).args(arguments).folder(&self.package.root)
    }

    /// The program's path: `--python`, then the package's `.venv` (only beside a lock), stand in for python and python3.
    fn executable(&self, name: &str) -> Utf8PathBuf {
        if is_python(name) {
            let venv = self.package.root.join(".venv/bin/python");
            match self.python {
                // A path is relative to where the user is, not to the package.
                Some(python) if python.as_str().contains('/') => return absolute(python),
                Some(python) => return python.to_owned(),
                None if self.package.lock.is_some() && venv.is_file() => return venv,
                None => {}
            }
        }
        if name.contains('/') { self.package.root.join(name) } else { Utf8PathBuf::from(name) }
    }
}

fn is_python(name: &str) -> bool {
    matches!(name, "python" | "python3")
}

fn absolute(path: &Utf8Path) -> Utf8PathBuf {
    camino::absolute_utf8(path).unwrap_or_else(|_| path.to_owned())
}

/// A running evaluation process. Dropping it kills its process group.
#[derive(Debug)]
pub struct Host {
    child: Child,
    requests: Option<SyncSender<Vec<u8>>>,
    replies: Receiver<Incoming>,
    log: Arc<Mutex<Log>>,
    log_ended: Receiver<()>,
    timeout: Duration,
    stop: Option<Interrupt>,
    next: u64,
    /// Why nothing that it says is believed any more.
    broken: Option<String>,
}

#[derive(Debug)]
enum Incoming {
    Line(Vec<u8>),
    TooLong,
}

impl Host {
    /// Starts a process. It has said nothing yet: [`Host::initialize`] comes next.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(launch: &Launch<'_>) -> Result<Self, EvaluationError> {
        let not_started = |what: String| EvaluationError { kind: Trouble::NotStarted, method: "start", message: what };
        let mut child = launch.program().spawn().map_err(|error| not_started(error.to_string()))?;
        let (Some(input), Some(output), Some(errors)) = (child.take_input(), child.take_output(), child.take_errors())
        else {
            return Err(not_started("the evaluation process has no streams".to_owned()));
        };
        let log = Arc::new(Mutex::new(Log::default()));
        Ok(Self {
            child,
            requests: Some(write_requests(input)),
            replies: read_replies(output),
            log_ended: keep_log(errors, Arc::clone(&log)),
            log,
            timeout: launch.policy.evaluation.timeout,
            stop: launch.stop.cloned(),
            next: 1,
            broken: None,
        })
    }

    /// Asks what it implements.
    ///
    /// # Errors
    /// As every call: see [`Trouble`].
    pub fn initialize(&mut self) -> Result<Declared, EvaluationError> {
        let result = self.ask("initialize", &json!({"protocol": 1}))?;
        self.read("initialize", protocol::declared(&result))
    }

    /// Creates the world of a case (the whole line of the cases' file).
    ///
    /// # Errors
    /// As every call: see [`Trouble`].
    pub fn create_world(&mut self, case: &Value) -> Result<(), EvaluationError> {
        self.ask("world.create", &json!({"case": case})).map(drop)
    }

    /// Calls an operation. The caller has checked that it is declared, and its arguments.
    ///
    /// # Errors
    /// As every call: see [`Trouble`]. A world that refuses is no error.
    pub fn call(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<Reply, EvaluationError> {
        let result = self.ask("operation.call", &protocol::call_params(name, arguments))?;
        self.read("operation.call", protocol::reply(result))
    }

    /// The world as it is now.
    ///
    /// # Errors
    /// As every call: see [`Trouble`].
    pub fn snapshot(&mut self) -> Result<Value, EvaluationError> {
        let mut result = self.ask("world.snapshot", &json!({}))?;
        let world = result.as_object_mut().and_then(|object| object.remove("world"));
        self.read("world.snapshot", world.ok_or_else(|| "there is no world in the result".to_owned()))
    }

    /// Puts a snapshot in the world's place (drills only).
    ///
    /// # Errors
    /// As every call: see [`Trouble`].
    pub fn restore(&mut self, world: &Value) -> Result<(), EvaluationError> {
        self.ask("world.restore", &json!({"world": world})).map(drop)
    }

    /// Lets the verifier look; at least one check comes back.
    ///
    /// # Errors
    /// As every call: see [`Trouble`]; and where it made no check.
    pub fn verify(&mut self, input: &VerifyInput<'_>) -> Result<Vec<Check>, EvaluationError> {
        let result = self.ask("verify", input)?;
        self.read("verify", protocol::checks(&result))
    }

    /// Lets it go, kills what does not, and gives its whole log. What goes wrong here changes no verdict.
    pub fn shutdown(mut self) -> Vec<u8> {
        if self.broken.is_none() {
            self.timeout = self.timeout.min(GOODBYE);
            let _ = self.ask("shutdown", &json!({}));
            self.requests = None;
            let _ = self.child.wait(Instant::now() + DRAIN, self.stop.as_ref());
        }
        self.end();
        self.log()
    }

    /// Its standard error so far, bounded; whole once the process has ended.
    pub fn log(&self) -> Vec<u8> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    /// Kills the process group and waits for the rest of the log.
    fn end(&mut self) {
        // Killed before its input ends: it must not take the end for a good-bye and go on.
        self.child.kill();
        self.requests = None;
        let _ = self.child.wait(Instant::now() + DRAIN, None);
        let _ = self.log_ended.recv_timeout(DRAIN);
    }

    fn ask(&mut self, method: &'static str, params: &impl Serialize) -> Result<Value, EvaluationError> {
        let failed = |kind, message| EvaluationError { kind, method, message };
        if let Some(why) = &self.broken {
            return Err(failed(Trouble::Ended, format!("the evaluation process had failed before: {why}")));
        }
        let id = self.next;
        self.next += 1;
        let line = protocol::request(id, method, params)
            .map_err(|error| failed(Trouble::Malformed, format!("cannot write the request: {error}")))?;
        match self.exchange(line).map(|reply| protocol::result(id, &reply)) {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(NoResult::Raised(message))) => Err(failed(Trouble::Raised, message)),
            Ok(Err(NoResult::Malformed(what))) => {
                Err(self.give_up(method, Trouble::Malformed, format!("its message is not understood: {what}")))
            }
            Err((kind, message)) => Err(self.give_up(method, kind, message)),
        }
    }

    /// A result of the wrong shape is as bad as none, and the process as little believed.
    fn read<T>(&mut self, method: &'static str, result: Result<T, String>) -> Result<T, EvaluationError> {
        result.map_err(|message| EvaluationError { kind: Trouble::Malformed, method, message })
    }

    fn give_up(&mut self, method: &'static str, kind: Trouble, message: String) -> EvaluationError {
        self.end();
        self.broken = Some(clip(&message, LONGEST_MESSAGE_SHOWN));
        EvaluationError { kind, method, message }
    }

    /// Sends a line and waits for one.
    fn exchange(&self, line: Vec<u8>) -> Result<Vec<u8>, (Trouble, String)> {
        let deadline = Instant::now() + self.timeout;
        // The writer has taken every earlier line, since each was answered: this never blocks.
        let sent = self.requests.as_ref().is_some_and(|requests| requests.send(line).is_ok());
        let mut end_seen = if sent { None } else { Some(Instant::now()) };
        loop {
            match self.replies.recv_timeout(GLANCE) {
                Ok(Incoming::Line(line)) => return Ok(line),
                Ok(Incoming::TooLong) => {
                    let limit = LONGEST_MESSAGE >> 20;
                    return Err((Trouble::Malformed, format!("its message is longer than {limit} MiB")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err((Trouble::Ended, self.how_it_ended())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.stop.as_ref().is_some_and(Interrupt::is_raised) {
                return Err((Trouble::Stopped, "stopped by the interruption".to_owned()));
            }
            if end_seen.is_none() && !matches!(self.child.try_wait(), Ok(None)) {
                end_seen = Some(Instant::now());
            }
            if end_seen.is_some_and(|seen| seen.elapsed() >= DRAIN) {
                return Err((Trouble::Ended, self.how_it_ended()));
            }
            if Instant::now() >= deadline {
                let time = humantime::format_duration(self.timeout);
                return Err((Trouble::OutOfTime, format!("no answer within {time}")));
            }
        }
    }

    fn how_it_ended(&self) -> String {
        // Its pipe may close a moment before the process is gone.
        match self.child.wait(Instant::now() + DRAIN, None) {
            Ok(status) => format!("the evaluation process ended without an answer ({status})"),
            Err(_) => "the evaluation process closed its output without an answer".to_owned(),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.child.kill();
        // Reaps it, so that no zombie is left.
        let _ = self.child.wait(Instant::now() + DRAIN, None);
    }
}

/// A thread, since a process that does not read would block the caller beyond its deadline.
fn write_requests(mut input: PipeWriter) -> SyncSender<Vec<u8>> {
    let (requests, lines) = mpsc::sync_channel::<Vec<u8>>(1);
    std::thread::spawn(move || {
        while let Ok(line) = lines.recv() {
            if input.write_all(&line).is_err() {
                break;
            }
        }
    });
    requests
}

/// Hands on one line at a time; a process that says more than it is asked waits, and its memory is its own.
fn read_replies(output: PipeReader) -> Receiver<Incoming> {
    let (lines, replies) = mpsc::sync_channel(0);
    std::thread::spawn(move || {
        let mut output = BufReader::with_capacity(64 << 10, output);
        loop {
            let mut line = Vec::new();
            let limit = LONGEST_MESSAGE as u64 + 1;
            let incoming = match output.by_ref().take(limit).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.ends_with(b"\n") => Incoming::Line(line),
                Ok(count) if count as u64 == limit => Incoming::TooLong,
                // Cut in the middle: no message.
                Ok(_) => return,
            };
            let last = matches!(incoming, Incoming::TooLong);
            if lines.send(incoming).is_err() || last {
                return;
            }
        }
    });
    replies
}

fn keep_log(mut errors: PipeReader, log: Arc<Mutex<Log>>) -> Receiver<()> {
    let (done, ended) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut buffer = [0_u8; 16 << 10];
        while let Ok(count @ 1..) = errors.read(&mut buffer) {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
        }
        let _ = done.send(());
    });
    ended
}
