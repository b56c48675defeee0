"""Which operators of a converted model are a layer of the network: those that hold its weights.

Names do not last through a conversion: a convolution with a batch norm folded in gets one of its own. Weights do, up to
a factor for each output channel, which folding changes, and up to the order inside a channel, which is layout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgekit.core.errors import ConversionError

EQUAL = 1e-5


@dataclass(frozen=True)
class WeightedLayer:
    """A module of the network by its name, and its weights, each (output channels, weights of one channel)."""

    name: str
    weights: tuple[np.ndarray, ...]


def read_layers(model_folder: Path, names: Sequence[str]) -> list[WeightedLayer]:
    """The named modules of a saved network; ConversionError for one that it has not or that holds no weights."""
    if not names:
        return []
    from edgekit.models import store
    from edgekit.models.reparameterize import deployment_network

    modules = dict(deployment_network(*store.load(model_folder)).named_modules())
    found = []
    for name in names:
        if name not in modules:
            raise ConversionError(f"keep_float: got {name!r}, and the network has no such module; take one of its own")
        weights = tuple(weight for part in modules[name].modules() for weight in _weights(part))
        if not weights:
            raise ConversionError(f"keep_float: got {name!r}, a module without weights; name a convolution or a dense")
        found.append(WeightedLayer(name, weights))
    return found


def matching_operators(layers: Iterable[WeightedLayer], constants: Mapping[str, np.ndarray], target: str) -> list[str]:
    """Names of the operators whose weights (`constants`, shaped as a layer's) are those of one of the layers.

    ConversionError names a layer that lost its own operator in the conversion.
    """
    kept = set()
    for layer in layers:
        for weight in layer.weights:
            same = {name for name, constant in constants.items() if _same(weight, constant)}
            if not same:
                raise ConversionError(
                    f"keep_float: {target} has no operator with the weights of {layer.name!r}; keep no layer in float, "
                    "quantize.max_float_layers: 0, or leave this target out"
                )
            kept |= same
    return [name for name in constants if name in kept]


def _weights(module: Any) -> list[np.ndarray]:
    """A layer's own weights; those of a transposed convolution stand input channels first."""
    arrays = [weight.detach().numpy() for weight in module.parameters(recurse=False) if weight.ndim > 1]
    if getattr(module, "transposed", False):
        arrays = [array.swapaxes(0, 1) for array in arrays]
    return [array.reshape(len(array), -1) for array in arrays]


def _same(weight: np.ndarray, constant: np.ndarray) -> bool:
    if weight.shape != constant.shape:
        return False
    one, other = (np.sort(np.abs(array.astype(np.float64)), axis=1) for array in (weight, constant))
    lengths = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    alive = (lengths[0] > 0) & (lengths[1] > 0)  # a factor of nothing leaves nothing to compare
    one, other = one[alive] / lengths[0][alive, None], other[alive] / lengths[1][alive, None]
    return bool(alive.any() and np.allclose(one, other, rtol=0, atol=EQUAL))


Row = TypeVar("Row")


def rows_or_none(what: str, read: Callable[[], Iterable[Row]]) -> tuple[Row, ...]:
    """What `read` finds in a file; nothing, and a line on standard error, where it fails for whatever reason."""
    try:
        return tuple(read())
    except Exception as error:  # parsers of files and interpreters raise what they like
        print(f"{what} could not be read: {type(error).__name__}: {error}; the file is kept", file=sys.stderr)
        return ()
