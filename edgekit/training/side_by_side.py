"""Trainings of one stage side by side, each in a process of its own, before the stage trains them one after another.

A training keeps its state after every epoch (`checkpoint.py`), and one that is finished is only recalled. So processes
may train to the end of their checkpoints first, in any order. The stage's own code then finds each finished, and there
is one path to the result: the same bits as without this. A process that dies costs nothing but its time: the stage goes
on from its checkpoint. Threads are those of the key, for their number decides the last bits.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edgekit.core import progress, subprocesses
from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.data import Data, Split, memory_map
from edgekit.models import dry_run, store
from edgekit.models.spec import ModelSpec
from edgekit.runner.files import make_folder
from edgekit.training import losses
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import History, fit
from edgekit.training.objective import Distillation
from edgekit.training.teachers import ensemble
from edgekit.training.teachers.ensemble import Ensemble
from edgekit.training.teachers.model_file import TeacherFile

_FILE = "data.json"
_SPLITS = ("train", "calibration", "validation")
_ARRAYS = ("x", "y", "groups", "starts")
_FACTS = (
    "classes",
    "kind",
    "digest",
    "notes",
    "sample_rate_hz",
    "columns",
    "input_path",
    "task",
    "background",
    "tensors",
)
_TUPLES = ("classes", "notes", "columns", "input_path", "tensors")


def write_data(data: Data, folder: Path) -> None:
    """Everything but the test split, which no training sees.

    Arrays in memory are written once and mapped by every reader. Those that look into a mapped file go by their place.
    """
    folder.mkdir()
    arrays = {
        f"{split}_{name}": _written(getattr(getattr(data, split), name), folder / f"{split}_{name}.npy")
        for split in _SPLITS
        for name in _ARRAYS
    }
    members = {name: base64.b64encode(content).decode() for name, content in data.members.items()}
    facts = {name: getattr(data, name) for name in _FACTS}
    (folder / _FILE).write_text(json.dumps({"facts": facts, "members": members, "arrays": arrays}), encoding="utf-8")


def read_data(folder: Path) -> Data:
    """The data that were written there, without a test split."""
    found: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    facts: dict[str, Any] = {
        name: tuple(value) if name in _TUPLES and value is not None else value for name, value in found["facts"].items()
    }
    splits: dict[str, Any] = {
        split: Split(*(_read(found["arrays"][f"{split}_{name}"], folder / f"{split}_{name}.npy") for name in _ARRAYS))
        for split in _SPLITS
    }
    members = {name: base64.b64decode(content) for name, content in found["members"].items()}
    return Data(**splits, **facts, members=members)


def _written(x: np.ndarray | None, path: Path) -> Any:
    """Where the array is: None, its place in a mapped file, or `path`, where it is now."""
    if x is None:
        return None
    if (place := memory_map.file_location(x)) is not None:
        return place
    np.save(path, x, allow_pickle=False)
    return "here"


def _read(where: Any, path: Path) -> Any:
    if where is None:
        return None
    return np.load(path, mmap_mode="r", allow_pickle=False) if where == "here" else memory_map.open_location(*where)


PARALLEL = "EDGEKIT_PARALLEL"
"""Environment variable: how many trainings of a stage may run at once; `edgekit run --parallel` sets it."""
MOST = 64
FOLDER = "side-by-side"
LOOK_S = 0.1


@dataclass(frozen=True)
class Training:
    """One training from the initial weights of its seed, as `fit` makes it; its preprocess steps are the spec's.

    `teacher` is the spec of the distillation's teacher, where that is a network.
    """

    name: str
    checkpoint: Checkpoint
    spec: ModelSpec
    options: TrainOptions
    seed: int
    device: str
    threads: int
    training: TrainingOptions
    distillation: Distillation | None = None
    teacher: ModelSpec | None = None

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are in its checkpoint."""
        found = self.checkpoint.load()
        return found is not None and len(found[1]["epochs"]) >= self.options.epochs

    def fit(self, data: Data) -> tuple[nn.Module, History]:
        """Train it to its end, or recall it; the network and its epochs."""
        module = dry_run.build_and_check(self.spec, self.seed, data)
        history = fit(
            module,
            data,
            self.spec.preprocess,
            self.options,
            seed=self.seed,
            device=self.device,
            threads=self.threads,
            training=self.training,
            distillation=self.distillation,
            resume=self.checkpoint,
        )
        return module, history


def at_once() -> int:
    """How many may run at once; ConfigError where the variable is no whole number from 1 to 64."""
    text = os.environ.get(PARALLEL, "") or "1"
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise ConfigError(f"{PARALLEL}: got {text!r}; give a whole number from 1 to {MOST}, or unset it")
    return int(text)


def ahead(trainings: Sequence[Training], data: Data, home: Path) -> None:
    """Bring trainings to the end of their checkpoints, so many at once as the variable says; `home` is for scratch.

    Nothing is done where that is one, or where fewer than two are unfinished. What fails here, a full disk included, is
    tried again by the stage itself, whose error counts.
    """
    count = at_once()
    waiting = [each for each in trainings if not each.is_finished] if count > 1 and len(trainings) > 1 else []
    if len(waiting) < 2:
        return
    folder = home / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # of a stage that was killed
    try:
        make_folder(folder)
        write_data(data, folder / "data")
        _run(waiting, count, folder)
    except OSError as error:
        print(f"{count} side by side: {error.strerror or error}; the stage goes on with one after another")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _to_json(training: Training, folder: Path) -> dict[str, Any]:
    """What another process needs; a teacher network is saved in `folder`, once."""
    options = {name: getattr(training.options, name) for name in TrainOptions.model_fields}
    lesson = training.distillation
    taught: dict[str, Any] = {}
    if lesson is not None:
        home = lesson.cache_folder
        taught = {"loss": lesson.loss.model_dump(), "cache": None if home is None else str(home.absolute())}
        if isinstance(lesson.teacher, TeacherFile):
            file = lesson.teacher
            taught["file"] = [str(file.path.absolute()), file.kind, file.preprocess, file.sha256]
        elif isinstance(lesson.teacher, Ensemble):
            place = folder / f"teacher-{id(lesson.teacher)}"
            if not place.is_dir():
                ensemble.save(place, lesson.teacher)
            taught["ensemble"] = place.name
        else:
            assert training.teacher is not None
            place = folder / f"teacher-{id(lesson.teacher)}"
            if not place.is_dir():
                store.save(place, lesson.teacher, training.teacher)
            taught["folder"] = place.name
    return {
        "name": training.name,
        "checkpoint": [str(training.checkpoint.path.absolute()), training.checkpoint.key],
        "spec": training.spec.model_dump(mode="json"),
        "options": TrainOptions.model_validate(options).model_dump(mode="json"),
        "settings": [training.seed, training.device, training.threads],
        "training": training.training.model_dump(mode="json"),
        "taught": taught,
    }


def _from_json(found: dict[str, Any], folder: Path) -> Training:
    taught, lesson, teacher = found["taught"], None, None
    if taught:
        if "file" in taught:
            path, *rest = taught["file"]
            model: nn.Module | TeacherFile = TeacherFile(Path(path), *rest)
        elif "ensemble" in taught:
            model = ensemble.load(folder / taught["ensemble"])
        else:
            model, teacher = store.load(folder / taught["folder"])
        lesson = Distillation(model, losses.parse(taught["loss"]), Path(taught["cache"]) if taught["cache"] else None)
    path, key = found["checkpoint"]
    seed, device, threads = found["settings"]
    options = TrainOptions.model_validate(found["options"])
    spec = ModelSpec.model_validate(found["spec"])
    how = TrainingOptions.model_validate(found["training"])
    checkpoint = Checkpoint(Path(path), key)
    return Training(found["name"], checkpoint, spec, options, seed, device, threads, how, lesson, teacher)


def _run(trainings: Sequence[Training], count: int, folder: Path) -> None:
    waiting = list(enumerate(trainings))
    running: list[_Running] = []
    done = 0
    with progress.step(f"{count} side by side", "trainings", len(trainings)) as shown, ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < count:
                number, training = waiting.pop(0)
                running.append(_Running(training, folder, number))
                stack.callback(running[-1].call.end)
            for one in [one for one in running if one.call.has_ended]:
                running.remove(one)
                one.report()
                done += 1
            shown.update(done + sum(one.share() for one in running))
            time.sleep(LOOK_S)


class _Running:
    """A training in a process of its own, which tells in a file of `progress` how far it is."""

    def __init__(self, training: Training, folder: Path, number: int) -> None:
        home = folder / str(number)
        home.mkdir()
        self._name, self._progress = training.name, home / "progress.json"
        self._progress.write_text("", encoding="utf-8")
        job = {"fields": _to_json(training, folder), "folder": str(folder)}
        environment = {PARALLEL: "1", progress.FILE: str(self._progress.absolute())}
        self.call = subprocesses.BackgroundCall(f"{__name__}:train", job, home, environment)

    def share(self) -> float:
        """How far it is, from 0 to 1."""
        state = progress.read_state(self._progress)
        epochs = [step for step in (state.steps if state else ()) if step.unit == "epoch" and step.of]
        return epochs[-1].done / epochs[-1].of if epochs else 0.0

    def report(self) -> None:
        """Print why it failed, if it did."""
        try:
            self.call.result()
        except subprocesses.ChildDied as died:
            print(f"{self._name}: {died.ended.describe()}; the stage goes on from its checkpoint")
        except EdgekitError as error:
            print(f"{self._name}: {error}; the stage goes on from its checkpoint")


def train(fields: dict[str, Any], folder: str) -> None:
    """In the process: one training, to its end."""
    _from_json(fields, Path(folder)).fit(read_data(Path(folder) / "data"))
