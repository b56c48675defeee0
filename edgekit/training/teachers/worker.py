"""Opens and runs a teacher's file, in a process of its own that `model_file` starts."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import RESOURCE_ERRNOS, EdgekitError, ModelError, ResourceError
from edgekit.models.files import interface, module, op_count, task_outputs
from edgekit.models.files.interface import OpenedModel, Run
from edgekit.runner import input_vector
from edgekit.runner.preprocess.transform import pipeline
from edgekit.training.teachers.model_file import JOURNAL, LOGITS, SAMPLES

LOOKED_AT = 64
"""Samples that are compared with what an input of integers can hold."""
INSIDE = 1 / 255
"""Between two neighbouring probabilities that a softmax of 8 bits gives."""


def leave_logits(
    home: str,
    path: str,
    kind: str,
    preprocess: list[dict[str, Any]],
    classes: int,
    threads: int,
    task: tasks.Task,
    counted: bool,
    tensors: list[dict[str, Any]],
) -> dict[str, Any]:
    """Leave the logits of the samples in the folder `home`, and return what was found out about the model."""
    folder = Path(home)
    x = np.load(folder / SAMPLES, mmap_mode="r", allow_pickle=False)
    steps = pipeline(preprocess)
    sample = steps(x[:1]).shape[1:]
    needed = task_outputs.for_task(task, classes, sample)
    with open(folder / JOURNAL, "w", buffering=1, encoding="utf-8") as journal:
        try:
            model = module(kind).open(Path(path), threads, tensors, needed)
        except Exception as error:
            raise _model_error("cannot be opened", error) from None
        run_for_shape = model.for_shape
        placed = interface.find_layout(model.shape, sample)
        _check_input_range(model, x, preprocess, counted)
        _check_ranges(model, x, tensors)
        if counted:
            _check_input_shape(model.shape, placed, sample)
            if needed.is_plain:
                model = replace(model, for_shape=lambda shape: _check_outputs(run_for_shape(shape), classes))
        try:
            found = task_outputs.outputs(
                model,
                placed,
                x,
                lambda some: placed.arrange(steps(some)),
                needed,
                lambda count: print(count, file=journal),
            )
            needed.check_scores(found)
        except Exception as error:
            raise _model_error("cannot be run", error) from None
    of_classes = task == "classification"
    quantized = bool(model.step) or module(kind).is_quantized(Path(path))
    step = model.step
    if quantized and not step and not task_outputs.are_probabilities(found, 0.0):
        step = INSIDE  # its softmax may be rounded, though what it gives are floats
    np.save(folder / LOGITS, task_outputs.to_logits(found, step) if of_classes else found)
    costs = asdict(op_count.count_file(Path(path), kind)) if counted else {}
    ends = task_outputs.output_kind(found, step) if of_classes else None
    return {"probabilities": ends == "probabilities", "sigmoids": ends == "sigmoids", "integers": quantized, **costs}


def _check_input_range(model: OpenedModel, x: np.ndarray, preprocess: list[dict[str, Any]], shipped: bool) -> None:
    """ModelError for an input of integers that cannot hold what the samples become, or means other bytes by them."""
    if model.grid is None:
        return
    some = pipeline(preprocess)(x[:: max(1, len(x) // LOOKED_AT)])
    problem = interface.range_fault(model.grid, some, x.dtype.name, preprocess)
    problem = problem or (interface.range_ambiguity(model.grid, x.dtype.name, preprocess) if shipped else "")
    if problem:
        raise ModelError(problem)


def _check_ranges(model: OpenedModel, x: np.ndarray, tensors: list[dict[str, Any]]) -> None:
    """ModelError for one of several inputs of integers that cannot hold its tensor."""
    parts = input_vector.split(x[:: max(1, len(x) // LOOKED_AT)], [each["shape"] for each in tensors])
    for tensor, part, grid in zip(tensors, parts, model.grids, strict=False):  # most kinds of files have none
        if grid is not None and (problem := interface.range_fault(grid, part, "float32", (), "the samples hold")):
            raise ModelError(f"tensor {tensor['name']}: {problem}")


def _check_input_shape(shape: tuple[int, ...], placed: interface.Layout, sample: tuple[int, ...]) -> None:
    """ModelError for an input that a file may have to be asked, and not to be converted and run on a device."""
    if any(side < 0 for side in shape[1:]):
        shown = ", ".join("?" if side < 0 else str(side) for side in shape)
        raise ModelError(f"takes [{shown}], of which more than the batch is open; export it for {list(placed.sides)}")
    if shape[0] > 1:
        raise ModelError(f"takes {shape[0]} samples at a time, a device has one; export it for a batch of 1, or any")
    if len(placed.sides) != len(sample):
        raise ModelError(
            f"takes {list(placed.sides)}, and the samples are {list(sample)}: as a baseline it must take their "
            f"channels too; let it begin with a reshape from {list(sample)}"
        )


def _check_outputs(run: Run, classes: int) -> Run:
    """ModelError for outputs that a bundle's model may not have, though their values could be separated."""

    def checked(x: np.ndarray) -> np.ndarray:
        found = run(x)
        if found.shape[1:] != (classes,) and found.size == len(x) * classes:
            raise ModelError(
                f"gives {list(found.shape)}; as a baseline it must give [{len(x)}, {classes}]: let it end with a "
                "flatten, and export it again"
            )
        return found

    return checked


def _model_error(what: str, error: Exception) -> Exception:
    """One line for what a library says; the libraries' errors share no base class."""
    if isinstance(error, EdgekitError) or (isinstance(error, OSError) and error.errno in RESOURCE_ERRNOS):
        return error
    if isinstance(error, MemoryError):
        return ResourceError("needs more memory than there is; free some")
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return ModelError(f"{what}: {reason}; export it again")
