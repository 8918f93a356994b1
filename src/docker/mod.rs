//! The only room that knows docker's command line: argument lists (`args.rs`), one function a verb, and small structs of
//! what inspect, info and version print. It keeps no record and decides nothing: `scope` owns what is created and removed.
//!
//! What one trial costs in calls; a run's own (info, image, attestation …) come once. Held by `tests/engine/wide.rs`.
//!
//! | step | without a network | with operations or gateways |
//! | --- | --- | --- |
//! | its network | | `network create` |
//! | its relay | | `run --detach`, `network connect` |
//! | its sandbox, compared with the policy | `create`, `inspect` | `create`, `inspect` |
//! | the target | `start --attach` | `start --attach` |
//! | dead, and the relay alive | `inspect` | `inspect` |
//! | its relay off the relays' network | | `network disconnect` |
//! | removed, several trials at once | `rm`, `inspect` | `rm`, `inspect`, `network rm`, `inspect` |
//!
//! Every call has a deadline, a cleared environment (no proxy variable of the host reaches the client, so that a bare
//! `--env HTTP_PROXY` means "unset") and its own process group.

pub mod args;
mod build;
mod container;
mod engine;
mod error;
mod image;
mod look;
mod network;
mod strain;

pub use build::{BuilderState, VolumeState, builder_container, builder_volume};
pub use container::{Attached, ContainerState, CreatedContainer};
pub use engine::{Endpoint, Engine, Place};
pub use error::DockerError;
pub use image::ImageState;
pub use look::Identity;
pub use network::NetworkState;

use crate::interrupt::Interrupt;
use crate::process::{Bounds, Child, Environment, Finished, ProcessError, Program};
use crate::trace::Trace;
use camino::{Utf8Path, Utf8PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strain::{IMPATIENT_CALL, Strain};

/// The variables that tell the client which engine to speak to, and as whom.
const CLIENT_ENVIRONMENT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "DOCKER_API_VERSION",
];

/// A handle on the docker client; cheap to clone.
#[derive(Debug, Clone)]
pub struct Docker {
    environment: Environment,
    stop: Interrupt,
    trace: Trace,
    strain: Arc<Strain>,
    /// Held by who attaches to a shared network, or takes off it.
    attaching: Arc<Mutex<()>>,
}

impl Docker {
    /// The client as the user's environment, context and configuration choose it.
    pub fn new(stop: &Interrupt, trace: &Trace) -> Self {
        // LC_ALL: messages such as "No such container" are compared.
        let environment = Environment::only(CLIENT_ENVIRONMENT).with("LC_ALL", "C").with("DOCKER_CLI_HINTS", "false");
        // buildx has git tell about the folder that it builds. A snapshot has no `.git`, but where the results lie in the
        // target's own repository, git would find that one above, and run what it configures. The first says not to ask;
        // the second has any git that is asked all the same find no repository.
        let environment = environment.with("BUILDX_GIT_INFO", "false").with("GIT_DIR", "/dev/null");
        // The client is a Go program of some 30 ms: it is over before its garbage is worth collecting.
        let environment = environment.with("GOGC", "400");
        Self {
            environment,
            stop: stop.clone(),
            trace: trace.clone(),
            strain: Arc::default(),
            attaching: Arc::default(),
        }
    }

    /// The same client with a buildx configuration of its own, so that the user's builders stay as they are.
    #[must_use]
    pub fn with_buildx_config(&self, folder: &Utf8Path) -> Self {
        let environment = self.environment.clone().with("BUILDX_CONFIG", folder.as_str());
        Self { environment, ..self.clone() }
    }

    /// A call that creates, removes or asks: never cut short by a first signal, so that its result is known.
    fn call(&self, args: Vec<String>) -> Result<Finished, DockerError> {
        self.run(self.program(args), self.bounds())
    }

    /// A call that may take long and may be given up.
    fn long_call(&self, args: Vec<String>, time: Duration) -> Result<Finished, DockerError> {
        self.run(self.program(args), Bounds::time(time).stopped_by(&self.stop))
    }

    fn call_with_input(&self, args: Vec<String>, input: Vec<u8>) -> Result<Finished, DockerError> {
        self.run(self.program(args).input(input), self.bounds())
    }

    /// What a short call may take; less once the user asked twice, also where the call has begun.
    fn bounds(&self) -> Bounds {
        Bounds::time(self.strain.time()).hurried_by(&self.stop, IMPATIENT_CALL)
    }

    fn spawn(&self, args: Vec<String>) -> Result<Child, DockerError> {
        let program = self.program(args);
        let verb = verb_of(&program);
        program.spawn().map_err(|error| DockerError::no_answer(verb, error))
    }

    fn program(&self, args: Vec<String>) -> Program {
        Program::new("docker", self.environment.clone()).args(args)
    }

    fn run(&self, program: Program, bounds: Bounds) -> Result<Finished, DockerError> {
        let verb = verb_of(&program);
        let _span = self.trace.span(|| verb.clone());
        let (finished, error) = self.ended(verb, program.run(&bounds));
        match (finished, error) {
            (_, Some(error)) => Err(error),
            (finished, None) => Ok(finished),
        }
    }

    /// What came of a call, noted: a call that failed may have printed something all the same.
    fn ended(&self, verb: String, ran: Result<Finished, ProcessError>) -> (Finished, Option<DockerError>) {
        let (finished, error) = match ran {
            Ok(finished) if finished.status.success() => (finished, None),
            Ok(finished) => {
                let error = DockerError::refused(verb, &finished);
                (finished, Some(error))
            }
            Err(error) => (Finished::default(), Some(DockerError::no_answer(verb, error))),
        };
        self.strain.note(error.as_ref());
        (finished, error)
    }

    /// How long no call has found an engine; none where the last one did.
    pub fn unreachable_for(&self) -> Option<Duration> {
        self.strain.unreachable_for()
    }

    /// How many clients were given up on so far: what they had asked for may still come.
    pub fn given_up(&self) -> u64 {
        self.strain.given_up()
    }

    /// The stop flag that long calls obey.
    pub fn stop(&self) -> &Interrupt {
        &self.stop
    }
}

/// `docker network create`, for messages: the words before the first option.
fn verb_of(program: &Program) -> String {
    let words = program.arguments().iter().map(|arg| arg.to_string_lossy().into_owned());
    let verb: Vec<String> = words.take(2).take_while(|word| !word.starts_with('-') && word.len() < 20).collect();
    format!("docker {}", verb.join(" "))
}

/// Where the user's docker configuration stands, for messages.
pub fn configuration_folder(environment: &Environment) -> Option<Utf8PathBuf> {
    let folder = environment.get("DOCKER_CONFIG").map(std::path::PathBuf::from);
    let folder = folder.or_else(|| environment.get("HOME").map(|home| std::path::Path::new(home).join(".docker")))?;
    Utf8PathBuf::from_path_buf(folder).ok()
}

/// Splits a listing into its lines.
fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
