"""Record outputs of a model: choose the inputs to run, examine the outputs, and select the golden answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.cli.bundle import jobs
from edgekit.cli.bundle.model_facts import ModelFacts
from edgekit.cli.bundle.options import BundleOptions
from edgekit.core import golden
from edgekit.core.errors import ConfigError
from edgekit.runner import bundle as bundles
from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.errors import InputError

SUM_FLOAT, SUM_HALF, SUM_MAX = 1e-3, 1e-2, 0.25
"""Allowed deviation of the sum of a sample's probabilities from 1: in float32, in float16, and in coarse integers."""

FIXED_ACTIVATIONS = {"detection": "sigmoid"}
"""The activation of tasks for which the outputs need not be examined."""

Say = Callable[[str], None]


def candidate_files(options: BundleOptions, raw: RawSpec, is_stream: bool = False) -> list[str]:
    """Return the input files to run, spread evenly over those that `--golden` names.

    For a stream, return all of them.
    """
    for path in options.golden:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; --golden names real inputs")
    paths = [path for source in options.golden for path in inputs.input_files(str(source), raw)]
    if not paths:
        raise ConfigError("--golden: name at least one file or folder of real inputs")
    if is_stream:
        return paths
    return [paths[position] for position in golden.candidate_indices(len(paths), options.samples)]


def first_array_dtype(options: BundleOptions) -> str | None:
    """Return the dtype of the first readable array among the inputs, from its header, or None if there is none."""
    for source in options.golden:
        for path in sorted(source.rglob("*.npy")) if source.is_dir() else [source]:
            try:
                return str(np.load(path, mmap_mode="r", allow_pickle=False).dtype)
            except Exception:  # NumPy raises many classes here, as in inputs/array.py
                break  # the fault is reported when the file is read as a sample
    return None


def record_outputs(
    options: BundleOptions, draft: Manifest, facts: ModelFacts, paths: list[str], working_folder: Path
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Run the files in `paths`. Return samples (n, *raw), outputs (n, *output) and facts about the interpreter."""
    bundles.write(working_folder / jobs.DRAFT, draft, {**facts.files, golden.INPUTS: b"", golden.OUTPUTS: b""})
    input_grids = [None if each.grid is None else asdict(each.grid) for each in facts.inputs]
    arguments = {"name": str(options.model), "grids": input_grids, "classes": facts.classes}
    answer = jobs.run_job("record", options.model, working_folder, paths=paths, count=options.samples, **arguments)
    samples, outputs = (np.load(working_folder / name, allow_pickle=False) for name in (jobs.SAMPLES, jobs.OUTPUTS))
    return samples, outputs, answer


def golden_positions(task: str, outputs: np.ndarray, count: int) -> np.ndarray:
    """Return the positions of the golden samples among the recorded ones.

    In classification, they are the samples that are classified most clearly. In other tasks, they are evenly spread. A
    stream has at most `count` samples, so all of them are selected.
    """
    if task == "classification":
        return golden.clearest_indices(outputs, count)
    return np.unique(np.linspace(0, len(outputs) - 1, min(count, len(outputs))).astype(int))


def choose_activation(options: BundleOptions, facts: ModelFacts, outputs: np.ndarray, say: Say) -> str:
    """Return the activation: none if all recorded outputs are probabilities already, otherwise softmax.

    Sigmoids count as probabilities, one for each class. They need not sum to 1.
    """
    if options.task != "classification":
        return FIXED_ACTIVATIONS.get(options.task, "none")
    are_probabilities = _are_probabilities(outputs, facts)
    are_usable = are_probabilities or _are_sigmoids(outputs)
    chosen = options.activation if options.activation != "auto" else "none" if are_usable else "softmax"
    description = "probabilities already" if are_probabilities else "sigmoids, each class with a probability of its own"
    finding = f"are {description}" if are_usable else "are not probabilities"
    note = " (as requested; auto would choose another)" if (chosen == "none") != are_usable else ""
    say(f"activation  {chosen}: the {len(outputs)} recorded outputs {finding}{note}")
    return chosen


def _are_sigmoids(outputs: np.ndarray) -> bool:
    """Whether all values lie between 0 and 1, which is very unlikely for the logits of several samples."""
    return bool(outputs.min() >= 0 and outputs.max() <= 1)


def _are_probabilities(outputs: np.ndarray, facts: ModelFacts) -> bool:
    """Whether all values lie between 0 and 1 and each sample sums to 1, allowing for the rounding of integers."""
    tolerance = SUM_HALF if facts.output.dtype == "float16" else SUM_FLOAT
    tolerance = min(tolerance + outputs.shape[1] * facts.output.scale / 2, SUM_MAX)
    in_range = outputs.min() >= -SUM_FLOAT and outputs.max() <= 1 + SUM_FLOAT
    return bool(in_range and (np.abs(outputs.sum(axis=1, dtype=np.float64) - 1) <= tolerance).all())
