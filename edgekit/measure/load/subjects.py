"""The systems that a load test drives, opened in the worker from plain JSON. Each answers one raw sample at a time."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.measure.load.loadgen_run import Subject


@dataclass(frozen=True)
class SubjectSpec:
    """A function that opens a `Subject`, as package.module:function, and its keyword arguments as JSON."""

    function: str
    keywords: dict[str, Any]

    def open(self) -> Subject:
        module, _, name = self.function.partition(":")
        opened: Subject = getattr(importlib.import_module(module), name)(**self.keywords)
        return opened


def open_bundle(path: str, threads: int = 1) -> Subject:
    """Open a bundle as a device does, with its own golden samples and without autotuning."""
    from edgekit.measure.load.loadgen_run import Subject
    from edgekit.runner.loader import load

    model = load(path, threads=threads, trial=False)
    return Subject(model.predict, list(model.golden()[0]))


def open_convert_variant(
    convert: str, name: str, preprocess: list[dict[str, Any]], samples: str, threads: int = 1
) -> Subject:
    """Open a variant of the convert artifact in the folder `convert`, with the interpreter that devices use.

    `samples` is an .npy file of raw samples (n, …).
    """
    from edgekit.core import artifacts
    from edgekit.core.variants import open_variant, read_variants
    from edgekit.measure.load.loadgen_run import Subject
    from edgekit.runner.preprocess.transform import pipeline, to_layout

    source = artifacts.load(Path(convert))
    variant = next(each for each in read_variants(source) if each.name == name)
    backend, prepare = open_variant(source, variant, threads), pipeline(preprocess)

    def predict(raw: np.ndarray) -> int:
        return int(backend.run(to_layout(prepare(raw[None]), variant.input.layout)).argmax())

    return Subject(predict, list(np.load(samples, allow_pickle=False)))


def open_baseline(profile: str, samples: str, threads: int = 1) -> Subject:
    """Open the unmodified baseline from the profile artifact in a folder, with the preprocessing of the variants."""
    import torch

    from edgekit.core import artifacts
    from edgekit.measure.load.loadgen_run import Subject
    from edgekit.models.eager import eager_input
    from edgekit.models.files import interface, standalone, task_outputs
    from edgekit.models.from_artifact import open_model
    from edgekit.runner.preprocess.transform import pipeline

    torch.set_num_threads(threads)
    source = artifacts.load(Path(profile))
    module, spec = open_model(source)
    module = module.cpu().eval()
    if not spec.is_torch and spec.source is not None:
        sample, prepare = interface.channels_last(spec.input_shape), pipeline(spec.preprocess)
        path, kind = source.path / "model" / spec.source.file, spec.source.kind
        needed = task_outputs.for_task(spec.task, spec.num_classes, sample, spec.head)
        file = standalone.open(path, kind, sample, threads, spec.tensors, needed)
        run, arrange = file.run, file.layout.arrange
        return Subject(
            lambda raw: int(run(arrange(prepare(raw[None]))).argmax()), list(np.load(samples, allow_pickle=False))
        )

    def predict(raw: np.ndarray) -> int:
        with torch.inference_mode():
            return int(module(eager_input(raw[None], spec.preprocess)).argmax())

    return Subject(predict, list(np.load(samples, allow_pickle=False)))
