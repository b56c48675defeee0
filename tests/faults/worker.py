"""Runs stages in forked processes that die, or meet an error, at every write; prints what it did and found as JSON.

A process of its own, so that every child is a copy of one that has imported the frameworks and run nothing yet.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from edgekit.core import artifacts
from edgekit.core.config import STAGES
from edgekit.core.hashing import sha256_file
from edgekit.workbook.stage import open_stage
from tests.faults.leader import LOST, Leader, Place, Report, Stage, sealed_record

FRAMEWORKS = ("torch", "sklearn.datasets", "PIL.Image", "nncf.torch", "torch_pruning", "onnxruntime", "filelock")
FRAMEWORKS += (
    "edgekit.training.fit",
    "edgekit.stages.bundle.stage",
    "edgekit.stages.convert.stage",
    "safetensors.torch",
)


def in_a_child(scratch: Path, act: Callable[[], None]) -> int:
    """Exit code of a forked process that does `act`, its output in scratch/log."""
    child = os.fork()
    if not child:
        try:
            log = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(LOST)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Suite:
    """The stages of one run in order, every one through every fault."""

    def __init__(self, place: Place, seed: int, kinds: str, without: str) -> None:
        self.place, self.kinds, self.without = place, kinds, without
        self.chance = random.Random(seed)
        self.report = Report()
        self.sealed: dict[str, bytes] = {}

    def stage(self, name: str, *, forced: bool = False) -> None:
        """Every fault at every operation; then runs on from what some of them left."""
        started = time.monotonic()
        for left in ("shadow", "states", "report.json"):
            path = self.place.scratch / left
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        folder = self.place.folder
        others = {other: record for other, record in self.sealed.items() if other != name}
        stage = Stage(name, others, sealed_record(folder, name) if forced else None)
        seed = self.chance.randrange(2**31)

        def lead() -> None:
            Leader(self.place, stage, seed, self.kinds).run(forced=forced, without=self.without)

        code = in_a_child(self.place.scratch, lead)
        try:
            self._add(json.loads((self.place.scratch / "report.json").read_text()))
        except OSError:
            self.report.faults.append(f"{name}: the run itself failed with {code}; see {self.place.scratch}/log")
            return
        record = sealed_record(folder, name)
        if record is None:
            self.report.faults.append(f"{name}: is not there after its end and a power cut")
            return
        self.sealed[name] = record
        if not self.without:
            self._recover(stage, json.loads(record)["digest"])
        self.report.seconds[name + " again" * forced] = round(time.monotonic() - started, 1)

    def _recover(self, stage: Stage, digest: str) -> None:
        """The next run finishes the stage: a sealed one is not made again, and any other comes out the same."""
        for kept in sorted((self.place.scratch / "states" / stage.name).glob("[0-9]*")):
            folder = self.place.at(kept).folder
            whole = [
                (path / artifacts.RECORD).read_bytes() for path in stage.folders(folder) if artifacts.is_intact(path)
            ]
            parameters = {"config": str(self.place.config), "out": str(kept)}
            code = in_a_child(self.place.scratch, lambda given=parameters: open_stage(stage.name, given).run())  # type: ignore[misc]
            what = f"{stage.name}: the run after: {(kept / 'what').read_text()}"
            record = sealed_record(folder, stage.name)
            self.report.recovered += 1
            if code or record is None:
                self.report.faults.append(f"{what}: failed with {code}")
            elif whole and record not in whole:
                self.report.faults.append(f"{what}: made the sealed stage again")
            elif json.loads(record)["digest"] != digest:
                self.report.faults.append(f"{what}: another digest")
            elif left := [path.name for path in folder.iterdir() if path.name.endswith((".partial", ".previous"))]:
                self.report.faults.append(f"{what}: left {left}")

    def _add(self, found: dict[str, Any]) -> None:
        for name, value in found.items():
            mine = getattr(self.report, name)
            setattr(self.report, name, mine | value if isinstance(value, dict) else mine + value)


def main() -> None:
    """One suite; its report goes to stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kinds", default="kill,power,error")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--forced", default="", help="stages to make again at the end, with every fault")
    parser.add_argument("--without", default="", help="a step to leave out of edgekit: the negative control")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    scratch = given.out.with_name(f"{given.out.name}.scratch")
    scratch.mkdir(parents=True)
    given.out.mkdir(parents=True, exist_ok=True)
    for name in FRAMEWORKS:
        importlib.import_module(name)
    BaseFileLock._raise_if_inherited = lambda lock: None  # a victim plays on in the role of the process it is a copy of
    suite = Suite(
        Place(given.config.resolve(), given.out.resolve(), scratch.resolve()), given.seed, given.kinds, given.without
    )
    for stage in given.stages.split(","):
        suite.stage(stage)
    for stage in filter(None, given.forced.split(",")):
        suite.stage(stage, forced=True)
    bundles = suite.place.folder / "bundles"
    suite.report.bundles = {path.name: sha256_file(path) for path in sorted(bundles.glob("*.edge.zip"))}
    print(json.dumps(asdict(suite.report)))
    sys.exit(1 if suite.report.faults else 0)


if __name__ == "__main__":
    main()
