//! The relay: a static program of its own that runs in a container beside the target's, and the framing that it shares
//! with the guard on the host. This module only carries it; `build.rs` compiles `main.rs` into [`PROGRAM`].

#[cfg(test)]
mod answer;
pub mod framing;
pub mod kernel_text;

/// The relay's program for this machine: static, standard library only. `forward` passes requests from a target's network
/// to the gateway on the host; `attest` says from inside a container what its sandbox really is.
pub static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/relay"));
