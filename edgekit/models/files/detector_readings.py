"""Read the outputs of a detector in several ways and compare them with labels.

Corners and centres, or pixels and shares of the image, are often both possible for what a file gives. Labelled pictures
say which is right, because boxes that are read wrongly do not lie on the objects.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.core import tasks
from edgekit.core.config import available_cores
from edgekit.core.errors import ModelError
from edgekit.core.tasks import SampleResults
from edgekit.models.files import interface, module, task_outputs
from edgekit.models.files.interface import OpenedModel
from edgekit.models.files.published_detector import PublishedDetector
from edgekit.models.files.task_outputs import Prepare, RawOutputs, TaskOutputs
from edgekit.runner import output_vector

CONFIDENCE = 0.95
"""Confidence with which one way must be better than another one."""
MAX_SAMPLES = 120
"""Largest number of train samples that are compared with their labels."""


def is_better(one: SampleResults, other: SampleResults) -> bool:
    """Whether results are significantly better than others for the same samples."""
    return tasks.drop(other, one, CONFIDENCE).bound_pp < 0


class OutputReader:
    """Runs a model file once for each sample, and reads its outputs in one or several ways.

    Parameters
    ----------
    path, kind
        The file, and the module of `edgekit.models.files` that opens it.
    needed
        The outputs for each way.

    Raises
    ------
    ModelError
        The file cannot be opened.
    """

    def __init__(self, path: Path, kind: str, needed: Sequence[TaskOutputs]) -> None:
        self._needed, first = needed, needed[0]
        self._raw = None if len(needed) == 1 else RawOutputs(first.classes, first.task, first.size)
        model: OpenedModel = module(kind).open(path, available_cores(), (), self._raw or first)
        # preparing a shape may take seconds, and each way to prepare samples needs the same shapes
        self._model = replace(model, for_shape=functools.cache(model.for_shape))

    def answers(self, x: np.ndarray, prepare: Prepare) -> list[np.ndarray]:
        """Return the answers (n, …) for raw samples, read in each way; `prepare` makes the input, channels last.

        Raises ModelError if the file does not take these samples, or its outputs are not those of the task.
        """
        layout = interface.find_layout(self._model.shape, prepare(x[:1]).shape[1:])
        outputs = task_outputs.outputs(
            self._model,
            layout,
            x,
            lambda raw: layout.arrange(prepare(raw)),
            self._raw or self._needed[0],
            lambda count: None,
        )
        if self._raw is None:
            return [outputs]
        parts = output_vector.split(outputs, self._raw.shapes)
        return [each.join(parts) for each in self._needed]


def most_accurate(
    path: Path,
    kind: str,
    needed: TaskOutputs,
    found: Sequence[PublishedDetector],
    samples: tuple[np.ndarray, np.ndarray],
    prepare: Prepare,
) -> PublishedDetector:
    """Return the way to read an uncut file that is best on labelled samples (x, y) of train.

    Raises
    ------
    ModelError
        Another way is not significantly worse.
    """
    x, y = samples
    file = OutputReader(path, kind, [replace(needed, head=each.head) for each in found])
    task = tasks.load_task(needed.task)
    scored = [task.score_samples(each, None, y) for each in file.answers(x, prepare)]
    accuracies = [tasks.accuracy(each) for each in scored]
    best = int(np.argmax(accuracies))
    rivals = [index for index in range(len(found)) if index != best and not is_better(scored[best], scored[index])]
    if rivals and accuracies[best] > 0:
        listed = "; ".join(
            f"{found[index].name!r} ({found[index].decoding}): {accuracies[index]:.1%}" for index in (best, *rivals)
        )
        raise ModelError(
            f"gives {found[best].seen}. {len(x)} samples of train do not decide how these are read, by the "
            f"{task.METRIC} of each: {listed}. Name the right one as model.head, or give more data"
        )
    return found[best]
