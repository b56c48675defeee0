"""Several inputs of a model as one vector, so that whatever stores, sends or compares samples sees one array.

Each tensor is flattened, and they stand one behind the other as float32. Whole numbers are exact up to `LARGEST`, so a
tensor of integers has a range that ends there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

KIND = "tensors"
"""What a raw sample of several tensors is called."""
DTYPES = ("float32", "uint8", "int8", "int32", "int64")
"""Types that a tensor of a sample may have."""
LARGEST_EXACT_INTEGER = 2**24
INTEGER_LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}
"""Of types that hold less than that."""
LARGEST_FLOAT = 3.4028234663852886e38
"""Of float32."""
MAX_NAMES_SHOWN = 8
"""Of a message."""


def width(shapes: Sequence[Sequence[int]]) -> int:
    """How many numbers tensors of these shapes, without a batch, have together."""
    return sum(map(prod, shapes))


def describe(tensor: Mapping[str, Any]) -> str:
    """One of the bundle's tensors in words: name, type, shape and range."""
    limits = " from {} to {}".format(*tensor["range"]) if tensor["range"] else ""
    return f"{tensor['name']} {tensor['dtype']}{list(tensor['shape'])}{limits}"


def join(tensors: Sequence[np.ndarray]) -> np.ndarray:
    """Tensors (batch, …) as one array (batch, width), float32."""
    import numpy as np

    return np.concatenate([each.reshape(len(each), -1).astype(np.float32, copy=False) for each in tensors], axis=1)


def split(x: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """The tensors, of these shapes without a batch, that were joined in `x` (batch, width); float32, views."""
    found, place = [], 0
    for shape in shapes:
        size = prod(shape)
        found.append(x[:, place : place + size].reshape(len(x), *shape))
        place += size
    return found


def as_vector(given: Any, tensors: Sequence[Mapping[str, Any]] | None) -> np.ndarray:
    """A raw sample, of arrays by name where it has several tensors; anything else as it is, for its check."""
    found: np.ndarray = join_named(given, tensors) if tensors and isinstance(given, Mapping) else given
    return found


def join_named(given: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """One raw sample (width,) of arrays by name; `tensors` are those of the bundle's `raw`.

    A tensor of floats takes floats of any width, one of whole numbers takes whole numbers of any width.

    Raises
    ------
    InputError
        A name, a shape or a type is another.
    """
    import numpy as np

    check_names(list(given), tensors)
    return np.concatenate([_flat(given[tensor["name"]], tensor) for tensor in tensors])


def check_names(given: Sequence[Any], tensors: Sequence[Mapping[str, Any]]) -> None:
    """InputError unless these are the tensors' names, each once."""
    names = [each["name"] for each in tensors]
    if len(given) == len(names) and set(given) == set(names):
        return
    shown = [each if isinstance(each, str) and each.isprintable() else ascii(each) for each in given[:MAX_NAMES_SHOWN]]
    more = f" and {len(given) - MAX_NAMES_SHOWN} more" if len(given) > MAX_NAMES_SHOWN else ""
    raise InputError(f"tensors: got {', '.join(each[:80] for each in shown) or 'none'}{more}; give {', '.join(names)}")


def check_type(tensor: Mapping[str, Any], shape: tuple[int, ...], dtype: np.dtype) -> None:
    """InputError unless an array of this shape and type may become the tensor."""
    kinds = "f" if tensor["dtype"] == "float32" else "iu"
    if shape != tuple(tensor["shape"]) or dtype.kind not in kinds:
        got, wanted = f"{str(dtype)[:80]}{list(shape)}", f"{tensor['dtype']}{list(tensor['shape'])}"
        raise InputError(f"tensor {tensor['name']}: got {got}; the bundle takes {wanted}")


def _flat(given: Any, tensor: Mapping[str, Any]) -> np.ndarray:
    import numpy as np

    name = tensor["name"]
    if isinstance(given, np.ma.MaskedArray):  # what the mask hides would be answered
        raise InputError(f"tensor {name}: got a masked array; fill it, and give a plain one")
    try:
        array = np.asarray(given)
    except Exception as error:  # of rows that differ in length, and of tensors of other libraries
        raise InputError(f"tensor {name}: got {type(given).__name__}, which is no array: {_line(error)}") from None
    check_type(tensor, array.shape, array.dtype)
    if (
        array.dtype.kind in "iu"
        and not -LARGEST_EXACT_INTEGER <= int(array.min()) <= int(array.max()) <= LARGEST_EXACT_INTEGER
    ):
        raise InputError(f"tensor {name}: holds numbers beyond {LARGEST_EXACT_INTEGER}, which no bundle takes")
    with np.errstate(over="ignore"):  # a double too large becomes infinite, which the model refuses
        return array.reshape(-1).astype(np.float32)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def check_values(raw: np.ndarray, tensors: Sequence[Mapping[str, Any]]) -> None:
    """InputError where a tensor of the finite sample (width,) is out of its range, or should be whole and is not."""
    import numpy as np

    for tensor, part in zip(tensors, split(raw[None], [each["shape"] for each in tensors])):
        name = tensor["name"]
        if tensor["dtype"] != "float32" and (part != np.rint(part)).any():
            raise InputError(f"sample: tensor {name}: holds fractions; the bundle takes whole numbers there")
        if tensor["range"] is None:
            continue
        limits = np.array(tensor["range"], np.float32)
        if not (limits[0] <= part.min() and part.max() <= limits[1]):
            low, high, least, most = (
                format(each, ".6g" if tensor["dtype"] == "float32" else ".0f")
                for each in (part.min(), part.max(), *limits)
            )
            raise InputError(
                f"sample: tensor {name}: values from {low} to {high}; the bundle takes {least} to {most}, "
                "make the tensor as the training data were"
            )
