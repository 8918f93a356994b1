//! The host process as the gateway's operations reach it, and their record as the verifier reads it. Owns the meeting of
//! the two forms and nothing else.

use super::host::Host;
use super::protocol::{OperationSeen, Reply};
use crate::gateway::{Called, World};
use serde_json::{Map, Value};

impl World for Host {
    fn call(&mut self, name: &str, arguments: &Map<String, Value>) -> anyhow::Result<Called> {
        match Host::call(self, name, arguments)? {
            Reply::Result(result) => Ok(Called::Result(result)),
            Reply::Refused { code, message } => Ok(Called::Refused { code, message }),
        }
    }

    fn snapshot(&mut self) -> anyhow::Result<Value> {
        Ok(Host::snapshot(self)?)
    }

    fn restore(&mut self, world: &Value) -> anyhow::Result<()> {
        Ok(Host::restore(self, world)?)
    }
}

/// A call as the gateway recorded it (`Traffic::operations`), for the verifier.
pub fn seen(mut recorded: Value) -> OperationSeen {
    let mut take = |key: &str| recorded.get_mut(key).map(Value::take);
    OperationSeen {
        name: take("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default(),
        arguments: take("arguments").unwrap_or_default(),
        result: take("result"),
        refused: take("refused"),
        error: take("error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_recorded_call_reads_the_same_to_the_verifier() {
        for recorded in [
            json!({"name": "get", "arguments": {"key": "a"}, "result": null}),
            json!({"name": "put", "arguments": {}, "refused": {"code": "c", "message": "m"}}),
            json!({"name": "put", "arguments": null, "error": {"code": "c", "message": "m"}}),
        ] {
            assert_eq!(serde_json::to_value(seen(recorded.clone())).unwrap(), recorded);
        }
    }
}
