"""Digests of edgekit's own source that depend on what the code does, not on how it is written.

The digest of a module is computed from its syntax tree, without comments, docstrings, formatting and the annotations of
functions and variables. Annotations in the body of a class count, because dataclasses and pydantic read them. What a
module does also depends on what it imports, so `closure` follows its imports, including those inside functions. It also
follows module names in strings ("edgekit.targets.worker"), and for an f-string such as
`f"edgekit.targets.{name}.convert"` every module whose name fits. Imports below `if TYPE_CHECKING` are not followed.

Parsing all modules of a stage takes a second. The results are therefore stored in the user's cache, each under a digest
of the file's content.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgekit.core.hashing import digest
from edgekit.runner.files import write_atomically

ROOT = Path(__file__).parent.parent
PACKAGE = "edgekit"
VERSION = 1
"""Increase this number when a change to this file alters the digests or imports of unchanged modules."""
MOST_STORED = 5000
"""If the cache has more entries, only those that this process has added are kept, because edits leave stale entries."""
MODULE_NAME = re.compile(rf"^{PACKAGE}(?:\.\w+)+(?=:\w+$|$)")
REPORTING = (
    "edgekit.core.progress",
    "edgekit.core.terminal_progress",
    "edgekit.core.telemetry",
    "edgekit.device.extension",
    "edgekit.runner.cli",
    "edgekit.runner.loader",
)
"""Modules for reporting and for running bundles. Code that computes results imports them without depending on them."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IGNORED_FIELDS = ("ctx", "kind", "type_comment", "returns")


@dataclass(frozen=True)
class Module:
    """The hex digest of what a module does, and the patterns of the modules that it imports (see `_imported`)."""

    digest: str
    imports: tuple[str, ...]


def closure(roots: Collection[str], without: Collection[str] = ()) -> dict[str, str]:
    """Return the digests of `roots` and of every module that they import, directly or indirectly, by dotted name.

    Parameters
    ----------
    roots
        Modules or packages of edgekit, for example `"edgekit.stages.prune"`.
    without
        Modules and packages that are not followed, unless they are roots or inside a root.

    Raises
    ------
    ModuleNotFoundError
        edgekit has no such module.

    Examples
    --------
    >>> sorted(closure(["edgekit.core.errors"]))
    ['edgekit.core.errors', 'edgekit.runner.errors']
    """
    digests: dict[str, str] = {}
    waiting = list(roots)
    if missing := [name for name in waiting if name not in _files()]:
        raise ModuleNotFoundError(f"{missing[0]}: edgekit has no such module")
    while waiting:
        name = waiting.pop()
        if name not in digests:
            module = _module(name)
            digests[name] = module.digest
            imported = _resolve(module.imports)
            waiting += [each for each in imported if _below(each, roots) or not _below(each, without)]
    _store()
    return digests


def code_digest(*roots: str, without: Collection[str] = ()) -> str:
    """Return one hex digest of `closure(roots, without)`."""
    return digest(closure(roots, without))


def clear_caches() -> None:
    """Forget all sources that were read, so that later edits are noticed."""
    for function in (_files, _module, _resolve, _stored):
        function.cache_clear()


def exists(module: str) -> bool:
    """Return whether edgekit has a module with this dotted name."""
    return module in _files()


def _below(name: str, packages: Collection[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@functools.cache
def _files() -> dict[str, Path]:
    """Return every module of edgekit by its dotted name."""
    files = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        files[".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return files


@functools.cache
def _resolve(patterns: tuple[str, ...]) -> tuple[str, ...]:
    names = set()
    for pattern in patterns:
        package, _, imported = pattern.partition(":")
        if "*" in package:
            expression = re.compile(re.escape(package).replace(r"\*", r"\w+"))
            names |= {name for name in _files() if expression.fullmatch(name)}
        elif exists(f"{package}.{imported}"):
            names.add(f"{package}.{imported}")
        elif exists(package):
            names.add(package)
    return tuple(sorted(names))


@functools.cache
def _module(name: str) -> Module:
    content = _files()[name].read_bytes()
    key = hashlib.sha256(f"{VERSION} {name}\n".encode() + content).hexdigest()
    module = _stored().get(key)
    if module is None:
        module = _stored()[key] = _read(name, content)
        _new.add(key)
    return module


def _read(name: str, content: bytes) -> Module:
    tree = ast.parse(content)
    parts: list[str] = []
    _describe(tree, False, parts)
    imports = {pattern for node in _executed(tree) for pattern in _imported(node, name)}
    return Module(hashlib.sha256("\n".join(parts).encode()).hexdigest(), tuple(sorted(imports)))


def _describe(node: ast.AST, in_class: bool, parts: list[str]) -> None:
    """Append the parts of a syntax tree that determine what the code does, in order."""
    if isinstance(node, ast.AnnAssign) and node.value and not in_class:
        node = ast.Assign(targets=[node.target], value=node.value)
    parts.append(type(node).__name__)
    is_class_body = isinstance(node, ast.ClassDef) or (in_class and not isinstance(node, FUNCTIONS))
    for field in node._fields:
        value = getattr(node, field, None)
        if value is None or field in IGNORED_FIELDS or (field == "annotation" and isinstance(node, ast.arg)):
            continue
        values = value if isinstance(value, list) else [value]
        relevant = [each for each in values if not _does_nothing(each) and (is_class_body or not _is_declaration(each))]
        if isinstance(node, ast.JoinedStr):  # Python 3.12.1 adds empty strings
            relevant = [each for each in relevant if not (isinstance(each, ast.Constant) and each.value == "")]
        if relevant:  # empty lists are left out, because newer Pythons have more fields
            parts.append(f".{field}")
        for each in relevant:
            if isinstance(each, ast.AST):
                _describe(each, is_class_body, parts)
            else:
                parts.append(repr(each))
    parts.append(")")


def _does_nothing(node: object) -> bool:
    """Whether a node is a docstring or an `if TYPE_CHECKING` without `else`."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not node.orelse
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_declaration(node: object) -> bool:
    """Whether a node is `x: int`, which declares a field in a class and does nothing elsewhere."""
    return isinstance(node, ast.AnnAssign) and node.value is None


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and all nodes below it, without docstrings and `if TYPE_CHECKING` blocks."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not _does_nothing(child):
            yield from _executed(child)


def _imported(node: ast.AST, module: str) -> list[str]:
    """Return patterns of the modules that a node names.

    `package:name` is a module in a package, or a name in a module.
    """
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}:{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        names = MODULE_NAME.findall(node.value)
    elif isinstance(node, ast.JoinedStr):
        names = [_pattern(node, module)]
    else:
        names = []
    return [name for name in names if name.startswith(f"{PACKAGE}.") or name.startswith(f"{PACKAGE}:")]


def _pattern(text: ast.JoinedStr, module: str) -> str:
    """Turn an f-string into a pattern of module names, or an empty text if it does not name modules of edgekit.

    `{__name__}` becomes the module's own name, and any other value becomes `*`, which stands for one part of a name.
    """
    parts = []
    for part in text.values:
        value = part.value if isinstance(part, ast.FormattedValue | ast.Constant) else None
        own = isinstance(value, ast.Name) and value.id == "__name__"
        parts.append(value if isinstance(value, str) else module if own else "*")
    pattern = "".join(parts).partition(":")[0]
    return pattern if re.fullmatch(rf"{PACKAGE}(?:\.[\w*]+)+", pattern) else ""


_new: set[str] = set()
"""Keys of entries that this process has added to `_stored()` and not yet written to the cache file."""


def _path() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / PACKAGE / "source-digests.json"


@functools.cache
def _stored() -> dict[str, Module]:
    try:
        records = json.loads(_path().read_text(encoding="utf-8"))
        return {key: Module(digest, tuple(imports)) for key, (digest, imports) in records.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _store() -> None:
    """Write the results to the cache. Without a writable cache nothing is stored."""
    if not _new:
        return
    keys = _new if len(_stored()) > MOST_STORED else _stored()  # edited files leave entries that are never read again
    records = {key: [_stored()[key].digest, list(_stored()[key].imports)] for key in keys}
    _new.clear()
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_path(), json.dumps(records).encode())
    except OSError:
        pass
