//! The stored run: written as it goes (`store`), read back (`read`), counted (`statistics`), compared (`compare`),
//! seen as case × drill (`matrix`).
//! Owns the files below `DIR/runs`, except the journal, which is the scope's. Prints nothing.
//!
//! Invariant: nothing is written unredacted, no link is followed, folders are 0700 and files 0600 from the first moment.

pub mod compare;
pub mod folder;
pub mod list;
pub mod matrix;
pub mod merge;
pub mod read;
pub mod record;
pub mod schema;
pub mod statistics;
pub mod store;
pub mod story;
