//! The pages in a real browser (Debian's chromium, headless, driven by chromedriver): no console error, filter and open by
//! keyboard, hostile strings inert, nothing wider than a telephone, 1,000 trials. Without a browser these tests say so and
//! pass, unless CRASHLAB_BROWSER=required.

use super::sample::{demo, finish, id, plain, record, scratch, trials};
use camino::Utf8Path;
use crashlab::report::{file, html};
use crashlab::results::compare::compare;
use crashlab::results::read;
use crashlab::results::store::{Store, TrialFile, TrialLog};
use crashlab::verdict::Outcome;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

const RUN: &str = "20260102T030405Z-k3f9";
/// Anything that could become an element, a script or a style, or end the data that it is in.
const HOSTILE: &str = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=1'>\" onclick=\"window.pwned=1\" <!--<script> ${window.pwned=1} \u{202e}\u{0}";

/// A browser session; gone with the test.
struct Browser {
    driver: Child,
    session: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    fn start() -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "the test drives a browser; src/ starts none")]
        let started = std::process::Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut driver) = started else {
            let required = std::env::var_os("CRASHLAB_BROWSER").is_some_and(|value| value == "required");
            assert!(!required, "CRASHLAB_BROWSER=required, and there is no chromedriver");
            eprintln!("no chromedriver: the pages were not looked at");
            return None;
        };
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let driver = Self { driver, session: format!("http://127.0.0.1:{}/session", port.unwrap()) };
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = driver.post("", &wanted);
        let session = format!("{}/{}", driver.session, session["sessionId"].as_str().unwrap());
        let mut driver = driver;
        driver.session = session;
        Some(driver)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut answer = ureq::post(format!("{}{path}", self.session))
            .config()
            .http_status_as_error(false)
            .build()
            .send(body.to_string())
            .unwrap();
        let text = answer.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {text}");
        answer["value"].clone()
    }

    /// A viewport of so many columns of pixels, light or dark.
    fn look(&self, width: u64, scheme: &str) {
        let cdp = |command: &str, parameters: Value| {
            self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}));
        };
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        cdp("Emulation.setDeviceMetricsOverride", size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        cdp("Emulation.setEmulatedMedia", features);
    }

    fn open(&self, file: &Utf8Path) {
        self.post("/url", &json!({"url": format!("file://{}", file.canonicalize_utf8().unwrap())}));
    }

    fn ask(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": format!("return {script}"), "args": []}))
    }

    /// Presses keys one after the other, as a person does.
    fn press(&self, keys: &str) {
        let press = |key: char| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}));
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// Opens the row that has the focus, and waits for the page to have told its story.
    fn press_open(&self) {
        self.press(&ENTER.to_string());
        self.ask(
            "new Promise(done => {
                const row = document.activeElement.closest('.row');
                if (row.querySelector('.story').childElementCount > 0) done();
                else row.addEventListener('toggle', () => done(), {once: true});
            })",
        );
    }

    fn console(&self) -> Vec<Value> {
        self.post("/se/log", &json!({"type": "browser"})).as_array().unwrap().clone()
    }

    /// Kept below `target/`, to be looked at.
    fn picture(&self, name: &str) {
        use base64::Engine as _;
        let mut answer = ureq::get(format!("{}/screenshot", self.session)).call().unwrap();
        let text = answer.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(answer["value"].as_str().unwrap()).unwrap();
        let folder = Utf8Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }
}

const ESCAPE: char = '\u{e00c}';
const ENTER: char = '\u{e007}';

/// The texts whose contrast with what they stand on is below 4.5 (WCAG AA): class and ratio.
const FAINT: &str = r"(() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        return canvas.getImageData(0, 0, 1, 1).data;
    };
    const light = (color) => {
        const [r, g, b] = Array.from(rgba(color)).slice(0, 3)
            .map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const color = getComputedStyle(e).backgroundColor;
            if (rgba(color)[3] === 255) return color;
        }
        return 'white';
    };
    const low = new Set();
    for (const element of document.querySelectorAll('body *')) {
        const own = Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || element.closest('script, style, svg, noscript') || getComputedStyle(element).opacity !== '1') continue;
        const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) low.add(element.tagName + '.' + element.className + ' ' + ratio.toFixed(2));
    }
    return Array.from(low);
})()";

/// A run of 1,000 trials, the first of which says hostile things everywhere.
fn thousand(results: &Utf8Path) {
    let mut all = Vec::new();
    for case in 0..100 {
        all.extend(trials(&format!("case-{case:02}"), "pfpupppppn"));
    }
    let mut run = finish(record("20260103T030405Z-many"), all);
    run.tag = Some(HOSTILE.to_owned());
    run.evaluation.name = HOSTILE.to_owned();
    run.trials[0].outcome = Outcome::Failed;
    run.trials[0].checks[0].passed = false;
    run.trials[0].checks[0].name = HOSTILE.to_owned();
    run.trials[0].checks[0].detail = Some(HOSTILE.to_owned());
    run.trials[0].diagnostics = vec![HOSTILE.to_owned()];
    let trials = std::mem::take(&mut run.trials);
    run.set_trials(trials);
    let store = Store::create(results, &run.run, plain()).unwrap();
    let first = store.trial(&run.trials[0].id()).unwrap();
    first.write(TrialFile::Stdout, HOSTILE.as_bytes()).unwrap();
    first.write(TrialFile::Stderr, HOSTILE.as_bytes()).unwrap();
    let line = json!({"at": "2026-01-02T03:04:06.100Z", "operation": HOSTILE, "arguments": {HOSTILE: HOSTILE}, "result": HOSTILE});
    first.append(TrialLog::Operations, &line).unwrap();
    let call = json!({"at": "2026-01-02T03:04:06.200Z", "gateway": HOSTILE, "route": HOSTILE, "model": HOSTILE, "end": HOSTILE, "unknown": HOSTILE});
    first.append(TrialLog::Gateway, &call).unwrap();
    first.write_worlds(&json!({}), Some(&json!({HOSTILE: HOSTILE}))).unwrap();
    store.write_run(run).unwrap();
}

fn page(results: &Utf8Path, run: &str) -> camino::Utf8PathBuf {
    let path = results.join(format!("{run}.html"));
    file::write(&path, |out| html::run(&read::find(results, run).unwrap(), out)).unwrap();
    path
}

#[test]
fn a_thousand_trials_filter_and_open_by_keyboard_and_hostile_strings_are_inert() {
    let Some(browser) = Browser::start() else { return };
    let scratch = scratch();
    thousand(&scratch.results);
    let path = page(&scratch.results, "latest");
    browser.look(1280, "light");
    browser.open(&path);
    assert_eq!(browser.ask("document.getElementById('shown').textContent"), json!("1000 of 1000 shown"));

    // Told only once it is opened: a page of a thousand trials has the elements of its rows and of no story.
    assert_eq!(browser.ask("document.querySelectorAll('.story *').length"), json!(0));
    let elements = browser.ask("document.querySelectorAll('body *').length").as_u64().unwrap();
    assert!(elements < 20 * 1000, "{elements}");

    browser.press("/case-42/2");
    assert_eq!(browser.ask("document.activeElement.id"), json!("search"));
    assert_eq!(browser.ask("document.getElementById('shown').textContent"), json!("1 of 1000 shown"));
    let visible = "document.querySelectorAll('.row:not([hidden])')";
    assert_eq!(browser.ask(&format!("{visible}[0].querySelector('.name').textContent")), json!("case-42/2"));
    browser.press(&ESCAPE.to_string());
    assert_eq!(browser.ask(&format!("{visible}.length")), json!(1000));
    browser.ask("document.querySelector('input[data-kind=passed]').click()");
    assert_eq!(browser.ask(&format!("{visible}.length")), json!(301));
    browser.ask("document.querySelector('input[data-kind=passed]').click()");
    browser.ask("document.querySelectorAll('button.find')[7].focus()");
    browser.press(&ENTER.to_string());
    assert_eq!(browser.ask("document.getElementById('shown').textContent"), json!("10 of 1000 shown"));
    assert_eq!(browser.ask("document.activeElement.querySelector('.name').textContent"), json!("case-07/1"));
    browser.press(&format!("/{ESCAPE}"));

    browser.press("j");
    assert_eq!(browser.ask("document.activeElement.tagName"), json!("SUMMARY"));
    browser.press_open();
    assert_eq!(browser.ask("document.querySelector('.row').open"), json!(true));
    let story = "document.querySelector('.row .story')";
    assert_eq!(browser.ask(&format!("{story}.querySelectorAll('.event').length")), json!(2));
    let text = browser.ask(&format!("{story}.textContent"));
    assert!(text.as_str().unwrap().contains("<img src=x onerror='window.pwned=1'>"), "{text}");
    browser.press("j");
    assert_eq!(browser.ask("document.activeElement.querySelector('.name').textContent"), json!("case-00/2"));
    browser.press("k");
    let here = "document.activeElement.querySelector('.name').textContent";
    assert_eq!(browser.ask(here), json!("case-00/1"));
    browser.press("nnn");
    assert_eq!(browser.ask(here), json!("case-00/10"));
    assert_eq!(browser.ask("document.querySelectorAll('.row[open] .event').length"), json!(2));

    assert_eq!(browser.ask("typeof window.pwned"), json!("undefined"));
    let foreign = "document.querySelectorAll('img, iframe, object, embed, [onclick], [onerror], script[src], link[rel=stylesheet]').length";
    assert_eq!(browser.ask(foreign), json!(0));
    assert_eq!(browser.console(), Vec::<Value>::new());

    // The policy itself: what is not the page's own script does not run. This one the console tells.
    browser.ask("(() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; document.body.append(s); })()");
    assert_eq!(browser.ask("typeof window.pwned"), json!("undefined"));
    assert!(browser.console().iter().any(|line| line["message"].as_str().unwrap().contains("Content Security Policy")));
}

#[test]
fn the_page_of_a_run_fits_a_desk_and_a_telephone_in_light_and_dark() {
    let Some(browser) = Browser::start() else { return };
    let scratch = scratch();
    demo(&scratch.results, RUN);
    let path = page(&scratch.results, RUN);
    let mut papers = Vec::new();
    for (width, scheme) in [(1280, "light"), (400, "dark")] {
        browser.look(width, scheme);
        browser.open(&path);
        browser.press("j");
        browser.press_open();
        assert_eq!(browser.ask("document.querySelectorAll('.event rect').length"), json!(5));
        let wide = browser.ask("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= width, "{wide} > {width}");
        let bars = "Array.from(document.querySelectorAll('.event rect')).every(r => +r.getAttribute('x') + +r.getAttribute('width') <= 1000)";
        assert_eq!(browser.ask(bars), json!(true));
        browser.press(&ESCAPE.to_string());
        assert_eq!(browser.ask("document.querySelectorAll('.row[open]').length"), json!(0));
        browser.press(&ENTER.to_string());
        assert_eq!(browser.ask("document.querySelectorAll('.row[open] .event').length"), json!(5));
        assert_eq!(browser.ask(FAINT), json!([]), "{scheme}");
        papers.push(browser.ask("getComputedStyle(document.body).backgroundColor"));
        assert_eq!(browser.console(), Vec::<Value>::new());
        browser.picture(&format!("run_{width}_{scheme}"));
    }
    assert_ne!(papers[0], papers[1]);
}

#[test]
fn a_link_to_a_trial_opens_it_and_a_hostile_one_does_nothing() {
    let Some(browser) = Browser::start() else { return };
    let scratch = scratch();
    demo(&scratch.results, RUN);
    let path = page(&scratch.results, RUN).canonicalize_utf8().unwrap();
    browser.look(1280, "light");
    let opened = "Array.from(document.querySelectorAll('.row[open] .name')).map((name) => name.textContent)";
    for (link, name) in [("double-refund%40flaky/1", json!(["double-refund@flaky/1"])), ("%zz\"]<b>", json!([]))] {
        browser.post("/url", &json!({"url": "about:blank"}));
        browser.post("/url", &json!({"url": format!("file://{path}#{link}")}));
        assert_eq!(browser.ask(opened), name, "{link}");
    }
    assert_eq!(browser.console(), Vec::<Value>::new());
}

#[test]
fn the_page_of_a_comparison_filters_and_opens_by_keyboard() {
    let Some(browser) = Browser::start() else { return };
    let scratch = scratch();
    let run = |name: &str, outcomes: [&str; 3]| {
        let cases = ["double-refund", "polite-refusal", "slow-lookup"];
        let mut run =
            finish(record(name), cases.iter().zip(outcomes).flat_map(|(case, all)| trials(case, all)).collect());
        run.tag = Some(HOSTILE.to_owned());
        run.run = id(name);
        run
    };
    let base = run("base", ["pppppppp", "ffffffff", "ppuu"]);
    let candidate = run("candidate", ["ffffffff", "pppppppp", "uupp"]);
    let path = scratch.results.with_file_name("compare.html");
    file::write(&path, |out| html::compare(&compare(&base, &candidate), out)).unwrap();
    for (width, scheme) in [(1280, "dark"), (400, "light")] {
        browser.look(width, scheme);
        browser.open(&path);
        browser.press("/polite");
        assert_eq!(browser.ask("document.getElementById('shown').textContent"), json!("1 of 3 shown"));
        browser.press(&ESCAPE.to_string());
        browser.press("j");
        browser.press_open();
        assert_eq!(browser.ask("document.querySelector('.row').open"), json!(true));
        let wide = browser.ask("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= width, "{wide} > {width}");
        assert_eq!(browser.ask("typeof window.pwned"), json!("undefined"));
        assert_eq!(browser.ask(FAINT), json!([]), "{scheme}");
        assert_eq!(browser.console(), Vec::<Value>::new());
        browser.picture(&format!("compare_{width}_{scheme}"));
    }
}
