//! What package and policy must agree on before anything is provisioned, and credentials by name (S1, S3, S4).

use super::lab::Lab;
use crashlab::evaluation::{Declared, DeclaredOperation, agree, secrets};
use crashlab::policy::{Auth, Dialect, GatewayLimits, GatewayRule, OperationRule, SecretRule, Upstream};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

fn named(name: &str, env_file: Option<&str>) -> SecretRule {
    SecretRule { name: name.to_owned(), env_file: env_file.map(Into::into) }
}

fn gateway(secret: Option<SecretRule>) -> GatewayRule {
    GatewayRule {
        dialect: Dialect::OpenAi,
        upstream: Upstream::Origin("https://api.openai.com".to_owned()),
        secret,
        auth: Auth::Bearer,
        target_path: String::new(),
        routes: Vec::new(),
        models: Vec::new(),
        grants: Vec::new(),
        limits: GatewayLimits {
            requests: 1,
            request_size: 1,
            response_size: 1,
            request_time: None,
            first_byte: Duration::from_secs(1),
            idle: Duration::from_secs(1),
            tokens: None,
            cost_usd: None,
        },
        env: BTreeMap::new(),
        prices: BTreeMap::new(),
    }
}

/// A lab whose policy has the gateway `openai`.
fn lab(secret: Option<SecretRule>) -> Lab {
    let mut lab = Lab::bare(&["true"]);
    lab.policy.gateways.insert("openai".to_owned(), gateway(secret));
    lab
}

fn declares(gateway: &str, secret: SecretRule) -> Declared {
    Declared { secrets: BTreeMap::from([(gateway.to_owned(), secret)]), ..Declared::default() }
}

#[test]
fn a_credential_may_be_named_by_the_policy_by_the_evaluation_or_by_both_alike() {
    let key = || named("A_KEY", Some("keys"));
    let table = [
        (Some(key()), Declared::default()),
        (None, declares("openai", key())),
        (Some(key()), declares("openai", key())),
    ];
    for (of_policy, declared) in table {
        let rules = agree(&lab(of_policy).policy, &declared).unwrap();
        assert_eq!(rules, BTreeMap::from([("openai".to_owned(), key())]));
    }
    assert!(agree(&lab(None).policy, &Declared::default()).unwrap().is_empty());
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_provisioned() {
    let other = agree(&lab(Some(named("A_KEY", None))).policy, &declares("openai", named("B_KEY", None))).unwrap_err();
    assert!(other.to_string().contains("different credentials for openai"), "{other}");
    let unknown = agree(&lab(None).policy, &declares("anthropic", named("A_KEY", None))).unwrap_err();
    assert!(unknown.to_string().contains("anthropic, which is no gateway"), "{unknown}");
    assert!(unknown.to_string().contains("openai"), "{unknown}");

    let mut lab = lab(None);
    let rule = OperationRule { description: None, arguments: None, calls: 1 };
    lab.policy.operations.insert("refund".to_owned(), rule);
    let implemented = |name: &str, schema| Declared {
        operations: vec![DeclaredOperation { name: name.to_owned(), description: String::new(), arguments: schema }],
        ..Declared::default()
    };
    let missing = agree(&lab.policy, &implemented("get", json!({}))).unwrap_err();
    assert!(missing.to_string().starts_with("policy.json#/operations/refund: "), "{missing}");
    assert!(missing.to_string().contains("it implements: get"), "{missing}");
    assert!(agree(&lab.policy, &implemented("refund", json!({"type": "object"}))).is_ok());
    for schema in [json!({"type": "nonsense"}), json!({"$ref": "https://example.com/schema"}), json!({"type": "array"})]
    {
        let broken = agree(&lab.policy, &implemented("refund", schema.clone())).unwrap_err();
        assert!(broken.to_string().contains("refund"), "{schema}: {broken}");
    }
}

#[test]
fn a_missing_credential_names_the_variable_and_its_gateway() {
    let lab = lab(Some(named("CRASHLAB_TEST_IS_NEVER_SET_KEY", None)));
    let refusal = secrets(&lab.policy, &Declared::default(), &lab.root()).unwrap_err();
    assert!(refusal.to_string().starts_with("gateway openai: "), "{refusal}");
    assert!(refusal.to_string().contains("CRASHLAB_TEST_IS_NEVER_SET_KEY is not set"), "{refusal}");
}

#[test]
fn an_env_file_is_relative_to_the_package_and_no_other_file_is_looked_at() {
    let lab = lab(Some(named("A_KEY", Some("keys/.env"))));
    lab.write(".env", "A_KEY=from-the-wrong-file\n");
    let missing = secrets(&lab.policy, &Declared::default(), &lab.root()).unwrap_err();
    assert!(missing.to_string().contains("keys/.env") && missing.to_string().contains("A_KEY"), "{missing}");
    lab.write("keys/.env", "this line is broken = = \"\nB_KEY=another-value\nexport A_KEY='the-right-value'\n");
    let found = secrets(&lab.policy, &Declared::default(), &lab.root()).unwrap();
    assert_eq!(found["openai"].name(), "A_KEY");
    assert_eq!(format!("{:?} {}", found["openai"], found["openai"]), "HostSecret(A_KEY) HostSecret(A_KEY)");
    lab.write("keys/.env", "B_KEY=another-value\n");
    let absent = secrets(&lab.policy, &Declared::default(), &lab.root()).unwrap_err();
    assert!(absent.to_string().contains("A_KEY is not in the env file"), "{absent}");
    assert!(!absent.to_string().contains("another-value"), "{absent}");
}
