"""What a stage's result depends on, its key, and what changed between two of them in words."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from edgekit.core import floors, replay
from edgekit.core.hashing import digest, sha256_file

CONVERTING = ("distill", "prune", "quantize", "convert")
"""The stages whose result depends on files made for the targets, or on how fast those are."""
OF_FILES = ("targets", "measure")
"""What makes those files and times them. `profile` and `benchmark` use it as well, but only to time and to predict:
a latency is evidence and shapes no key."""
APART = {"measure": ("devices", "energy")}
"""Folders of a package that shape no stage: what they bring back is evidence."""
SHIPPED = {"bundle": ("serve",)}
"""What a stage puts beside its results without importing it: edgerun.pyz carries the server."""
OF_ONE_TARGET = ("ai-edge-litert", "litert-converter", "litert-torch", "onnxruntime", "openvino")
"""What one target alone needs. A run that names no targets goes on without those that are not installed."""
ONNX2TF = "1.29.24"
"""edgekit installs onnx2tf by itself when a run first needs it, in this version (models/files/onnx2tf_install.py). The
version counts whether it is installed yet or not."""
ROOT = Path(__file__).parent.parent
_SHOWN = 8
"""Hex digits of a digest that a reader is shown."""


@dataclass(frozen=True)
class CacheInputs:
    """Everything that a stage's result depends on. Digests are hex; `source` is the artifact it reads."""

    stage: str
    config: dict[str, Any]
    source: str | None
    data: str
    libraries: dict[str, str]
    code: dict[str, str]
    builders: dict[str, str | None]
    replayed: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """Same key, same result."""
        return digest(asdict(self))


def gather(
    stage: str,
    config: dict[str, Any],
    source: str | None,
    data_digest: str,
    libraries: Iterable[str],
    folder: Path | None = None,
) -> CacheInputs:
    """What a stage would be made of now; `folder` is the run's, where recorded decisions may lie."""
    return CacheInputs(
        stage=stage,
        config=config,
        source=source,
        data=data_digest,
        libraries=library_versions(libraries),
        code=code_digests(stage),
        builders={name: source_digest(name) for name in sorted(_builders(config))},
        replayed=replay.read(folder, stage) if folder else None,
    )


def differences(before: CacheInputs, now: CacheInputs) -> list[str]:
    """What changed, one short line each: `ratio 0.5 → 0.4`, `torch 2.13.0 → 2.14.0`, `code of stages/prune`."""
    changes = [f"{name} {old} → {new}" for name, old, new in _changes(before.config, now.config)]
    if before.data != now.data:
        changes.append(f"data {before.data[:_SHOWN]} → {now.data[:_SHOWN]}")
    changes += [f"{name} {old} → {new}" for name, old, new in _changes(before.libraries, now.libraries)]
    changes += [f"code of edgekit/{part}" for part, _, _ in _changes(before.code, now.code)]
    changes += [f"source of {name}" for name, _, _ in _changes(before.builders, now.builders)]
    if before.replayed != now.replayed:
        changes.append("the decisions to replay")
    if before.source != now.source:
        changes.append("what it reads")
    return changes


def library_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Installed versions, by distribution name, without those of OF_ONE_TARGET that are not installed.

    Raises
    ------
    PackageNotFoundError
        Another library is not installed.
    """
    found = installed_versions(libraries)
    missing = [name for name, version in found.items() if version is None and name not in OF_ONE_TARGET]
    if missing:
        raise metadata.PackageNotFoundError(missing[0])
    return {name: version for name, version in found.items() if version is not None}


def installed_versions(libraries: Iterable[str]) -> dict[str, str | None]:
    """The same, with None for what is not installed."""
    found: dict[str, str | None] = {}
    for name in sorted(libraries):
        try:
            found[name] = _version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


@functools.cache
def _version(distribution: str) -> str:
    return ONNX2TF if distribution == "onnx2tf" else metadata.version(distribution)


def code_digests(stage: str) -> dict[str, str]:
    """Digest of each package of edgekit that shapes a stage: its own folder, and the floors it stands on."""
    parts = [part for part in floors.below("stages") if stage in CONVERTING or part not in OF_FILES]
    own = f"stages/{stage}"
    parts += [*SHIPPED.get(stage, ()), *([own] if (ROOT / own).is_dir() else [])]
    return {part: code_digest(part) for part in sorted(parts)}


@functools.cache
def code_digest(part: str) -> str:
    """Digest of a file or a folder of edgekit's own source, such as `report/rejected.py` or `stages/prune`."""
    path = ROOT / part
    if not path.exists():
        raise FileNotFoundError(f"edgekit/{part}: no such source")
    return sha256_file(path) if path.is_file() else _tree_digest(path)


def _tree_digest(folder: Path) -> str:
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.py"))
    counted = [name for name in names if name.parts[0] not in APART.get(folder.name, ())]
    return digest([[name.as_posix(), sha256_file(folder / name)] for name in counted])


def source_digest(builder: str) -> str | None:
    """Digest of the user's source behind `package.module:function`: module or package, and what it imports beside it.

    None if there is no such source; edgekit's own networks are covered by `code_digests`.
    """
    if top_module(builder) == "edgekit":
        return None
    files = _sources(top_module(builder))
    return digest([[name, sha256_file(path)] for name, path in sorted(files.items())]) if files else None


def top_module(builder: str) -> str:
    """`nets` of `nets.small:make_net`."""
    return builder.partition(":")[0].partition(".")[0]


def _sources(module: str) -> dict[str, Path]:
    """Files of a module or package of the user's, and of those beside it that they import; names from that folder."""
    home, waiting, found = _home(module), {module}, dict[str, Path]()
    looked_at = set[str]()
    while home and waiting:
        top = waiting.pop()
        looked_at.add(top)
        for path in (home / f"{top}.py", *(home / top).rglob("*.py")):
            if path.is_file():
                found[path.relative_to(home).as_posix()] = path
                waiting |= _imported(path) - looked_at
    return found


def _home(module: str) -> Path | None:
    """The folder that a top-level module stands in; it may be a package without `__init__.py`."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
    return Path(places[0]).parent if places[0] and Path(places[0]).exists() else None


def _imported(path: Path) -> frozenset[str]:
    """Top-level names that a file imports; of those only what stands beside it is looked at."""
    return frozenset() if "site-packages" in path.parts else _imports(path.read_bytes())


@functools.lru_cache(2048)
def _imports(source: bytes) -> frozenset[str]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return frozenset()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return frozenset(name.partition(".")[0] for name in names)


FUNCTION_KEYS = ("builder", "function", "reference_preprocess")
"""Keys of a config whose values, `package.module:function`, are code that is called."""


def _builders(value: Any) -> set[str]:
    """Every such code named anywhere in a stage's config."""
    if isinstance(value, dict):
        own = {value[key] for key in FUNCTION_KEYS if value.get(key) and isinstance(value[key], str)}
        return own.union(*(_builders(inner) for inner in value.values()))
    return set().union(*(_builders(inner) for inner in value)) if isinstance(value, list) else set()


def _changes(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, old, new) of every value that differs; "absent" where there is none."""
    for name in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(name, "absent"), now.get(name, "absent")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{prefix}{name}.")
        elif (old, type(old)) != (new, type(new)):
            yield f"{prefix}{name}", old, new
