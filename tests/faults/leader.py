"""A stage run to its end, and a victim forked before each of its writes.

The victim meets the fault in a copy of the run's folder that lies at the same path meanwhile, and its state is checked.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from edgekit.core import artifacts, run_folder
from edgekit.core.errors import EdgekitError
from edgekit.runner import files
from edgekit.workbook.notebook import RESOURCE_ERRNOS
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import FORCE_VARIABLE, RUN_LOCK, STAGE_LOCK, open_stage
from tests.faults import spoil
from tests.faults.disk import Disk

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
IMAGES = 2
"""Power cuts at each operation: one that loses all it may, the others by the dice."""
LASTING_S = 60
WENT_ON, LOST = 98, 99


@dataclass
class Report:
    """What was done and found; `faults` empty: all is well."""

    kills: int = 0
    power_cuts: int = 0
    failing_writes: int = 0
    recovered: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    tolerated: int = 0
    faults: list[str] = field(default_factory=list)
    bundles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A run, and a scratch folder on the same file system."""

    config: Path
    out: Path
    scratch: Path

    @cached_property
    def folder(self) -> Path:
        """The run's folder."""
        return self.out / load_plan(self.config).run.name

    def at(self, out: Path) -> Place:
        """The same run elsewhere."""
        return Place(self.config, out, self.scratch)


@dataclass(frozen=True)
class Stage:
    """A stage in a run's folder, and what of the run was sealed before it ran."""

    name: str
    sealed: dict[str, bytes]
    before: bytes | None

    def wrong(self, folder: Path, *, published: bool) -> list[str]:
        """What a fault must not leave behind: half an artifact under a final name, an earlier one lost, half a file."""
        found = [
            f"the sealed {name} is damaged"
            for name, record in self.sealed.items()
            if sealed_record(folder, name) != record
        ]
        final, working, previous = self.folders(folder)
        whole = [path for path in (final, working, previous) if artifacts.is_intact(path)]
        if final.exists() and final not in whole:
            found.append(f"{final.name}/ is there and not whole")
        if published and final not in whole:
            found.append(f"{final.name}/ was published and is gone")
        if self.before and not whole:
            found.append(f"the earlier {final.name}/ is gone and nothing took its place")
        for path in [*folder.glob("*.json"), *folder.glob(".*.json"), *folder.glob("*/*.json")]:
            try:
                json.loads(path.read_text())
            except ValueError:
                if not path.parent.name.endswith((".partial", ".previous")):
                    found.append(f"{path.relative_to(folder)} is half written")
        return found

    def folders(self, folder: Path) -> tuple[Path, Path, Path]:
        """Final, working and previous."""
        final = run_folder.stage_folder(folder, self.name)
        return final, run_folder.working_folder(folder, self.name), final.with_name(f".{final.name}.previous")


def sealed_record(folder: Path, name: str) -> bytes | None:
    """The record of a stage's artifact if it is whole and in place."""
    path = run_folder.stage_folder(folder, name)
    return (path / artifacts.RECORD).read_bytes() if artifacts.is_intact(path) else None


class Leader:
    """Runs one stage in this process and forks the victims."""

    def __init__(self, place: Place, stage: Stage, seed: int, kinds: str) -> None:
        self.place, self.stage, self.kinds = place, stage, kinds
        self.chance = random.Random(seed)
        self.report = Report()
        self.published = False
        self.victim = 0
        """Number of the operation at which this process, being a victim, meets its fault; 0: it is the leader."""
        self.failing: OSError | None = None
        self.kept = {True: 4, False: 1}
        """How many states to run on from: sealed ones, which is quick, and others."""
        self.last = ""
        """Name of what the operation before touched."""
        self.disk = Disk(place.folder, place.scratch / "shadow", self.before)
        self.states = place.scratch / "states" / stage.name

    def run(self, *, forced: bool, without: str) -> None:
        """To the end of the stage, then cut the power; leaves what that leaves, and report.json."""
        os.environ[FORCE_VARIABLE] = self.stage.name if forced else ""
        self.disk.install()
        spoil.apply(without)
        publish = artifacts.publish

        def published(finished: Path, final: Path) -> Any:
            result = publish(finished, final)
            self.published = self.published or final == self.stage.folders(self.place.folder)[0]
            return result

        artifacts.publish = published
        try:
            open_stage(self.stage.name, {"config": str(self.place.config), "out": str(self.place.out)}).run()
        except BaseException as error:
            with self.disk.aside():
                traceback.print_exc()
                self._victims_end(error)
        with self.disk.aside():
            if self.victim:
                os._exit(WENT_ON)
            self.report.operations[self.stage.name] = self.disk.count
            self._cut_power("at its end", None)
            _swap(self.states / "now", self.place.folder)
            (self.place.scratch / "report.json").write_text(json.dumps(asdict(self.report)))
        os._exit(0)

    def before(self, number: int, name: str, path: Path, half: Callable[[], Any]) -> None:
        """Of each operation."""
        if self.victim:
            if self.failing and name in ("open", "write") and path == Path(self.failing.filename):
                raise self.failing  # what cannot be written stays so: when it is closed, when it is tried again
            if name not in ("unlink", "rmdir") and ".tmp" not in path.name:
                os._exit(WENT_ON)
            return
        with self.disk.aside():
            what = f"operation {number} ({name} {path.relative_to(self.place.folder.parent)})"
            if "power" in self.kinds:
                for turn in range(IMAGES):
                    self._cut_power(what, self.chance if turn else None)
            if "kill" in self.kinds:
                self._kill(what, half)
        if "error" in self.kinds and not (name == "mkdir" and path.is_dir()):  # that fails at all times
            self._fail(number, what, self.chance.choice(ERRORS), path)
        self.last = path.name

    def _cut_power(self, what: str, chance: random.Random | None) -> None:
        image = self.states / "now"
        shutil.rmtree(image, ignore_errors=True)
        image.parent.mkdir(parents=True, exist_ok=True)
        self.disk.image(image, chance)
        self.report.power_cuts += 1
        if image.exists():
            self._judge(f"power cut at {what}", image, self.published)

    def _kill(self, what: str, half: Callable[[], Any]) -> None:
        with self._copy_in_place():
            child = os.fork()
            if not child:
                half()
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(child, 0)
            self.report.kills += 1
            self._judge(f"killed at {what}", self.place.folder, self.published)

    def _fail(self, number: int, what: str, code: int, path: Path) -> None:
        note = self.place.scratch / "victim.json"
        with self.disk.aside():
            note.unlink(missing_ok=True)
        with self._copy_in_place():
            child = os.fork()
            if not child:
                self.victim, self.failing = number, OSError(code, os.strerror(code), str(path))
                signal.alarm(LASTING_S)
                raise self.failing
            _, status = os.waitpid(child, 0)
            with self.disk.aside():
                self.report.failing_writes += 1
                outcome = json.loads(note.read_text()) if note.exists() else {}
                what = f"{errno.errorcode[code]} at {what}"
                if os.waitstatus_to_exitcode(status) == WENT_ON:
                    self.report.tolerated += 1
                    if not self._names_a_holder(path):
                        self.report.faults.append(f"{self.stage.name}: {what}: went on all the same")
                elif outcome.get("exit_code") != 7:
                    self.report.faults.append(f"{self.stage.name}: {what}: ended as {outcome or status}")
                self._judge(what, self.place.folder, self.published)

    def _names_a_holder(self, path: Path) -> bool:
        """Whether it only says who holds a lock; the lock holds without."""
        notes = [self.place.folder / f"{lock}.holder" for lock in (RUN_LOCK, STAGE_LOCK)]
        names = {name for note in notes for name in (note.name, files.temporary_path(note).name)}
        return bool(names & {self.last, path.name})

    def _victims_end(self, error: BaseException) -> None:
        """How the error reaches the caller; and its exit code, as `edgekit run` would tell it."""
        if not self.victim:
            os._exit(LOST)
        own = isinstance(error, EdgekitError)
        lack = isinstance(error, MemoryError) or any(f"[Errno {number}]" in str(error) for number in RESOURCE_ERRNOS)
        outcome = {"raised": type(error).__name__, "message": str(error)}
        outcome["exit_code"] = error.exit_code if own else 7 if lack else 6  # type: ignore[attr-defined]
        (self.place.scratch / "victim.json").write_text(json.dumps(outcome))
        os._exit(1)

    def _judge(self, what: str, folder: Path, published: bool) -> None:
        wrong = self.stage.wrong(folder, published=published)
        self.report.faults += [f"{self.stage.name}: {what}: {each}" for each in wrong]
        if len(self.report.faults) > 20:
            (self.place.scratch / "report.json").write_text(json.dumps(asdict(self.report)))
            os._exit(0)
        sealed = any(artifacts.is_intact(path) for path in self.stage.folders(folder)) and not self.stage.before
        if folder.exists() and self.kept[sealed] > 0 and self.chance.random() < (0.3 if sealed else 0.02):
            self.kept[sealed] -= 1
            kept = self.states / f"{sealed:d}{self.kept[sealed]}"
            kept.mkdir(parents=True)
            shutil.copytree(folder, kept / self.place.folder.name)
            (kept / "what").write_text(what)

    @contextmanager
    def _copy_in_place(self) -> Iterator[None]:
        """A copy of the run's folder under its name; the leader's own keeps its inodes under another."""
        folder, own = self.place.folder, self.place.folder.with_name(".own")
        with self.disk.aside():
            there = folder.exists()
            if there:
                os.rename(folder, own)
                shutil.copytree(own, folder)
        try:
            yield
        finally:
            if not self.victim:
                with self.disk.aside():
                    shutil.rmtree(folder, ignore_errors=True)
                    if there:
                        os.rename(own, folder)


def _swap(image: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    os.rename(image, folder)
