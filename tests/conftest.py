"""What several test modules share: one real run of the smallest config, through the command line."""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from edgekit.core import telemetry
from edgekit.device import processes
from tests import requirements, watched

telemetry.disable()  # tests import libraries themselves
# What the runner remembers here must not follow a user home, and suites that run at one time must not wait for one
# another. The process that made the folders deletes them: a cache of uv in one holds gigabytes.
for variable in ("XDG_CACHE_HOME", "EDGEKIT_LANE"):
    if variable not in os.environ:
        os.environ[variable] = tempfile.mkdtemp(prefix="edgekit-tests-")
        atexit.register(shutil.rmtree, os.environ[variable], ignore_errors=True)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background job; no Ctrl-C would reach a child either
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest_plugins = ("tests.durations", "tests.scheduler")
gc.disable()  # until `pytest_runtestloop`: while modules are imported, there is hardly any garbage to find
ROOT = Path(__file__).parent.parent
TINY = ROOT / "tests" / "configs" / "tiny.yaml"


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder, the output of its command, its home directory, and a trace if one could be recorded."""

    folder: Path
    out: Path
    home: Path
    trace: Path | None
    stdout: str
    stderr: str


def pytest_configure(config: pytest.Config) -> None:
    """Skips say what is missing; see the module."""
    config.pluginmanager.register(requirements)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage from now on, but leave out what was imported, which is never garbage.

    With Python's own thresholds, a conversion would spend a tenth of its time looking for garbage.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    gc.enable()


def run_edgekit(*arguments: str, timeout_s: int = 1100, **environment: str) -> subprocess.CompletedProcess[str]:
    """`edgekit …` as a process of its own, from the root of the project.

    The limit is below the 20 minutes after which pytest ends a test, and its error names the command.
    """
    return subprocess.run(
        [sys.executable, "-m", "edgekit", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture
def no_recursion_limit() -> Iterator[None]:
    """Python's limit as some converters leave it once they are imported: what nests without end overflows the stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2**31 - 1)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """The whole pipeline on the smallest config: run once for all workers, read by many tests, changed by none."""
    home = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        home = home.parent
    out, streams, user, trace = home / "runs", home / "streams.json", home / "user", home / "trace"
    with FileLock(home / "tiny.lock"):
        if not streams.is_file():
            user.mkdir(exist_ok=True)  # a worker that crashed may have left it
            process = subprocess.Popen(
                [*watched.command(trace), sys.executable, "-m", "edgekit", "run", str(TINY), "--out", str(out)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                env=watched.environment(user),
                start_new_session=True,
            )
            try:
                stdout, stderr = (stream.decode() for stream in process.communicate(timeout=900))
            finally:
                processes.kill_process(process)  # the run behind strace, where it takes too long
            assert process.returncode == 0, stderr
            streams.write_text(json.dumps({"stdout": stdout, "stderr": stderr}))
    return FinishedRun(out / "tiny", out, user, trace if trace.is_file() else None, **json.loads(streams.read_text()))
