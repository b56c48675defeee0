"""Describe errors from the user's network or model file: what happened, where in the user's code, and what to do."""

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

from edgekit.core.errors import RESOURCE_ERRNOS, EdgekitError, ModelError, ResourceError

FAULTS = (Exception, SystemExit)
"""The exceptions that the user's code may raise. KeyboardInterrupt is not among them."""
MAX_MESSAGE_LENGTH = 300
LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
FOREIGN = tuple(f"{path}{os.sep}" for path in (*sorted(LIBRARIES), Path(__file__).parents[1]))
"""The folders of Python, the libraries and edgekit itself; code anywhere else is the user's."""
PACKAGES = frozenset(("site-packages", "dist-packages"))
"""Names of folders of libraries, wherever they are: those of the system's Python and of the user's own installs."""
NO_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")
INTEGER_ADVICE = "a tensor of whole numbers comes as int32; take x.float(), or give floats in the data"
SEVERAL_INPUTS_ADVICE = "it takes several inputs: give each as an array by its name, x_train.NAME, or give it defaults"
FALLBACK_ADVICE = "fix it there, or report it, with the network, if the same works without edgekit"
"""Used if the fault may be in the network or in edgekit's use of it, because only the user can tell which."""
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
    """Describe an error in one line: `ValueError: message (nets.py, line 12, in forward); what to do`."""
    where = _place(error) or _layer(error, root)
    return f"{_summary(error)}{f' ({where})' if where else ''}; {_advice(error)}"


def failure_of(what: str, error: BaseException, root: nn.Module | None = None) -> Exception:
    """Return the exception to raise for an error of the user's code.

    It is a ResourceError if memory, disk space or permissions are missing, and otherwise a ModelError. Its message
    begins with `what`. `root` is the network, so that the message can name the layer that failed.
    """
    kind = ResourceError if _lacks_memory(error) or _lacks_room(error) else ModelError
    return kind(f"{what}: {describe(error, root)}")


@contextmanager
def reporting_failures(called: str, doing: str, root: nn.Module | None = None) -> Iterator[None]:
    """Raise the exception of `failure_of` for errors of a network; errors of edgekit and of other code do not change.

    `called` is the name of the network, and `doing` what was done with it, for example "in training".
    """
    try:
        yield
    except EdgekitError:
        raise
    except FAULTS as error:
        if not (_comes_from_network(error) or _lacks_memory(error)):  # an optimizer step may run out of memory as well
            raise
        raise failure_of(f"{called}: fails {doing}", error, root) from error


def _summary(error: BaseException) -> str:
    name, message = type(error).__name__, " ".join(str(error).split())[:MAX_MESSAGE_LENGTH].rstrip(" .;")
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({message})"
    if isinstance(error, SyntaxError):
        return f"{name}: {error.msg} ({Path(error.filename or '?').name}, line {error.lineno})"
    if isinstance(error, KeyError):
        return f"{name}: there is no {message}"
    return f"{name}: {message}" if message else f"{name}, without a message"


def _advice(error: BaseException) -> str:
    message = str(error)
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
    if ".forward() missing" in message and not _place(error):  # called by edgekit itself, not by the user's code
        return SEVERAL_INPUTS_ADVICE
    return next((advice for pattern, advice in ADVICE if re.search(pattern, message)), FALLBACK_ADVICE)


def _lacks_memory(error: BaseException) -> bool:
    """Return whether Python or PyTorch ran out of memory. The network may be too large, or the machine too small."""
    return isinstance(error, MemoryError) or any(phrase in str(error) for phrase in NO_MEMORY)


def _lacks_room(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in RESOURCE_ERRNOS


def _place(error: BaseException) -> str:
    """Return the innermost line of the user's own code in the traceback."""
    places = [
        f"{Path(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
        if _is_user_code(frame) and frame.f_code.co_name != "<module>"
    ]
    if places or isinstance(error, SyntaxError):
        return places[-1] if places else ""
    at_import = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in walk_tb(error.__traceback__)
        if _is_user_code(frame)
    ]
    return at_import[-1] if at_import else ""


def _is_user_code(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not file.startswith(("<", *FOREIGN)) and PACKAGES.isdisjoint(Path(file).parts)


def _calls(error: BaseException) -> list[nn.Module]:
    """Return the modules that were being called, the innermost last."""
    callers: list[Any] = [
        frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "_call_impl"
    ]
    return [module for module in callers if isinstance(module, nn.Module)]


def _layer(error: BaseException, root: nn.Module | None) -> str:
    """Return the name of the layer that was being called, which helps if no code of the user's is in the traceback."""
    called_modules = _calls(error)
    if not called_modules:
        return ""
    names = {id(part): name for name, part in (root.named_modules() if root else ())}
    name = names.get(id(called_modules[-1]), "")
    return f"in layer {name}, a {type(called_modules[-1]).__name__}" if name else ""


def _comes_from_network(error: BaseException) -> bool:
    """Return whether the error came from a network, or from other code of the user's."""
    return bool(_calls(error)) or any(_is_user_code(frame) for frame, _ in walk_tb(error.__traceback__))
