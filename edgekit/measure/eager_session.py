"""A process that opens a saved network, answers requests, and records the time of each step.

A PyTorch network runs in eager mode. A model file runs on its own interpreter, and PyTorch is not even imported.

The process writes one JSON line when it is ready and one for each request. A request is a line with the number of a
sample, followed by `bare` if only the answer is needed. Time stamps are nanoseconds of the monotonic clock, which all
processes share.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.tasks import FILE_TASKS

if TYPE_CHECKING:
    import numpy as np
    import torch

    from edgekit.core.tasks import Task
    from edgekit.models.spec import ModelSpec

STARTED_NS = time.perf_counter_ns()
BARE = " bare\n"
INTERPRETER_MODULES = {"onnx": "onnxruntime", "openvino": "openvino", "tflite": "ai_edge_litert.interpreter"}
"""The module that runs a model file, by kind of file."""
WARM_UP_CALLS = 3
"""Calls before the process says that it is ready: the first ones allocate memory and choose kernels."""


def answer_requests(model_folder: str, samples_path: str) -> int:
    """Answer requests until standard input ends, and return the exit code.

    If the network cannot answer, the reason is written to standard error.
    """
    try:
        main(Path(model_folder), Path(samples_path))
    except (Exception, SystemExit) as error:
        from edgekit.core.errors import ModelError
        from edgekit.models.user_errors import describe

        print(error if isinstance(error, ModelError) else describe(error), file=sys.stderr)
        return ModelError.exit_code
    return 0


def main(model_folder: Path, samples_path: Path) -> None:
    """Open the model in a folder and answer requests about the samples in an .npy file until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a network or a library prints must not mix with the answers
    clock = time.perf_counter_ns
    import numpy as np

    from edgekit.models.spec import read_spec

    spec = read_spec(model_folder)
    loader_of = _torch_loader if spec.is_torch else _file_loader
    load = loader_of(spec)
    imported = clock()
    steps = load(model_folder)
    samples = np.load(samples_path, allow_pickle=False)
    loaded = clock()

    def send(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    with steps.context:
        for _ in range(WARM_UP_CALLS):
            steps.run(steps.prepare(samples[0][None]))
        send(began=STARTED_NS, imported=imported, loaded=loaded, warm=clock())
        for line in sys.stdin:
            if line.endswith(BARE):
                x = steps.prepare(samples[int(line.removesuffix(BARE))][None])
                send(**steps.read(steps.run(x), x))
                continue
            received = clock()
            x = steps.prepare(samples[int(line)][None])
            prepared = clock()
            scores = steps.run(x)
            executed = clock()
            answer = steps.read(scores, x)
            answered = clock()
            send(**answer, stamps=(received, prepared, executed, answered))


@dataclass(frozen=True)
class AnswerSteps:
    """The steps from a raw sample (1, …) to an answer: prepare the input, run the model, read its scores.

    All calls happen within `context`.
    """

    prepare: Callable[[Any], Any]
    run: Callable[[Any], Any]
    read: Callable[[Any, Any], dict[str, object]]
    context: AbstractContextManager[Any] = field(default_factory=nullcontext)


def _torch_loader(spec: ModelSpec) -> Callable[[Path], AnswerSteps]:
    """Return a function that loads a network for PyTorch eager mode on one thread."""
    import torch

    from edgekit.models import store
    from edgekit.models.eager import eager_input, join_outputs

    torch.set_num_threads(1)

    def read_answer(scores: torch.Tensor, inputs: torch.Tensor) -> dict[str, object]:
        if spec.task in FILE_TASKS:
            return _object_answer(spec.task, join_outputs(scores)[0].numpy(), inputs.shape[2:])
        if spec.task == "detection":
            return _box_answer(join_outputs(scores)[0].numpy(), inputs.shape[2:])
        if spec.task == "segmentation":
            return _cell_answer(scores[0].numpy())
        if spec.task == "anomaly":
            is_map = spec.outputs != spec.input_shape
            return {"score": float(scores.max() if is_map else torch.mean((scores - inputs) ** 2))}
        if spec.task == "regression":
            return {"values": scores[0].tolist()}
        if spec.task == "embedding":
            return {"embedding": torch.nn.functional.normalize(scores)[0].tolist()}
        if spec.task == "multi_label":
            return {"scores": torch.sigmoid(scores)[0].tolist()}
        probabilities = (scores if spec.gives_probabilities else torch.softmax(scores, dim=1))[0]
        return _class_answer(spec, int(probabilities.argmax()), probabilities.tolist())

    def load(folder: Path) -> AnswerSteps:
        return AnswerSteps(
            lambda raw: eager_input(raw, spec.preprocess), store.load(folder)[0], read_answer, torch.inference_mode()
        )

    return load


def _file_loader(spec: ModelSpec) -> Callable[[Path], AnswerSteps]:
    """Return a function that opens a model file on its own interpreter with one thread.

    Keras is only imported when the file is opened.
    """
    import numpy as np

    from edgekit.models.files import interface, standalone, task_outputs
    from edgekit.runner.preprocess.transform import pipeline

    assert spec.source is not None
    source, prepare = spec.source, pipeline(spec.preprocess)
    if source.kind in INTERPRETER_MODULES:
        importlib.import_module(INTERPRETER_MODULES[source.kind])

    def read_answer(scores: np.ndarray, _: np.ndarray) -> dict[str, object]:
        if spec.task in FILE_TASKS:
            return _object_answer(spec.task, scores[0], spec.input_shape[1:])
        if spec.task == "detection":
            return _box_answer(scores[0], spec.input_shape[1:])
        if spec.task == "segmentation":
            return _cell_answer(scores[0])
        if spec.task == "regression":
            return {"values": scores[0].tolist()}
        probabilities = scores[0]
        if not spec.gives_probabilities:
            probabilities = np.exp(probabilities - probabilities.max())
            probabilities /= probabilities.sum()
        return _class_answer(spec, int(probabilities.argmax()), probabilities.tolist())

    def load(folder: Path) -> AnswerSteps:
        sample = interface.channels_last(spec.input_shape)
        needed = task_outputs.for_task(spec.task, spec.num_classes, sample, spec.head)
        opened = standalone.open(folder / source.file, source.kind, sample, tensors=spec.tensors, needed=needed)
        arrange = opened.layout.arrange
        return AnswerSteps(lambda raw: arrange(prepare(raw)), opened.run, read_answer)

    return load


def _box_answer(rows: np.ndarray, size: Sequence[int]) -> dict[str, object]:
    """The boxes, from outputs (points, 4 + classes) for an image of `size` (height, width)."""
    from edgekit.runner.boxes import Decoder

    detections = Decoder(size, len(rows))(rows)
    return {
        "boxes": detections.sides.tolist(),
        "logits": detections.logits.tolist(),
        "classes": detections.classes.tolist(),
    }


def _object_answer(task: Task, rows: np.ndarray, size: Sequence[int]) -> dict[str, object]:
    """The boxes, and keypoints or the pixels of masks, from outputs of such a task for an image of (height, width)."""
    if task == "keypoints":
        from edgekit.runner.keypoints import Decoder

        found, keypoints = Decoder(size, len(rows))(rows)
        more: dict[str, object] = {"keypoints": keypoints.tolist()}
    else:
        from edgekit.runner import instance_masks

        found, coefficients, prototypes = instance_masks.Decoder(size, len(rows))(rows)
        pairs = zip(coefficients, found.sides.tolist(), strict=True)
        masks = [instance_masks.object_mask(weights, prototypes, sides) for weights, sides in pairs]
        more = {"pixels": [int(mask.pixels.sum()) for mask in masks]}
    return {
        "boxes": found.sides.tolist(), "logits": found.logits.tolist(), "classes": found.classes.tolist(), **more
    }  # fmt: skip


def _cell_answer(grid: np.ndarray) -> dict[str, object]:
    """The number of cells of each class, from logits (classes, rows, columns)."""
    import numpy as np

    return {"cells": np.bincount(grid.argmax(axis=0).ravel(), minlength=len(grid)).tolist()}


def _class_answer(spec: ModelSpec, top: int, scores: list[float]) -> dict[str, object]:
    return {"top": top, "label": spec.classes[top], "scores": scores}
