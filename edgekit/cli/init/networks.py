"""A reference network for samples of a kind, and networks for its student: the same half as wide, and others."""

from __future__ import annotations

from typing import Any

from edgekit.core.errors import DataError
from edgekit.core.tasks import embedding

STRIDES = {"detection": 16, "segmentation": 16}
"""Pixels of a side for one cell of the coarsest map, `STRIDE` of each network; it imports torch, this does not."""
Network = dict[str, Any]
ANY = "edgekit.models.resnet:resnet8"
"""Where a config must name a network before the data are known."""
SMALLEST_FOR_RESNET = 16
LARGE = 64
"""Pixels from which on the first convolution halves the picture, as networks for photographs do."""
SMALLEST_FOR_OTHERS = 32
"""Pixels from which on the candidates have maps left to filter."""
HALVED = ("width", "bottleneck")
CHOSEN_BY = ("classification", "multi_label")
"""Tasks whose student is chosen from candidates."""
SMALL_PICTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("repvgg:repvgg", {"alpha": 0.125, "top": 0.25, "reduction": 8}),
    ("mobilenet_v4:mobilenet_v4_small", {"alpha": 0.25, "last": 128, "reduction": 8}),
)
"""At few pixels a depthwise network takes longer than its multiply-adds say: docs/explanation/distillation.md."""
LARGE_PICTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mobilenet_v3:mobilenet_v3_small", {"alpha": 0.35, "last": 128, "reduction": 16}),
    ("mcunet:mcunet", {"alpha": 0.5, "reduction": 16}),
)
OTHERS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "audio": (("bc_resnet:bc_resnet", {"alpha": 1.0}),),
    "window": (("tc_resnet:tc_resnet", {"alpha": 0.5}),),
}


def pair(task: str, kind: str, shape: tuple[int, ...]) -> tuple[Network, Network]:
    """The model and the student for raw samples of this shape; DataError where edgekit has no network for them."""
    name, kwargs = _reference_network(task, kind, shape)
    if task == "embedding":
        kwargs = {**kwargs, "dimensions": embedding.DIMENSIONS}
    student = {key: value // 2 if key in HALVED else value for key, value in kwargs.items()}
    builder = f"edgekit.models.{name}"
    return {"builder": builder, "kwargs": kwargs}, {"builder": builder, "kwargs": student}


def candidates(task: str, kind: str, shape: tuple[int, ...]) -> list[Network]:
    """Networks to choose the student from beside that of `pair`; none where that is the only one."""
    if task not in CHOSEN_BY:
        return []
    found = OTHERS.get(kind, ())
    if kind == "image" and min(shape[:2]) >= SMALLEST_FOR_OTHERS:
        found = LARGE_PICTURES if min(shape[:2]) >= LARGE else SMALL_PICTURES
    return [{"builder": f"edgekit.models.{name}", "kwargs": dict(kwargs)} for name, kwargs in found]


def _reference_network(task: str, kind: str, shape: tuple[int, ...]) -> tuple[str, dict[str, int]]:
    if task in STRIDES and any(side % STRIDES[task] for side in shape[:2]):
        raise DataError(
            f"--data: pictures of {shape[0]}×{shape[1]}; the networks for {task} need height and width that are "
            f"multiples of {STRIDES[task]}: resize or pad pictures and labels, or write the config by hand, with your "
            "own model"
        )
    if task == "detection":
        return "detector:detector", {"width": 16, "depth": 2}
    if task == "segmentation":
        return "segmenter:segmenter", {"width": 16, "depth": 1}
    if task == "anomaly" and kind == "image":
        return "conv_autoencoder:conv_autoencoder", {"width": 16, "bottleneck": 4}
    if task == "anomaly":  # whatever it is, to be given back
        return "autoencoder:autoencoder", {"width": 64, "bottleneck": 8}
    if kind == "vector":
        return "mlp:mlp", {"width": 64, "depth": 2}
    if kind == "image":
        side = min(shape[:2])
        if side >= SMALLEST_FOR_RESNET:
            return "resnet:resnet8", {"width": 16, "stem_stride": 2 if side >= LARGE else 1}
        return "ds_cnn:ds_cnn", {"width": 64, "blocks": 4, "stem_stride": 1}
    if kind == "audio":
        return "ds_cnn:ds_cnn", {"width": 64, "blocks": 4, "stem_stride": 2}
    if kind == "window":
        return "conv1d:conv1d", {"width": 16}
    if kind == "tensors":
        return "joint:joint", {"width": 16}
    if kind == "text":
        return "text_transformer:text_transformer", {"width": 64, "layers": 2, "heads": 4}
    raise DataError(f"no reference network for samples of kind {kind!r}; write the config by hand, with your own model")
