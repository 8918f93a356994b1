//! The relay's program, which runs where nothing is trusted: alone in a container, as an unprivileged user, standard
//! library only. `forward` is the target's one way out; `attest` says what the sandbox around it really is.

#![forbid(unsafe_code)]

mod answer;
mod attest;
mod forward;
#[allow(dead_code, reason = "shared with the guard on the host, which uses other parts of it")]
mod framing;
#[allow(dead_code, reason = "shared with the host, which uses other parts of it")]
mod kernel_text;

use std::process::ExitCode;

/// The command line was not understood.
const USAGE: u8 = 64;
/// The mode of a relay that could not reach the gateway: it waits to be removed. The host looks for this word.
const GAVE_UP: &str = "gave-up";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mode, rest) = match arguments.split_first() {
        Some((mode, rest)) => (mode.as_str(), rest),
        None => ("", arguments.as_slice()),
    };
    match mode {
        "forward" => forward::run(rest),
        "attest" => attest::run(rest),
        GAVE_UP => loop {
            std::thread::park();
        },
        _ => {
            eprintln!("relay: say forward or attest");
            ExitCode::from(USAGE)
        }
    }
}
