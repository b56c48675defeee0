"""PyTorch programs saved by torch.export (.pt2), and the check of which parts of such an archive may be read."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.models.files.interface import (
    FileInput,
    OpenedModel,
    Run,
    Tensors,
    check_inputs_and_outputs,
    joined_input_shape,
)
from edgekit.models.files.task_outputs import ANY_OUTPUT, TaskOutputs
from edgekit.models.several_inputs import SeveralInputs
from edgekit.runner.errors import bounded_recursion

UNSUPPORTED_TARGETS: dict[str, str] = {}
"""Empty, because each target converts an exported program like any other PyTorch network."""


class Exported(nn.Module):
    """A program as a network. If it was exported for a fixed batch, larger batches are split.

    Several outputs are returned in the order that the task expects.
    """

    def __init__(self, program: torch.export.ExportedProgram, needed: TaskOutputs = ANY_OUTPUT) -> None:
        super().__init__()
        self.needed = needed
        self.inner = program.module(check_guards=False)
        self.batch = input_shape(program)[0]
        self.input_names = program.graph_signature.user_inputs

    def train(self, mode: bool = True) -> Exported:
        """Do nothing, because an exported program has only one mode."""
        return self

    def forward(self, *inputs: Tensor) -> Any:
        if self.batch < 0 or len(inputs[0]) == self.batch:
            return self._in_task_order(self.inner(*inputs))
        parts = zip(*(each.split(self.batch) for each in inputs), strict=True)
        outputs = [self._in_task_order(self.inner(*part)) for part in parts]
        if isinstance(outputs[0], Tensor):
            return torch.cat(outputs)
        return tuple(map(torch.cat, zip(*outputs, strict=True)))

    def _in_task_order(self, outputs: Any) -> Any:
        if isinstance(outputs, Tensor):
            return outputs
        tensors = list(outputs.values() if isinstance(outputs, Mapping) else outputs)
        order = self.needed.task_order([tuple(each.shape[1:]) for each in tensors])
        return tuple(tensors[index] for index in order) if len(order) > 1 else tensors[order[0]]


def network(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> nn.Module:
    """Return the program at `path` as a network; with several inputs, it is wrapped to take samples (N, width).

    Raises ModelError if the file may run code, or its inputs are not the samples' tensors.
    """
    program = Exported(read(path, tensors, needed), needed)
    return SeveralInputs(program, tensors) if tensors else program


def is_quantized(path: Path) -> bool:
    """Return False, because an exported program computes in floats."""
    return False


def open(path: Path, threads: int, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> OpenedModel:
    """Open the program at `path`, to be run by PyTorch on the CPU."""
    if threads:
        torch.set_num_threads(threads)
    module = network(path, tensors, needed)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            outputs = module(torch.from_numpy(np.ascontiguousarray(x)))
            parts = [outputs] if isinstance(outputs, Tensor) else outputs
            return needed.join([each.numpy() for each in parts])

    def for_shape(shape: tuple[int, ...]) -> Run:
        return run  # the call itself raises if the shape does not fit

    program = read(path, tensors, needed)
    inputs = [FileInput(name, shape, "") for name, shape in input_shapes(program).items()]
    return OpenedModel(joined_input_shape(inputs, tensors), for_shape)


def read(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> torch.export.ExportedProgram:
    """Read the program without its example inputs; raise ModelError if the file may run code."""
    try:
        program = torch.export.load(plain_archive(path))
    except ModelError:
        raise
    except Exception as error:  # PyTorch's readers raise any class of error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{path}: cannot be opened: {reason}; export it again with this PyTorch") from None
    signature = program.graph_signature
    check_inputs_and_outputs(signature.user_inputs, len(signature.user_outputs), tensors, needed.max_outputs)
    graphs = [each.graph for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    if any(_trains(node) for graph in graphs for node in graph.nodes):
        raise ModelError(
            f"{path}: was exported in training mode, so its answers are random; export it after model.eval()"
        )
    return program


def _trains(node: torch.fx.Node) -> bool:
    """Return whether a node is an active dropout, or a norm that takes its statistics from the batch."""
    schema = getattr(node.target, "_schema", None)
    arguments = dict(zip([each.name for each in schema.arguments], node.args, strict=False)) if schema else {}
    arguments |= node.kwargs
    training = arguments.get("train", arguments.get("training")) is True
    if "dropout_p" in arguments:  # the argument of attention
        return arguments["dropout_p"] != 0
    # the arguments of recurrent layers, and of dropouts
    probability = arguments.get("dropout", arguments.get("p", 1.0))
    return training and probability != 0 and arguments.get("running_mean", node) is not None


def input_shape(program: torch.export.ExportedProgram) -> tuple[int, ...]:
    """Return the shape of the first input, the batch first; an open dimension is -1."""
    return next(iter(input_shapes(program).values()))


def input_shapes(program: torch.export.ExportedProgram) -> dict[str, tuple[int, ...]]:
    """Return the shape of every input, by name, in the program's own order; an open dimension is -1."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    return {
        name: tuple(side if isinstance(side, int) else -1 for side in values[name].shape)
        for name in program.graph_signature.user_inputs
    }


EXAMPLES = "data/sample_inputs/"
PAYLOADS = re.compile(r"data/(weights|constants)/\w+_config\.json")
GRAPH = re.compile(r"models/\w+\.json")
PLAIN = re.compile(
    r"archive_format|archive_version|byteorder|version|\.\w+(/\w+)?|extra/.*"
    rf"|data/(weights/weight|constants/tensor)_\d+|{PAYLOADS.pattern}|{GRAPH.pattern}"
)
"""Members of an archive that may be read: its version files, notes, tensors, lists of tensors, and graphs."""
TENSOR = re.compile(r"(weight|tensor)_\d+")
DUNDERS = "__i?(and|or|xor|lshift|rshift)__"
NUMBERS = "add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|lshift|rshift|getitem"
FILES = "from_file|save"
"""All operators of aten in PyTorch 2.13 that take a file's name, and could therefore read or write any file."""
OPERATOR = re.compile(
    rf"torch\.ops\.(aten|prims|quantized|quantized_decomposed)\.(?:(?!\w*__|(?:{FILES})(?:\.|$))\w+|{DUNDERS})"
    r"(\.(?!\w*__)\w+)?"
    rf"|torch\.ops\.higher_order\.(?!\w*__)\w+|torch\.sym_\w+|math\.(trunc|floor|ceil)|_operator\.({NUMBERS})"
)
NAME = re.compile(r"[\w.]*")
PATH = re.compile(r"[\w. /-]*")
"""The path of a weight in its network. A part that is not an identifier is quoted in the generated code."""
PATHS = ("parameter_name", "buffer_name", "tensor_constant_name")
STRUCTURES = (None, "builtins.tuple", "builtins.list", "builtins.dict")
NAMES = (
    "Symbol|Integer|Float|Rational|Add|Mul|Pow|Max|Min|Abs|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv|ModularIndexing|Where"
    "|Identity|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality|(?:Strict)?(?:Less|Greater)Than|And|Or|Not|LShift|RShift"
    "|PowByNatural|FloatPow|IntTrueDiv|FloatTrueDiv|(?:Trunc|Ceil|Floor|Round)To(?:Int|Float)|RoundDecimal|ToFloat"
    "|IsNonOverlappingAndDenseIndicator|floor|ceiling|positive|negative|nonnegative|nonzero|integer|real|finite|precision"
    "|True|False"
)
SIZE = re.compile(
    rf"(?:(?:[su]\d+|zu?f\d+|{NAMES})(?!\w)|'[a-z]+\d+'|'\d+(?:\.\d*)?'|\d+(?:\.\d*)?(?!\w)|[-+*/%(),<>=!&|~ ])*",
)
"""An expression over open dimensions, for example "Mul(Integer(2), Symbol('s0', integer=True))".

Names that `NAMES` does not list are not allowed, and neither are attributes.
"""


@bounded_recursion()
def plain_archive(path: Path) -> io.BytesIO:
    """Return the archive without its example inputs and guards.

    torch.export.load unpickles example inputs, older weights and custom objects, loads compiled libraries, calls
    any function that a graph names in PyTorch's modules, evaluates sizes and guards as Python, imports the classes in
    the structure of a call, and writes names into code. Therefore example inputs and guards are removed, and only
    tensors, PyTorch's operators, arithmetic on sizes, plain names, and tuples, lists and dicts of tensors are accepted.
    Even so, PyTorch turns the graph into Python code in the end. Its own advice therefore still holds: from untrusted
    sources, accept only ONNX or TFLite.

    Raises
    ------
    ModelError
        The archive holds something that may run code. The message names it.
    """
    copied = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copied, "w") as copy:
        for name in archive.namelist():
            inside = name.partition("/")[2]
            content = b"" if inside.startswith(EXAMPLES) else archive.read(name)
            if reason := "" if inside.startswith(EXAMPLES) else _fault(inside, content):
                raise ModelError(
                    f"{path}: {reason}; such a file may run code when it is opened: export the network again, with "
                    "plain tensors, on the CPU"
                )
            copy.writestr(name, _without_guards(content) if GRAPH.fullmatch(inside) else content)
    copied.seek(0)
    return copied


def _fault(inside: str, content: bytes) -> str:
    """Describe why a member may not be read; empty if it may."""
    if not PLAIN.fullmatch(inside):
        return f"holds {inside!r}, which is neither a tensor nor a graph"
    if PAYLOADS.fullmatch(inside):
        pickled = [name for name, stored in json.loads(content)["config"].items() if not _is_tensor(stored)]
        return f"stores {', '.join(pickled[:3])} as a pickle" if pickled else ""
    if GRAPH.fullmatch(inside):
        return next(_graph_faults(json.loads(content)), "")
    return ""


def _without_guards(content: bytes) -> bytes:
    """Return a graph without its guards, which check inputs by running code."""
    return json.dumps({**json.loads(content), "guards_code": []}).encode()


def _is_tensor(stored: dict[str, Any]) -> bool:
    return not stored.get("use_pickle") and bool(TENSOR.fullmatch(stored["path_name"]))


def _graph_faults(part: Any) -> Iterator[str]:
    """Describe everything in a part of a graph that would become code other than PyTorch's operators."""
    if isinstance(part, list):
        for each in part:
            yield from _graph_faults(each)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key == "forward_arg_names":
                yield from (_name_fault(each) for each in value or () if not str(each).isidentifier())
            elif isinstance(value, str):
                yield from _string_faults(key, value)
            else:
                yield from _graph_faults(value)


def _string_faults(key: str, value: str) -> Iterator[str]:
    if key in ("target", "as_operator") and not OPERATOR.fullmatch(value):
        yield f"calls {value[:80]!r}, which is not an operator of PyTorch"
    elif key == "expr_str" and not SIZE.fullmatch(value):
        yield f"has a size of {value[:80]!r}, which is not arithmetic"
    elif (key == "name" or key.endswith("_name")) and not (PATH if key in PATHS else NAME).fullmatch(value):
        yield _name_fault(value)
    elif key in ("in_spec", "out_spec") and not _is_plain(json.loads(value)[1]):
        yield f"is called with other things than tensors in tuples, lists and dicts ({key})"


def _name_fault(value: Any) -> str:
    return f"has a name of {str(value)[:80]!r}, which is not valid"


def _is_plain(structure: dict[str, Any]) -> bool:
    """Return whether a structure consists of tuples, lists and dicts only, the dicts with plain names for keys."""
    if structure["type"] not in STRUCTURES:
        return False
    names = json.loads(structure["context"] or "null") or ()
    plain = all(isinstance(name, str) and name.isidentifier() for name in names)
    return plain and all(_is_plain(child) for child in structure["children_spec"])
