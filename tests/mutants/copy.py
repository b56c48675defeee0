"""A copy of the tree to put a fault into, and the commands that look for it there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.mutants.seeds import Seed

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "artifacts", "build", "dist", "shared")
NOTEBOOK_TEST = "tests/test_nbval.py"
"""The notebooks have a step of their own."""
LONGEST_S = 7200
"""For a command without any fault."""

_running: set[subprocess.Popen[str]] = set()


class CheckError(Exception):
    """The check itself cannot say anything."""


class Copy:
    """A copy of the tree in a folder of its own, in which commands import the copy's edgekit and no other.

    `limit_s` is what each of them may take.
    """

    def __init__(self, source: Path, home: Path) -> None:
        self.tree, self.scratch = home / "tree", home / "scratch"
        self.limit_s: float = LONGEST_S
        shutil.copytree(source, self.tree, ignore=LEFT_OUT)
        self.scratch.mkdir()
        done = self._python("-c", "import edgekit; print(edgekit.__file__)", cwd=self.scratch)
        if not done[1].strip().startswith(str(self.tree)):
            raise CheckError(f"the edgekit that is imported is not the copy in {self.tree}: {done[1].strip()}")

    def apply(self, seed: Seed) -> None:
        """Put the fault in; CheckError unless its text stands in the file exactly once."""
        text = self.text_of(seed)
        (self.tree / "edgekit" / seed.file).write_text(text.replace(seed.old, seed.new))

    def text_of(self, seed: Seed) -> str:
        """The source file that a fault goes into; CheckError unless the fault's text stands in it exactly once."""
        path = self.tree / "edgekit" / seed.file
        text = path.read_text() if path.is_file() else ""
        if (count := text.count(seed.old)) != 1:
            raise CheckError(f"{seed.name}: its text stands {count} times in edgekit/{seed.file}; write the seed anew")
        return text

    def pytest(self, *arguments: str) -> list[str]:
        """What failed, one line each; CheckError where no test ran at all."""
        command = ["-m", "pytest", "-q", "-m", "not slow", "--tb=no", "-p", "no:cacheprovider"]
        command += [f"--ignore={NOTEBOOK_TEST}", f"--basetemp={self.scratch / 'pytest'}", *arguments]
        code, output = self._python(*command, cwd=self.tree)
        failed = [line.partition(" ")[2] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if code is None:
            return [f"does not end within {self.limit_s:.0f} s"]
        if code not in (0, 1, 2) or bool(code) != bool(failed):
            raise CheckError(f"pytest {' '.join(arguments)}: exit code {code}\n{output[-2000:]}")
        return failed

    def run_notebooks(self) -> list[str]:
        """The last words of `edgekit run` on the smallest config, if it failed."""
        code, output = self._python(
            "-m", "edgekit", "run", "tests/configs/tiny.yaml", "--out", str(self.scratch / "runs"), cwd=self.tree
        )
        lines = [line for line in output.splitlines() if line.startswith("edgekit: ")] or output.splitlines()[-1:]
        return [] if code == 0 else [(lines or [f"exit code {code}"])[-1]]

    def _python(self, *arguments: str, cwd: Path) -> tuple[int | None, str]:
        """Exit code (None: it did not end) and the whole output, of a process group that is gone afterwards."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EDGEKIT_")}
        if "EDGEKIT_SHARED" in os.environ:
            environment["EDGEKIT_SHARED"] = os.environ["EDGEKIT_SHARED"]
        environment |= {"PYTHONPATH": str(self.tree), "COLUMNS": "300"}
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        _running.add(process)
        try:
            output, _ = process.communicate(timeout=self.limit_s)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _running.discard(process)
            _end(process)


def end_all() -> None:
    """Stop every command that still runs."""
    for process in list(_running):
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
