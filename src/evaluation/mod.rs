//! The trusted side: an evaluation package (`package`), its dependency lock (`lock`), and the host process that holds a
//! trial's world and its verifier (`host`), with the Python SDK that this binary carries (`sdk`). Nothing of a package
//! runs before `package::require_trust` said so; nothing here knows the sandbox.

pub mod agreement;
pub mod host;
pub mod lock;
pub mod package;
pub mod protocol;
pub mod sdk;

mod listing;
mod log;
mod trouble;
mod world;

pub use agreement::{Introduced, NotIntroduced, agree, introduce, secrets};
pub use host::{Host, Launch};
pub use lock::LockRecord;
pub use package::{Package, PackageFile, Trust, open, require_trust};
pub use protocol::{Declared, DeclaredOperation, OperationSeen, Reply, VerifyInput};
pub use sdk::write_sdk;
pub use trouble::{EvaluationError, Trouble};
pub use world::seen;
