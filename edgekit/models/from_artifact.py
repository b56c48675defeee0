"""Describe a network for a data set, and open the network that an earlier stage left in its artifact."""

from __future__ import annotations

from typing import Any

from torch import nn

from edgekit.core import tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ConfigError
from edgekit.core.pretrained import Pretrained
from edgekit.core.tasks import embedding
from edgekit.data import Data
from edgekit.data.checks import preprocessed_shape
from edgekit.models import store


def spec_for(
    data: Data,
    builder: str | None,
    kwargs: dict[str, Any],
    preprocess: list[dict[str, Any]],
    source: store.Source | None = None,
    pretrained: Pretrained | None = None,
) -> store.ModelSpec:
    """Return the spec of a network for a data set; raise InputError if the preprocess steps do not fit the samples."""
    shape = preprocessed_shape(data, preprocess)
    if len(shape) == 3:
        shape = (shape[2], shape[0], shape[1])
    spec = store.ModelSpec(
        builder=builder,
        source=source,
        kwargs=kwargs,
        input_shape=shape,
        num_classes=len(data.classes),
        classes=data.classes,
        task=data.task,
        output_shape=_output_shape(data, shape, kwargs),
        preprocess=preprocess,
        pretrained=pretrained,
        raw={
            "kind": data.kind,
            "shape": list(data.raw_shape),
            "dtype": data.raw_dtype,
            "range": data.raw_range,
            **({"sample_rate_hz": data.sample_rate_hz} if data.kind == "audio" else {}),
            **({"columns": list(data.columns)} if data.columns else {}),
            **({"tensors": list(data.tensors)} if data.tensors else {}),
            **({"input_path": list(data.input_path)} if data.input_path is not None else {}),
        },
    )
    if builder and data.task == "anomaly" and (map_shape := store.distance_map_shape(spec)):
        return spec.model_copy(update={"output_shape": map_shape})
    return spec


def _output_shape(data: Data, input_shape: tuple[int, ...], kwargs: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of the output for one sample; None if it is one number for each class."""
    if data.task != "embedding":
        return input_shape if tasks.load_task(data.task).RECONSTRUCTS else None
    dimensions = kwargs.get(store.DIMENSIONS, embedding.DIMENSIONS)
    if not isinstance(dimensions, int) or isinstance(dimensions, bool) or dimensions < 2:
        raise ConfigError(f"kwargs.{store.DIMENSIONS}: got {dimensions!r}; an embedding is a vector of two or more")
    return (dimensions,)


def open_model(artifact: Artifact, folder: str = "model") -> tuple[nn.Module, store.ModelSpec]:
    """Open the network that a stage left in `folder` of its artifact, after checking the digests of its files."""
    artifact.file(f"{folder}/{store.SPEC}")
    for name in store.members(artifact.path / folder):
        artifact.file(f"{folder}/{name}")
    return store.load(artifact.path / folder)
