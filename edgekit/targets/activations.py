"""Every tensor that a PyTorch network computes for given inputs, with the layer that made it and what it took in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from edgekit.models.eager import single_thread

INPUT = "input"
PARTING = {"split", "split_with_sizes", "chunk", "unbind"}
"""What gives several tensors that all go on; of others the first is the result."""


@dataclass(frozen=True, eq=False)
class Node:
    """`layer` is the module at work, `stem.0`; where a parent's own code computes, `blocks.1.forward (add)`.

    `inputs` are places in the list that `record` gives.
    """

    layer: str
    operator: str
    inputs: tuple[int, ...]
    values: np.ndarray


def record(module: nn.Module, inputs: np.ndarray) -> list[Node]:
    """In the order of execution, the input first; `inputs` (n, …) go through as one batch, `values` are (n, …)."""
    x = torch.from_numpy(inputs)
    recorder = _Recorder(x)
    with single_thread(), torch.no_grad(), _followed(module, recorder), recorder:
        module(x)
    return recorder.nodes


class _Recorder(TorchDispatchMode):
    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.nodes = [Node("", INPUT, (), x.numpy())]
        self.running: list[str] = []
        self._places = {id(x): 0}
        self._alive = [x]  # or an id would come back as another tensor's

    def enter(self, title: str, *_: Any) -> None:
        """Before a module's own forward; a hook must return None."""
        self.running.append(title)

    def leave(self, *_: Any) -> None:
        """After it."""
        self.running.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [one for part in args for one in (part if isinstance(part, (tuple, list)) else (part,))]
        taken = [self._places[id(one)] for one in given if isinstance(one, torch.Tensor) and id(one) in self._places]
        operator = func.overloadpacket.__name__.strip("_")
        several = isinstance(result, (tuple, list))
        made = (result if operator in PARTING else result[:1]) if several else (result,)
        for one in made:
            if not taken or not isinstance(one, torch.Tensor) or not one.ndim:
                continue
            self._alive.append(one)
            if not one.is_floating_point():
                self._places[id(one)] = taken[0]  # a mask of it, or whole numbers: what is made of these comes from it
            else:
                self._places[id(one)] = len(self.nodes)
                layer = f"{self.running[-1]} ({operator})" if self.running[-1].endswith("forward") else self.running[-1]
                self.nodes.append(Node(layer, operator, tuple(taken), one.detach().float().numpy().copy()))
        return result


@contextmanager
def _followed(module: nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Hooks that tell the recorder which module runs."""
    handles = []
    for name, part in module.named_modules():
        leaf = name and next(part.children(), None) is None
        title = name if leaf else f"{name}.forward".lstrip(".")
        handles.append(part.register_forward_pre_hook(partial(recorder.enter, title)))
        handles.append(part.register_forward_hook(recorder.leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
