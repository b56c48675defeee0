"""What a model file has to give for a task, and what is made of its outputs: one array in the task's own order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.models.files import output_roles
from edgekit.runner import boxes, output_vector
from edgekit.runner.bundle.manifest import TensorSpec

IN_PICTURES = ("detection", "segmentation")
"""Tasks with other outputs than a number for each class or value."""


@dataclass(frozen=True)
class Wanted:
    """Of a file: a number for each of `classes`, boxes and logits, or a grid; `size` is a sample's height and width."""

    classes: int
    task: Task = "classification"
    size: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        """How many outputs a file may have."""
        return output_roles.MOST.get(self.task, 1)

    @property
    def is_plain(self) -> bool:
        """Whether a sample's answer is a number for each class or value."""
        return self.task not in IN_PICTURES

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """A file's outputs (n, …), in its own order, as one array (n, …); ModelError where they are not the task's."""
        shapes = [part.shape[1:] for part in parts]
        if self.task == "detection":
            return output_vector.join([parts[place] for place in self.places(shapes)])
        if self.task == "segmentation":
            turned = output_roles.of_mask(shapes[0], self.classes, self.size) == "NHWC"
            return parts[0].transpose(0, 3, 1, 2) if turned else parts[0]
        return parts[0]

    def ordered(self, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """The same of a manifest's outputs: in the task's order, a grid with its layout."""
        shapes = [each.shape[1:] for each in outputs]
        if self.task == "detection":
            return tuple(outputs[place] for place in self.places(shapes))
        if self.task == "segmentation":
            layout = output_roles.of_mask(shapes[0], self.classes, self.size)
            return (replace(outputs[0], layout=layout),)
        return tuple(outputs)

    def check(self, found: np.ndarray) -> None:
        """ModelError for what answers (n, …) of a task in pictures show: scores behind a sigmoid."""
        if self.task != "detection":
            return
        scores = found[..., boxes.SIDES :]
        if scores.min() >= 0 and scores.max() <= 1:
            raise ModelError(
                f"the scores of all {len(scores)} answers lie from 0 to 1, as after a sigmoid, which comes behind the "
                "model anyway: export the logits before it"
            )

    def places(self, shapes: Sequence[Sequence[int]]) -> list[int]:
        """Of a file's outputs, by their shapes without a batch, in the task's order."""
        if self.task == "detection":
            return output_roles.of_boxes(shapes, self.classes, self.size)
        return list(range(len(shapes)))


ANY = Wanted(0)
"""A file with one output, taken as it is."""


def of(task: Task, classes: int, sample: Sequence[int]) -> Wanted:
    """For samples after their preprocess: (height, width, channels) of pictures."""
    return Wanted(classes, task, tuple(sample[:2]) if len(sample) == 3 else ())
