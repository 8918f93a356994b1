"""What the benchmarks share: packages in a temporary folder, runs against the clock, a table. Python's standard library.

Each benchmark interleaves what it compares and takes medians, so that a busy moment of the machine strikes all alike; what
counts are the ratios of one run, not seconds of different days.
"""

import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRASHLAB = pathlib.Path(os.environ.get("BENCH_CRASHLAB", ROOT / "target/release/crashlab"))
BUSYBOX = "crashlab/busybox:1"
PYTHON = "crashlab/python:1"

EVALUATION = """
from crashlab import Check, Evaluation

evaluation = Evaluation()

@evaluation.world
def world(case):
    return {}

@evaluation.operation
def ping(world) -> str:
    return "pong"

@evaluation.verify
def verify(trial):
    yield Check("clean", trial.stop.code == 0, None)

if __name__ == "__main__":
    evaluation.serve()
"""


class Package:
    """An evaluation package whose target is one command; gone with the process."""

    def __init__(self, command, cases, image=BUSYBOX, operations=False, files=None, **policy):
        self._folder = tempfile.TemporaryDirectory(prefix="crashlab-bench-")
        self.root = pathlib.Path(self._folder.name)
        package = self.root / "package"
        (package / "target").mkdir(parents=True)
        policy = {
            "version": 1,
            "name": "bench",
            "target": {"image": {"reference": image, "pull": "never"}, "command": command},
            "sandbox": {"memory": "128MiB", "wall_time": "120s"},
            "evaluation": {"command": ["python3", "evaluation.py"]},
            **policy,
        }
        if operations:
            policy["operations"] = {"ping": {"calls": 1000}}
        lines = "".join(json.dumps({"id": f"case-{n}", "input": n}) + "\n" for n in range(cases))
        contents = {"policy.json": json.dumps(policy), "cases.jsonl": lines, "evaluation.py": EVALUATION, "target/note": "x"}
        for path, text in {**contents, **(files or {})}.items():
            (package / path).write_text(text)
        subprocess.run(["git", "init", "--quiet", str(package)], check=True)
        self.package = package

    def run(self, *arguments):
        """Seconds, the run's record, and the peak resident size of crashlab in MiB."""
        results = tempfile.mkdtemp(dir=self.root)
        command = [CRASHLAB, "--results", results, "--quiet", "--format", "json", "run", self.package]
        command += ["--trust-evaluation-code", *arguments]
        seconds, peak, output = measured(command)
        record = json.loads(output)
        counts = record.get("counts") or sys.exit(f"the run did not begin: {record}")
        if counts["passed"] != counts["trials"]:
            odd = next(trial for trial in record["trials"] if trial["outcome"] != "passed")
            sys.exit(f"not every trial passed: {counts}, for example {odd}")
        return seconds, record, peak


def measured(command):
    """Seconds, peak resident MiB and standard output of a program, without its children's."""
    begun = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE)
    # The kernel's own mark, looked at until the end: what wait4 gives begins with the size of who started the program.
    peak, ended = [0], threading.Event()

    def watch():
        while not ended.wait(0.02):
            with contextlib.suppress(OSError, TypeError):
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                peak[0] = max(peak[0], int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.stdout.read()
    process.wait()
    seconds = time.monotonic() - begun
    ended.set()
    watcher.join()
    return seconds, peak[0] / 1024, output


def rounds():
    """How often each thing is measured; BENCH_ROUNDS says."""
    return int(os.environ.get("BENCH_ROUNDS", "3"))


def interleaved(**contenders):
    """The median of what each contender gives, taken in turns."""
    taken = {name: [] for name in contenders}
    for _ in range(rounds()):
        for name, contender in contenders.items():
            taken[name].append(contender())
    return {name: statistics.median(values) for name, values in taken.items()}


def table(title, head, rows):
    """Prints a Markdown table."""
    print(f"\n{title}\n")
    for row in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    sys.stdout.flush()


def machine():
    """One line: what this was measured on."""
    engine = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True)
    return f"{os.cpu_count()} cores, engine {engine.stdout.strip()}, {time.strftime('%Y-%m-%d')}, medians of {rounds()}"
