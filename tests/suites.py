"""Suites of tests, one after another and each to its end; a table says how every one ended.

`python -m tests.suites [--resume] NAME…`: each NAME is a target of the Makefile. What a suite says is shown and kept
in build/suites/NAME.log. The exit code is 1 where one failed or could not be run. `--resume` leaves out what has passed
on this very tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLOSING = re.compile(r"(?:\d+ [a-z]+, )*\d+ [a-z]+ in \d+\.\d+s")
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
DIGITS = "build/nbval/digits/bundles"
"""What `make defaults` leaves; the matrix and aarch64 take these bundles where they are there."""


@dataclass(frozen=True)
class Ended:
    """How a suite ended; `counts` is empty where no test runner closed it."""

    name: str
    code: int
    counts: dict[str, int]
    minutes: float
    tree: str

    @property
    def passed(self) -> bool:
        """Whether the target ended without an error and lost no test."""
        return self.code == 0 and not (self.counts.get("failed") or self.counts.get("error"))

    def row(self) -> str:
        """A line of the table."""
        counts = "".join(f"{self.counts.get(kind, 0):>9,}" for kind in ("passed", "failed", "error", "skipped"))
        return f"{self.name:<12}{counts}{self.minutes:>9.1f}  {'passed' if self.passed else f'FAILED ({self.code})'}"


def counted(output: str) -> dict[str, int]:
    """Tests by outcome, of every closing line of a test runner."""
    counts: Counter[str] = Counter()
    for line in output.splitlines():
        if CLOSING.search(line):
            for number, kind in COUNT.findall(line):
                counts[kind.removesuffix("s") if kind.startswith("error") else kind] += int(number)
    return dict(counts)


def run(name: str, logs: Path, make: Sequence[str] = ("make",)) -> Ended:
    """One suite, shown while it runs."""
    environment = {"CI": "true", **os.environ}  # a test that misses what it needs fails: tests/requirements.py
    if (ROOT.parent / "shared").is_dir():
        environment.setdefault("EDGEKIT_SHARED", str(ROOT.parent / "shared"))
    if (ROOT / DIGITS).is_dir():
        environment.setdefault("EDGEKIT_DIGITS_BUNDLES", str(ROOT / DIGITS))
    began, state = time.monotonic(), tree()
    print(f"\n=== make {name}", flush=True)
    with open(logs / f"{name}.log", "w") as log:
        process = subprocess.Popen(
            [*make, name], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            log.write(line)
        code = process.wait()
    minutes = (time.monotonic() - began) / 60
    return Ended(name, code, counted((logs / f"{name}.log").read_text()), minutes, state)


def tree(root: Path = ROOT) -> str:
    """A digest of the commit and of what differs from it here, files that git does not know yet among it."""
    digest = hashlib.sha256()
    for command in (["rev-parse", "HEAD"], ["diff", "HEAD"]):
        digest.update(_git(root, *command))
    for name in sorted(_git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")):
        path = root / os.fsdecode(name)
        content = path.read_bytes() if name and path.is_file() else b""
        digest.update(name + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, check=False).stdout


def earlier(logs: Path) -> dict[str, Ended]:
    """What the last session found, by name."""
    path = logs / "ended.json"
    return {one["name"]: Ended(**one) for one in json.loads(path.read_text())} if path.is_file() else {}


def main(arguments: Sequence[str] | None = None, make: Sequence[str] = ("make",)) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description="Suites of tests, run whole.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="a target of the Makefile")
    parser.add_argument("--resume", action="store_true", help="leave out what has passed on this very tree")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "suites", help="where the logs go")
    options = parser.parse_args(arguments)
    options.logs.mkdir(parents=True, exist_ok=True)
    known = earlier(options.logs) if options.resume else {}
    ended: list[Ended] = []
    for name in options.names:
        found = known.get(name)
        if not (found and found.passed and found.tree == tree()):
            found = run(name, options.logs, make)
        ended.append(found)
        (options.logs / "ended.json").write_text(json.dumps([asdict(one) for one in ended], indent=1) + "\n")
    print(f"\n{'suite':<12}{'passed':>9}{'failed':>9}{'errors':>9}{'skipped':>9}{'minutes':>9}")
    print(*(one.row() for one in ended), sep="\n")
    print(f"{sum(one.passed for one in ended)} of {len(ended)} suites passed")
    return int(not all(one.passed for one in ended))


if __name__ == "__main__":
    sys.exit(main())
