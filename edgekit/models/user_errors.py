"""What a network or its file raised, as a sentence: what, where in the user's own code, what to do."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from torch import nn

from edgekit.core.errors import NO_RESOURCES, EdgekitError, ModelError, ResourceError

FAULTS = (Exception, SystemExit)
"""What code of the user's may raise; Ctrl-C is not among it."""
MAX_MESSAGE_LENGTH = 300
LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
FOREIGN = tuple(f"{path}{os.sep}" for path in (*sorted(LIBRARIES), Path(__file__).parents[1]))
"""Where Python, the libraries and edgekit itself lie; code anywhere else is the user's."""
PACKAGES = frozenset(("site-packages", "dist-packages"))
"""Folders of libraries wherever they lie: of the system's Python, of the user's own installs."""
NO_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")
INTEGER_ADVICE = "a tensor of whole numbers comes as int32; take x.float(), or give floats in the data"
SEVERAL_INPUTS_ADVICE = "it takes several inputs: give each as an array by its name, x_train.NAME, or give it defaults"
FALLBACK_ADVICE = "fix it there, or report it, with the network, if the same works without edgekit"
"""The network itself is at fault, or what edgekit does around it: only its user can tell."""
ADVICE = (
    ("!= struct c10::", "its weights are of another type than its input, float32; let the builder return net.float()"),
    ("must have the same dtype, but got Int", INTEGER_ADVICE),
    (r"Input type \(int\)", INTEGER_ADVICE),
    ("must have the same dtype", "its weights are of another type than its input, float32; return net.float()"),
    (
        r"Input type \(.* should be the same",
        "its weights are of another type than its input, float32; return net.float()",
    ),
    ("partially initialized module", "two files import each other: import inside the function, or move what both need"),
)


def describe(error: BaseException, root: nn.Module | None = None) -> str:
    """`ValueError: what it says (nets.py, line 12, in forward); what to do`, in one line."""
    where = _place(error) or _layer(error, root)
    return f"{_what(error)}{f' ({where})' if where else ''}; {_advice(error)}"


def failure_of(what: str, error: BaseException, root: nn.Module | None = None) -> Exception:
    """What to raise for it: ModelError, but ResourceError where the machine lacks memory, room or leave."""
    kind = ResourceError if _lacks_memory(error) or _lacks_room(error) else ModelError
    return kind(f"{what}: {describe(error, root)}")


@contextmanager
def reporting_failures(called: str, doing: str, root: nn.Module | None = None) -> Iterator[None]:
    """The `failure` of what the network called so raises meanwhile; what else is raised stays what it is."""
    try:
        yield
    except EdgekitError:
        raise
    except FAULTS as error:
        if not (_is_of_a_network(error) or _lacks_memory(error)):  # a step of the optimizer can lack it too
            raise
        raise failure_of(f"{called}: fails {doing}", error, root) from error


def _what(error: BaseException) -> str:
    name, said = type(error).__name__, " ".join(str(error).split())[:MAX_MESSAGE_LENGTH].rstrip(" .;")
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({said})"
    if isinstance(error, SyntaxError):
        return f"{name}: {error.msg} ({Path(error.filename or '?').name}, line {error.lineno})"
    if isinstance(error, KeyError):
        return f"{name}: there is no {said}"
    return f"{name}: {said}" if said else f"{name}, without a message"


def _advice(error: BaseException) -> str:
    said = str(error)
    if isinstance(error, SystemExit):
        return "take that call out, or raise an error that says what is wrong"
    if isinstance(error, RecursionError):
        return "it calls itself without end; let it call its layers"
    if _lacks_memory(error):
        return "it asks for more memory than there is; free some, or make the network smaller"
    if _lacks_room(error):
        return "make room, or allow more"
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name}, or put its folder on PYTHONPATH"
    if isinstance(error, SyntaxError):
        return "fix that line"
    if ".forward() missing" in said and not _place(error):  # edgekit itself called it, no code of the user's
        return SEVERAL_INPUTS_ADVICE
    return next((advice for words, advice in ADVICE if re.search(words, said)), FALLBACK_ADVICE)


def _lacks_memory(error: BaseException) -> bool:
    """Of Python's own and of torch's errors; nobody knows yet whose fault it is, the machine's or the network's."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)


def _lacks_room(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in NO_RESOURCES


def _place(error: BaseException) -> str:
    """The innermost line of the user's own code on the way to the error."""
    places = [
        f"{Path(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
        if _is_users(frame) and frame.f_code.co_name != "<module>"
    ]
    if places or isinstance(error, SyntaxError):
        return places[-1] if places else ""
    at_import = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in walk_tb(error.__traceback__)
        if _is_users(frame)
    ]
    return at_import[-1] if at_import else ""


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not file.startswith(("<", *FOREIGN)) and PACKAGES.isdisjoint(Path(file).parts)


def _calls(error: BaseException) -> list[nn.Module]:
    """The modules that were at work, the innermost last."""
    found: list[Any] = [
        frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "_call_impl"
    ]
    return [module for module in found if isinstance(module, nn.Module)]


def _layer(error: BaseException, root: nn.Module | None) -> str:
    """The layer that was at work, of a network that has no code of its own there."""
    at_work = _calls(error)
    if not at_work:
        return ""
    names = {id(part): name for name, part in (root.named_modules() if root else ())}
    name = names.get(id(at_work[-1]), "")
    return f"in layer {name}, a {type(at_work[-1]).__name__}" if name else ""


def _is_of_a_network(error: BaseException) -> bool:
    """Whether a network was at work, or other code of the user's."""
    return bool(_calls(error)) or any(_is_users(frame) for frame, _ in walk_tb(error.__traceback__))
