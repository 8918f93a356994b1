//! Odd strings in every place that a target, a case, a world or a provider can fill, in every form: neutral in terminal, XML,
//! Markdown and HTML, exact in JSON. What the browser makes of the page is `browser.rs`'s.

use super::sample::{finish, id, plain, record, scratch, trials};
use camino::Utf8Path;
use crashlab::report::look::Look;
use crashlab::report::{html, human, junit, markdown};
use crashlab::results::compare::compare;
use crashlab::results::record::{FaultRecord, Kept, Redaction, RunRecord, Shortfall};
use crashlab::results::store::{Store, TrialFile, TrialLog};
use crashlab::results::{list, read, story};
use serde_json::{Value, json};
use std::io::Write;

const RUN: &str = "20260102T030405Z-odd0";

/// What moves a cursor, hides or reorders text, opens a link, ends an element, a span, a table or a line.
const ODD: [&str; 12] = [
    "\u{1b}[2J\u{1b}[1;1H\u{1b}[31mred",
    "\u{1b}]8;;http://evil.example\u{1b}\\click\u{1b}]8;;\u{1b}\\",
    "\u{1b}]0;title\u{7}\u{1b}P+q544e\u{1b}\\",
    "\u{9b}2J\u{90}x\u{9c}",
    "passed\rfailed\r\n\u{8}\u{8}ok\u{7f}",
    "abc\u{202e}txt.exe\u{202c}\u{2066}x\u{2069}\u{61c}\u{200f}",
    "zero\u{200b}width\u{feff}\u{2060}\u{ad}\u{e0041}\u{fe00}",
    "line\u{2028}para\u{2029}\u{b}\u{c}\u{85}",
    "nul\0\u{fffe}\u{fdd0}]]>",
    "</script><!--<img src=x onerror='alert(1)'>\"&<![CDATA[",
    "`code` | cell | [link](http://evil.example) ![i](x) @everyone <b> # h",
    "日本語 👩\u{200d}💻 e\u{301} \u{1f3f4}\u{e0067}\u{e007f}",
];

fn all() -> String {
    ODD.join(" ")
}

/// A run with odd strings wherever somebody else's words can get.
fn odd(results: &Utf8Path) -> RunRecord {
    let text = all();
    let mut run = finish(record(RUN), trials("a", "pfu"));
    (run.tag, run.evaluation.name) = (Some(text.clone()), text.clone());
    let engine = run.engine.as_mut().unwrap();
    (engine.version, engine.os, engine.endpoint) = (Some(text.clone()), Some(text.clone()), Some(text.clone()));
    let target = run.target.as_mut().unwrap();
    (target.source, target.commit) = (text.clone(), Some(text.clone()));
    for trial in &mut run.trials {
        (trial.checks[0].name, trial.checks[0].detail) = (text.clone(), Some(text.clone()));
        trial.diagnostics = vec![text.clone()];
        let fault = FaultRecord { kind: text.clone(), on: text.clone(), route: Some(text.clone()), call: 1 };
        trial.faults = vec![fault];
    }
    let kept = Kept { kind: text.clone(), id: Some(text.clone()), name: Some(text.clone()), reason: text.clone() };
    (run.cleanup.kept, run.cleanup.failures) = (vec![kept.clone()], vec![kept]);
    run.redactions = vec![Redaction { name: text.clone(), file: text.clone(), count: 1 }];
    let shortfall = Shortfall { requirement: text.clone(), requested: text.clone(), observed: None, hint: Some(text) };
    run.sandbox.shortfalls = vec![shortfall];
    write(results, run)
}

fn write(results: &Utf8Path, run: RunRecord) -> RunRecord {
    let text = all();
    let store = Store::create(results, &run.run, plain()).unwrap();
    for trial in &run.trials {
        let folder = store.trial(&trial.id()).unwrap();
        for file in [TrialFile::Stdout, TrialFile::Stderr, TrialFile::EvaluationLog] {
            folder.write(file, text.as_bytes()).unwrap();
        }
        let at = "2026-01-02T03:04:06.100Z";
        let call = json!({"at": at, "operation": text, "via": text, "arguments": {&text: text}, "result": text,
            "refused": {"code": text, "message": text}, "error": {"code": text, "message": text},
            "world_diff": [{"op": "add", "path": format!("/{text}"), "value": text}]});
        folder.append(TrialLog::Operations, &call).unwrap();
        let call = json!({"at": at, "gateway": text, "method": text, "route": text, "model": text, "served": "other",
            "end": text, "unknown": text, "refusal": {"limit": text, "code": text}});
        folder.append(TrialLog::Gateway, &call).unwrap();
        folder.append(TrialLog::Gateway, &json!({"at": at, "gateway": text, "end": text, "unknown": text})).unwrap();
        folder.append(TrialLog::Gateway, &json!(text)).unwrap();
        folder
            .write_worlds(&json!({&text: 1, "gone": text}), Some(&json!({&text: text, "new": {&text: text}})))
            .unwrap();
        folder.finish(trial.clone()).unwrap();
    }
    store.write_run(run).unwrap()
}

fn text(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Whether a character could drive a terminal, or make text read otherwise than it is.
fn is_odd(char: char) -> bool {
    (char.is_control() && char != '\n')
        || "\u{ad}\u{61c}\u{feff}\u{fffe}\u{fdd0}\u{fe00}".contains(char)
        || ('\u{200b}'..='\u{200f}').contains(&char)
        || ('\u{2028}'..='\u{202e}').contains(&char)
        || ('\u{2060}'..='\u{206f}').contains(&char)
        || ('\u{e0000}'..='\u{e0fff}').contains(&char)
}

/// Every form that people read, by name.
fn forms(results: &Utf8Path) -> Vec<(String, String)> {
    let run = read::find(results, RUN).unwrap();
    let (record, folder) = (&run.record, results.join("runs"));
    let mut other = record.clone();
    other.run = id("20260102T030406Z-odd1");
    other.set_trials(trials("a", "fff"));
    let comparison = compare(record, &other);
    let runs = list::list(results).unwrap();
    let mut forms = vec![
        ("junit".to_owned(), text(|out| junit::run(record, out))),
        ("markdown".to_owned(), text(|out| markdown::compare(&comparison, out))),
        ("page".to_owned(), text(|out| html::run(&run, out))),
        ("page of a comparison".to_owned(), text(|out| html::compare(&comparison, out))),
    ];
    for width in [80, 160] {
        let look = Look::plain(width);
        forms.push((format!("view at {width}"), text(|out| human::run(record, &folder, &look, out))));
        forms.push((format!("list at {width}"), text(|out| human::runs(&runs, &look, out))));
        forms.push((format!("compare at {width}"), text(|out| human::compare(&comparison, &look, out))));
        for trial in &record.trials {
            let story = story::read(&run, trial).unwrap();
            forms.push((format!("story of {} at {width}", trial.trial), text(|out| human::story(&story, &look, out))));
        }
    }
    forms
}

#[test]
fn odd_strings_are_neutral_in_every_form_that_people_read() {
    let scratch = scratch();
    odd(&scratch.results);
    for (name, shown) in forms(&scratch.results) {
        // In the page's data blocks JSON's own escapes stand for what the script puts in as text, neutral already.
        let found: Vec<char> = shown.chars().filter(|char| is_odd(*char)).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
        for line in shown.lines().filter(|_| name.contains(" at ")) {
            let width: usize = name.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(crashlab::report::text::width(line) <= width, "{name}: {line}");
        }
        // Shown, not swallowed.
        if name.starts_with("story") || name.starts_with("view") {
            assert!(shown.contains("\\x1b[2J") && shown.contains("日本語"), "{name}: {shown}");
        }
    }
}

#[test]
fn markup_in_odd_strings_ends_no_element_no_span_and_no_table() {
    let scratch = scratch();
    odd(&scratch.results);
    for (name, shown) in forms(&scratch.results) {
        match name.as_str() {
            "junit" => {
                assert!(!shown.contains("]]>") && !shown.contains("<img"), "{shown}");
                let parse = "import sys, xml.dom.minidom as dom; dom.parseString(sys.stdin.buffer.read())";
                assert_cmd::Command::new("python3").args(["-c", parse]).write_stdin(shown).assert().success();
            }
            "markdown" => {
                for line in shown.lines().filter(|line| line.starts_with('|')) {
                    assert!(!line.contains("<img") && line.matches(" | ").count() <= 5, "{line}");
                }
            }
            name if name.starts_with("page") => {
                assert!(!shown.contains("<img") && !shown.contains("<b>") && !shown.contains("<![CDATA"), "{name}");
                let scripts = shown.matches("<script").count();
                assert_eq!(scripts, shown.matches("</script>").count(), "{name}");
                assert_eq!(scripts, if name == "page" { 4 } else { 1 }, "{name}");
            }
            _ => {}
        }
    }
}

#[test]
fn odd_strings_are_exact_in_json() {
    let scratch = scratch();
    let written = odd(&scratch.results);
    let mut crashlab = assert_cmd::Command::cargo_bin("crashlab").unwrap();
    let output =
        crashlab.args(["--results", scratch.results.as_str(), "view", RUN, "--format", "json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document, serde_json::to_value(&written).unwrap());
    for place in ["/tag", "/evaluation/name", "/trials/1/checks/0/detail", "/trials/1/diagnostics/0", "/engine/os"] {
        assert_eq!(document.pointer(place), Some(&json!(all())), "{place}");
    }
    let mut crashlab = assert_cmd::Command::cargo_bin("crashlab").unwrap();
    let args = ["--results", scratch.results.as_str(), "view", RUN, "--trial", "a/2", "--format", "json"];
    let story: Value = serde_json::from_slice(&crashlab.args(args).output().unwrap().stdout).unwrap();
    for place in ["/stdout", "/stderr", "/evaluation_log", "/operations/0/operation", "/gateway/0/model", "/gateway/2"]
    {
        assert_eq!(story.pointer(place), Some(&json!(all())), "{place}");
    }
    assert_eq!(story["world_after"]["new"][all()], json!(all()));
}
