//! Arguments in, exit code out. Owns how an error is told: on standard error for people, as one JSON document on standard
//! output where that was asked for; and nothing else.

use clap::Parser as _;
use crashlab::cli::{Cli, Format};
use crashlab::commands;
use crashlab::exit::{Exit, Refusal};
use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => {
            let format = cli.global.format;
            commands::dispatch(cli).unwrap_or_else(|error| commands::failed(format, &error))
        }
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            Exit::Success
        }
        Err(error) => usage(&error),
    };
    ExitCode::from(exit.code())
}

/// What clap refused; as JSON where the arguments ask for it, although they could not be read whole.
fn usage(error: &clap::Error) -> Exit {
    let args: Vec<String> = std::env::args().collect();
    let json =
        args.iter().any(|arg| arg == "--format=json") || args.windows(2).any(|pair| pair == ["--format", "json"]);
    if !json {
        let _ = error.print();
        return Exit::Refused;
    }
    let text = error.to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    commands::failed(Format::Json, &Refusal::new(message).at("command line").hint("see crashlab --help").into())
}
