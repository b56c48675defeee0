"""A copy of edgekit that nobody edits meanwhile, its command as a process, and what a run's folder holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from edgekit.core import artifacts
from edgekit.core.config import STAGES
from edgekit.core.hashing import sha256_file
from edgekit.core.run_folder import stage_folder
from tests.conftest import ROOT
from tests.requirements import UNSHARE

SMALLEST = "tests/configs/smallest.yaml"
NAME = "smallest"
QUIET = {"GOMP_SPINCOUNT": "0", "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclass(frozen=True)
class Tree:
    """edgekit, notebooks, configs and this folder; processes started here see no other copy."""

    root: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Of a process that imports from this tree."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EDGEKIT_", "PYTEST_"))}
        return {**kept, **QUIET, "PYTHONPATH": str(self.root), **more}

    def start(self, *arguments: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
        """`edgekit …` as the head of a process group of its own; stdout goes to `log`.out, stderr to `log`.err."""
        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "edgekit", *arguments],
                cwd=self.root,
                env=self.environment(**more),
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def run(self, *arguments: str, timeout_s: int = 300, **more: str) -> subprocess.CompletedProcess[str]:
        """`edgekit …` to its end."""
        return self.python("-m", "edgekit", *arguments, timeout_s=timeout_s, **more)

    def python(self, *arguments: str, timeout_s: int, **more: str) -> subprocess.CompletedProcess[str]:
        """Python with `arguments` in this tree."""
        return self._command([sys.executable, *arguments], timeout_s, more)

    def unshared(self, *arguments: str, timeout_s: int, **more: str) -> subprocess.CompletedProcess[str]:
        """The same with mounts of its own, that nobody else sees and that end with it."""
        return self._command([*UNSHARE, sys.executable, *arguments], timeout_s, more)

    def run_on(self, options: str, mounted: Path, kept: Path) -> subprocess.CompletedProcess[str]:
        """`edgekit run` into a tmpfs mounted with `options` at `mounted`; what it left is copied to `kept`."""
        script = 'mount -t tmpfs -o "$1" none "$2" || exit 99; "$4" -m edgekit run "$5" --out "$2"; code=$?'
        script += '; cp -r "$2" "$3"; exit $code'
        place = (options, str(mounted), str(kept), sys.executable, SMALLEST)
        return self._command([*UNSHARE, "sh", "-c", script, "sh", *place], 300, {})

    def _command(self, command: list[str], timeout_s: int, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.root,
            env=self.environment(**more),
            timeout=timeout_s,
            check=False,
        )


def copy(target: Path) -> Tree:
    """Copy what a run needs into `target`."""
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("edgekit", "notebooks", "configs", "tests/configs", "tests/faults"):
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    for name in ("tests/__init__.py", "tests/conftest.py"):
        shutil.copyfile(ROOT / name, target / name)
    return Tree(target)


def bundles(folder: Path) -> dict[str, str]:
    """Names and sha256 of a run's bundles."""
    return {path.name: sha256_file(path) for path in sorted((folder / "bundles").glob("*.edge.zip"))}


def sealed(folder: Path) -> dict[str, bytes]:
    """The records of the artifacts that are whole and in place."""
    places = {stage: stage_folder(folder, stage) for stage in STAGES}
    return {
        stage: (path / artifacts.RECORD).read_bytes() for stage, path in places.items() if artifacts.is_intact(path)
    }


def leftovers(folder: Path) -> list[str]:
    """What a finished run must not hold."""
    ends = (".partial", ".previous", ".tmp", ".partial.ipynb", ".holder", ".writable")
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith(ends))


def children(parent: int) -> list[int]:
    """The processes that `parent` started, zombies apart."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, number, *_ = stat.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(number) == parent and state != "Z":
            found.append(int(stat.parent.name))
    return found


def descendants(parent: int) -> list[int]:
    """The processes that `parent` started, and those that they started."""
    mine = children(parent)
    return mine + [number for child in mine for number in descendants(child)]


def kernel(command: int) -> int | None:
    """Number of the kernel that this `edgekit run` has started."""
    for number in children(command):
        try:
            if b"ipykernel_launcher" in Path(f"/proc/{number}/cmdline").read_bytes():
                return number
        except OSError:
            continue
    return None


def gone(numbers: list[int], within_s: float) -> list[int]:
    """Those of the processes that are still there after `within_s` seconds."""
    end = time.monotonic() + within_s
    while numbers and time.monotonic() < end:
        numbers = [number for number in numbers if _lives(number)]
        time.sleep(0.05)
    return numbers


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
