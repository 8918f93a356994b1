//! Snapshots of hostile working trees (contract W), through the library and beside a real git.

mod hostile;
mod repository;
mod taken;

use repository::Repository;
