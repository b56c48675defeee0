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
LARGEST = 2**24


def width(shapes: Sequence[Sequence[int]]) -> int:
    """How many numbers tensors of these shapes, without a batch, have together."""
    return sum(map(prod, shapes))


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


def of_names(given: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """One raw sample (width,) of arrays by name; `tensors` are those of the bundle's `raw`.

    A tensor of floats takes floats of any width, one of whole numbers takes whole numbers of any width.

    Raises
    ------
    InputError
        A name, a shape or a type is another.
    """
    import numpy as np

    names = [each["name"] for each in tensors]
    unknown, missing = sorted(set(map(str, given)) - set(names)), [name for name in names if name not in given]
    if unknown or missing:
        raise InputError(f"tensors: got {', '.join(sorted(map(str, given))) or 'none'}; give {', '.join(names)}")
    found = []
    for tensor in tensors:
        array = np.asarray(given[tensor["name"]])
        kinds = "f" if tensor["dtype"] == "float32" else "iu"
        if array.shape != tuple(tensor["shape"]) or array.dtype.kind not in kinds:
            got, wanted = f"{array.dtype}{list(array.shape)}", f"{tensor['dtype']}{list(tensor['shape'])}"
            raise InputError(f"tensor {tensor['name']}: got {got}; the bundle takes {wanted}")
        if kinds == "iu" and array.size and not -LARGEST <= int(array.min()) <= int(array.max()) <= LARGEST:
            raise InputError(f"tensor {tensor['name']}: holds numbers beyond {LARGEST}, which no bundle takes")
        with np.errstate(over="ignore"):  # a double too large becomes infinite, which the model refuses
            found.append(array.reshape(-1).astype(np.float32))
    return np.concatenate(found)


def check_values(raw: np.ndarray, tensors: Sequence[Mapping[str, Any]]) -> None:
    """InputError where a tensor of the finite sample (width,) is out of its range, or should be whole and is not."""
    import numpy as np

    for tensor, part in zip(tensors, split(raw[None], [each["shape"] for each in tensors])):
        limits, name = tensor["range"], tensor["name"]
        if tensor["dtype"] != "float32" and (part != np.rint(part)).any():
            raise InputError(f"sample: tensor {name}: holds fractions; the bundle takes whole numbers there")
        if limits is not None and not (limits[0] <= part.min() and part.max() <= limits[1]):
            raise InputError(
                f"sample: tensor {name}: values from {part.min():.6g} to {part.max():.6g}; the bundle takes "
                f"{limits[0]:g} to {limits[1]:g}, make the tensor as the training data were"
            )
