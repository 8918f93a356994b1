//! What the evaluation's tests share: a package in a folder of its own, the policy that goes with it, and its process.

use camino::{Utf8Path, Utf8PathBuf};
use crashlab::evaluation::{self, Host, Launch, Package};
use crashlab::ids::Digest;
use crashlab::policy::{self, Policy};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A package and its policy; gone with its folder.
pub struct Lab {
    folder: tempfile::TempDir,
    pub policy: Policy,
}

impl Lab {
    /// A package whose evaluation is this Python program.
    pub fn python(program: &str) -> Self {
        let lab = Self::bare(&["python3", "evaluation.py"]);
        lab.write("evaluation.py", program);
        lab
    }

    /// A package whose evaluation is this shell script, which gets each request as a line.
    pub fn shell(script: &str) -> Self {
        let lab = Self::bare(&["/bin/sh", "evaluation.sh"]);
        lab.write("evaluation.sh", script);
        lab
    }

    pub fn bare(command: &[&str]) -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap(), policy: policy(command) };
        std::fs::create_dir(lab.root()).unwrap();
        std::fs::create_dir(lab.sdk()).unwrap();
        evaluation::write_sdk(&lab.sdk()).unwrap();
        lab.write("policy.json", "{}");
        lab.write("cases.jsonl", "{\"id\": \"one\"}\n");
        lab
    }

    /// Where the test may put what is not the package's.
    pub fn outside(&self) -> Utf8PathBuf {
        Utf8Path::from_path(self.folder.path()).unwrap().canonicalize_utf8().unwrap()
    }

    pub fn root(&self) -> Utf8PathBuf {
        self.outside().join("package")
    }

    pub fn sdk(&self) -> Utf8PathBuf {
        self.outside().join("sdk")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn package(&self) -> Package {
        evaluation::open(&self.root(), &self.policy).unwrap()
    }

    pub fn start(&self) -> Host {
        self.start_with(&[], None)
    }

    pub fn start_with(&self, hidden: &[String], python: Option<&Utf8Path>) -> Host {
        let package = self.package();
        Host::start(&self.launch(&package, hidden, python)).unwrap()
    }

    pub fn launch<'a>(
        &'a self,
        package: &'a Package,
        hidden: &'a [String],
        python: Option<&'a Utf8Path>,
    ) -> Launch<'a> {
        // Leaked: a test's path, so that the launch can borrow it.
        let sdk: &'static Utf8Path = Box::leak(self.sdk().into_boxed_path());
        Launch { package, policy: &self.policy, python, secrets_to_hide: hidden, sdk, stop: None }
    }

    /// A process whose world is that of a case without input.
    pub fn created(&self) -> Host {
        let mut host = self.start();
        host.initialize().unwrap();
        host.create_world(&json!({"id": "one", "input": null})).unwrap();
        host
    }
}

/// An object of arguments.
pub fn arguments(value: Value) -> serde_json::Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn policy(command: &[&str]) -> Policy {
    let text = |text: &str| text.to_owned();
    Policy {
        name: text("lab"),
        digest: Digest::of(b""),
        target: policy::Target {
            source: "target".into(),
            files: vec![text("**")],
            mount: text("/target"),
            image: policy::ImageSource::Reference { reference: text("x:1"), pull: policy::Pull::Never },
            command: vec![text("true")],
            env: BTreeMap::new(),
            limits: policy::SnapshotLimits { files: 1, bytes: 1, file: 1 },
        },
        sandbox: policy::Sandbox {
            user: policy::User { uid: 65534, gid: 65534 },
            milli_cpus: 1000,
            memory: 1,
            processes: 1,
            open_files: 16,
            shared_memory: 0,
            wall_time: Duration::from_secs(1),
            output: 1,
            writable: Vec::new(),
            runtime: None,
        },
        operations: BTreeMap::new(),
        gateways: BTreeMap::new(),
        evaluation: policy::EvaluationRule {
            command: command.iter().map(|word| text(word)).collect(),
            lock: None,
            timeout: Duration::from_secs(20),
            require_clean_exit: true,
        },
        cases: "cases.jsonl".into(),
        repeat: 1,
        drills: BTreeMap::new(),
        written: Value::Null,
    }
}
