//! The policy: what the target gets and may do. Two types: as written (`written.rs`), and checked (here). After loading
//! no string is left that has a unit or a rule. Knows nothing of Docker, of processes or of the network.

pub mod arguments;
mod builtin;
pub mod cases;
mod checked;
pub mod credential;
mod drills;
#[cfg(test)]
mod example;
mod forms;
mod gateways;
pub mod glob;
mod problem;
mod route;
mod sandbox;
pub mod schema;
mod shape;
mod target;
#[cfg(test)]
mod tests;
pub mod units;
mod written;
#[cfg(test)]
mod wrong;

use crate::exit::Refusal;
use crate::ids::Digest;
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

pub use cases::{Case, load_cases, parse_cases, select};
pub use schema::{case_schema_text, schema_text};
pub use written::FILE;

/// Reads and checks the policy of an evaluation package: the built-in pieces, `policy.json` over them, and each overlay
/// (`--policy FILE`) over that.
///
/// # Errors
/// A refusal with every problem: file and JSON pointer, what was found, what would do.
pub fn load(package: &Utf8Path, overlays: &[Utf8PathBuf]) -> Result<Policy, Refusal> {
    let written = written::Written::read(package, overlays)?;
    let (policy, written) = checked::check(written)?;
    checked::look_at_files(package, &policy, &written)?;
    Ok(policy)
}

/// Checks one policy document as if it were a package's `policy.json`, without looking at any file that it names.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &[u8]) -> Result<Policy, Refusal> {
    Ok(checked::check(written::Written::parse(text)?)?.0)
}

/// A policy that was merged and checked whole.
#[derive(Debug, Clone)]
pub struct Policy {
    /// `[a-z0-9-]{1,40}`.
    pub name: String,
    /// Over the merged JSON, keys sorted, without white space.
    pub digest: Digest,
    /// What enters the sandbox.
    pub target: Target,
    /// The sandbox's bounds.
    pub sandbox: Sandbox,
    /// The operations that exist for the target; none else do (O1).
    pub operations: BTreeMap<String, OperationRule>,
    /// The ways to a provider.
    pub gateways: BTreeMap<String, GatewayRule>,
    /// The trusted host process.
    pub evaluation: EvaluationRule,
    /// Relative to the package.
    pub cases: Utf8PathBuf,
    /// From 1.
    pub repeat: u32,
    /// Declared fault drills by name.
    pub drills: BTreeMap<String, Drill>,
    /// The merged policy as JSON, for the record.
    pub written: Value,
}

/// What enters the sandbox, and what runs there.
#[derive(Debug, Clone)]
pub struct Target {
    /// Relative to the package.
    pub source: Utf8PathBuf,
    /// In order; a leading `!` takes out.
    pub files: Vec<String>,
    /// Absolute path in the container.
    pub mount: String,
    /// Where the image comes from.
    pub image: ImageSource,
    /// Non-empty.
    pub command: Vec<String>,
    /// No credential-like name or value (S5).
    pub env: BTreeMap<String, String>,
    /// The snapshot's bounds.
    pub limits: SnapshotLimits,
}

/// The snapshot's bounds; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Number of files.
    pub files: u64,
    /// All files together.
    pub bytes: u64,
    /// The largest file.
    pub file: u64,
}

/// Where the target's image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// An image by reference.
    Reference {
        /// As `docker run` would take it.
        reference: String,
        /// Whether a missing one may be pulled.
        pull: Pull,
    },
    /// An image built from the snapshot.
    Build(BuildRule),
}

/// Whether a missing image may be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// Pull where the engine has none.
    Missing,
    /// Refuse where the engine has none.
    Never,
}

/// How the target's image is built (I11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRule {
    /// Relative to the snapshot's root.
    pub dockerfile: String,
    /// Build arguments, under S5's rule.
    pub args: BTreeMap<String, String>,
    /// Named contexts: a name in the Dockerfile, and the local image it stands for.
    pub contexts: BTreeMap<String, String>,
    /// Network of the build's steps.
    pub network: BuildNetwork,
    /// The build's time limit.
    pub time: Duration,
}

/// Network of a build's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildNetwork {
    /// No network: the default.
    None,
    /// The engine's default network; warned about and kept with the run.
    Default,
}

/// The sandbox's bounds; sizes in bytes.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Neither is 0.
    pub user: User,
    /// Thousandths of a CPU, from 100.
    pub milli_cpus: u64,
    /// Swap included.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Open files of a process.
    pub open_files: u64,
    /// The size of /dev/shm.
    pub shared_memory: u64,
    /// From the target's start.
    pub wall_time: Duration,
    /// Of each of standard output and error.
    pub output: u64,
    /// Temporary writable places, in order.
    pub writable: Vec<Writable>,
    /// One of the engine's runtimes; none is the engine's default.
    pub runtime: Option<String>,
}

/// A numeric user and group, neither 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// Not 0.
    pub uid: u32,
    /// Not 0.
    pub gid: u32,
}

/// A temporary writable place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writable {
    /// Absolute path in the container.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Whether programs may be run from it.
    pub exec: bool,
}

/// A declared operation.
#[derive(Debug, Clone)]
pub struct OperationRule {
    /// For the target, over MCP.
    pub description: Option<String>,
    /// JSON Schema 2020-12; none is the evaluation's own.
    pub arguments: Option<Value>,
    /// Calls for each trial.
    pub calls: u64,
}

/// A declared provider gateway.
#[derive(Debug, Clone)]
pub struct GatewayRule {
    /// Which provider's forms it speaks.
    pub dialect: Dialect,
    /// Where admitted requests go.
    pub upstream: Upstream,
    /// The key's variable; none where the evaluation names it, or the upstream is a script.
    pub secret: Option<SecretRule>,
    /// How the key (and the target's token) is presented.
    pub auth: Auth,
    /// The path that the private URL ends in: `/v1`, or empty.
    pub target_path: String,
    /// The only method and path pairs that are forwarded.
    pub routes: Vec<Route>,
    /// Globs; a request for another model is refused.
    pub models: Vec<String>,
    /// What the provider may do for the target by itself (G10).
    pub grants: Vec<Grant>,
    /// For one trial.
    pub limits: GatewayLimits,
    /// Variables of the target that are bound to the token or the URL.
    pub env: BTreeMap<String, Binding>,
    /// USD for a million tokens, by model or glob.
    pub prices: BTreeMap<String, Price>,
}

/// A provider's forms: where the model stands, its error shape, its usage fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// OpenAI's API.
    OpenAi,
    /// Anthropic's API.
    Anthropic,
    /// Google's Gemini API.
    Gemini,
    /// OpenAI's API as Azure serves it.
    AzureOpenAi,
    /// OpenRouter's API.
    OpenRouter,
}

impl Dialect {
    /// As the policy names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::OpenAi => "openai",
            Dialect::Anthropic => "anthropic",
            Dialect::Gemini => "gemini",
            Dialect::AzureOpenAi => "azure-openai",
            Dialect::OpenRouter => "openrouter",
        }
    }
}

/// Where admitted requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// `https://host[:port]`, or http on loopback; no path.
    Origin(String),
    /// A script of replies, relative to the package.
    Script(Utf8PathBuf),
}

/// A credential by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRule {
    /// The variable's name.
    pub name: String,
    /// Relative to the package; the name is resolved from it alone.
    pub env_file: Option<Utf8PathBuf>,
}

/// How a key is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer …`
    Bearer,
    /// `x-api-key: …`
    XApiKey,
    /// `api-key: …`
    ApiKey,
    /// `x-goog-api-key: …`
    XGoogApiKey,
}

impl Auth {
    /// As the policy names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Auth::Bearer => "bearer",
            Auth::XApiKey => "x-api-key",
            Auth::ApiKey => "api-key",
            Auth::XGoogApiKey => "x-goog-api-key",
        }
    }
}

/// `METHOD /path?query-key…`; `{model}` stands for one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `GET`, `POST`, …
    pub method: String,
    /// As received, without the query.
    pub path: String,
    /// The only query keys that may come.
    pub query: Vec<String>,
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query.join("&"))?;
        }
        Ok(())
    }
}

/// What the provider may do for the target by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// Search the web.
    WebSearch,
    /// Fetch a page.
    WebFetch,
    /// Run code in the provider's sandbox.
    CodeExecution,
    /// Use a computer.
    ComputerUse,
    /// Call a remote MCP server.
    RemoteMcp,
    /// Fetch media by URL.
    RemoteMedia,
    /// Files, vector stores, background jobs, `store`.
    Storage,
}

impl Grant {
    /// As the policy names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Grant::WebSearch => "web_search",
            Grant::WebFetch => "web_fetch",
            Grant::CodeExecution => "code_execution",
            Grant::ComputerUse => "computer_use",
            Grant::RemoteMcp => "remote_mcp",
            Grant::RemoteMedia => "remote_media",
            Grant::Storage => "storage",
        }
    }
}

/// Limits of one trial and gateway; sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayLimits {
    /// Forwarded requests, an SDK's retries too.
    pub requests: u64,
    /// A request's body.
    pub request_size: u64,
    /// A response's body.
    pub response_size: u64,
    /// One request from its admission to its end.
    pub request_time: Option<Duration>,
    /// Until the provider's first byte.
    pub first_byte: Duration,
    /// Between two pieces of a response.
    pub idle: Duration,
    /// Input and output, cached included.
    pub tokens: Option<u64>,
    /// USD.
    pub cost_usd: Option<f64>,
}

/// What a variable of the target is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The trial's token for this gateway.
    Token,
    /// The private URL, ending in `target_path`.
    Url,
}

/// What a model costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// For a prompt of usual length.
    pub rates: Rates,
    /// Where a longer prompt costs more.
    pub long_prompt: Option<LongPrompt>,
}

/// The rates of a whole request, output included, whose input is above so many tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongPrompt {
    /// Tokens of input, cached ones included; one more is a long prompt.
    pub above: u64,
    /// In place of the usual ones.
    pub rates: Rates,
}

/// USD for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Input that was not cached.
    pub input: f64,
    /// Input read from a cache; none is `input`.
    pub cached_input: Option<f64>,
    /// Input written to a cache; none is `input`.
    pub cache_write: Option<f64>,
    /// Output, reasoning included.
    pub output: f64,
}

/// The trusted host process.
#[derive(Debug, Clone)]
pub struct EvaluationRule {
    /// Non-empty; run in the package's folder.
    pub command: Vec<String>,
    /// Relative to the package; none makes the run not reproducible (T3).
    pub lock: Option<Utf8PathBuf>,
    /// Of one call.
    pub timeout: Duration,
    /// Whether the built-in check `clean exit` stands beside the package's own.
    pub require_clean_exit: bool,
}

/// A declared fault drill.
#[derive(Debug, Clone, PartialEq)]
pub struct Drill {
    /// In order.
    pub faults: Vec<FaultRule>,
}

/// One declared fault of a drill.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    /// Which gateway or operation.
    pub on: FaultPlace,
    /// What happens, with its parameters.
    pub kind: FaultKind,
    /// Only calls of this route (gateways).
    pub route: Option<String>,
    /// Which calls are struck.
    pub when: FaultTime,
    /// At most so many times in a trial.
    pub times: Option<u64>,
}

/// Where a fault strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultPlace {
    /// `gateway:NAME`.
    Gateway(String),
    /// `operation:NAME`.
    Operation(String),
}

/// Which calls a fault strikes; calls count from 1 in the order of admission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultTime {
    /// Every call.
    Always,
    /// The n-th call.
    Nth(u64),
    /// Each n-th call.
    Every(u64),
    /// Each call with this probability, from the seed.
    Probability(f64),
}

/// What a fault does; durations are checked times.
#[derive(Debug, Clone, PartialEq)]
pub enum FaultKind {
    /// Gateway: this status in the provider's error form.
    Status {
        /// 400 to 599.
        code: u16,
        /// Seconds for the `retry-after` header.
        retry_after: Option<u64>,
    },
    /// Gateway and operation: wait before going on.
    Delay(Duration),
    /// Gateway: a pause before each event.
    SlowStream(Duration),
    /// Gateway: the stream ends without its end after so many events.
    CutStream(u64),
    /// Gateway: the connection is reset.
    Reset,
    /// Gateway: a body that is no JSON.
    Malformed,
    /// Gateway: 200 with an empty body.
    Empty,
    /// Gateway: a body of another content type.
    WrongType,
    /// Gateway: the provider's content filter answer.
    ContentFilter,
    /// Gateway: the provider's context length error.
    ContextLength,
    /// Operation: 500.
    Error,
    /// Operation: no answer for this long, then 500; the world is not changed.
    Timeout(Duration),
    /// Operation: reads the world as it was so many calls ago.
    StaleRead(u64),
    /// Operation: answers as if done; the world is not changed.
    LostWrite,
    /// Operation: carried out twice.
    Duplicate,
    /// Operation: the answer lacks a part.
    Partial,
    /// Operation: the answer's keys are renamed.
    SchemaDrift,
    /// Operation: this text is put into the answer.
    InjectedText(String),
}
