//! The subcommands: one file each, except `run`, which is a room of its own. Owns which command goes where, and how an
//! error becomes an exit code: a refusal is 2, everything else that ended a command is 3.

pub mod check;
pub mod clean;
pub mod compare;
pub mod doctor;
pub mod init;
pub mod list;
pub mod merge;
pub mod plan;
pub mod remove;
pub mod schema;
pub mod view;

use crate::cli::{Cli, Command, Format};
use crate::exit::{Exit, Refusal};
use crate::interrupt::Interrupt;
use anyhow::{Context as _, Result};
use camino::Utf8Path;
use clap::CommandFactory as _;
use std::fmt;
use std::io::Write;

/// Does what was asked for.
///
/// # Errors
/// A [`Refusal`] (exit 2), or what ended the command (exit 3).
pub fn dispatch(cli: Cli) -> Result<Exit> {
    let out: &mut dyn Write = &mut crate::report::pipe::stdout();
    let global = &cli.global;
    match &cli.command {
        Command::Run(args) => stoppable(|stop| crate::run::run(global, args, stop, out)),
        Command::Shell(args) => stoppable(|stop| crate::run::shell(global, args, stop)),
        Command::Check(args) => stoppable(|stop| check::check(global, args, stop, out)),
        Command::Clean(args) => stoppable(|stop| clean::clean(global, args, stop, out)),
        Command::Plan(args) => plan::plan(global, args, out),
        Command::View(args) => view::view(global, args, out),
        Command::List => list::list(global, out),
        Command::Remove(args) => remove::remove(global, args, std::time::SystemTime::now(), out),
        Command::Compare(args) => compare::compare(global, args, out),
        Command::Merge(args) => merge::merge(global, args, out),
        Command::Doctor(args) => stoppable(|stop| doctor::doctor(global, args, stop, out)),
        Command::Init(args) => init::init(global, args, out),
        Command::Schema(args) => schema::schema(args, out),
        Command::Completions(args) => completions(args.shell, out),
        Command::Man(args) => manual(args.dir.as_deref(), out),
    }
}

/// A command that a signal can stop. What went wrong once one had come is its doing, and the exit code says so.
fn stoppable(work: impl FnOnce(&Interrupt) -> Result<Exit>) -> Result<Exit> {
    let stop = Interrupt::install()?;
    work(&stop).map_err(|error| match stop.signal() {
        Some(signal) => error.context(Interrupted(signal)),
        None => error,
    })
}

/// A signal came before a command had anything to show.
#[derive(Debug)]
struct Interrupted(i32);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted by signal {}", self.0)
    }
}

/// Tells an error, and chooses the exit code.
pub fn failed(format: Format, error: &anyhow::Error) -> Exit {
    let refusal = error.downcast_ref::<Refusal>();
    let exit = match (error.downcast_ref::<Interrupted>(), refusal) {
        (Some(Interrupted(signal)), _) => Exit::Signal(*signal),
        (None, Some(_)) => Exit::Refused,
        (None, None) => Exit::Uncertain,
    };
    let told = refusal.cloned().unwrap_or_else(|| as_refusal(error));
    if matches!(format, Format::Json | Format::Jsonl) {
        let document = serde_json::json!({
            "schema": "crashlab.error/1", "exit": exit.code(), "message": told.message, "where": told.place, "hint": told.hint,
        });
        // A closed standard output ends output quietly.
        let _ = writeln!(std::io::stdout(), "{document}");
    }
    let _ = writeln!(std::io::stderr(), "error: {told}");
    exit
}

/// An error's chain in the form of a refusal: the lines that begin with `hint: ` are its hint.
fn as_refusal(error: &anyhow::Error) -> Refusal {
    let text = format!("{error:#}");
    let (hints, words): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("hint: "));
    let hint = hints.first().map(|line| line.trim_start_matches("hint: ").to_owned());
    Refusal { hint, ..Refusal::new(words.join("\n")) }
}

fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "crashlab", &mut script);
    let _ = out.write_all(&script);
    Ok(Exit::Success)
}

fn manual(dir: Option<&Utf8Path>, out: &mut dyn Write) -> Result<Exit> {
    if let Some(dir) = dir {
        clap_mangen::generate_to(Cli::command(), dir)
            .with_context(|| format!("failed to write the manual to {dir}"))?;
        return Ok(Exit::Success);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    let _ = out.write_all(&page);
    Ok(Exit::Success)
}
