//! The gateway in front of a provider that nobody here wrote: LiteLLM's proxy on the host's loopback, which answers with
//! mock responses; the openai and anthropic SDKs, unmodified, in the sandbox. Wants CRASHLAB_LITELLM, the folder that
//! `scripts/litellm` makes; `make test-litellm` does both. It is no part of `make test`: installing takes minutes.

use crate::sdks;
use crate::support::objects_of;
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KEY: &str = "sk-real-litellm-key";
const HELLO: &str = "hello from a stranger";

/// LiteLLM's proxy while a test runs.
struct Proxy {
    child: Child,
    origin: String,
    folder: tempfile::TempDir,
}

impl Proxy {
    fn start(installed: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mock = |name: &str, more: Value| {
            let mut parameters = json!({"model": format!("openai/{name}"), "api_key": "none", "mock_response": HELLO});
            parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"model_name": name, "litellm_params": parameters})
        };
        let call = json!([{"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}]);
        // A mock behind Anthropic's own route never streams; one that LiteLLM translates from OpenAI's chats does.
        let itself = json!({"model": "hosted_vllm/gpt-5-mini", "api_base": format!("http://127.0.0.1:{port}/v1"), "api_key": KEY});
        let config = json!({
            "model_list": [
                mock("gpt-5-mini", json!({})),
                mock("gpt-5-nano", json!({"mock_tool_calls": call})),
                mock("gpt-5", json!({"mock_response": "litellm.RateLimitError"})),
                mock("whisper-1", json!({})),
                {"model_name": "claude-sonnet-5", "litellm_params": itself},
            ],
            "general_settings": {"master_key": KEY}, "litellm_settings": {"telemetry": false},
        });
        std::fs::write(folder.path().join("config.yaml"), config.to_string()).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(installed.join("bin/litellm"))
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--config"])
            .arg(folder.path().join("config.yaml"))
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut proxy = Self { child, origin: format!("http://127.0.0.1:{port}"), folder };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < Duration::from_secs(300), "{}", proxy.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        proxy
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "wants LiteLLM's proxy: make test-litellm"]
fn unmodified_sdks_reach_litellms_proxy() {
    let installed = std::env::var_os("CRASHLAB_LITELLM").expect("make test-litellm installs the proxy and names it");
    let proxy = Proxy::start(Path::new(&installed));
    let gateway = json!({"upstream": proxy.origin, "limits": {"first_byte": "120s"}});
    let package =
        sdks::package(include_str!("litellm/agent.py")).env("OPENAI_API_KEY", KEY).env("ANTHROPIC_API_KEY", KEY);
    let package = package.policy(json!({
        "extends": ["provider/openai", "provider/anthropic"],
        "sandbox": {"cpus": 2, "memory": "512MiB", "wall_time": "10m"},
        "gateways": {"openai": gateway, "anthropic": gateway},
    }));
    let ran = package.run();
    let (results, read) = (sdks::results(&package, "one/1", &ran), |name: &str| sdks::stored(&package, "one/1", name));
    for (name, wanted) in [
        ("openai chat", json!([HELLO, true])),
        ("openai tools", json!("refund")),
        ("openai stream", json!([HELLO, false])),
        ("openai async streams", json!([HELLO, HELLO, HELLO])),
        ("openai response", json!(HELLO)),
        // LiteLLM 1.110 cannot stream a mocked response, and says so in an event of a stream with status 200.
        ("openai response stream", json!(["response.failed"])),
        ("openai models", json!(["gpt-5", "gpt-5-mini", "gpt-5-nano"])),
        ("anthropic message", json!([HELLO, true])),
        ("anthropic stream", json!(HELLO)),
        ("anthropic async", json!(HELLO)),
    ] {
        assert_eq!(results[name], wanted, "{name}: {results:#}\n{}", proxy.log());
    }
    let last = &results["openai stream with usage"];
    assert!(last[0] == 0 && last[1].as_u64() > Some(0), "{results:#}");
    for (name, error, status) in [
        ("openai rate limit", "RateLimitError", 429),
        ("openai other model", "PermissionDeniedError", 403),
        ("anthropic other model", "PermissionDeniedError", 403),
    ] {
        let wanted = (&json!(error), &json!(status));
        assert_eq!((&results[name]["error"], &results[name]["status"]), wanted, "{name}: {results:#}");
    }
    let calls: Vec<Value> = read("gateway.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let usage = &ran.trial("one/1")["usage"];
    assert_eq!((&usage["refused"], &usage["unknown"]), (&json!(2), &json!(1)), "{usage} {calls:#?}");
    let failed = |call: &&Value| call["status"] == 429 || call["unknown"] == "status";
    assert_eq!(calls.iter().filter(failed).count(), 2, "{calls:#?}");
    // Both failures of the provider were followed by a success on their route.
    assert_eq!(ran.trial("one/1")["outcome"], "passed", "{}", ran.json);
    assert!(usage["input_tokens"].as_u64().unwrap() > 0 && usage["cost_usd"].as_f64().unwrap() > 0.0, "{usage}");
    let all = read("stdout") + &read("stderr") + &read("gateway.jsonl") + &ran.json.to_string();
    assert!(!all.contains(KEY), "no key is anywhere");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}
