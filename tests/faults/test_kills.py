"""The command and its kernels, killed at seeded moments: the next run goes on and ends with the same bundles."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edgekit.core.config import STAGES
from edgekit.core.run_folder import notebook_name
from tests.faults import tree as trees
from tests.faults.conftest import Undisturbed
from tests.faults.tree import NAME, SMALLEST, Tree

pytestmark = pytest.mark.faults

CHAINS = 2
"""Runs that are killed side by side, each in a folder of its own."""
KILLS = int(os.environ.get("EDGEKIT_KILLS", "60"))
SEED = 3
LONGEST_S = 6.0
KERNEL_S = 20.0
ENDS_S = 30.0
GENTLE_S = 3.0
ORPHAN_S = 10.0
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}


@dataclass
class Chain:
    """One run's folder, killed again and again."""

    tree: Tree
    out: Path
    chance: random.Random
    usual_s: dict[str, float]
    kills: int = 0
    seen: dict[str, bytes] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.out / NAME

    def kill(self) -> None:
        """Start the command, and kill it or its kernel at some moment of the stage that it comes to."""
        log = self.out / f"{self.kills:02d}"
        command = self.tree.start("run", SMALLEST, "--out", str(self.out), log=log)
        number, at_kernel = self.chance.choice(SIGNALS), self.chance.random() < 0.4
        stage = next((name for name in STAGES if name not in self.seen), STAGES[-1])
        delay = self.chance.uniform(0, min(LONGEST_S, self.usual_s.get(stage, LONGEST_S)))
        if at_kernel or self.chance.random() < 0.8:
            self._kernel_starts(command)
        wait(command, delay)
        kernel, notebook = trees.kernel(command.pid), self._notebook()
        everyone = [command.pid, *trees.descendants(command.pid)]
        target = kernel if at_kernel and kernel else command.pid
        if command.poll() is not None:
            return
        try:
            os.kill(target, number)
        except ProcessLookupError:  # between two notebooks
            target = command.pid
            os.kill(target, number)
        self.kills += 1
        what = f"kill {self.kills} ({number.name} of {'kernel' if target == kernel else 'command'}, {stage})"
        self._ended(command, what, number, notebook if target == kernel else None, log)
        if left := trees.gone(everyone, ORPHAN_S):
            self.faults.append(f"{what}: still running: {left}")
        self._look()

    def _kernel_starts(self, command: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + KERNEL_S
        while time.monotonic() < end and command.poll() is None and not trees.kernel(command.pid):
            time.sleep(0.02)

    def _notebook(self) -> Path:
        """Where the notebook that is being executed will lie once its last cell has run."""
        working = next((self.folder / "notebooks").glob(".*.partial.ipynb"), None)
        name = notebook_name(working.name.split(".")[1]) if working else "none of them"
        return self.folder / "notebooks" / name

    def _ended(
        self, command: subprocess.Popen[bytes], what: str, number: int, notebook: Path | None, log: Path
    ) -> None:
        """A killed kernel, of `notebook`, ends the command with 6; one that gets SIGTERM may end or ignore it.

        A kernel that has run its last cell is only being shut down: the command then goes on without it, and rightly.
        """
        gentle = notebook is not None and number != signal.SIGKILL
        end = time.monotonic() + (GENTLE_S if gentle else ENDS_S)
        while command.poll() is None and time.monotonic() < end and not (notebook and ran_whole(notebook)):
            wait(command, 0.2)
        needless = notebook is not None and ran_whole(notebook)
        if command.poll() is None:
            if not gentle and not needless:
                self.faults.append(f"{what}: the command is still running")
            command.kill()  # an idle kernel does not mind Ctrl-C
        code = command.wait()
        stderr = Path(f"{log}.err").read_text(errors="replace")
        expected = {CODES[signal.Signals(number)]}
        if notebook:
            expected = {0, 6, -9} if gentle or needless else {6}
        if code not in expected:
            self.faults.append(f"{what}: exit code {code}, expected {expected}: {stderr[-600:]}")
        if "Traceback" in stderr:
            self.faults.append(f"{what}: a traceback: {stderr[-1500:]}")
        if code > 0 and "edgekit: " not in stderr:
            self.faults.append(f"{what}: no message: {stderr[-300:]}")

    def _look(self) -> None:
        """What was sealed at an earlier kill must be here still, to the byte."""
        now = trees.sealed(self.folder) if self.folder.is_dir() else {}
        for stage, record in self.seen.items():
            if now.get(stage) != record:
                self.faults.append(f"kill {self.kills}: the sealed {stage} was made again or damaged")
        self.seen |= now

    def finish(self) -> None:
        """The run that nothing disturbs any more."""
        done = self.tree.run("run", SMALLEST, "--out", str(self.out))
        if done.returncode:
            self.faults.append(f"the last run: exit code {done.returncode}: {done.stderr[-600:]}")
        self._look()
        if left := trees.leftovers(self.folder):
            self.faults.append(f"left at the end: {left}")


def ran_whole(notebook: Path) -> bool:
    """Whether an executed copy lies there with a count in every cell of code."""
    try:
        cells = json.loads(notebook.read_text())["cells"]
    except (OSError, ValueError, KeyError):
        return False
    return all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code" and cell["source"])


def wait(command: subprocess.Popen[bytes], seconds: float) -> None:
    """So long, or until the command has ended."""
    try:
        command.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bundles(
    tree: Tree, undisturbed: Undisturbed, tmp_path: Path, count: dict[str, int]
) -> None:
    def killed(number: int) -> Chain:
        out = tmp_path / str(number)
        out.mkdir()
        chain = Chain(tree, out, random.Random(SEED + number), undisturbed.seconds)
        attempts = 0
        while chain.kills < KILLS // CHAINS and attempts < KILLS and len(chain.faults) < 5:
            attempts += 1
            chain.kill()
        chain.finish()
        return chain

    with ThreadPoolExecutor(CHAINS) as pool:
        chains = list(pool.map(killed, range(CHAINS)))
    count["kills of the command and its kernels"] = sum(chain.kills for chain in chains)
    assert [fault for chain in chains for fault in chain.faults] == []
    assert sum(chain.kills for chain in chains) >= KILLS
    for chain in chains:
        assert trees.bundles(chain.folder) == undisturbed.bundles
