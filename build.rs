//! Compiles the relay's program (src/relay/main.rs, see there) and leaves it where src/relay/mod.rs embeds it. Static, so
//! that its image needs nothing else; with the same compiler, so that no second toolchain is needed.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=src/relay");
    match relay() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error=failed to compile the relay: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a build script runs the compiler before src/process.rs exists")]
fn relay() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let program = PathBuf::from(variable("OUT_DIR")?).join("relay");
    let mut compiler = std::process::Command::new(variable("RUSTC")?);
    compiler.args(["--edition", "2024", "--crate-name", "relay", "--target", &variable("TARGET")?]);
    compiler.args(["-O", "-C", "target-feature=+crt-static", "-C", "panic=abort", "-C", "strip=symbols"]);
    compiler.args(["-D", "warnings", "src/relay/main.rs", "-o"]).arg(program);
    match compiler.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("the compiler ended with {status}; it needs the target's static C library (libc6-dev)"))
        }
        Err(error) => Err(format!("cannot start {:?}: {error}", compiler.get_program())),
    }
}
