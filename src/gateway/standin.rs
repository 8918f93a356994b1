//! Holds the places of `dialect`, `grants`, `price`, `upstream` and `stream` until those files are here: OpenAI's forms in
//! their simplest reading, nothing is forwarded to a real provider. Delete it with the first of them.

#![allow(missing_docs, clippy::cast_precision_loss, clippy::unnecessary_wraps, reason = "a placeholder")]

pub(super) mod dialect {
    use crate::gateway::{Asked, Denied};
    use crate::policy::{Dialect, Route};
    use serde_json::{Value, json};
    pub(crate) fn asked(_d: Dialect, _r: &Route, _p: &str, body: Option<&mut Value>) -> Result<Asked, Denied> {
        let Some(body) = body else { return Ok(Asked::default()) };
        let model = body["model"].as_str().ok_or_else(|| Denied::new("model", "crashlab_no_model", "no model"))?;
        Ok(Asked {
            model: Some(model.to_owned()),
            stream: body["stream"] == json!(true),
            max_output: body["max_tokens"].as_u64(),
            hide_usage: false,
        })
    }
    pub(crate) fn error_body(_d: Dialect, denied: &Denied) -> Value {
        json!({"error": {"message": denied.message, "type": "invalid_request_error", "param": null, "code": denied.code}})
    }
    pub(crate) fn forwardable(_d: Dialect) -> &'static [&'static str] {
        &["content-type", "accept"]
    }
}
pub(super) mod grants {
    use crate::gateway::Denied;
    use crate::policy::{Dialect, Grant, Route};
    use serde_json::Value;
    pub(crate) fn check(_d: Dialect, _r: &Route, _p: &str, _b: Option<&Value>, _g: &[Grant]) -> Result<(), Denied> {
        Ok(())
    }
}
pub(super) mod price {
    use crate::gateway::Usage;
    use crate::policy::Price;
    use std::collections::BTreeMap;
    pub(crate) fn cost(prices: &BTreeMap<String, Price>, model: &str, usage: &Usage) -> Option<f64> {
        let p = crate::policy::glob::lookup(prices, model)?;
        Some((usage.input as f64 * p.input + usage.output as f64 * p.output) / 1e6)
    }
}
pub(super) mod upstream {
    use crate::gateway::{Admitted, Answer, Failure};
    use crate::policy::GatewayRule;
    use crate::secret::HostSecret;
    pub(crate) struct Upstream;
    impl Upstream {
        pub(crate) fn new(_r: &GatewayRule, _s: Option<HostSecret>) -> anyhow::Result<Self> {
            Ok(Self)
        }
        pub(crate) fn send(&self, _a: &Admitted) -> Result<Answer, Failure> {
            Err(Failure::Unreachable)
        }
    }
}
pub(super) mod stream {
    use crate::gateway::{Admitted, Answer, End, Failure, Passed, Reply, Usage};
    use crate::policy::GatewayRule;
    pub(crate) fn pass(mut answer: Answer, _a: &Admitted, rule: &GatewayRule, reply: &mut Reply) -> Passed {
        let mut passed = Passed {
            status: answer.status,
            served: None,
            usage: None,
            unknown: None,
            response_bytes: 0,
            end: End::Complete,
            failure: None,
            limit: None,
        };
        if answer.status == 429 || answer.status >= 500 {
            passed.failure = Some(Failure::Status);
        }
        if reply.head(answer.status, &answer.headers, None).is_err() {
            passed.end = End::ClientClosed;
            return passed;
        }
        let mut all = Vec::new();
        loop {
            match answer.body.next() {
                Ok(Some(bytes)) => {
                    all.extend_from_slice(bytes);
                    if all.len() as u64 > rule.limits.response_size {
                        passed.end = End::Cut;
                        passed.limit = Some("response_size");
                        reply.cut();
                        break;
                    }
                    if reply.piece(bytes).is_err() {
                        passed.end = End::ClientClosed;
                        break;
                    }
                }
                Ok(None) => {
                    let _ = reply.end();
                    break;
                }
                Err(f) => {
                    passed.end = End::Cut;
                    passed.failure = Some(f);
                    reply.cut();
                    break;
                }
            }
        }
        passed.response_bytes = reply.sent();
        if let Ok(v) = serde_json::from_slice::<serde_json::Value>(&all) {
            if let Some(i) = v["usage"]["prompt_tokens"].as_u64() {
                passed.usage = Some(Usage {
                    input: i,
                    output: v["usage"]["completion_tokens"].as_u64().unwrap_or(0),
                    ..Usage::default()
                });
            }
            passed.served = v["model"].as_str().map(str::to_owned);
        }
        if passed.usage.is_none() {
            passed.unknown = Some("no usage".into());
        }
        passed
    }
}
