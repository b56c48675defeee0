"""Several inputs of a model as one vector, so that code that stores, sends or compares samples handles a single array.

The tensors are flattened and concatenated as float32. That is exact for whole numbers from `-LARGEST_EXACT_INTEGER` to
`LARGEST_EXACT_INTEGER`. For every tensor of integers, the manifest must therefore state a range within these limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

KIND = "tensors"
"""The kind of raw sample that consists of several tensors."""
DTYPES = ("float32", "uint8", "int8", "int32", "int64")
"""Dtypes that a tensor of a sample may have."""
LARGEST_EXACT_INTEGER = 2**24
INTEGER_LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}
"""Limits of the integer dtypes whose values never exceed `LARGEST_EXACT_INTEGER`."""
LARGEST_FLOAT = 3.4028234663852886e38
"""The largest float32."""
MAX_NAMES_SHOWN = 8
"""How many names a message lists."""


def width(shapes: Sequence[Sequence[int]]) -> int:
    """Return the total number of values in tensors of these shapes, which have no batch axis."""
    return sum(map(prod, shapes))


def describe(tensor: Mapping[str, Any]) -> str:
    """Describe one of the bundle's tensors: name, dtype, shape and range."""
    limits = " from {} to {}".format(*tensor["range"]) if tensor["range"] else ""
    return f"{tensor['name']} {tensor['dtype']}{list(tensor['shape'])}{limits}"


def join(tensors: Sequence[np.ndarray]) -> np.ndarray:
    """Join tensors (batch, …) into one array (batch, width) float32."""
    import numpy as np

    return np.concatenate([each.reshape(len(each), -1).astype(np.float32, copy=False) for each in tensors], axis=1)


def split(x: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Split `x` (batch, width) into the tensors that were joined in it.

    `shapes` are without a batch axis. The results are float32 views.
    """
    tensors, start = [], 0
    for shape in shapes:
        size = prod(shape)
        tensors.append(x[:, start : start + size].reshape(len(x), *shape))
        start += size
    return tensors


def as_vector(sample: Any, tensors: Sequence[Mapping[str, Any]] | None) -> np.ndarray:
    """Return a raw sample as one array: joined if it is a mapping of several tensors, otherwise unchanged."""
    vector: np.ndarray = join_named(sample, tensors) if tensors and isinstance(sample, Mapping) else sample
    return vector


def join_named(arrays: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Join arrays by name into one raw sample (width,).

    `tensors`, which is `raw.tensors` in the bundle's manifest, describes the arrays. A float tensor accepts any
    float dtype, an integer tensor any integer dtype.

    Raises
    ------
    InputError
        A name, shape or dtype differs from the bundle's.
    """
    import numpy as np

    check_names(list(arrays), tensors)
    return np.concatenate([_flat(arrays[tensor["name"]], tensor) for tensor in tensors])


def check_names(sample_names: Sequence[Any], tensors: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError unless `sample_names` are the tensors' names, each exactly once."""
    names = [each["name"] for each in tensors]
    if len(sample_names) == len(names) and set(sample_names) == set(names):
        return
    printable = [
        each if isinstance(each, str) and each.isprintable() else ascii(each) for each in sample_names[:MAX_NAMES_SHOWN]
    ]
    more = f" and {len(sample_names) - MAX_NAMES_SHOWN} more" if len(sample_names) > MAX_NAMES_SHOWN else ""
    raise InputError(
        f"tensors: got {', '.join(each[:80] for each in printable) or 'none'}{more}; give {', '.join(names)}"
    )


def check_type(tensor: Mapping[str, Any], shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise InputError unless an array of this shape and dtype can become the tensor."""
    kinds = "f" if tensor["dtype"] == "float32" else "iu"
    if shape != tuple(tensor["shape"]) or dtype.kind not in kinds:
        got, expected = f"{str(dtype)[:80]}{list(shape)}", f"{tensor['dtype']}{list(tensor['shape'])}"
        raise InputError(f"tensor {tensor['name']}: got {got}; the bundle takes {expected}")


def _flat(value: Any, tensor: Mapping[str, Any]) -> np.ndarray:
    import numpy as np

    name = tensor["name"]
    if isinstance(value, np.ma.MaskedArray):  # np.asarray drops the mask, so masked values would count as valid
        raise InputError(f"tensor {name}: got a masked array; fill it, and give a plain one")
    try:
        array = np.asarray(value)
    except Exception as error:  # raised for rows of different length, and for tensors of other libraries
        raise InputError(f"tensor {name}: got {type(value).__name__}, which is not an array: {_line(error)}") from None
    check_type(tensor, array.shape, array.dtype)
    if (
        array.dtype.kind in "iu"
        and not -LARGEST_EXACT_INTEGER <= int(array.min()) <= int(array.max()) <= LARGEST_EXACT_INTEGER
    ):
        raise InputError(f"tensor {name}: holds numbers beyond {LARGEST_EXACT_INTEGER}, which no bundle accepts")
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, which the model refuses
        return array.reshape(-1).astype(np.float32)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def check_values(raw: np.ndarray, tensors: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError if a tensor of the sample (width,) is out of range, or has fractions but must be whole."""
    import numpy as np

    for tensor, part in zip(tensors, split(raw[None], [each["shape"] for each in tensors])):
        name = tensor["name"]
        if tensor["dtype"] != "float32" and (part != np.rint(part)).any():
            raise InputError(f"sample: tensor {name}: holds fractions, but the bundle takes whole numbers there")
        if tensor["range"] is None:
            continue
        limits = np.array(tensor["range"], np.float32)
        if not (limits[0] <= part.min() and part.max() <= limits[1]):
            low, high, lowest, highest = (
                format(each, ".6g" if tensor["dtype"] == "float32" else ".0f")
                for each in (part.min(), part.max(), *limits)
            )
            raise InputError(
                f"sample: tensor {name}: values from {low} to {high}; the bundle takes {lowest} to {highest}; "
                "prepare the tensor like the training data"
            )
