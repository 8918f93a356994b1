//! The gateway on the host: everything that a target may ask for goes through here. Owns the listener, the tokens, the
//! one admission path and the evidence; knows nothing of Docker and of scopes.
//!
//! The way of a request: `guard` (framing, token) → `admission` (policy, budgets) or `operations` → `upstream` or
//! `script` gives an [`Answer`] → `stream` passes it on to the target → `evidence`.

mod exchange;
mod reply;
#[allow(dead_code, reason = "the guard, which asks it, comes next")]
mod token;

pub use exchange::{Admitted, Answer, Asked, Denied, End, Failure, Life, Passed, Pieces, Usage};
pub use reply::Reply;

// What `admission` calls of the provider's side, each in its own file:
//   dialect::asked(dialect, &Route, path, Option<&mut Value>) -> Result<Asked, Denied>   may add a request for usage
//   dialect::error_body(dialect, &Denied) -> Value                                       the provider's own error form
//   dialect::forwardable(dialect) -> &'static [&'static str]                              request headers, lower case
//   grants::check(dialect, &Route, path, Option<&Value>, &[Grant]) -> Result<(), Denied>
//   upstream::Upstream::new(&GatewayRule, Option<HostSecret>) -> anyhow::Result<Upstream>; one a run, shared
//   Upstream::send(&self, &Admitted) -> Result<Answer, Failure>
//   stream::pass(Answer, &Admitted, &GatewayRule, &mut Reply) -> Passed                   for answers of both kinds
//   price::cost(&BTreeMap<String, Price>, model, &Usage) -> Option<f64>                  USD
