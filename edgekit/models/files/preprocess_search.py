"""Evaluate a model file on labelled samples with the preprocessing that is usual in the field.

Wrong preprocessing is the most common reason why a good model answers badly. The scale of the numbers, the order of the
colours and the way a picture is brought to size are rarely written down, so each usual chain is tried.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.tasks import SampleResults, SampleScores, Task
from edgekit.core.tasks import keypoints as keypoint_labels
from edgekit.models.files import published_detector, task_outputs
from edgekit.models.files.detector_readings import CONFIDENCE, OutputReader, is_better
from edgekit.models.files.detector_readings import MAX_SAMPLES as DETECTOR_MAX_SAMPLES
from edgekit.models.files.file_facts import FileProcess
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.runner.preprocess.transform import pipeline

MAX_SAMPLES = dict.fromkeys(tasks.BOX_TASKS, DETECTOR_MAX_SAMPLES)
DEFAULT_MAX_SAMPLES = 300
"""The largest number of samples on which each chain is tried."""
DETECTOR_SAMPLES = 4
LIMIT_S = 900.0
IMAGENET_MEAN, IMAGENET_STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
Steps = list[dict[str, Any]]
SCALES: dict[str, Steps] = {
    "0 to 1": [{"step": "scale", "factor": 1 / 255}],
    "0 to 255": [],
    "-1 to 1": [{"step": "normalize", "mean": [127.5], "std": [127.5]}],
    "ImageNet's mean and deviation": [{"step": "normalize", "mean": IMAGENET_MEAN, "std": IMAGENET_STD}],
    "ImageNet's mean": [{"step": "normalize", "mean": IMAGENET_MEAN, "std": [1.0]}],
}
"""Usual scales of the bytes of a picture. The three numbers of ImageNet are for red, green and blue, in that order."""
BGR = {"step": "bgr"}


@dataclass(frozen=True)
class Chain:
    """The way from a sample to the input of a model: options of the data source, and preprocess steps.

    `scale` is a key of `SCALES`. `is_bgr` says whether blue comes first; it is None for grey pictures. `other_steps`
    are the steps for samples that are no pictures.
    """

    scale: str
    is_bgr: bool | None = False
    geometry: Mapping[str, Any] = field(default_factory=dict)
    other_steps: Sequence[Mapping[str, Any]] = ()

    @property
    def steps(self) -> Steps:
        """The preprocess steps."""
        steps = [dict(step) for step in SCALES.get(self.scale, self.other_steps)]
        return [*steps, dict(BGR)] if self.is_bgr else steps

    @property
    def name(self) -> str:
        """The chain in words."""
        colours = "" if self.is_bgr is None else "BGR" if self.is_bgr else "RGB"
        return ", ".join(filter(None, (self.scale, colours, self.geometry_name)))

    @property
    def geometry_name(self) -> str:
        """The options of the data source in words."""
        words = [str(value) if isinstance(value, str) else f"{key} {value}" for key, value in self.geometry.items()]
        return ", ".join(words)


@dataclass(frozen=True)
class Reading:
    """How the outputs of a detector were read: a name for `--head`, and what they are, in words.

    It `is_proved` if the file was cut before its decoding.
    """

    head: str
    description: str
    is_proved: bool


@dataclass(frozen=True, eq=False)
class TriedChain:
    """A chain with its accuracy on the samples, and its results by sample, which `tasks.drop` compares.

    `reading` is how the outputs of a published detector were read; None for other files.
    """

    chain: Chain
    accuracy: float
    results: SampleResults
    reading: Reading | None = None

    @property
    def head(self) -> str | None:
        """The name of the way to read the outputs, if it has one."""
        return (self.reading.head or None) if self.reading else None

    def beats(self, other: TriedChain) -> bool:
        """Whether its accuracy is significantly higher than the other chain's on the same samples."""
        return is_better(self.results, other.results)

    def behind_pp(self, chosen: TriedChain) -> tuple[float, float]:
        """Return the bounds of how much less accurate it is than the chosen chain, in percentage points."""
        if self is chosen:
            return 0.0, 0.0
        least = -tasks.drop(self.results, chosen.results, CONFIDENCE).bound_pp
        return least, tasks.drop(chosen.results, self.results, CONFIDENCE).bound_pp


def scale_chains(channels: int) -> list[Chain]:
    """Return the chains that differ in scale and order of colours, the most usual first."""
    if channels == 1:
        return [Chain(scale, None) for scale in SCALES if not scale.startswith("ImageNet")]
    return [Chain(scale, is_bgr) for is_bgr in (False, True) for scale in SCALES]


def with_geometry(chain: Chain, geometry: Mapping[str, Any]) -> Chain:
    """Return the chain with other options of the data source."""
    return replace(chain, geometry=dict(geometry))


def try_chains(
    process: FileProcess,
    kind: str,
    task: Task,
    classes: int,
    x: np.ndarray,
    y: np.ndarray,
    chains: Sequence[Chain],
    head: str | None = None,
) -> list[TriedChain]:
    """Run a model file on raw samples (n, …) with each chain's steps in its process.

    If the outputs of a detector can be read in several ways, each is tried with each chain. `head` is the name of the
    only one that is considered.

    Raises
    ------
    ModelError
        The file cannot be opened or run, or its outputs do not fit the task.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-preprocess-") as home:
        folder = Path(home)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        job = {
            "folder": home,
            "kind": kind,
            "task": task,
            "classes": classes,
            "steps": [chain.steps for chain in chains],
            "head": head,
        }
        readings = process.call(f"{__name__}:evaluate", job, LIMIT_S, folder)
        tried = []
        for (index, chain), (number, reading) in product(enumerate(chains), enumerate(readings or [None])):
            if not (file := folder / f"results-{index}-{number}.npy").exists():
                continue
            values = np.load(file)
            results: SampleResults = values if values.dtype == bool else SampleScores(task, values)
            tried.append(TriedChain(chain, tasks.accuracy(results), results, Reading(*reading) if reading else None))
        return tried


def evaluate(
    folder: str, path: str, kind: str, task: Task, classes: int, steps: Sequence[Steps], head: str | None
) -> list[tuple[str, str, bool]]:
    """Write the results of the samples in `folder` for each list of steps; `try_chains` calls this in a child.

    Return the fields of a `Reading` for each way in which the outputs of a published detector were read.
    """
    home, file = Path(folder), Path(path)
    x, y = np.load(home / "x.npy"), np.load(home / "y.npy")
    keypoints = keypoint_labels.keypoint_count(y) if task == "keypoints" else 0
    needed = [task_outputs.for_task(task, classes, x.shape[1:], keypoints=keypoints)]
    readings: list[tuple[str, str, bool]] = []
    if task in tasks.BOX_TASKS:
        file, needed, readings = _read_detector(file, kind, needed[0], home, x[:DETECTOR_SAMPLES], head)
    opened = OutputReader(file, kind, needed)
    failures: list[ModelError] = []
    for index, each in enumerate(steps):
        try:
            answers = opened.answers(x, pipeline(each))
        except ModelError as error:  # numbers of another scale may overflow
            failures.append(error)
            continue
        for number, values in enumerate(answers):
            results = tasks.load_task(task).score_samples(values, None, y)
            scores = results.values if isinstance(results, SampleScores) else results
            np.save(home / f"results-{index}-{number}.npy", scores)
    if len(failures) == len(steps):
        raise failures[0]
    return readings


def _read_detector(
    path: Path, kind: str, needed: TaskOutputs, home: Path, x: np.ndarray, head: str | None
) -> tuple[Path, list[TaskOutputs], list[tuple[str, str, bool]]]:
    """Return the file to run, its outputs in each way to read them, and these ways as fields of a `Reading`.

    The file is a published detector without its decoding, or the file itself.
    """
    scales = [pipeline(chain.steps) for chain in scale_chains(x.shape[-1]) if not chain.is_bgr]
    samples = [scale(image[None])[0].astype(np.float32) for image, scale in product(x, scales)]
    found = published_detector.readings(path, kind, needed, samples, head)
    if not found:
        return path, [needed], []
    if (content := found[0].content) is not None:
        path = home / "cut.onnx"
        path.write_bytes(content)
    is_cut = not found[0].seen
    words = "; cut before its decoding" if is_cut else ""
    fields = [(each.name, f"{each.decoding}{words}", is_cut) for each in found]
    return path, [replace(needed, head=each.head) for each in found], fields


def best_of(tried: Sequence[TriedChain]) -> tuple[TriedChain, list[TriedChain]]:
    """Return the chain with the highest accuracy, and the others that it does not beat; of equal chains, the first."""
    best = max(tried, key=lambda each: each.accuracy)
    return best, [each for each in tried if each is not best and not best.beats(each)]
