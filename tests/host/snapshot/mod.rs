//! Snapshots of hostile working trees (contract W), through the library and beside a real git.

mod repository;
mod taken;

use repository::Repository;
