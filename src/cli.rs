//! The command line: clap declarations, nothing else. What a flag means is said where it is used.

use camino::Utf8PathBuf;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A crash-test lab for AI agents.
#[derive(Debug, Parser)]
#[command(name = "crashlab", version, propagate_version = true, disable_help_subcommand = true)]
#[command(
    about = "A crash-test lab for AI agents: hardened sandbox, host-owned world, provider gateway, verdicts you can trust"
)]
#[command(after_help = EXITS)]
pub struct Cli {
    /// What is asked for everywhere.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXITS: &str = "\
Exit codes:
  0    every trial passed; every other command that did its work
  1    at least one behavioural failure, nothing uncertain
  2    refused before anything was provisioned
  3    infrastructure uncertainty
  4    every trial passed, and the clean-up failed
  129, 130, 143   interrupted by HUP, INT, TERM, after the clean-up";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Folder of the stored results
    #[arg(long, global = true, value_name = "DIR", env = "CRASHLAB_RESULTS", default_value = ".crashlabs")]
    pub results: Utf8PathBuf,
    /// Form of what goes to standard output
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub format: Format,
    /// Say less on standard error
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// Form of what goes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Human,
    /// Exactly one JSON document
    Json,
    /// One event a line, as it happens (run)
    Jsonl,
    /// JUnit XML (run)
    Junit,
    /// Markdown (compare)
    Markdown,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the cases of an evaluation package against a target
    #[command(after_help = "\
Examples:
  crashlab run fixtures/refund-desk --trust-evaluation-code
  crashlab run refund-desk --target ../my-agent --repeat 5 --jobs 8 --trust-evaluation-code=sha256:…
  crashlab run refund-desk --case 'refund-*' --format json | jq .counts")]
    Run(Run),
    /// Say whether an evaluation package would be accepted; needs no Docker
    #[command(
        after_help = "Examples:\n  crashlab check fixtures/refund-desk\n  crashlab check refund-desk --format json | jq .digest"
    )]
    Check(Check),
    /// Print the docker commands of a run, in order
    #[command(after_help = "Examples:\n  crashlab plan fixtures/refund-desk")]
    Plan(Plan),
    /// Show a stored run
    #[command(after_help = "\
Examples:
  crashlab view latest
  crashlab view latest --trial double-refund/1
  crashlab view 20260102T030405Z-k3f9 --raw | less")]
    View(View),
    /// Compare two stored runs, case by case
    #[command(
        after_help = "Examples:\n  crashlab compare 20260102 latest --fail-on regression\n  crashlab compare base candidate --format markdown"
    )]
    Compare(Compare),
    /// Make one stored run out of the shards of an evaluation
    #[command(after_help = "Examples:\n  crashlab merge shard-1 shard-2 shard-3")]
    Merge(Merge),
    /// Open an interactive shell in the sandbox of one trial
    #[command(
        after_help = "Examples:\n  crashlab shell fixtures/refund-desk --case double-refund --trust-evaluation-code"
    )]
    Shell(Shell),
    /// List the stored runs
    #[command(after_help = "Examples:\n  crashlab list\n  crashlab list --format json | jq -r '.[].run'")]
    List,
    /// Delete stored runs; never one whose clean-up is owed
    #[command(after_help = "Examples:\n  crashlab remove 20260102T030405Z-k3f9\n  crashlab remove --older-than 30d")]
    Remove(Remove),
    /// Finish the clean-up of runs whose process is gone (beyond 0.1: started by a person only)
    #[command(after_help = "Examples:\n  crashlab clean --dry-run\n  crashlab clean 20260102T030405Z-k3f9")]
    Clean(Clean),
    /// Say what this engine enforces, by trying it, and what is missing for a run
    #[command(after_help = "Examples:\n  crashlab doctor\n  crashlab doctor --image python:3.12-slim --format json")]
    Doctor(Doctor),
    /// Write a small evaluation package that runs as it is
    #[command(after_help = "Examples:\n  crashlab init my-evaluation --image python:3.12-slim")]
    Init(Init),
    /// Print the JSON Schema (2020-12) of a file format
    #[command(after_help = "Examples:\n  crashlab schema policy > policy.schema.json")]
    Schema(Schema),
    /// Print shell completions
    #[command(after_help = "Examples:\n  crashlab completions bash > /etc/bash_completion.d/crashlab")]
    Completions(Completions),
    /// Print the manual page; with a folder, write it and one for each command there
    #[command(hide = true)]
    Man(Man),
}

/// Which package, which target, which trust: what `run`, `check`, `plan` and `shell` share.
#[derive(Debug, Clone, Args)]
pub struct Evaluation {
    /// Folder of the evaluation package
    #[arg(value_name = "EVALUATION")]
    pub evaluation: Utf8PathBuf,
    /// The agent's folder, in place of the policy's `target.source`
    #[arg(long, value_name = "DIR")]
    pub target: Option<Utf8PathBuf>,
    /// Trust the package's code to run on this host; with a digest, only as it was reviewed
    #[arg(long, value_name = "sha256:DIGEST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub trust_evaluation_code: Option<String>,
    /// A policy that is merged over the package's (repeatable)
    #[arg(long = "policy", value_name = "FILE")]
    pub policies: Vec<Utf8PathBuf>,
    /// Python for an evaluation whose command is python or python3
    #[arg(long, value_name = "PATH")]
    pub python: Option<Utf8PathBuf>,
}

/// `crashlab run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// Package, target, trust.
    #[command(flatten)]
    pub evaluation: Evaluation,
    /// Only the cases whose id matches (repeatable)
    #[arg(long = "case", value_name = "GLOB")]
    pub cases: Vec<String>,
    /// A word that is kept with the run
    #[arg(long)]
    pub tag: Option<String>,
    /// Repetitions of each case, in place of the policy's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: Option<u32>,
    /// Trials at the same time (default: the larger of 4 and the cores)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Start no further trial once one has failed or is uncertain
    #[arg(long)]
    pub fail_fast: bool,
    /// Try an uncertain trial again, at most so many times
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub retry_uncertain: u32,
    /// Only the K-th of N parts
    #[arg(long, value_name = "K/N")]
    pub shard: Option<String>,
    /// Finish an unfinished run, in its folder and under its id
    #[arg(long, value_name = "RUN", conflicts_with_all = ["cases", "repeat", "shard", "drill", "seed"])]
    pub resume: Option<String>,
    /// Run under this fault drill only; `all` runs each trial undisturbed and under each drill
    #[arg(long = "drill", value_name = "NAME|all")]
    pub drill: Option<String>,
    /// Seed of the drills' chances (default: a random one, kept with the run; of a shard, the policy's own)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// USD that the whole run may cost
    #[arg(long, value_name = "USD")]
    pub max_cost: Option<f64>,
    /// Image of the dedicated builder
    #[arg(long, value_name = "REF", env = "CRASHLAB_BUILDKIT_IMAGE")]
    pub buildkit_image: Option<String>,
    /// Write where the time went, in Chrome's trace format
    #[arg(long, value_name = "FILE")]
    pub trace: Option<Utf8PathBuf>,
}

/// `crashlab check`.
#[derive(Debug, Clone, Args)]
pub struct Check {
    /// Package, target, trust.
    #[command(flatten)]
    pub evaluation: Evaluation,
}

/// `crashlab plan`.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// Package, target, trust.
    #[command(flatten)]
    pub evaluation: Evaluation,
    /// Image of the dedicated builder
    #[arg(long, value_name = "REF", env = "CRASHLAB_BUILDKIT_IMAGE")]
    pub buildkit_image: Option<String>,
}

/// `crashlab view`.
#[derive(Debug, Clone, Args)]
pub struct View {
    /// A run's id, a unique prefix of one, a path, or `latest`
    pub run: String,
    /// The story of one trial: CASE/N, under a drill CASE@DRILL/N
    #[arg(long, value_name = "TRIAL")]
    pub trial: Option<String>,
    /// Everything that is retained
    #[arg(long, conflicts_with_all = ["html", "trial"])]
    pub raw: bool,
    /// Write a self-contained page
    #[arg(long, value_name = "FILE")]
    pub html: Option<Utf8PathBuf>,
}

/// `crashlab compare`.
#[derive(Debug, Clone, Args)]
pub struct Compare {
    /// The run to compare with
    pub base: String,
    /// The run that may have changed
    pub candidate: String,
    /// Exit 1 where a case got worse by more than chance
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Write a self-contained page
    #[arg(long, value_name = "FILE")]
    pub html: Option<Utf8PathBuf>,
}

/// What makes `compare` fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A case that got worse by more than chance
    Regression,
}

/// `crashlab merge`.
#[derive(Debug, Clone, Args)]
pub struct Merge {
    /// The shards' runs
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// Accept that shards are missing
    #[arg(long)]
    pub partial: bool,
}

/// `crashlab shell`.
#[derive(Debug, Clone, Args)]
pub struct Shell {
    /// Package, target, trust.
    #[command(flatten)]
    pub evaluation: Evaluation,
    /// The case whose trial it would be
    #[arg(long, value_name = "ID")]
    pub case: String,
    /// The shell's program
    #[arg(long, value_name = "PROGRAM", default_value = "/bin/sh")]
    pub program: String,
    /// Image of the dedicated builder
    #[arg(long, value_name = "REF", env = "CRASHLAB_BUILDKIT_IMAGE")]
    pub buildkit_image: Option<String>,
}

/// `crashlab remove`.
#[derive(Debug, Clone, Args)]
pub struct Remove {
    /// The runs to delete
    #[arg(value_name = "RUN", required_unless_present = "older_than")]
    pub runs: Vec<String>,
    /// Delete what is older than this (30d, 12h)
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<String>,
}

/// `crashlab clean`.
#[derive(Debug, Clone, Args)]
pub struct Clean {
    /// Only these runs
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `crashlab doctor`.
#[derive(Debug, Clone, Args)]
pub struct Doctor {
    /// An image that the engine has, for the trials
    #[arg(long, value_name = "REF")]
    pub image: Option<String>,
    /// Image of the dedicated builder
    #[arg(long, value_name = "REF", env = "CRASHLAB_BUILDKIT_IMAGE")]
    pub buildkit_image: Option<String>,
}

/// `crashlab init`.
#[derive(Debug, Clone, Args)]
pub struct Init {
    /// The folder to make
    pub dir: Utf8PathBuf,
    /// Image of the target
    #[arg(long, value_name = "REF")]
    pub image: Option<String>,
}

/// `crashlab schema`.
#[derive(Debug, Clone, Args)]
pub struct Schema {
    /// Which format
    #[arg(value_enum)]
    pub name: SchemaName,
}

/// The published formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    /// policy.json
    Policy,
    /// A line of cases.jsonl
    Case,
    /// run.json
    Run,
    /// A line of `run --format jsonl`
    Event,
    /// A line of journal.jsonl
    Journal,
}

/// `crashlab man`.
#[derive(Debug, Clone, Args)]
pub struct Man {
    /// The folder to write `crashlab.1`, `crashlab-run.1`, … into
    #[arg(value_name = "DIR")]
    pub dir: Option<Utf8PathBuf>,
}

/// `crashlab completions`.
#[derive(Debug, Clone, Args)]
pub struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_declarations_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn trust_is_absent_plain_or_pinned() {
        let trust =
            |args: &[&str]| match Cli::try_parse_from([&["crashlab", "run", "pkg"], args].concat()).unwrap().command {
                Command::Run(run) => run.evaluation.trust_evaluation_code,
                _ => unreachable!(),
            };
        assert_eq!(trust(&[]), None);
        assert_eq!(trust(&["--trust-evaluation-code"]), Some(String::new()));
        assert_eq!(trust(&["--trust-evaluation-code=sha256:00"]), Some("sha256:00".to_owned()));
    }
}
