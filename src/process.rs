//! Starting programs: the only user of duct. Each has a cleared environment, its own process group (a Ctrl-C of the
//! terminal never reaches it), a deadline and bounded output. Owns no program's argument list.
//!
//! Killing a docker client does not stop what the engine does for it: the rooms above end work through the engine.

use crate::interrupt::Interrupt;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often a wait looks at the stop flag.
const GLANCE: Duration = Duration::from_millis(20);
/// How often a wait that nothing ends early looks whether it has become urgent.
const LONG_GLANCE: Duration = Duration::from_millis(200);
/// How long output may still arrive after the program has ended: a busy machine takes its time. A grandchild may hold the
/// pipe for ever; then there is no result, since a part of an answer may read as another answer.
const DRAIN: Duration = Duration::from_secs(20);

/// The whole environment of a child; nothing else enters it.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// Nothing at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Everything of this process's environment: for the trusted evaluation process alone.
    pub fn inherited() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// These names of this process's environment, where they are set.
    pub fn only(names: &[&str]) -> Self {
        Self(names.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?))).collect())
    }

    /// With this variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Without this variable.
    #[must_use]
    pub fn without(mut self, name: impl AsRef<OsStr>) -> Self {
        self.0.remove(name.as_ref());
        self
    }

    /// The value of a variable in it.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.0.get(name.as_ref()).map(OsString::as_os_str)
    }
}

/// A program to start: a value that says all of it.
#[derive(Debug, Clone)]
pub struct Program {
    program: OsString,
    args: Vec<OsString>,
    environment: Environment,
    folder: Option<PathBuf>,
    input: Vec<u8>,
}

impl Program {
    /// A program by name (looked up on PATH) or path.
    pub fn new(program: impl Into<OsString>, environment: Environment) -> Self {
        Self { program: program.into(), args: Vec::new(), environment, folder: None, input: Vec::new() }
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// With more arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// In this folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// With these bytes on standard input (`run` only), then end of file.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// The program's name, for messages.
    pub fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// The arguments, for messages and for `plan`.
    pub fn arguments(&self) -> &[OsString] {
        &self.args
    }

    /// Starts it with all three streams as pipes.
    ///
    /// # Errors
    /// [`ProcessError::NotStarted`].
    pub fn spawn(&self) -> Result<Child, ProcessError> {
        let not_started = |error| ProcessError::NotStarted { program: self.name(), error };
        let (their_input, input) = io::pipe().map_err(not_started)?;
        let (output, their_output) = io::pipe().map_err(not_started)?;
        let (errors, their_errors) = io::pipe().map_err(not_started)?;
        let expression = self.expression().stdin_file(their_input).stdout_file(their_output).stderr_file(their_errors);
        let handle = expression.start().map_err(not_started)?;
        // The expression holds the child's ends; a reader sees the end only once they are gone here.
        drop(expression);
        Ok(Child {
            program: self.name(),
            handle,
            input: Some(input),
            output: Some(output),
            errors: Some(errors),
            gone: AtomicBool::new(false),
        })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// Not started, out of time, stopped, or more output than `bounds` allows. A non-zero exit is no error here.
    pub fn run(&self, bounds: &Bounds) -> Result<Finished, ProcessError> {
        let mut child = self.spawn()?;
        if let Some(mut input) = child.take_input() {
            let bytes = self.input.clone();
            // A thread, since a program that prints before it reads would wait for us while we wait for it.
            std::thread::spawn(move || input.write_all(&bytes));
        }
        let output = child.take_output().map(|pipe| collect(pipe, bounds.output));
        let errors = child.take_errors().map(|pipe| collect(pipe, bounds.output));
        let begun = Instant::now();
        let hurried = bounds.hurried.as_ref().map(|(stop, time)| (stop, begun + *time));
        let status = child.wait_hurried(begun + bounds.time, bounds.stop.as_ref(), hurried)?;
        let open = || ProcessError::OutputOpen { program: self.name() };
        let (stdout, more) = gathered(output).ok_or_else(open)?;
        let (stderr, _) = gathered(errors).ok_or_else(open)?;
        if more {
            return Err(ProcessError::TooMuchOutput { program: self.name(), limit: bounds.output });
        }
        Ok(Finished { status, stdout, stderr })
    }

    /// Runs it with this process's own terminal: in its process group, since only the terminal's foreground group may read.
    /// Ended when `until` says so.
    ///
    /// # Errors
    /// Not started, or lost.
    pub fn run_on_terminal(&self, until: impl Fn() -> bool) -> Result<ExitStatus, ProcessError> {
        let not_started = |error| ProcessError::NotStarted { program: self.name(), error };
        let handle = self.bare_expression().start().map_err(not_started)?;
        loop {
            let ended = handle.wait_timeout(GLANCE).map_err(|error| ProcessError::lost(&self.name(), error))?;
            if let Some(output) = ended {
                return Ok(output.status);
            }
            if until() {
                let _ = handle.kill();
            }
        }
    }

    fn expression(&self) -> duct::Expression {
        self.bare_expression().before_spawn(|command| {
            command.process_group(0);
            Ok(())
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where a program is started")]
    fn bare_expression(&self) -> duct::Expression {
        let expression = duct::cmd(&self.program, &self.args).full_env(&self.environment.0).unchecked();
        match &self.folder {
            Some(folder) => expression.dir(folder),
            None => expression,
        }
    }
}

/// What a run to the end may take.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// From its start.
    pub time: Duration,
    /// Bytes of each stream that are kept; more on standard output is an error.
    pub output: usize,
    /// Gives up when this is raised; none for what a clean-up does.
    pub stop: Option<Interrupt>,
    /// Once the user asked twice to stop, the time is this one, also for a call that has begun.
    pub hurried: Option<(Interrupt, Duration)>,
}

impl Bounds {
    /// A time limit, 16 MiB of output, no stop flag.
    pub fn time(time: Duration) -> Self {
        Self { time, output: 16 << 20, stop: None, hurried: None }
    }

    /// Takes no longer than this, from its start, once the user asked twice to stop.
    #[must_use]
    pub fn hurried_by(mut self, stop: &Interrupt, time: Duration) -> Self {
        self.hurried = Some((stop.clone(), time));
        self
    }

    /// Gives up when the flag is raised.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Interrupt) -> Self {
        self.stop = Some(stop.clone());
        self
    }
}

/// A program that has ended.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output, whole.
    pub stdout: Vec<u8>,
    /// Standard error, its first bytes.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Standard error as text, trimmed.
    pub fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// A running program with piped streams. Dropping it kills its process group.
#[derive(Debug)]
pub struct Child {
    program: String,
    handle: duct::Handle,
    input: Option<PipeWriter>,
    output: Option<PipeReader>,
    errors: Option<PipeReader>,
    /// Its group was killed after its end was seen: from then on the number may be somebody else's.
    gone: AtomicBool,
}

impl Child {
    /// Its standard input; dropping it is the end of file.
    pub fn take_input(&mut self) -> Option<PipeWriter> {
        self.input.take()
    }

    /// Its standard output.
    pub fn take_output(&mut self) -> Option<PipeReader> {
        self.output.take()
    }

    /// Its standard error.
    pub fn take_errors(&mut self) -> Option<PipeReader> {
        self.errors.take()
    }

    /// Whether it has ended, and how.
    ///
    /// # Errors
    /// Where the system cannot tell.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, ProcessError> {
        let ended = self.handle.try_wait().map_err(|error| ProcessError::lost(&self.program, error))?;
        Ok(ended.map(|output| output.status))
    }

    /// Waits for its end; past the deadline or at a raised flag its process group is killed.
    ///
    /// # Errors
    /// [`ProcessError::OutOfTime`], [`ProcessError::Stopped`].
    pub fn wait(&self, deadline: Instant, stop: Option<&Interrupt>) -> Result<ExitStatus, ProcessError> {
        self.wait_hurried(deadline, stop, None)
    }

    fn wait_hurried(
        &self,
        deadline: Instant,
        stop: Option<&Interrupt>,
        hurried: Option<(&Interrupt, Instant)>,
    ) -> Result<ExitStatus, ProcessError> {
        let begun = Instant::now();
        loop {
            let deadline = match hurried {
                Some((stop, sooner)) if stop.is_impatient() => deadline.min(sooner),
                _ => deadline,
            };
            let glance = match (stop, hurried) {
                (Some(_), _) => deadline.min(Instant::now() + GLANCE),
                (None, Some(_)) => deadline.min(Instant::now() + LONG_GLANCE),
                (None, None) => deadline,
            };
            let ended = self.handle.wait_deadline(glance).map_err(|error| ProcessError::lost(&self.program, error))?;
            if let Some(output) = ended {
                return Ok(output.status);
            }
            if stop.is_some_and(Interrupt::is_raised) {
                self.kill();
                return Err(ProcessError::Stopped { program: self.program.clone() });
            }
            if Instant::now() >= deadline {
                self.kill();
                return Err(ProcessError::OutOfTime { program: self.program.clone(), time: begun.elapsed() });
            }
        }
    }

    /// Kills its whole process group. A program that has ended is no error.
    pub fn kill(&self) {
        if self.gone.load(Ordering::SeqCst) {
            return;
        }
        for pid in self.handle.pids() {
            if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        let _ = self.handle.kill();
        if !matches!(self.handle.try_wait(), Ok(None)) {
            self.gone.store(true, Ordering::SeqCst);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Also after its end, once: a grandchild may still be there, and the group's number is not used again while it is.
        self.kill();
    }
}

/// Why a program gave no result. Never shows arguments: the rooms above say what they wanted.
#[derive(Debug)]
pub enum ProcessError {
    /// It is not there, or may not be run.
    NotStarted {
        /// Its name.
        program: String,
        /// The system's reason.
        error: io::Error,
    },
    /// Killed at its deadline.
    OutOfTime {
        /// Its name.
        program: String,
        /// How long it had.
        time: Duration,
    },
    /// Killed because the command was interrupted.
    Stopped {
        /// Its name.
        program: String,
    },
    /// Its standard output did not fit.
    TooMuchOutput {
        /// Its name.
        program: String,
        /// Bytes.
        limit: usize,
    },
    /// It ended, and something else kept its output open: what came is not known to be all.
    OutputOpen {
        /// Its name.
        program: String,
    },
    /// The system lost track of it.
    Lost {
        /// Its name.
        program: String,
        /// The system's reason.
        error: io::Error,
    },
}

impl ProcessError {
    fn lost(program: &str, error: io::Error) -> Self {
        ProcessError::Lost { program: program.to_owned(), error }
    }
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessError::NotStarted { program, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "there is no program {program} on PATH")
            }
            ProcessError::NotStarted { program, error } => write!(f, "failed to start {program}: {error}"),
            ProcessError::OutOfTime { program, time } => {
                write!(f, "{program} gave no answer within {:.1} s", time.as_secs_f64())
            }
            ProcessError::Stopped { program } => write!(f, "{program} was stopped by the interruption"),
            ProcessError::TooMuchOutput { program, limit } => write!(f, "{program} printed more than {limit} bytes"),
            ProcessError::OutputOpen { program } => write!(f, "{program} ended, and its output did not"),
            ProcessError::Lost { program, error } => write!(f, "lost track of {program}: {error}"),
        }
    }
}

impl std::error::Error for ProcessError {}

/// Signal number of a program that a signal ended.
pub fn ended_by_signal(status: ExitStatus) -> Option<i32> {
    status.signal()
}

type Gathering = mpsc::Receiver<(Vec<u8>, bool)>;

/// Reads to the end, keeping `limit` bytes; what comes after is read and dropped, so that the program never blocks.
fn collect(mut pipe: PipeReader, limit: usize) -> Gathering {
    let (done, gathering) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut kept, mut more) = (Vec::new(), false);
        let mut buffer = [0_u8; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let take = count.min(limit - kept.len());
            kept.extend_from_slice(&buffer[..take]);
            more |= take < count;
        }
        let _ = done.send((kept, more));
    });
    gathering
}

/// Everything that was read; none where the stream did not end.
fn gathered(gathering: Option<Gathering>) -> Option<(Vec<u8>, bool)> {
    gathered_within(gathering, DRAIN)
}

fn gathered_within(gathering: Option<Gathering>, time: Duration) -> Option<(Vec<u8>, bool)> {
    gathering?.recv_timeout(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::new("/bin/sh", Environment::only(&["PATH"])).args(["-c", script])
    }

    fn run(program: &Program) -> Finished {
        program.run(&Bounds::time(Duration::from_secs(10))).unwrap()
    }

    #[test]
    fn a_child_gets_its_declared_environment_and_nothing_else() {
        let finished = run(&Program::new("/usr/bin/env", Environment::empty().with("ONE", "1")));
        assert_eq!(finished.stdout, b"ONE=1\n");
    }

    #[test]
    fn input_goes_in_and_both_streams_and_the_status_come_out() {
        let finished = run(&shell("cat; printf oops >&2; exit 3").input("hello"));
        assert_eq!((finished.stdout.as_slice(), finished.complaint().as_str()), (&b"hello"[..], "oops"));
        assert_eq!(finished.status.code(), Some(3));
    }

    #[test]
    fn more_output_than_allowed_is_an_error_and_blocks_nobody() {
        let bounds = Bounds { output: 100, ..Bounds::time(Duration::from_secs(10)) };
        let error = shell("head -c 1000000 /dev/zero").run(&bounds).unwrap_err();
        assert!(matches!(error, ProcessError::TooMuchOutput { limit: 100, .. }), "{error}");
    }

    #[test]
    fn the_deadline_ends_the_whole_group() {
        let marker = tempfile::NamedTempFile::new().unwrap();
        let script = format!("(sleep 1; echo late > {}) & sleep 60", marker.path().display());
        let error = shell(&script).run(&Bounds::time(Duration::from_millis(200))).unwrap_err();
        assert!(matches!(error, ProcessError::OutOfTime { .. }), "{error}");
        run(&shell("sleep 1.2"));
        assert_eq!(std::fs::read(marker.path()).unwrap(), b"");
    }

    #[test]
    fn an_answer_that_may_not_be_whole_is_no_answer() {
        // The pipe stays open behind the program's back: what came cannot be told from a part of it.
        let (reader, mut writer) = io::pipe().unwrap();
        let gathering = collect(reader, 100);
        writer.write_all(b"a part").unwrap();
        assert_eq!(gathered_within(Some(gathering), Duration::from_millis(50)), None);
    }

    #[test]
    fn a_raised_flag_ends_the_wait() {
        let stop = Interrupt::never();
        stop.raise(2);
        let error = shell("sleep 60").run(&Bounds::time(Duration::from_secs(60)).stopped_by(&stop)).unwrap_err();
        assert!(matches!(error, ProcessError::Stopped { .. }), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error =
            Program::new("no-such-program", Environment::only(&["PATH"])).run(&Bounds::time(Duration::from_secs(1)));
        assert_eq!(error.unwrap_err().to_string(), "there is no program no-such-program on PATH");
    }
}
