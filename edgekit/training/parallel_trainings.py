"""Run several trainings of a stage in parallel, each in a process of its own, before the stage needs their results.

The processes only write checkpoints (`checkpoint.py`). The stage then trains one network after another as always, finds
a finished checkpoint for each and loads it, so that the results are the same bit by bit. If a process dies, only time
is lost, because the stage continues from its checkpoint. The number of threads of each training is the same as without
parallel trainings, because it changes the last bits and is therefore part of the stage's key.
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

_DATA_FILE = "data.json"
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
    """Write the data to a new folder for `read_data`, without the test split, which no training sees.

    Arrays in memory are written to files, which readers map into memory. For arrays that are views of a mapped file,
    only their location in that file is written.
    """
    folder.mkdir()
    arrays = {
        f"{split}_{name}": _write_array(getattr(getattr(data, split), name), folder / f"{split}_{name}.npy")
        for split in _SPLITS
        for name in _ARRAYS
    }
    members = {name: base64.b64encode(content).decode() for name, content in data.members.items()}
    facts = {name: getattr(data, name) for name in _FACTS}
    (folder / _DATA_FILE).write_text(
        json.dumps({"facts": facts, "members": members, "arrays": arrays}), encoding="utf-8"
    )


def read_data(folder: Path) -> Data:
    """Read the data that `write_data` wrote. The test split is missing."""
    content: dict[str, Any] = json.loads((folder / _DATA_FILE).read_text(encoding="utf-8"))
    facts: dict[str, Any] = {
        name: tuple(value) if name in _TUPLES and value is not None else value
        for name, value in content["facts"].items()
    }
    locations = content["arrays"]
    splits: dict[str, Any] = {
        split: Split(*(_read_array(locations[f"{split}_{name}"], folder / f"{split}_{name}.npy") for name in _ARRAYS))
        for split in _SPLITS
    }
    members = {name: base64.b64decode(encoded) for name, encoded in content["members"].items()}
    return Data(**splits, **facts, members=members)


def _write_array(x: np.ndarray | None, path: Path) -> Any:
    """Return the location of an array in a mapped file, or write it to `path` and return "here". None stays None."""
    if x is None:
        return None
    if (location := memory_map.file_location(x)) is not None:
        return location
    np.save(path, x, allow_pickle=False)
    return "here"


def _read_array(location: Any, path: Path) -> Any:
    if location is None:
        return None
    if location == "here":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    return memory_map.open_location(*location)


PARALLEL = "EDGEKIT_PARALLEL"
"""Environment variable: how many trainings of a stage may run in parallel; `edgekit run --parallel` sets it."""
MAX_PARALLEL = 64
FOLDER = "parallel"
POLL_S = 0.1


@dataclass(frozen=True)
class Training:
    """The arguments of one training with `fit`, which starts from the initial weights of its seed.

    The preprocess steps are those of `spec`. `teacher` is the spec of the teacher in `distillation`, if that teacher is
    a network.
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
        """Whether the checkpoint contains all epochs."""
        saved = self.checkpoint.load()
        return saved is not None and len(saved[1]["epochs"]) >= self.options.epochs

    def fit(self, data: Data) -> tuple[nn.Module, History]:
        """Train the network, or continue from its checkpoint, and return it with the results of its epochs."""
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
            pretrained=self.spec.pretrained,
            distillation=self.distillation,
            resume=self.checkpoint,
        )
        return module, history


def parallel_limit() -> int:
    """Return how many trainings may run in parallel.

    Raises ConfigError if the environment variable is not a whole number from 1 to 64.
    """
    text = os.environ.get(PARALLEL, "") or "1"
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PARALLEL:
        raise ConfigError(f"{PARALLEL}: got {text!r}; give a whole number from 1 to {MAX_PARALLEL}, or unset it")
    return int(text)


def train_in_parallel(trainings: Sequence[Training], data: Data, parent: Path) -> None:
    """Run trainings in parallel processes, so that their checkpoints are finished when the stage needs them.

    Temporary files are written to a folder in `parent`. Nothing happens if `EDGEKIT_PARALLEL` allows only one training
    at a time, or if fewer than two are unfinished. If something fails here, for example because the disk is full, the
    stage itself tries it again later and raises the error.
    """
    count = parallel_limit()
    unfinished = [each for each in trainings if not each.is_finished] if count > 1 and len(trainings) > 1 else []
    if len(unfinished) < 2:
        return
    folder = parent / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # may be left over from a stage that was killed
    try:
        make_folder(folder)
        write_data(data, folder / "data")
        _run(unfinished, count, folder)
    except OSError as error:
        print(f"{count} trainings in parallel: {error.strerror or error}; the stage runs them one by one instead")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _to_json(training: Training, folder: Path) -> dict[str, Any]:
    """Return a training as JSON for another process. A teacher network is saved in `folder`, once for all trainings."""
    options = {name: getattr(training.options, name) for name in TrainOptions.model_fields}
    distillation = training.distillation
    distillation_json: dict[str, Any] = {}
    if distillation is not None:
        cache = distillation.cache_folder
        distillation_json = {
            "loss": distillation.loss.model_dump(),
            "cache": None if cache is None else str(cache.absolute()),
        }
        if isinstance(distillation.teacher, TeacherFile):
            file = distillation.teacher
            distillation_json["file"] = [str(file.path.absolute()), file.kind, file.preprocess, file.sha256]
        elif isinstance(distillation.teacher, Ensemble):
            teacher_folder = folder / f"teacher-{id(distillation.teacher)}"
            if not teacher_folder.is_dir():
                ensemble.save(teacher_folder, distillation.teacher)
            distillation_json["ensemble"] = teacher_folder.name
        else:
            assert training.teacher is not None
            teacher_folder = folder / f"teacher-{id(distillation.teacher)}"
            if not teacher_folder.is_dir():
                store.save(teacher_folder, distillation.teacher, training.teacher)
            distillation_json["folder"] = teacher_folder.name
    return {
        "name": training.name,
        "checkpoint": [str(training.checkpoint.path.absolute()), training.checkpoint.key],
        "spec": training.spec.model_dump(mode="json"),
        "weights": str(training.spec.pretrained.path.absolute()) if training.spec.pretrained else None,
        "options": TrainOptions.model_validate(options).model_dump(mode="json"),
        "settings": [training.seed, training.device, training.threads],
        "training": training.training.model_dump(mode="json"),
        "distillation": distillation_json,
    }


def _from_json(fields: dict[str, Any], folder: Path) -> Training:
    distillation_json, distillation, teacher_spec = fields["distillation"], None, None
    if distillation_json:
        if "file" in distillation_json:
            path, *rest = distillation_json["file"]
            teacher: nn.Module | TeacherFile = TeacherFile(Path(path), *rest)
        elif "ensemble" in distillation_json:
            teacher = ensemble.load(folder / distillation_json["ensemble"])
        else:
            teacher, teacher_spec = store.load(folder / distillation_json["folder"])
        cache = distillation_json["cache"]
        distillation = Distillation(teacher, losses.parse(distillation_json["loss"]), Path(cache) if cache else None)
    path, key = fields["checkpoint"]
    spec = fields["spec"]
    if spec.get("pretrained", {}).get("file"):  # the spec records the name of the file, without its folder
        spec = {**spec, "pretrained": {**spec["pretrained"], "file": fields["weights"]}}
    seed, device, threads = fields["settings"]
    return Training(
        name=fields["name"],
        checkpoint=Checkpoint(Path(path), key),
        spec=ModelSpec.model_validate(spec),
        options=TrainOptions.model_validate(fields["options"]),
        seed=seed,
        device=device,
        threads=threads,
        training=TrainingOptions.model_validate(fields["training"]),
        distillation=distillation,
        teacher=teacher_spec,
    )


def _run(trainings: Sequence[Training], count: int, folder: Path) -> None:
    """Run the trainings, at most `count` at a time, and print the reason for each failure."""
    waiting = list(enumerate(trainings))
    running: list[_TrainingProcess] = []
    done = 0
    with progress.step(f"{count} in parallel", "trainings", len(trainings)) as bar, ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < count:
                number, training = waiting.pop(0)
                running.append(_TrainingProcess(training, folder, number))
                stack.callback(running[-1].call.end)
            for process in [each for each in running if each.call.has_ended]:
                running.remove(process)
                process.print_failure()
                done += 1
            bar.update(done + sum(each.finished_fraction() for each in running))
            time.sleep(POLL_S)


class _TrainingProcess:
    """A training in a process of its own, which writes its progress to a file."""

    def __init__(self, training: Training, folder: Path, number: int) -> None:
        home = folder / str(number)
        home.mkdir()
        self._name, self._progress_file = training.name, home / "progress.json"
        self._progress_file.write_text("", encoding="utf-8")
        job = {"fields": _to_json(training, folder), "folder": str(folder)}
        environment = {PARALLEL: "1", progress.FILE: str(self._progress_file.absolute())}
        self.call = subprocesses.BackgroundCall(f"{__name__}:train", job, home, environment)

    def finished_fraction(self) -> float:
        """Return how much of the training is done, from 0 to 1."""
        state = progress.read_state(self._progress_file)
        epochs = [step for step in (state.steps if state else ()) if step.unit == "epoch" and step.of]
        return epochs[-1].done / epochs[-1].of if epochs else 0.0

    def print_failure(self) -> None:
        """Print why the training failed, if it did."""
        try:
            self.call.result()
        except subprocesses.ChildDied as died:
            print(f"{self._name}: {died.ended.describe()}; the stage continues from its checkpoint")
        except EdgekitError as error:
            print(f"{self._name}: {error}; the stage continues from its checkpoint")


def train(fields: dict[str, Any], folder: str) -> None:
    """Run one training to its end. This is the main function of its process."""
    _from_json(fields, Path(folder)).fit(read_data(Path(folder) / "data"))
