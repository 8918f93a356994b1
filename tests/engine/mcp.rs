//! Operations over MCP from inside a sandbox, with other people's clients: the protocol's official Python client, and its
//! conformance suite. Both come from package registries, so they run when they are asked for:
//! `cargo test --test engine mcp -- --ignored`.

use crate::support::{Package, Ran};
use serde_json::{Value, json};
use std::process::Command;

fn fetch(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn passed(ran: &Ran) {
    assert_eq!(ran.exit, 0, "{}\n{}", ran.json["trials"], ran.stderr);
}

/// How the operations of a run's only trial came, in order.
fn via(package: &Package) -> Vec<Value> {
    let text = std::fs::read_to_string(package.run_folder().join("trials/one/1/operations.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["via"].clone()).collect()
}

#[test]
#[ignore = "asks a Python package index for the client"]
fn the_official_python_client_calls_operations_in_both_eras() {
    let agent = r#"
import asyncio, json, os, sys
sys.path.insert(0, "/target/lib")
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

async def main(mode):
    head = {"Authorization": f"Bearer {os.environ['CRASHLAB_TOKEN']}"}
    async with httpx2.AsyncClient(headers=head) as http:
        async with Client(streamable_http_client(os.environ["CRASHLAB_MCP_URL"], http_client=http), mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            done = await client.call_tool("refund", {"order_id": "A1", "amount_cents": 500})
            refused = await client.call_tool("refund", {"order_id": "A1", "amount_cents": 50000})
            wrong = await client.call_tool("refund", {"order_id": 1})
            try:
                await client.call_tool("hidden", {})
                unknown = None
            except Exception as error:
                unknown = str(error)
            return [tools, done.is_error, done.structured_content, refused.is_error, refused.content[0].text,
                    wrong.is_error, unknown, client.session.protocol_version]

right = [["refund"], False, {"refunded": 500}, True, "over_limit: a supervisor must approve refunds above 50.00", True,
         "Unknown tool: hidden"]
seen = [asyncio.run(main("auto")), asyncio.run(main("legacy"))]
print(json.dumps({"ok": seen == [right + ["2026-07-28"], right + ["2025-11-25"]], "seen": seen}))
"#;
    let package = Package::new(agent).policy(json!({
        "operations": {"refund": {}}, "sandbox": {"memory": "512MiB"},
    }));
    let lib = package.path().join("pkg/target/lib");
    fetch(Command::new("python3").args(["-m", "pip", "install", "--quiet", "--target"]).arg(lib).arg("mcp==2.3.0"));
    let ran = package.run();
    passed(&ran);
    assert_eq!(via(&package), vec![json!("mcp"); 8]);
}

/// The scenarios about tools, transport and handshake; the others want what a set of operations does not have.
const SCENARIOS: [&str; 7] = [
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "json-schema-2020-12",
    "dns-rebinding-protection",
];

#[test]
#[ignore = "asks the npm registry for the suite, and for the Node.js that it wants"]
fn the_conformance_suite_passes_as_far_as_it_covers_tools() {
    // The suite sends no token: a proxy inside the sandbox adds it.
    let agent = r#"
import http.client, http.server, json, os, subprocess, sys, threading, urllib.parse
scenarios = json.load(sys.stdin)
gateway = urllib.parse.urlsplit(os.environ["CRASHLAB_MCP_URL"])

class Proxy(http.server.BaseHTTPRequestHandler):
    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        head = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        head["Authorization"] = f"Bearer {os.environ['CRASHLAB_TOKEN']}"
        gate = http.client.HTTPConnection(gateway.hostname, gateway.port, timeout=30)
        gate.request(self.command, self.path, body, head)
        answer = gate.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    do_GET = do_POST = do_DELETE = pass_on
    def log_message(self, *args): pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://localhost:{server.server_port}/mcp"
failed = {}
for scenario in scenarios:
    suite = "/target/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    node = "/target/node_modules/node/bin/node"
    run = subprocess.run([node, suite, "server", "--url", url, "--scenario", scenario], capture_output=True, text=True)
    if run.returncode != 0 or ", 0 failed" not in run.stdout:
        failed[scenario] = (run.stdout + run.stderr)[-1500:]
print(json.dumps({"ok": not failed, "failed": failed}))
"#;
    let evaluation = r##"
from crashlab import Check, Evaluation, Refuse
evaluation = Evaluation()
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}}, "additionalProperties": False,
}

@evaluation.operation(description="A text.")
def test_simple_text(world): return "This is a simple text response for testing."

@evaluation.operation(description="An error.")
def test_error_handling(world): raise Refuse("error", "This tool intentionally returns an error for testing")

@evaluation.operation(description="A schema.", arguments=SCHEMA)
def json_schema_2020_12_tool(world, **arguments): return arguments

@evaluation.verify
def verify(trial): yield Check("conforms", trial.answer["ok"], trial.answer["failed"])

evaluation.serve()
"##;
    let case = json!({"id": "one", "input": SCENARIOS});
    let package = Package::new(agent)
        .file("pkg/evaluation.py", evaluation)
        .file("pkg/cases.jsonl", &format!("{case}\n"))
        .file("pkg/target/.gitignore", "")
        .policy(json!({
            "operations": {"test_simple_text": {}, "test_error_handling": {}, "json_schema_2020_12_tool": {}},
            "sandbox": {"memory": "1GiB", "wall_time": "5m", "processes": 256},
        }));
    let wanted = ["@modelcontextprotocol/conformance@0.1.16", "node@22"];
    fetch(
        Command::new("npm")
            .args(["install", "--silent", "--prefix"])
            .arg(package.path().join("pkg/target"))
            .args(wanted),
    );
    passed(&package.run());
}
