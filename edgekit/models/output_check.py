"""Check that a network returns what its task needs; the error says what to return instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError, with_article
from edgekit.core.tasks import FILE_TASKS
from edgekit.models.spec import ModelSpec
from edgekit.runner import boxes, masks, output_vector
from edgekit.runner.boxes import FIELDS
from edgekit.runner.errors import RunnerError
from edgekit.runner.keypoints import VALUES


def check_output(out: Any, spec: ModelSpec, samples: int = 1, when: str = "") -> None:
    """Check the output of a network for a number of samples.

    Parameters
    ----------
    out
        What the network returned.
    samples
        Number of samples that it was called with.
    when
        A phrase with a space at its end, for the message, for example "in training mode ".

    Raises
    ------
    ModelError
        The output has another type, shape or dtype than the task of `spec` needs.
    """
    if spec.task == "detection":
        _check_boxes(out, spec, samples, when)
        return
    if spec.task == "segmentation":
        _check_grid(out, spec, samples, when)
        return
    if spec.task in FILE_TASKS:
        _check_file_output(out, spec, samples, when)
        return
    expected = (samples, *spec.outputs)
    content = {
        "regression": "values",
        "anomaly": "its input again, reconstructed, or a map of distances,",
        "embedding": "vectors",
    }.get(spec.task, "logits")
    must = f"{spec.called}: must return {content} of shape {expected}"
    if isinstance(out, tuple | list) and len(out) > 1:
        raise ModelError(
            f"{must}, returned {when}{with_article(type(out).__name__)} of {len(out)}; a bundle's model has one "
            "output: join them, torch.cat(heads, dim=1), or return the one that counts"
        )
    if not isinstance(out, Tensor):
        raise ModelError(f"{must}, returned {when}{with_article(type(out).__name__)}; {_advice(out)}")
    if tuple(out.shape) != expected:
        more = "; or set the number of dimensions in its kwargs" if spec.task == "embedding" else ""
        count = spec.outputs[0] if spec.task == "embedding" else spec.num_classes
        raise ModelError(
            f"{must}, returned {when}shape {tuple(out.shape)}; its last layer must give {count} of them, "
            f"one row for each sample{more}"
        )
    if out.layout is not torch.strided:
        raise ModelError(f"{must}, returned {when}a sparse tensor; return out.to_dense()")
    if out.dtype is not torch.float32:
        raise ModelError(
            f"{must} as float32, returned {when}{str(out.dtype).removeprefix('torch.')}; return the value before any "
            "argmax or cast, and let the builder return net.float()"
        )


def _check_boxes(out: Any, spec: ModelSpec, samples: int, when: str) -> None:
    """Raise ModelError unless the output holds 4 box sides and a logit for each class, for points on grids."""
    parts = [out] if isinstance(out, Tensor) else list(out) if isinstance(out, tuple | list) else []
    shapes = [tuple(each.shape) for each in parts if isinstance(each, Tensor) and each.dtype is torch.float32]
    width = boxes.BOX_SIDES + spec.num_classes
    must = (
        f"{spec.called}: must return float32 boxes ({samples}, points, {boxes.BOX_SIDES}) and logits ({samples}, "
        f"points, {spec.num_classes}), or both in one tensor"
    )
    if not parts or len(shapes) != len(parts) or any(shape[0] != samples for shape in shapes):
        raise ModelError(f"{must}, returned {when}{shapes or with_article(type(out).__name__)}")
    joined = output_vector.shape([shape[1:] for shape in shapes])
    if len(joined) != 2 or joined[1] != width:
        raise ModelError(f"{must}, returned {when}{shapes}")
    if spec.head:
        return
    try:
        boxes.grid_strides(spec.input_shape[1:], joined[0])
    except RunnerError as error:
        raise ModelError(f"{spec.called}: {error}") from None


def _check_file_output(out: Any, spec: ModelSpec, samples: int, when: str) -> None:
    """Raise ModelError unless the output is that of a head with keypoints or masks, which only model files have."""
    head = spec.head or {}
    count = VALUES * head.get("keypoints", 0) + head.get("coefficients", 0)
    columns = FIELDS + count
    if not count or not isinstance(out, Tensor) or out.ndim != 3 or (len(out), out.shape[2]) != (samples, columns):
        shape = tuple(out.shape) if isinstance(out, Tensor) else with_article(type(out).__name__)
        raise ModelError(
            f"{spec.called}: returned {when}{shape}; only model files can be used for {spec.task}, with model.source"
        )


def _check_grid(out: Any, spec: ModelSpec, samples: int, when: str) -> None:
    """Raise ModelError unless the output is a grid over the image with a logit for each class in every cell."""
    must = (
        f"{spec.called}: must return float32 logits ({samples}, {spec.num_classes}, rows, columns), one grid over the "
        "picture"
    )
    if not isinstance(out, Tensor):
        raise ModelError(f"{must}, returned {when}{with_article(type(out).__name__)}; {_advice(out)}")
    shape = tuple(out.shape)
    if out.dtype is not torch.float32 or len(shape) != 4 or shape[:2] != (samples, spec.num_classes):
        raise ModelError(f"{must}, returned {when}{str(out.dtype).removeprefix('torch.')} of shape {shape}")
    try:
        masks.cell_size(spec.input_shape[1:], shape[2:])
    except RunnerError as error:
        raise ModelError(f"{spec.called}: {error}") from None


def _advice(out: Any) -> str:
    """Return advice on what to return instead of something that is not a tensor."""
    if hasattr(out, "logits") or (isinstance(out, Mapping) and "logits" in out):
        return "it has .logits, as models of transformers do: wrap the network, and return self.net(x).logits"
    if isinstance(out, Mapping):
        return f"it holds {', '.join(map(str, list(out)[:5]))}: return the one tensor that counts"
    if out is None:
        return "let forward end with a return"
    return "return the tensor itself" if isinstance(out, tuple | list) else "return a tensor"


SHARED_SCALE = (
    "boxes and logits are one output, to which int8 of TFLite and ONNX gives a single scale, so the one with the "
    "smaller range loses precision; let forward return (boxes, logits)"
)


def shared_scale_note(module: nn.Module, spec: ModelSpec, x: Tensor) -> str:
    """Return advice for a detector that joins its two outputs in one tensor; an empty text for all other networks.

    `x` are inputs (n, *input). The network keeps its mode, training or eval.
    """
    if spec.task != "detection":
        return ""
    mode = module.training
    try:
        with torch.no_grad():
            return SHARED_SCALE if isinstance(module.eval()(x[:1]), Tensor) else ""
    finally:
        module.train(mode)
