"""The call that is timed for a model: what a device does with a prepared sample until it has the outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.backends import Backend

EXECUTED = "execute only (the model's own type in, float32 out)"
"""The description of the timed call in the `protocol` of a result."""


def timed_call(backend: Backend, x: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a function that does what `Model.execute` does: it takes the model's own dtype and returns float32.

    `x` is one input as `Backend.run` takes it: float32, or int32 token IDs. If the model takes another dtype, the
    conversion happens here and not in the timed call, because a device makes that dtype from the raw sample, often with
    a lookup table (`runner/input_encoding.py`). Several inputs come as one float32 vector, which the call splits and
    converts, as it does on a device.
    """
    invoke, encode, decode = backend.invoke, backend.encode, backend.decode
    encoded = x if encode is None else encode(x)
    if decode is None:
        return lambda: invoke(encoded)
    return lambda: decode(invoke(encoded))
