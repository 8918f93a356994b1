//! The policy of the documentation, for tests.

/// Every part of a policy, without built-in pieces but the base.
pub(super) const EXAMPLE: &str = r#"{
  "$schema": "./policy.schema.json",
  "version": 1,
  "name": "refund-desk",
  "target": {
    "source": "target", "files": ["**"], "mount": "/target",
    "image": {"build": {"dockerfile": "Dockerfile", "args": {}, "contexts": {"base": "crashlab/python:1"}, "network": "none", "time": "10m"}},
    "command": ["python3", "/target/agent.py"], "env": {"LOG_LEVEL": "info"},
    "limits": {"files": 10, "bytes": "1MiB", "file": "1KiB"}
  },
  "sandbox": {
    "user": "65534:65534", "cpus": 1.0, "memory": "256MiB", "processes": 128, "open_files": 1024, "shared_memory": "16MiB",
    "wall_time": "120s", "output": "1MiB", "writable": [{"path": "/tmp", "size": "64MiB", "exec": false}], "runtime": "runc"
  },
  "operations": {
    "get_order": {"description": "…", "arguments": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}, "calls": 20}
  },
  "gateways": {
    "openai": {
      "dialect": "openai", "upstream": "https://api.openai.com", "secret": "OPENAI_API_KEY", "auth": "bearer", "target_path": "/v1",
      "routes": ["POST /v1/chat/completions", "POST /v1/responses", "GET /v1/models"], "models": ["gpt-5-mini*"], "grants": [],
      "limits": {"requests": 50, "request_size": "1MiB", "response_size": "8MiB", "request_time": "120s", "tokens": 200000, "cost_usd": 1.0},
      "env": {"OPENAI_API_KEY": "token", "OPENAI_BASE_URL": "url"},
      "prices": {"gpt-5-mini*": {"input": 0.25, "cached_input": 0.025, "cache_write": 0.25, "output": 2.0}}
    }
  },
  "evaluation": {"command": ["python3", "evaluation.py"], "lock": "requirements.lock", "timeout": "60s", "require_clean_exit": true},
  "cases": "cases.jsonl", "repeat": 3,
  "drills": {"busy": {"faults": [{"on": "gateway:openai", "kind": "status", "code": 429, "retry_after": 1, "route": "POST /v1/responses", "nth": 1, "times": 1}]}}
}"#;
