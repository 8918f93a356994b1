//! Field cases D1, D3, D4 on the real engine: a run whose target, provider and evaluation do their best to leave a key and
//! a token behind, and then every byte that is left is searched: the results, what was printed, each docker call with its
//! environment, each container as the engine describes it, and every command line on the machine meanwhile.

use crate::chain::interrupt;
use crate::streams::provider;
use crate::support::{BUSYBOX, Package, Wrapper, eventually, objects_of};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const KEY: &str = r#"sk-real/"key"<value>+0123456789"#;

/// Prints what it has and what it gets, encoded in each way; tells the provider its token, which the provider keeps for us.
const TARGET: &str = r#"
import base64, http.client, json, os, sys, urllib.parse
from urllib.parse import urlsplit

case = json.load(sys.stdin)["id"]
token = os.environ["KEY"]

def encoded(text):
    raw = text.encode()
    yield text
    for before in [b"", b"x", b"xx"]:
        yield base64.b64encode(before + raw).decode()
        yield base64.urlsafe_b64encode(before + raw).decode()
    yield urllib.parse.quote(text, safe="")
    yield urllib.parse.quote_plus(text).lower()
    yield json.dumps({text: text})
    yield json.dumps(json.dumps(text))

connection = http.client.HTTPConnection(urlsplit(os.environ["URL"]).netloc, timeout=60)
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": case + " " + token}]})
connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer " + token})
answer = connection.getresponse()
text = answer.read().decode()
for stream in [sys.stdout, sys.stderr]:
    for name in ["KEY", "CRASHLAB_TOKEN"]:
        for form in encoded(os.environ[name]):
            print(form, file=stream)
    print(answer.status, dict(answer.headers), text, file=stream)
# In two writes.
for stream in [1, 2]:
    os.write(stream, token[:30].encode())
    os.write(stream, token[30:].encode() + b"\n")
connection = http.client.HTTPConnection(urlsplit(os.environ["CRASHLAB_URL"]).netloc, timeout=60)
connection.request("POST", "/operations/refund", json.dumps({"order_id": os.environ["CRASHLAB_TOKEN"], "amount_cents": 1}),
                   {"Authorization": "Bearer " + os.environ["CRASHLAB_TOKEN"], "Content-Type": "application/json"})
connection.getresponse().read()
print(json.dumps({"ok": True, "token": token}))
sys.exit(1 if case == "fails" else 0)
"#;

/// How the engine describes each container just before it is removed.
const INSPECT: &str = r#"
if args[0] == "rm":
    ids = [arg for arg in args[1:] if not arg.startswith("-")]
    done = subprocess.run([REAL, "inspect", "--type", "container", "--format", "{{json .}}", *ids], capture_output=True, text=True)
    open(FOLDER + "/inspected", "a").write(done.stdout)
"#;

/// Each way in which a secret can be written; base64 also behind one byte and two, since it depends on them.
fn encodings(secret: &str) -> Vec<String> {
    let percent = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let quoted = Value::from(secret).to_string();
    let inner = &quoted[1..quoted.len() - 1];
    let mut all = vec![secret.to_owned(), secret.bytes().map(percent).collect(), inner.to_owned()];
    all.push(all[1].to_lowercase());
    all.push(inner.replace('<', "\\u003c").replace('>', "\\u003e"));
    all.push(inner.replace('/', "\\/"));
    for text in ["", "x", "xx"].map(|before| [before, secret].concat()) {
        all.extend([STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)]);
    }
    all
}

/// What is looked for: the same, but base64 without its ends, which share their bits with what stands around.
fn forms(secret: &str) -> Vec<String> {
    let mut all = encodings(secret);
    let base64 = all.len() - 6;
    all[base64..].iter_mut().for_each(|text| *text = text[4..text.len() - 2].to_owned());
    all
}

/// Which of these secrets stand in the bytes, in which form.
fn found(bytes: &[u8], secrets: &[String]) -> Vec<String> {
    let all = secrets.iter().flat_map(|secret| forms(secret));
    // What is looked for is ASCII: what is not text on the way does not hide it.
    let text = String::from_utf8_lossy(bytes);
    all.filter(|form| text.contains(form)).collect()
}

fn files(folder: &Path, all: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, all) } else { all.push(path) }
    }
}

/// Searches all that a run whose resources are gone left behind; gives how many containers the engine described of it.
fn nothing_is_left(package: &Package, engine: &Wrapper, printed: &[&Output], secrets: &[String]) -> usize {
    let mut left = Vec::new();
    files(&package.results(), &mut left);
    for path in &left {
        assert_eq!(found(&std::fs::read(path).unwrap(), secrets), [""; 0], "{}", path.display());
    }
    for printed in printed.iter().flat_map(|output| [&output.stdout, &output.stderr]) {
        assert_eq!(found(printed, secrets), [""; 0], "{}", String::from_utf8_lossy(printed));
    }
    for call in engine.calls() {
        assert_eq!(found(call.to_string().as_bytes(), secrets), [""; 0], "{}", call["args"]);
        assert_eq!(found(call["args"].to_string().as_bytes(), secrets), [""; 0]);
    }
    let inspected = std::fs::read_to_string(engine.file("inspected")).unwrap();
    let containers: Vec<Value> = inspected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for mut container in containers.iter().cloned() {
        // A trial's token may be in its own agent's environment, and nowhere else.
        if container["Name"].as_str().unwrap().contains("-target-") {
            container["Config"]["Env"].take();
        }
        assert_eq!(found(container.to_string().as_bytes(), secrets), [""; 0], "{container}");
    }
    assert_eq!(objects_of(&package.run_id()), [""; 0]);
    containers.len()
}

/// Every command line that this machine has, again and again until told to stop.
fn command_lines(stop: &AtomicBool) -> Vec<Vec<u8>> {
    let mut seen = std::collections::BTreeSet::new();
    while !stop.load(Ordering::SeqCst) {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            seen.extend(std::fs::read(entry.path().join("cmdline")).ok().filter(|line| !line.is_empty()));
        }
        // A docker client lives longer.
        std::thread::sleep(std::time::Duration::from_millis(15));
    }
    seen.into_iter().collect()
}

#[test]
fn no_key_and_no_token_is_left_anywhere_in_any_form() {
    let tokens: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&tokens);
    let origin = provider(move |prompt, mut stream| {
        let (case, token) = prompt.split_once(' ').unwrap();
        told.lock().unwrap().push(token.to_owned());
        let echo = encodings(KEY);
        let (status, body) = match case {
            "refused" => ("401 Unauthorized", json!({"error": {"message": echo.join(" ")}})),
            _ => (
                "200 OK",
                json!({"choices": [{"message": {"content": echo}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
            ),
        };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-request-id: {KEY}\r\ncontent-length: {}",
            body.len()
        );
        write!(stream, "{head}\r\nconnection: close\r\n\r\n{body}")
    });
    let engine = Wrapper::new(INSPECT);
    let package = crate::streams::package(TARGET, &origin).cases(&["passes", "fails", "refused"]);
    let trace = package.path().join("results-trace");
    let package = package
        .env("A_KEY", KEY)
        .env("PATH", &engine.path())
        .args(&["--jobs", "3", "--trace", trace.to_str().unwrap()])
        .policy(json!({"operations": {"refund": {}}}));
    let stop = AtomicBool::new(false);
    let (output, lines) = std::thread::scope(|scope| {
        let lines = scope.spawn(|| command_lines(&stop));
        let output = package.command().output().unwrap();
        stop.store(true, Ordering::SeqCst);
        (output, lines.join().unwrap())
    });
    let mut secrets = tokens.lock().unwrap().clone();
    assert_eq!(secrets.len(), 3, "{}", String::from_utf8_lossy(&output.stderr));
    secrets.push(KEY.to_owned());
    assert_eq!(found(&std::fs::read(trace).unwrap(), &secrets), [""; 0]);
    // The search is not in vain: both were there.
    let stdout = std::fs::read_to_string(package.run_folder().join("trials/passes/1/stdout")).unwrap();
    assert!(stdout.matches("[redacted:").count() > 20 && stdout.contains("[redacted:A_KEY]"), "{stdout}");
    for line in &lines {
        assert_eq!(found(line, &secrets), [""; 0], "{}", String::from_utf8_lossy(line));
    }
    assert!(nothing_is_left(&package, &engine, &[&output], &secrets) >= 6);
}

/// Prints its token, tells the provider, prints what that said, tells it again, and waits for its end.
const WAITING: &str = r#"
import base64, http.client, json, os, time
from urllib.parse import urlsplit

token = os.environ["KEY"]

def tell(what):
    connection = http.client.HTTPConnection(urlsplit(os.environ["URL"]).netloc, timeout=300)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": what + " " + token}]})
    connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer " + token})
    return connection.getresponse().read().decode()

print(token, base64.b64encode(token.encode()).decode(), flush=True)
print(tell("first"), flush=True)
tell("printed")
time.sleep(300)
"#;

#[test]
fn no_key_and_no_token_is_left_of_a_run_that_is_interrupted_or_killed() {
    for signal in ["INT", "KILL"] {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let tokens = Arc::clone(&told);
        let origin = provider(move |prompt, mut stream| {
            tokens.lock().unwrap().push(prompt.to_owned());
            let body = json!({"choices": [{"message": {"content": encodings(KEY)}}], "usage": null}).to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
            write!(stream, "{head}\r\nconnection: close\r\n\r\n{body}")
        });
        let engine = Wrapper::new(INSPECT);
        let package = crate::streams::package(WAITING, &origin).env("A_KEY", KEY).env("PATH", &engine.path());
        let child = package.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("second call", || told.lock().unwrap().len() >= 2);
        interrupt(&child, signal);
        let output = child.wait_with_output().unwrap();
        let mut printed = vec![output];
        if signal == "KILL" {
            let clean = package.crashlab(&["clean"]);
            assert_eq!(clean.status.code(), Some(0), "{}", String::from_utf8_lossy(&clean.stderr));
            printed.push(clean);
        }
        let token = told.lock().unwrap()[0].split_once(' ').unwrap().1.to_owned();
        let secrets = [token, KEY.to_owned()];
        let printed: Vec<&Output> = printed.iter().collect();
        assert!(nothing_is_left(&package, &engine, &printed, &secrets) >= 2, "{signal}");
    }
}

/// All that is told of a built image while the run holds it: by the engine, in its export, by the builder, and by buildx, which
/// is asked for what it knows of the build, and keeps notes of its own.
const IMAGE: &str = r#"
if args[:2] == ["buildx", "build"]:
    import shutil
    code = subprocess.call([REAL, *args[:2], "--metadata-file", FOLDER + "/image-metadata", *args[2:]])
    tag, builder = args[args.index("--tag") + 1], args[args.index("--builder") + 1]
    shutil.copytree(os.environ["BUILDX_CONFIG"], FOLDER + "/image-buildx")
    asked = {
        "inspect": ["image", "inspect", tag],
        "history": ["history", "--no-trunc", "--format", "{{json .}}", tag],
        "save": ["save", tag],
        "builder": ["inspect", "buildx_buildkit_" + builder + "0"],
        "steps": ["logs", "buildx_buildkit_" + builder + "0"],
    }
    for name, words in asked.items():
        with open(FOLDER + "/image-" + name, "wb") as file:
            subprocess.run([REAL, *words], stdout=file, stderr=file, check=True)
    return code
"#;

/// Asks for the key by its name, and keeps what it gets in the image: a step's arguments stand in the history too.
const DOCKERFILE: &str = r#"
FROM base
ARG A_KEY
ARG DECLARED
RUN ["/bin/busybox", "sh", "-c", "echo key: $A_KEY declared: $DECLARED >/args; /bin/busybox env >/env"]
"#;

/// D1's other half: a build's arguments stay readable in the history of the image and in its layers, and they would in an
/// attestation, which it does not have.
#[test]
fn no_key_and_no_token_is_in_an_image_that_was_built_nor_in_what_is_told_of_it() {
    let engine = Wrapper::new(&format!("{IMAGE}{INSPECT}"));
    let target = json!(["/bin/busybox", "sh", "-c", "echo $KEY >&2; echo '{\"ok\": true}'"]);
    // Nobody calls the provider.
    let package = crate::streams::package("", "http://127.0.0.1:9")
        .file("pkg/target/Dockerfile", DOCKERFILE)
        .env("A_KEY", KEY)
        .env("PATH", &engine.path())
        .policy(json!({"target": {
            "image": {"reference": null, "pull": null, "build": {
                "contexts": {"base": BUSYBOX}, "args": {"DECLARED": "an argument that was declared"},
            }},
            "command": target,
        }}));
    let output = package.command().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let inspected = std::fs::read_to_string(engine.file("inspected")).unwrap();
    let containers = inspected.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let environments = containers.flat_map(|container| container["Config"]["Env"].as_array().unwrap().clone());
    let variables: Vec<String> = environments.map(|variable| variable.as_str().unwrap().to_owned()).collect();
    let token = variables.iter().find_map(|variable| variable.strip_prefix("KEY=")).unwrap();
    let secrets = [KEY.to_owned(), token.to_owned()];
    let mut told = Vec::new();
    files(&engine.file(""), &mut told);
    told.retain(|path| path.to_str().unwrap().contains("/image-"));
    assert!(told.len() >= 7, "{told:?}");
    let places = told.iter().map(|path| (path, found(&std::fs::read(path).unwrap(), &secrets)));
    let holding: Vec<_> = places.filter(|(_, forms)| !forms.is_empty()).collect();
    assert!(holding.is_empty(), "{holding:#?}");
    let stands =
        |name: &str, text: &str| String::from_utf8_lossy(&std::fs::read(engine.file(name)).unwrap()).contains(text);
    assert!(!stands("image-save", "in-toto") && !stands("image-metadata", "provenance"));
    // The search is not in vain: what was declared to be an argument is there.
    assert!(["image-history", "image-save"].iter().all(|name| stands(name, "an argument that was declared")));
    assert!(nothing_is_left(&package, &engine, &[&output], &secrets) >= 2);
}
