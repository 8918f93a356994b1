//! Snapshots of hostile working trees (contract W), through the library and beside a real git.

mod digest;
mod hostile;
mod kinds;
mod repository;
mod shapes;
mod taken;

use repository::Repository;
