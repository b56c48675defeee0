"""A model of several inputs behind the protocol: named tensors (n, …) become samples (n, width), none of them rounded.

As on Triton, a body of bytes alone is refused: it does not say which of them belong to which tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.input_vector import join
from edgekit.serve.body import Body
from edgekit.serve.errors import RequestError
from edgekit.serve.wire import NAMES, Input, Taken, as_object, show

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec


def taken(raw: RawSpec) -> Taken:
    """What a model of such samples takes."""
    if raw.tensors is None:
        return Input(raw.kind, NAMES[raw.dtype], raw.shape)
    inputs = [Input(each["name"], NAMES[each["dtype"]], tuple(each["shape"])) for each in raw.tensors]
    return Several(inputs, [each["range"] for each in raw.tensors])


class Several:
    """Two inputs or more, in the model's order; those of whole numbers with their [lowest, highest]."""

    def __init__(self, inputs: Sequence[Input], ranges: Sequence[Sequence[float] | None]) -> None:
        self.inputs = tuple(inputs)
        self._ranges = tuple(ranges)
        self._places = {each.name: place for place, each in enumerate(inputs)}
        self._names = ", ".join(repr(each.name) for each in inputs)
        self._wanted = f"the model takes {len(inputs)} inputs, {self._names}"

    def describe(self) -> str:
        """See `Taken`."""
        return ", ".join(f"{each.name} {each.describe()}" for each in self.inputs)

    def of_bytes(self, body: Body) -> np.ndarray:
        """See `Taken`: RequestError (400)."""
        raise RequestError(400, f"body: got {len(body)} bytes alone; {self._wanted}: name them in a JSON header")

    def of_tensors(self, tensors: Any, rest: memoryview) -> tuple[np.ndarray, int]:
        """See `Taken`."""
        if not isinstance(tensors, list):
            raise RequestError(400, f"inputs: got {show(tensors)}; {self._wanted}")
        if len(tensors) != len(self.inputs):
            names = [each.get("name") for each in tensors[: len(self.inputs) + 1] if isinstance(each, dict)]
            raise RequestError(
                400, f"inputs: got {len(tensors)}, {', '.join(map(show, names)) or 'none'}; {self._wanted}"
            )
        found: list[np.ndarray | None] = [None] * len(self.inputs)
        used = count = 0
        for number, each in enumerate(tensors):
            where = f"inputs[{number}]"
            tensor = as_object(each, where)
            place = self._place(tensor.get("name"), where)
            if found[place] is not None:
                raise RequestError(
                    400, f"{where}.name: got {show(tensor['name'])} once more; give each once: {self._names}"
                )
            values, size = self.inputs[place].read(tensor, rest, where, used)
            if number and len(values) != count:
                raise RequestError(
                    400, f"{where}.shape: got {len(values)} samples; inputs[0] has {count}, give as many"
                )
            self._check_whole(values, place, where)
            found[place], used, count = values, used + size, len(values)
        return join([each for each in found if each is not None]), used

    def _place(self, name: Any, where: str) -> int:
        place = self._places.get(name) if isinstance(name, str) else None
        if place is None:
            raise RequestError(400, f"{where}.name: got {show(name)}; use one of {self._names}")
        return place

    def _check_whole(self, values: np.ndarray, place: int, where: str) -> None:
        """Before they become float32, which would round large ones."""
        limits = self._ranges[place]
        if values.dtype.kind == "f" or limits is None:
            return
        low, high = int(values.min()), int(values.max())
        if low < limits[0] or high > limits[1]:
            raise RequestError(
                400,
                f"{where}: {show(self.inputs[place].name)} has values from {low} to {high}; "
                f"the bundle takes {limits[0]} to {limits[1]}",
            )
