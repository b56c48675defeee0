"""PyTorch programs that torch.export saved, .pt2; `pt2` says what of them is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.models.files import pt2
from edgekit.models.files.interface import Opened, Run, Taken, Tensors, check_ends, shape_of
from edgekit.models.files.wanted import ANY, Wanted
from edgekit.models.several_inputs import SeveralInputs

NOT: dict[str, str] = {}
"""A PyTorch network like any other: each target converts it by itself."""


class Exported(nn.Module):
    """A program as a network: one that was exported for a batch of one takes more, one after another.

    Several outputs come in the order of their task.
    """

    def __init__(self, program: torch.export.ExportedProgram, wanted: Wanted = ANY) -> None:
        super().__init__()
        self.wanted = wanted
        self.inner = program.module(check_guards=False)
        self.batch = input_shape(program)[0]
        self.input_names = program.graph_signature.user_inputs

    def train(self, mode: bool = True) -> Exported:
        """Nothing: an exported program has one mode."""
        return self

    def forward(self, *given: Tensor) -> Any:
        if self.batch < 0 or len(given[0]) == self.batch:
            return self._ordered(self.inner(*given))
        parts = zip(*(each.split(self.batch) for each in given), strict=True)
        found = [self._ordered(self.inner(*part)) for part in parts]
        return torch.cat(found) if isinstance(found[0], Tensor) else tuple(map(torch.cat, zip(*found, strict=True)))

    def _ordered(self, found: Any) -> Any:
        if isinstance(found, Tensor):
            return found
        tensors = list(found.values() if isinstance(found, Mapping) else found)
        places = self.wanted.places([tuple(each.shape[1:]) for each in tensors])
        return tuple(tensors[place] for place in places) if len(places) > 1 else tensors[places[0]]


def network(path: Path, tensors: Tensors = (), wanted: Wanted = ANY) -> nn.Module:
    """The program at `path`; ModelError for one that holds pickles, or other inputs than the samples' tensors.

    Of several inputs it is wrapped, so that it takes samples (N, width).
    """
    found = Exported(read(path, tensors, wanted), wanted)
    return SeveralInputs(found, tensors) if tensors else found


def quantized(path: Path) -> bool:
    """Never: its arithmetic is on floats."""
    return False


def open(path: Path, threads: int, tensors: Tensors = (), wanted: Wanted = ANY) -> Opened:
    """The program at `path`, run by PyTorch on the CPU."""
    if threads:
        torch.set_num_threads(threads)
    module = network(path, tensors, wanted)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found = module(torch.from_numpy(np.ascontiguousarray(x)))
            parts = [found] if isinstance(found, Tensor) else found
            return wanted.join([each.numpy() for each in parts])

    def sized(shape: tuple[int, ...]) -> Run:
        return run  # it refuses what it cannot take when it is called

    program = read(path, tensors, wanted)
    inputs = [Taken(name, shape, "") for name, shape in input_shapes(program).items()]
    return Opened(shape_of(inputs, tensors), sized)


def read(path: Path, tensors: Tensors = (), wanted: Wanted = ANY) -> torch.export.ExportedProgram:
    """The program, its example inputs left out; ModelError for one that may run code."""
    try:
        program = torch.export.load(pt2.plain(path))
    except ModelError:
        raise
    except Exception as error:  # torch's readers raise whatever they meet
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{path}: cannot be opened: {reason}; export it again with this PyTorch") from None
    signature = program.graph_signature
    check_ends(signature.user_inputs, len(signature.user_outputs), tensors, wanted.most)
    graphs = [each.graph for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    if any(_trains(node) for graph in graphs for node in graph.nodes):
        raise ModelError(f"{path}: was exported while training, and answers by chance; export it after model.eval()")
    return program


def _trains(node: torch.fx.Node) -> bool:
    """Whether it is a dropout that drops, or a norm that takes its statistics from the batch and keeps others."""
    schema = getattr(node.target, "_schema", None)
    given = dict(zip([each.name for each in schema.arguments], node.args, strict=False)) if schema else {}
    given |= node.kwargs
    training = given.get("train", given.get("training")) is True
    if "dropout_p" in given:  # attention's
        return given["dropout_p"] != 0
    share = given.get("dropout", given.get("p", 1.0))  # of recurrent layers, of dropouts; others have none
    return training and share != 0 and given.get("running_mean", node) is not None


def input_shape(program: torch.export.ExportedProgram) -> tuple[int, ...]:
    """Of its one input, or the first, the batch first; an open side is -1."""
    return next(iter(input_shapes(program).values()))


def input_shapes(program: torch.export.ExportedProgram) -> dict[str, tuple[int, ...]]:
    """Of every input, by its name, in the program's own order."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    return {
        name: tuple(side if isinstance(side, int) else -1 for side in values[name].shape)
        for name in program.graph_signature.user_inputs
    }
