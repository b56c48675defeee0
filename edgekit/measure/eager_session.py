"""A process that opens a saved network, answers requests, and records the time of each step.

A network of PyTorch's runs in eager mode; a file on its own interpreter, and PyTorch is not even imported.

It writes one JSON line when it is ready and one for each request: a line with the number of a sample, and `bare` behind
it where nothing but the answer is wanted. Stamps are nanoseconds of the monotonic clock, which all processes share.
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

if TYPE_CHECKING:
    import numpy as np
    import torch

    from edgekit.models.spec import ModelSpec

BEGAN = time.perf_counter_ns()
BARE = " bare\n"
IMPORTED = {"onnx": "onnxruntime", "openvino": "openvino", "tflite": "ai_edge_litert.interpreter"}
"""By kind of file, what runs it."""
WARM_UP_CALLS = 3
"""Calls before the process says that it is ready: the first ones allocate memory and choose kernels."""


def answer_requests(model_folder: str, samples_path: str) -> int:
    """Answer until standard input ends; the exit code, and on standard error why a network cannot answer."""
    try:
        main(Path(model_folder), Path(samples_path))
    except (Exception, SystemExit) as error:
        from edgekit.core.errors import ModelError
        from edgekit.models.user_errors import describe

        print(error if isinstance(error, ModelError) else describe(error), file=sys.stderr)
        return ModelError.exit_code
    return 0


def main(model_folder: Path, samples_path: Path) -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a network or a library prints must not mix with the answers
    clock = time.perf_counter_ns
    import numpy as np

    from edgekit.models.spec import read_spec

    spec = read_spec(model_folder)
    begin = _torch if spec.is_torch else _file
    load = begin(spec)
    imported = clock()
    how = load(model_folder)
    samples = np.load(samples_path, allow_pickle=False)
    loaded = clock()

    def say(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    with how.inside:
        for _ in range(WARM_UP_CALLS):
            how.run(how.prepare(samples[0][None]))
        say(began=BEGAN, imported=imported, loaded=loaded, warm=clock())
        for line in sys.stdin:
            if line.endswith(BARE):
                x = how.prepare(samples[int(line.removesuffix(BARE))][None])
                say(**how.read(how.run(x), x))
                continue
            picked = clock()
            x = how.prepare(samples[int(line)][None])
            prepared = clock()
            scores = how.run(x)
            executed = clock()
            answer = how.read(scores, x)
            answered = clock()
            say(**answer, stamps=(picked, prepared, executed, answered))


@dataclass(frozen=True)
class Steps:
    """The steps of an answer: raw sample (1, …) → input → scores → answer; `inside` is the context of all calls."""

    prepare: Callable[[Any], Any]
    run: Callable[[Any], Any]
    read: Callable[[Any, Any], dict[str, object]]
    inside: AbstractContextManager[Any] = field(default_factory=nullcontext)


def _torch(spec: ModelSpec) -> Callable[[Path], Steps]:
    """PyTorch eager on one thread, once it is imported."""
    import torch

    from edgekit.models import store
    from edgekit.models.eager import eager_input, join_outputs

    torch.set_num_threads(1)

    def read(scores: torch.Tensor, inputs: torch.Tensor) -> dict[str, object]:
        if spec.task == "detection":
            return _boxes(join_outputs(scores)[0].numpy(), inputs.shape[2:])
        if spec.task == "segmentation":
            return _cells(scores[0].numpy())
        if spec.task == "anomaly":
            return {"score": float(torch.mean((scores - inputs) ** 2))}
        if spec.task == "regression":
            return {"values": scores[0].tolist()}
        if spec.task == "embedding":
            return {"embedding": torch.nn.functional.normalize(scores)[0].tolist()}
        if spec.task == "multi_label":
            return {"scores": torch.sigmoid(scores)[0].tolist()}
        probabilities = (scores if spec.gives_probabilities else torch.softmax(scores, dim=1))[0]
        return _class_answer(spec, int(probabilities.argmax()), probabilities.tolist())

    def load(folder: Path) -> Steps:
        return Steps(lambda raw: eager_input(raw, spec.preprocess), store.load(folder)[0], read, torch.inference_mode())

    return load


def _file(spec: ModelSpec) -> Callable[[Path], Steps]:
    """A file's own interpreter on one thread; Keras is imported as it is opened."""
    import numpy as np

    from edgekit.models.files import interface, standalone, task_outputs
    from edgekit.runner.preprocess.transform import pipeline

    assert spec.source is not None
    source, prepare = spec.source, pipeline(spec.preprocess)
    if source.kind in IMPORTED:
        importlib.import_module(IMPORTED[source.kind])

    def read(scores: np.ndarray, _: np.ndarray) -> dict[str, object]:
        if spec.task == "detection":
            return _boxes(scores[0], spec.input_shape[1:])
        if spec.task == "segmentation":
            return _cells(scores[0])
        if spec.task == "regression":
            return {"values": scores[0].tolist()}
        found = scores[0]
        if not spec.gives_probabilities:
            found = np.exp(found - found.max())
            found /= found.sum()
        return _class_answer(spec, int(found.argmax()), found.tolist())

    def load(folder: Path) -> Steps:
        sample = interface.channels_last(spec.input_shape)
        needed = task_outputs.for_task(spec.task, spec.num_classes, sample)
        opened = standalone.open(folder / source.file, source.kind, sample, tensors=spec.tensors, needed=needed)
        arrange = opened.layout.arrange
        return Steps(lambda raw: arrange(prepare(raw)), opened.run, read)

    return load


def _boxes(rows: np.ndarray, size: Sequence[int]) -> dict[str, object]:
    """Of outputs (points, 4 + classes) for a picture of (height, width)."""
    from edgekit.runner.boxes import Decoder

    found = Decoder(size, len(rows))(rows)
    return {"boxes": found.sides.tolist(), "logits": found.logits.tolist(), "classes": found.classes.tolist()}


def _cells(grid: np.ndarray) -> dict[str, object]:
    """How many cells each class has, of logits (classes, rows, columns)."""
    import numpy as np

    return {"cells": np.bincount(grid.argmax(axis=0).ravel(), minlength=len(grid)).tolist()}


def _class_answer(spec: ModelSpec, top: int, scores: list[float]) -> dict[str, object]:
    return {"top": top, "label": spec.classes[top], "scores": scores}
