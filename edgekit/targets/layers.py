"""Find the operators of a converted model that belong to a layer of the network, by their weights.

Names do not survive a conversion: a convolution gets a new name if a batch norm is folded into it. Weights do survive,
except for two changes. Folding multiplies the weights of each output channel by a factor, and another layout changes
the order of the weights within a channel.
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
    """The name of a module and its weights, each (output channels, weights of one channel)."""

    name: str
    weights: tuple[np.ndarray, ...]


def read_layers(model_folder: Path, names: Sequence[str]) -> list[WeightedLayer]:
    """Read the named modules of a saved network; raise ConversionError if one does not exist or has no weights."""
    if not names:
        return []
    from edgekit.models import store
    from edgekit.models.reparameterize import deployment_network

    modules = dict(deployment_network(*store.load(model_folder)).named_modules())
    layers = []
    for name in names:
        if name not in modules:
            raise ConversionError(
                f"keep_float: got {name!r}, but the network has no such module; name one of its modules"
            )
        weights = tuple(weight for part in modules[name].modules() for weight in _weights(part))
        if not weights:
            raise ConversionError(
                f"keep_float: got {name!r}, which has no weights; name a convolution or a dense layer"
            )
        layers.append(WeightedLayer(name, weights))
    return layers


def float_tail(model_folder: Path) -> list[WeightedLayer]:
    """Return the modules that a network names in `float_tail`: from them on, an int8 model computes in float."""
    from edgekit.models.spec import read_spec

    spec = read_spec(model_folder)
    if spec.task != "anomaly" or spec.source is not None:
        return []
    from edgekit.models import store

    return read_layers(model_folder, getattr(store.load(model_folder)[0], "float_tail", ()))


def with_followers(names: Iterable[str], operators: Iterable[tuple[str, Iterable[Any], Iterable[Any]]]) -> list[str]:
    """Return the named operators and all that use their results, in order.

    `operators` has the name, the input tensors and the output tensors of each operator, in the order of execution.
    """
    started = set(names)
    reached: set[Any] = set()
    followers = []
    for name, inputs, outputs in operators:
        if name in started or not reached.isdisjoint(inputs):
            followers.append(name)
            reached |= set(outputs)
    return followers


def matching_operators(layers: Iterable[WeightedLayer], constants: Mapping[str, np.ndarray], target: str) -> list[str]:
    """Return the names of the operators that have the weights of one of the layers.

    `constants` has the weights of each operator by its name, (output channels, weights of one channel). Raises
    ConversionError, which names the layer, if a layer has no operator of its own any more.
    """
    names = set()
    for layer in layers:
        for weight in layer.weights:
            same = {name for name, constant in constants.items() if _same_weights(weight, constant)}
            if not same:
                raise ConversionError(
                    f"keep_float: {target} has no operator with the weights of {layer.name!r}; keep no layer in float, "
                    "quantize.max_float_layers: 0, or leave this target out"
                )
            names |= same
    return [name for name in constants if name in names]


def _weights(module: Any) -> list[np.ndarray]:
    """Return a layer's own weights with the output channels first. Transposed convolutions store them second."""
    arrays = [weight.detach().numpy() for weight in module.parameters(recurse=False) if weight.ndim > 1]
    if getattr(module, "transposed", False):
        arrays = [array.swapaxes(0, 1) for array in arrays]
    return [array.reshape(len(array), -1) for array in arrays]


def _same_weights(weight: np.ndarray, constant: np.ndarray) -> bool:
    if weight.shape != constant.shape:
        return False
    one, other = (np.sort(np.abs(array.astype(np.float64)), axis=1) for array in (weight, constant))
    lengths = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    alive = (lengths[0] > 0) & (lengths[1] > 0)  # channels of zeros cannot be compared
    one, other = one[alive] / lengths[0][alive, None], other[alive] / lengths[1][alive, None]
    return bool(alive.any() and np.allclose(one, other, rtol=0, atol=EQUAL))


Row = TypeVar("Row")


def rows_or_none(what: str, read: Callable[[], Iterable[Row]]) -> tuple[Row, ...]:
    """Return the rows that `read` returns. If it fails, print a line to standard error and return an empty tuple."""
    try:
        return tuple(read())
    except Exception as error:  # parsers and interpreters raise any class of error
        print(f"{what} could not be read: {type(error).__name__}: {error}; the file is kept", file=sys.stderr)
        return ()
