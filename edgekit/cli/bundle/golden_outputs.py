"""A model's recorded outputs: which inputs are run, what the outputs show, and which become golden vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.cli.bundle import jobs
from edgekit.cli.bundle.examine import ModelFacts
from edgekit.cli.bundle.options import Options
from edgekit.core import golden
from edgekit.core.errors import ConfigError
from edgekit.runner import bundle as bundles
from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.errors import InputError

SUM_FLOAT, SUM_HALF, SUM_MOST = 1e-3, 1e-2, 0.25
"""How far the sum of probabilities may be from 1: in float32, in float16, and however coarse the integers."""

UNSEEN = {"detection": "sigmoid"}
"""What makes probabilities, by task, where the outputs need not be looked at."""

Say = Callable[[str], None]


def candidates(options: Options, raw: RawSpec, is_stream: bool = False) -> list[str]:
    """The input files to run, spread evenly over all that `--golden` names, in their order; of a stream, all."""
    for path in options.golden:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; --golden names real inputs")
    paths = [path for each in options.golden for path in inputs.input_files(str(each), raw)]
    if not paths:
        raise ConfigError("--golden: name at least one file or folder of real inputs")
    if is_stream:
        return paths
    return [paths[position] for position in golden.candidate_indices(len(paths), options.samples)]


def dtype_seen(options: Options) -> str | None:
    """Of the first array among the inputs, by its header; None where there is none, or none that can be read."""
    for each in options.golden:
        for path in sorted(each.rglob("*.npy")) if each.is_dir() else [each]:
            try:
                return str(np.load(path, mmap_mode="r", allow_pickle=False).dtype)
            except Exception:  # whatever numpy stumbles over, as in inputs/array.py
                break  # reading it as a sample says what is wrong
    return None


def record(
    options: Options, draft: Manifest, found: ModelFacts, paths: list[str], home: Path
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Samples (n, *raw) out of the files in `paths`, their outputs (n, *output), and which interpreter gave them."""
    bundles.write(home / jobs.DRAFT, draft, {**found.files, golden.INPUTS: b"", golden.OUTPUTS: b""})
    grids = [None if each.grid is None else asdict(each.grid) for each in found.inputs]
    facts = {"name": str(options.model), "grids": grids, "classes": found.classes}
    answer = jobs.run("record", options.model, home, paths=paths, most=options.samples, **facts)
    samples, outputs = (np.load(home / name, allow_pickle=False) for name in (jobs.SAMPLES, jobs.OUTPUTS))
    return samples, outputs, answer


def keep(task: str, outputs: np.ndarray, wanted: int) -> np.ndarray:
    """Positions of the golden vectors: a classification's clearest answers, else spread over all; of a stream, all."""
    if task == "classification":
        return golden.clearest_indices(outputs, wanted)
    return np.unique(np.linspace(0, len(outputs) - 1, min(wanted, len(outputs))).astype(int))


def activation(options: Options, found: ModelFacts, outputs: np.ndarray, say: Say) -> str:
    """What turns the outputs into probabilities: nothing where every recorded one is so already, else softmax.

    Sigmoids are, each for its class; they need not sum to 1.
    """
    if options.task != "classification":
        return UNSEEN.get(options.task, "none")
    whole = _are_probabilities(outputs, found)
    probabilities = whole or _are_sigmoids(outputs)
    wanted = options.activation if options.activation != "auto" else "none" if probabilities else "softmax"
    already = "probabilities already" if whole else "sigmoids, each class with a probability of its own"
    seen = f"are {already}" if probabilities else "are not probabilities"
    odd = " (as asked; auto would choose otherwise)" if (wanted == "none") != probabilities else ""
    say(f"activation  {wanted}: the {len(outputs)} recorded outputs {seen}{odd}")
    return wanted


def _are_sigmoids(outputs: np.ndarray) -> bool:
    """All from 0 to 1: logits of several samples do not."""
    return bool(outputs.min() >= 0 and outputs.max() <= 1)


def _are_probabilities(outputs: np.ndarray, found: ModelFacts) -> bool:
    """All from 0 to 1, and every sample's sum 1; integers round each of them by up to half a step."""
    slack = SUM_HALF if found.output.dtype == "float16" else SUM_FLOAT
    slack = min(slack + outputs.shape[1] * found.output.scale / 2, SUM_MOST)
    inside = outputs.min() >= -SUM_FLOAT and outputs.max() <= 1 + SUM_FLOAT
    return bool(inside and (np.abs(outputs.sum(axis=1, dtype=np.float64) - 1) <= slack).all())
