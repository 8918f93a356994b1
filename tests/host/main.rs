//! Tests that need no engine.
