"""Evaluate a model file on labelled pictures with the preprocessing that is usual in the field.

Wrong preprocessing is the most common reason why a good model answers badly. The scale of the numbers, the order of the
colours and the way a picture is brought to size are rarely written down, so each usual chain is tried.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.tasks import SampleResults, SampleScores, Task
from edgekit.core.tasks import keypoints as keypoint_labels
from edgekit.models.files import interface, module, published_detector, task_outputs
from edgekit.models.files.file_facts import call_with_file
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.runner.preprocess.transform import pipeline

CONFIDENCE = 0.95
"""Confidence with which a chain must be better than another one."""
MAX_SAMPLES = dict.fromkeys(tasks.BOX_TASKS, 120)
DEFAULT_MAX_SAMPLES = 300
"""Most samples on which each chain is tried."""
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
"""Usual scales of the bytes of a picture. The numbers of ImageNet belong to red, green and blue."""
BGR = {"step": "bgr"}


@dataclass(frozen=True)
class Chain:
    """The way from a picture to the input of a model: options of the data source, and preprocess steps.

    `scale` names the steps, `is_bgr` is the order of the colours, None for grey.
    """

    scale: str
    is_bgr: bool | None = False
    geometry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> Steps:
        """The preprocess steps."""
        steps = [dict(step) for step in SCALES[self.scale]]
        return [*steps, dict(BGR)] if self.is_bgr else steps

    @property
    def name(self) -> str:
        """The chain in words."""
        colours = "" if self.is_bgr is None else "BGR" if self.is_bgr else "RGB"
        words = [str(value) if isinstance(value, str) else f"{key} {value}" for key, value in self.geometry.items()]
        geometry = ", ".join(words)
        return ", ".join(filter(None, (self.scale, colours, geometry)))


@dataclass(frozen=True, eq=False)
class TriedChain:
    """A chain with its accuracy on the samples, and what `tasks.drop` compares."""

    chain: Chain
    accuracy: float
    results: SampleResults

    def beats(self, other: TriedChain) -> bool:
        """Whether its accuracy is significantly higher than the other chain's on the same samples."""
        return tasks.drop(other.results, self.results, CONFIDENCE).bound_pp < 0


def scale_chains(channels: int) -> list[Chain]:
    """Return the chains that differ in scale and order of colours, the most usual first."""
    if channels == 1:
        return [Chain(scale, None) for scale in SCALES if not scale.startswith("ImageNet")]
    return [Chain(scale, is_bgr) for is_bgr in (False, True) for scale in SCALES]


def with_geometry(chain: Chain, geometry: Mapping[str, Any]) -> Chain:
    """Return the chain with other options of the data source."""
    return replace(chain, geometry=dict(geometry))


def try_chains(
    path: Path, kind: str, task: Task, classes: int, x: np.ndarray, y: np.ndarray, chains: Sequence[Chain]
) -> list[TriedChain]:
    """Run a model file on pictures (n, height, width, channels) with each chain's steps, in a process of its own.

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
        }
        call_with_file(path, f"{__name__}:evaluate", job, folder, LIMIT_S)
        tried = []
        for index, chain in enumerate(chains):
            if not (file := folder / f"results-{index}.npy").exists():
                continue
            values = np.load(file)
            results: SampleResults = values if values.dtype == bool else SampleScores(task, values)
            tried.append(TriedChain(chain, tasks.accuracy(results), results))
        return tried


def evaluate(folder: str, path: str, kind: str, task: Task, classes: int, steps: Sequence[Steps]) -> None:
    """Write the results of the samples in `folder` for each list of steps; `try_chains` calls this in a child."""
    home, file = Path(folder), Path(path)
    x, y = np.load(home / "x.npy"), np.load(home / "y.npy")
    keypoints = keypoint_labels.keypoint_count(y) if task == "keypoints" else 0
    needed = task_outputs.for_task(task, classes, x.shape[1:], keypoints=keypoints)
    if task in tasks.BOX_TASKS:
        file, needed = _read_detector(file, kind, needed, home, x[:DETECTOR_SAMPLES])
    model = module(kind).open(file, 0, (), needed)
    layout = interface.find_layout(model.shape, x.shape[1:])
    failures: list[ModelError] = []
    for index, each in enumerate(steps):
        prepare = Prepare(each, layout)
        try:
            answers = task_outputs.outputs(model, layout, x, prepare, needed, lambda count: None)
        except ModelError as error:  # numbers of another scale may overflow
            failures.append(error)
            continue
        results = tasks.load_task(task).score_samples(answers, None, y)
        np.save(home / f"results-{index}.npy", results.values if isinstance(results, SampleScores) else results)
    if len(failures) == len(steps):
        raise failures[0]


class Prepare:
    """Makes a model's input of raw samples, with these steps and in this layout."""

    def __init__(self, steps: Steps, layout: interface.Layout) -> None:
        self._apply, self._layout = pipeline(steps), layout

    def __call__(self, raw: np.ndarray) -> np.ndarray:
        return self._layout.arrange(self._apply(raw))


def _read_detector(path: Path, kind: str, needed: TaskOutputs, home: Path, x: np.ndarray) -> tuple[Path, TaskOutputs]:
    """Return the file to run and its outputs: a published detector without its decoding, or the file itself."""
    detector = published_detector.read(path, kind, needed, pipeline(SCALES["0 to 1"])(x))
    if detector is None:
        return path, needed
    if detector.content is not None:
        path = home / "cut.onnx"
        path.write_bytes(detector.content)
    return path, replace(needed, head=detector.head)


def best_of(tried: Sequence[TriedChain]) -> tuple[TriedChain, list[TriedChain]]:
    """Return the chain with the highest accuracy, the first of several, and the others that it does not beat."""
    best = max(tried, key=lambda each: each.accuracy)
    return best, [each for each in tried if each is not best and not best.beats(each)]
