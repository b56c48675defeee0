"""The process that opens a teacher's model file and runs it on samples. `model_file` starts it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import RESOURCE_ERRNOS, EdgekitError, ModelError, ResourceError
from edgekit.models.files import detector_readings, interface, module, op_count, published_detector, task_outputs
from edgekit.models.files.interface import OpenedModel, Run
from edgekit.models.files.published_detector import PublishedDetector
from edgekit.models.files.task_outputs import Prepare, TaskOutputs
from edgekit.runner import input_vector
from edgekit.runner.preprocess.transform import pipeline
from edgekit.training.teachers.model_file import CUT, JOURNAL, LABELLED, LOGITS, SAMPLES

DETECTOR_SAMPLES = 8
"""Number of samples from which the outputs of a detector are recognised, if it detects nothing in a random image."""
RANGE_CHECK_SAMPLES = 64
"""Number of samples that are compared with the range of a quantized input."""
INT8_SOFTMAX_STEP = 1 / 255
"""The difference between two adjacent probabilities that an 8-bit softmax can output."""


def write_logits(
    home: str,
    path: str,
    kind: str,
    preprocess: list[dict[str, Any]],
    classes: int,
    threads: int,
    task: tasks.Task,
    is_baseline: bool,
    tensors: list[dict[str, Any]],
    head: str | None,
    keypoints: int,
) -> dict[str, Any]:
    """Write the logits of the samples to the folder `home`, and return facts about the model.

    With `is_baseline`, the model must also be usable on a device, and its operations are counted. A detector that
    decodes its boxes itself is cut before its decoding, and the file that remains is written to `home`, too.
    """
    folder = Path(home)
    x = np.load(folder / SAMPLES, mmap_mode="r", allow_pickle=False)
    steps = pipeline(preprocess)
    sample = steps(x[:1]).shape[1:]
    needed = task_outputs.for_task(task, classes, sample, keypoints=keypoints)
    file = Path(path)
    try:
        has_boxes = task in tasks.BOX_TASKS
        detector = _read_detector(file, kind, needed, folder, x, steps, head) if has_boxes else None
    except Exception as error:
        raise _model_error("cannot be read as a detector", error) from None
    if detector is not None:
        needed = replace(needed, head=detector.head)
        if detector.content is not None:
            file = folder / CUT
            file.write_bytes(detector.content)
    with open(folder / JOURNAL, "w", buffering=1, encoding="utf-8") as journal:
        try:
            model = module(kind).open(file, threads, tensors, needed)
        except Exception as error:
            raise _model_error("cannot be opened", error) from None
        run_for_shape = model.for_shape
        layout = interface.find_layout(model.shape, sample)
        _check_input_range(model, x, preprocess, is_baseline)
        _check_tensor_ranges(model, x, tensors)
        if is_baseline:
            _check_input_shape(model.shape, layout, sample)
            if needed.is_plain:
                model = replace(model, for_shape=lambda shape: _check_outputs(run_for_shape(shape), classes))
        try:
            outputs = task_outputs.outputs(
                model,
                layout,
                x,
                lambda raw: layout.arrange(steps(raw)),
                needed,
                lambda count: print(count, file=journal),
            )
            needed.check_scores(outputs)
        except Exception as error:
            raise _model_error("cannot be run", error) from None
    is_classification = task == "classification"
    is_quantized = bool(model.step) or module(kind).is_quantized(file)
    step = model.step
    if is_quantized and not step and not task_outputs.are_probabilities(outputs, 0.0):
        step = INT8_SOFTMAX_STEP  # the softmax may be rounded, although the file outputs floats
    np.save(folder / LOGITS, task_outputs.to_logits(outputs, step) if is_classification else outputs)
    costs = asdict(op_count.count_file(file, kind)) if is_baseline else {}
    output_kind = task_outputs.output_kind(outputs, step) if is_classification else None
    return {
        "probabilities": output_kind == "probabilities",
        "sigmoids": output_kind == "sigmoids",
        "integers": is_quantized,
        "decoding": detector.decoding if detector else "",
        "suppressed": detector is not None and detector.is_suppressed,
        "head": detector.head if detector else None,
        **costs,
    }


def _read_detector(
    file: Path, kind: str, needed: TaskOutputs, folder: Path, x: np.ndarray, steps: Prepare, head: str | None
) -> PublishedDetector | None:
    """Return how the outputs of a detector are read; labelled samples decide if there are any in the folder."""
    samples = steps(x[:DETECTOR_SAMPLES])
    labelled = [folder / name for name in LABELLED]
    if not all(path.exists() for path in labelled):
        return published_detector.read(file, kind, needed, samples, head)
    found = published_detector.readings(file, kind, needed, samples, head)
    if len(found) < 2:
        return found[0] if found else None
    known_x, known_y = (np.load(path, allow_pickle=False) for path in labelled)
    return detector_readings.most_accurate(file, kind, needed, found, (known_x, known_y), steps)


def _check_input_range(model: OpenedModel, x: np.ndarray, preprocess: list[dict[str, Any]], is_baseline: bool) -> None:
    """Raise ModelError if a quantized input cannot represent the preprocessed samples.

    For a baseline, it is also an error if it is unclear which bytes the input expects.
    """
    if model.grid is None:
        return
    prepared = pipeline(preprocess)(x[:: max(1, len(x) // RANGE_CHECK_SAMPLES)])
    problem = interface.range_fault(model.grid, prepared, x.dtype.name, preprocess)
    problem = problem or (interface.range_ambiguity(model.grid, x.dtype.name, preprocess) if is_baseline else "")
    if problem:
        raise ModelError(problem)


def _check_tensor_ranges(model: OpenedModel, x: np.ndarray, tensors: list[dict[str, Any]]) -> None:
    """Raise ModelError if one of several quantized inputs cannot represent its tensor."""
    parts = input_vector.split(x[:: max(1, len(x) // RANGE_CHECK_SAMPLES)], [each["shape"] for each in tensors])
    for tensor, part, grid in zip(tensors, parts, model.grids, strict=False):  # most formats have no grids
        if grid is not None and (problem := interface.range_fault(grid, part, "float32", (), "the samples hold")):
            raise ModelError(f"tensor {tensor['name']}: {problem}")


def _check_input_shape(shape: tuple[int, ...], layout: interface.Layout, sample: tuple[int, ...]) -> None:
    """Raise ModelError if the input is good enough for a teacher, but not for a model that runs on a device."""
    if any(side < 0 for side in shape[1:]):
        sides = ", ".join("?" if side < 0 else str(side) for side in shape)
        raise ModelError(f"takes [{sides}], in which more than the batch is open; export it for {list(layout.sides)}")
    if shape[0] > 1:
        raise ModelError(
            f"takes {shape[0]} samples at a time, but a device has one; export it for a batch of 1 or of any size"
        )
    if len(layout.sides) != len(sample):
        raise ModelError(
            f"takes {list(layout.sides)}, but the samples are {list(sample)}: as a baseline it must take their "
            f"channels too; let it begin with a reshape from {list(sample)}"
        )


def _check_outputs(run: Run, classes: int) -> Run:
    """Return a function that calls `run` and raises ModelError if the outputs are not of shape (n, classes).

    Other shapes with the same number of values are only allowed for a teacher, whose outputs are reshaped.
    """

    def checked_run(x: np.ndarray) -> np.ndarray:
        outputs = run(x)
        if outputs.shape[1:] != (classes,) and outputs.size == len(x) * classes:
            raise ModelError(
                f"gives {list(outputs.shape)}; as a baseline it must give [{len(x)}, {classes}]: let it end with a "
                "flatten, and export it again"
            )
        return outputs

    return checked_run


def _model_error(action: str, error: Exception) -> Exception:
    """Return the error to raise for an error of a library, with a message of one line.

    `action` says what failed. The errors of the libraries have no common base class.
    """
    if isinstance(error, EdgekitError) or (isinstance(error, OSError) and error.errno in RESOURCE_ERRNOS):
        return error
    if isinstance(error, MemoryError):
        return ResourceError("needs more memory than there is; free some memory")
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return ModelError(f"{action}: {reason}; export it again")
