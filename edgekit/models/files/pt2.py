"""What of a `.pt2` archive may be read: plain tensors, and graphs of PyTorch's own operators.

torch.export.load unpickles example inputs, older weights and custom objects, loads compiled libraries, calls whatever
function a graph names in PyTorch's modules, evaluates sizes and guards as Python, imports what the structure of a call
is made of, and writes names into code. So example inputs and guards are removed. Accepted are tensors, PyTorch's
operators, arithmetic on sizes, plain names, and tuples, lists and dicts of tensors. Everything else is refused.
PyTorch's own advice still holds, for the graph becomes Python code in the end. From untrusted sources, accept only ONNX
or TFLite.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.core.errors import ModelError
from edgekit.runner.errors import bounded_recursion

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
def plain(path: Path) -> io.BytesIO:
    """The archive without its example inputs; ModelError where it holds what may run code, naming it."""
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
