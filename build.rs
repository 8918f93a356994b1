//! Compiles the relay program and embeds it (see src/relay).

fn main() {}
