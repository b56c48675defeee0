"""PyTorch programs that torch.export saved, .pt2. Nothing in them is unpickled.

torch.export.load unpickles the example inputs that the archive holds, so they are taken out first; tensors and objects
that are stored as pickles are refused.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.errors import ModelError
from edgekit.sources.opened import Opened, Run, one_each

NOT: dict[str, str] = {}
"""A PyTorch network like any other: each target converts it by itself."""
EXAMPLES = "/data/sample_inputs/"
STORED = "_config.json"
"""How the names of the lists of weights and constants end."""


class Exported(nn.Module):
    """A program as a network: one that was exported for a batch of one takes more, one after another."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.inner = program.module(check_guards=False)
        self.batch = input_shape(program)[0]

    def train(self, mode: bool = True) -> Exported:
        """Nothing: an exported program has one mode."""
        return self

    def forward(self, x: Tensor) -> Any:
        if self.batch < 0 or len(x) == self.batch:
            return self.inner(x)
        return torch.cat([self.inner(part) for part in x.split(self.batch)])


def network(path: Path) -> nn.Module:
    """The program at `path`; ModelError for one that holds pickles, or not one input and one output."""
    return Exported(read(path))


def open(path: Path, threads: int) -> Opened:
    """The program at `path`, run by PyTorch on the CPU."""
    if threads:
        torch.set_num_threads(threads)
    module = network(path)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            y: np.ndarray = module(torch.from_numpy(np.ascontiguousarray(x))).numpy()
            return y

    def sized(shape: tuple[int, ...]) -> Run:
        return run  # it refuses what it cannot take when it is called

    return Opened(input_shape(read(path)), sized)


def read(path: Path) -> torch.export.ExportedProgram:
    """The program, its example inputs left out."""
    try:
        program = torch.export.load(_without_pickles(path))
    except ModelError:
        raise
    except Exception as error:  # torch's readers raise whatever they meet
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{path}: cannot be opened: {reason}; export it again with this PyTorch") from None
    signature = program.graph_signature
    one_each(len(signature.user_inputs), len(signature.user_outputs))
    return program


def input_shape(program: torch.export.ExportedProgram) -> tuple[int, ...]:
    """Of its one input, the batch first; an open side is -1."""
    name = program.graph_signature.user_inputs[0]
    value = next(node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name == name)
    return tuple(side if isinstance(side, int) else -1 for side in value.shape)


def _without_pickles(path: Path) -> io.BytesIO:
    kept = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(kept, "w") as copy:
        for name in archive.namelist():
            content = b"" if EXAMPLES in f"/{name}" else archive.read(name)
            if name.endswith(STORED) and (pickled := _pickled(content)):
                raise ModelError(
                    f"{path}: stores {', '.join(pickled[:3])} as a pickle, and unpickling runs whatever code it holds; "
                    "export the network with plain tensors, on the CPU"
                )
            copy.writestr(name, content)
    kept.seek(0)
    return kept


def _pickled(content: bytes) -> list[str]:
    return [name for name, stored in json.loads(content)["config"].items() if stored.get("use_pickle")]
