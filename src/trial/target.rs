//! The target's container in three states: `Created → Running → Exited`. Only `Exited` can be observed, so that a verifier
//! cannot look while the agent lives. Ending goes through the engine: killing the client would leave the work running.

use super::Shape;
use super::output::{Captured, Event, Sink, capture};
use crate::docker::{ContainerState, Docker};
use crate::ids::ContainerId;
use crate::interrupt::Interrupt;
use crate::process::Child;
use crate::verdict::{Stop, StopReason};
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How often the watcher looks at the stop flag.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a start may take on a busy engine; it is not charged to the target's time.
const START: Duration = Duration::from_secs(120);
/// How long the engine may take to have a killed container dead, and the client to end.
const DEATH: Duration = Duration::from_secs(30);
/// How much later than a target's end the engine's word may come that it had no memory left.
const LATE_WORD: Duration = Duration::from_secs(5);
/// The exit code of what SIGKILL ended.
const KILLED: i32 = 137;
/// How much of the client's last words is shown, in bytes.
const LAST_WORDS: usize = 300;
/// Signals end a process with 128 and their number; the classic ones go to 31.
const SIGNALS: std::ops::RangeInclusive<i32> = 129..=159;

/// A target that has not started.
#[derive(Debug)]
pub struct Created {
    /// Its container.
    pub id: ContainerId,
    /// Which sandbox it is, for the proof.
    pub shape: Shape,
}

/// What bounds a running target.
#[derive(Debug, Clone)]
pub struct Watch {
    /// From its start as the engine tells it.
    pub wall_time: Duration,
    /// Bytes of each stream.
    pub output: u64,
    /// Ends it early.
    pub stop: Interrupt,
    /// What has to be alive as long as it is: its relay.
    pub companion: Option<ContainerId>,
}

/// A target that runs.
#[derive(Debug)]
pub struct Running {
    id: ContainerId,
    client: Child,
    begun: Instant,
    events: Receiver<Event>,
    stdout: JoinHandle<Result<Captured>>,
    stderr: JoinHandle<Result<Captured>>,
}

/// Why it was time to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    ByItself,
    WallTime,
    OutputLimit,
    Interrupted,
}

/// A target that is confirmed dead.
#[derive(Debug, Clone)]
pub struct Exited {
    /// How it stopped; none where the command was interrupted.
    pub stop: Option<Stop>,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// When it began, as the engine tells it; preparing it came before.
    pub started: Option<SystemTime>,
    /// The target's own time, as the engine tells it.
    pub duration: Duration,
    /// What else is to be known: a child that was killed for memory.
    pub diagnostics: Vec<String>,
    /// What became of its companion, where that was not alive any more.
    pub forsaken: Option<String>,
}

impl Created {
    /// Starts it with this input; its streams (standard output, standard error) are read from the first byte on.
    ///
    /// # Errors
    /// Where the docker client cannot be started.
    pub fn start(self, docker: &Docker, input: Vec<u8>, watch: &Watch, sinks: [Sink; 2]) -> Result<Running> {
        let [out, err] = sinks;
        let mut client = docker.start_attached(&self.id, true)?;
        let (sender, events) = channel();
        let output = client.take_output().context("the docker client has no standard output")?;
        let errors = client.take_errors().context("the docker client has no standard error")?;
        if let Some(mut pipe) = client.take_input() {
            // In a thread: a target that never reads must not hold us up. Dropping the pipe is the end of file.
            std::thread::spawn(move || pipe.write_all(&input));
        }
        Ok(Running {
            id: self.id,
            client,
            begun: Instant::now(),
            events,
            stdout: capture(output, watch.output, out, sender.clone()),
            stderr: capture(errors, watch.output, err, sender),
        })
    }
}

impl Running {
    /// Waits for its end, or ends it at a limit; gives it back confirmed dead.
    ///
    /// # Errors
    /// Where the engine loses it, cannot start it, or cannot end it.
    pub fn watch(self, docker: &Docker, watch: &Watch) -> Result<Exited> {
        let ended = self.until_end(docker, watch)?;
        if ended != Ended::ByItself {
            docker.kill(&self.id)?;
        }
        let (state, forsaken) = confirmed_dead(docker, &self.id, watch.companion.as_ref())?;
        // The streams end with the container; a client that does not is killed when it is dropped.
        let client = self.client.wait(Instant::now() + DEATH, None);
        drop(self.client);
        let captured =
            |reader: JoinHandle<Result<Captured>>| reader.join().ok().context("a stream reader ended early")?;
        let (stdout, stderr) = (captured(self.stdout)?, captured(self.stderr)?);
        if state.state.started_at.starts_with("0001-") {
            let words = if state.state.error.is_empty() {
                String::from_utf8_lossy(&stderr.kept)
            } else {
                (&state.state.error).into()
            };
            bail!("the engine did not start the target: {}", words.trim());
        }
        if ended == Ended::ByItself {
            // The client ends with the target's own code. One that ended otherwise lost the engine on the way, and what it
            // passed on may be a part of the answer only.
            let code = client.ok().and_then(|status| status.code());
            anyhow::ensure!(
                code == Some(state.state.exit_code),
                "the docker client lost the target's streams: {}",
                String::from_utf8_lossy(&stderr.kept[stderr.kept.len().saturating_sub(LAST_WORDS)..]).trim()
            );
        }
        let late = if ended == Ended::ByItself { late_word(docker, &state) } else { Ok(false) };
        let (stop, diagnostics) = judge(ended, &state, late);
        let (started, duration) = life(&state);
        Ok(Exited { stop, stdout, stderr, started, duration, diagnostics, forsaken })
    }

    fn until_end(&self, docker: &Docker, watch: &Watch) -> Result<Ended> {
        let mut deadline = self.begun + watch.wall_time;
        let mut open = 2;
        let mut is_dead = false;
        loop {
            if open == 0 {
                return Ok(Ended::ByItself);
            }
            match self.events.recv_timeout(GLANCE.min(deadline.saturating_duration_since(Instant::now()))) {
                Ok(Event::OverLimit) => return Ok(Ended::OutputLimit),
                Ok(Event::Ended) => open -= 1,
                Err(RecvTimeoutError::Disconnected) => return Ok(Ended::ByItself),
                Err(RecvTimeoutError::Timeout) if watch.stop.is_raised() => return Ok(Ended::Interrupted),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) if is_dead => {
                    bail!("the docker client still held the target's streams {DEATH:?} after the target had ended")
                }
                Err(RecvTimeoutError::Timeout) => match self.time_left(docker, watch)? {
                    Some(left) if left.is_zero() => return Ok(Ended::WallTime),
                    Some(left) => deadline = Instant::now() + left,
                    // It kept its time: that its client did not end is not its doing.
                    None => (is_dead, deadline) = (true, Instant::now() + DEATH),
                },
            }
        }
    }

    /// The start of a container takes its time, which is not the target's: the engine says when it was. None where the target
    /// ended before its time was over.
    fn time_left(&self, docker: &Docker, watch: &Watch) -> Result<Option<Duration>> {
        let state = docker.inspect_containers(&[&self.id])?.pop().context("the target's container is gone")?;
        match humantime::parse_rfc3339(&state.state.started_at) {
            Ok(started) if !state.state.started_at.starts_with("0001-") => {
                let is_running = state.state.running;
                let so_far = || SystemTime::now().duration_since(started).unwrap_or_default();
                let left = watch.wall_time.saturating_sub(if is_running { so_far() } else { life(&state).1 });
                Ok(Some(left).filter(|left| is_running || left.is_zero()))
            }
            _ if self.begun.elapsed() > START => bail!("the engine did not start the target within {START:?}"),
            _ => Ok(Some(GLANCE)),
        }
    }
}

/// Looks until the engine says that it is dead; in the same look, whether its companion is not. A client that ended before
/// its container is the engine's trouble.
fn confirmed_dead(
    docker: &Docker,
    id: &ContainerId,
    companion: Option<&ContainerId>,
) -> Result<(ContainerState, Option<String>)> {
    let begun = Instant::now();
    let asked: Vec<&ContainerId> = std::iter::once(id).chain(companion).collect();
    loop {
        let (own, others): (Vec<_>, Vec<_>) =
            docker.inspect_containers(&asked)?.into_iter().partition(|state| state.id == *id);
        let state = own.into_iter().next().context("the target's container is gone")?;
        if !state.state.running {
            return Ok((state, companion.and_then(|_| forsaken(others.first()))));
        }
        if begun.elapsed() > DEATH {
            docker.kill(id)?;
            bail!("the target's container {id} is still alive");
        }
        std::thread::sleep(GLANCE / 4);
    }
}

/// A relay that died took the target's way with it.
fn forsaken(companion: Option<&ContainerState>) -> Option<String> {
    match companion {
        Some(state) if state.state.running => None,
        Some(state) => Some(format!("the relay ended with exit code {} while the target ran", state.state.exit_code)),
        None => Some("the relay's container was gone when the target had ended".to_owned()),
    }
}

/// An end by SIGKILL that nobody here sent is most likely the kernel's, for want of memory. The engine hears of the two by
/// different ways, and where the end came first (seen on 20.10, by 0.2 s, 1 of 78) it never corrects `OOMKilled`: only its
/// events tell.
fn late_word(docker: &Docker, state: &ContainerState) -> Result<bool> {
    if state.state.oom_killed || state.state.exit_code != KILLED {
        return Ok(false);
    }
    let finished = humantime::parse_rfc3339(&state.state.finished_at)?;
    let until = humantime::format_rfc3339_millis(finished + LATE_WORD).to_string();
    Ok(docker.ran_out_of_memory(&state.id, &state.state.started_at, &until)?)
}

/// `late` is what the engine's events told where its state told nothing.
fn judge(ended: Ended, state: &ContainerState, late: Result<bool>) -> (Option<Stop>, Vec<String>) {
    let code = state.state.exit_code;
    let oom = state.state.oom_killed || matches!(late, Ok(true));
    let stop = match ended {
        Ended::Interrupted => None,
        Ended::WallTime => Some(Stop { reason: StopReason::WallTime, code: None }),
        Ended::OutputLimit => Some(Stop { reason: StopReason::OutputLimit, code: None }),
        Ended::ByItself if oom && code == KILLED => Some(Stop { reason: StopReason::OutOfMemory, code: None }),
        Ended::ByItself if SIGNALS.contains(&code) => Some(Stop { reason: StopReason::Signal, code: Some(code - 128) }),
        Ended::ByItself => Some(Stop { reason: StopReason::Exited, code: Some(code) }),
    };
    let mut diagnostics = Vec::new();
    if oom && stop.is_some_and(|stop| stop.reason != StopReason::OutOfMemory) {
        diagnostics.push("a process of the target was killed for want of memory (sandbox.memory)".to_owned());
    }
    if let Err(error) = late {
        diagnostics.push(format!("whether signal 9 was for want of memory (sandbox.memory) is not known: {error:#}"));
    }
    (stop, diagnostics)
}

fn life(state: &ContainerState) -> (Option<SystemTime>, Duration) {
    let time = |text: &str| humantime::parse_rfc3339(text).ok();
    let (started, finished) = (time(&state.state.started_at), time(&state.state.finished_at));
    let lived = started.zip(finished).and_then(|(started, finished)| finished.duration_since(started).ok());
    (started, lived.unwrap_or_default())
}
