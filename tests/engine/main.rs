//! Tests that ask a real Docker engine.
