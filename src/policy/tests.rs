//! Every row of the policy's table: what is accepted, and for each wrong value where, what was found, and what would do.

use super::example::EXAMPLE;
use super::*;
use serde_json::json;

/// The example with a merge patch over it, checked.
fn patched(patch: &Value) -> Result<Policy, Refusal> {
    let mut document: Value = serde_json::from_str(EXAMPLE).unwrap();
    json_patch::merge(&mut document, patch);
    parse(document.to_string().as_bytes())
}

#[test]
fn the_example_of_the_documentation_is_accepted() {
    let policy = parse(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(policy.name, "refund-desk");
    assert_eq!(policy.gateways["openai"].limits.cost_usd, Some(1.0));
    assert_eq!(policy.drills["busy"].faults[0].when, FaultTime::Nth(1));
    assert!(patched(&json!({})).is_ok());
}
