"""PyTorch programs that torch.export saved, .pt2, and which parts of such an archive may be read."""

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

NOT: dict[str, str] = {}
"""A PyTorch network like any other: each target converts it by itself."""


class Exported(nn.Module):
    """A program as a network: one that was exported for a batch of one takes more, one after another.

    Several outputs come in the order of their task.
    """

    def __init__(self, program: torch.export.ExportedProgram, needed: TaskOutputs = ANY_OUTPUT) -> None:
        super().__init__()
        self.needed = needed
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
        places = self.needed.places([tuple(each.shape[1:]) for each in tensors])
        return tuple(tensors[place] for place in places) if len(places) > 1 else tensors[places[0]]


def network(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> nn.Module:
    """The program at `path`; ModelError for one that holds pickles, or other inputs than the samples' tensors.

    Of several inputs it is wrapped, so that it takes samples (N, width).
    """
    found = Exported(read(path, tensors, needed), needed)
    return SeveralInputs(found, tensors) if tensors else found


def is_quantized(path: Path) -> bool:
    """Never: its arithmetic is on floats."""
    return False


def open(path: Path, threads: int, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> OpenedModel:
    """The program at `path`, run by PyTorch on the CPU."""
    if threads:
        torch.set_num_threads(threads)
    module = network(path, tensors, needed)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found = module(torch.from_numpy(np.ascontiguousarray(x)))
            parts = [found] if isinstance(found, Tensor) else found
            return needed.join([each.numpy() for each in parts])

    def sized(shape: tuple[int, ...]) -> Run:
        return run  # it refuses what it cannot take when it is called

    program = read(path, tensors, needed)
    inputs = [FileInput(name, shape, "") for name, shape in input_shapes(program).items()]
    return OpenedModel(joined_input_shape(inputs, tensors), sized)


def read(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> torch.export.ExportedProgram:
    """The program, its example inputs left out; ModelError for one that may run code."""
    try:
        program = torch.export.load(plain_archive(path))
    except ModelError:
        raise
    except Exception as error:  # torch's readers raise whatever they meet
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{path}: cannot be opened: {reason}; export it again with this PyTorch") from None
    signature = program.graph_signature
    check_inputs_and_outputs(signature.user_inputs, len(signature.user_outputs), tensors, needed.most)
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


EXAMPLES = "data/sample_inputs/"
PAYLOADS = re.compile(r"data/(weights|constants)/\w+_config\.json")
GRAPH = re.compile(r"models/\w+\.json")
PLAIN = re.compile(
    r"archive_format|archive_version|byteorder|version|\.\w+(/\w+)?|extra/.*"
    rf"|data/(weights/weight|constants/tensor)_\d+|{PAYLOADS.pattern}|{GRAPH.pattern}"
)
"""Members: the archive's own marks, notes, tensors, the lists of them, and graphs."""
TENSOR = re.compile(r"(weight|tensor)_\d+")
DUNDERS = "__i?(and|or|xor|lshift|rshift)__"
NUMBERS = "add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|lshift|rshift|getitem"
FILES = "from_file|save"
"""Operators that read or write any file there is: all those of aten in PyTorch 2.13 that take a file's name."""
OPERATOR = re.compile(
    rf"torch\.ops\.(aten|prims|quantized|quantized_decomposed)\.(?:(?!\w*__|(?:{FILES})(?:\.|$))\w+|{DUNDERS})"
    r"(\.(?!\w*__)\w+)?"
    rf"|torch\.ops\.higher_order\.(?!\w*__)\w+|torch\.sym_\w+|math\.(trunc|floor|ceil)|_operator\.({NUMBERS})"
)
NAME = re.compile(r"[\w.]*")
PATH = re.compile(r"[\w. /-]*")
"""Of a weight, in its network: what is no identifier there is quoted in the code."""
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
"""An expression over open sides, as "Mul(Integer(2), Symbol('s0', integer=True))": no other names, no attributes."""


@bounded_recursion()
def plain_archive(path: Path) -> io.BytesIO:
    """The archive without its example inputs; ModelError where it holds what may run code, naming it.

    torch.export.load unpickles example inputs, older weights and custom objects, loads compiled libraries, calls
    whatever function a graph names in PyTorch's modules, evaluates sizes and guards as Python, imports what the
    structure of a call is made of, and writes names into code. So example inputs and guards are removed. Accepted are
    tensors, PyTorch's operators, arithmetic on sizes, plain names, and tuples, lists and dicts of tensors. Everything
    else is refused. PyTorch's own advice still holds, for the graph becomes Python code in the end. From untrusted
    sources, accept only ONNX or TFLite.
    """
    kept = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(kept, "w") as copy:
        for name in archive.namelist():
            inside = name.partition("/")[2]
            content = b"" if inside.startswith(EXAMPLES) else archive.read(name)
            if reason := "" if inside.startswith(EXAMPLES) else _fault(inside, content):
                raise ModelError(
                    f"{path}: {reason}; such a file may run code when it is opened: export the network again, with "
                    "plain tensors, on the CPU"
                )
            copy.writestr(name, _unguarded(content) if GRAPH.fullmatch(inside) else content)
    kept.seek(0)
    return kept


def _fault(inside: str, content: bytes) -> str:
    """What stands in the way of a member, in words; empty where nothing does."""
    if not PLAIN.fullmatch(inside):
        return f"holds {inside!r}, which is neither a tensor nor a graph"
    if PAYLOADS.fullmatch(inside):
        pickled = [name for name, stored in json.loads(content)["config"].items() if not _is_tensor(stored)]
        return f"stores {', '.join(pickled[:3])} as a pickle" if pickled else ""
    if GRAPH.fullmatch(inside):
        return next(_strange(json.loads(content)), "")
    return ""


def _unguarded(content: bytes) -> bytes:
    """A graph without what its author's PyTorch would check of an input by running code."""
    return json.dumps({**json.loads(content), "guards_code": []}).encode()


def _is_tensor(stored: dict[str, Any]) -> bool:
    return not stored.get("use_pickle") and bool(TENSOR.fullmatch(stored["path_name"]))


def _strange(part: Any) -> Iterator[str]:
    """What of a graph would become code that is none of PyTorch's operators, in words, anywhere in it."""
    if isinstance(part, list):
        for each in part:
            yield from _strange(each)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key == "forward_arg_names":
                yield from (_no_name(each) for each in value or () if not str(each).isidentifier())
            elif isinstance(value, str):
                yield from _strange_words(key, value)
            else:
                yield from _strange(value)


def _strange_words(key: str, value: str) -> Iterator[str]:
    if key in ("target", "as_operator") and not OPERATOR.fullmatch(value):
        yield f"calls {value[:80]!r}, which is no operator of PyTorch's"
    elif key == "expr_str" and not SIZE.fullmatch(value):
        yield f"has a size of {value[:80]!r}, which is no arithmetic"
    elif (key == "name" or key.endswith("_name")) and not (PATH if key in PATHS else NAME).fullmatch(value):
        yield _no_name(value)
    elif key in ("in_spec", "out_spec") and not _is_plain(json.loads(value)[1]):
        yield f"is called with other things than tensors in tuples, lists and dicts ({key})"


def _no_name(value: Any) -> str:
    return f"has a name of {str(value)[:80]!r}, which is none"


def _is_plain(structure: dict[str, Any]) -> bool:
    """Whether it is of tuples, lists and dicts alone, these with plain names for keys."""
    if structure["type"] not in STRUCTURES:
        return False
    names = json.loads(structure["context"] or "null") or ()
    plain = all(isinstance(name, str) and name.isidentifier() for name in names)
    return plain and all(_is_plain(child) for child in structure["children_spec"])
