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

from edgekit.core import replay, source_code
from edgekit.core.hashing import digest, sha256_file
from edgekit.device import pyz

MODULES_WITHOUT_EFFECT = (
    *source_code.REPORTING,
    "edgekit.core.schema",
    "edgekit.data.box_formats",
    "edgekit.data.sources",
    "edgekit.fleet.devices",
    "edgekit.measure.energy",
)
"""Modules that no stage's result depends on, though a stage imports them: beside what reports, the
types of records, what reads samples, whose digest is in the key, and what brings back evidence. (A stage's key would
otherwise change with the description of a field.)"""
TIMING_ONLY_PACKAGES = {stage: ("edgekit.measure", "edgekit.targets") for stage in ("profile", "benchmark")}
"""Packages that a stage uses only to time files and to predict, because a latency is evidence and shapes no key."""
SINGLE_TARGET_LIBRARIES = ("ai-edge-litert", "litert-converter", "litert-torch", "onnxruntime", "openvino")
"""What one target alone needs. A run that names no targets goes on without those that are not installed."""
ONNX2TF = "1.29.24"
"""edgekit installs onnx2tf by itself when a run first needs it, in this version (models/files/compatibility.py). The
version counts whether it is installed yet or not."""
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


def collect_inputs(
    stage: str,
    config: dict[str, Any],
    source: str | None,
    data_digest: str,
    libraries: Iterable[str],
    folder: Path | None = None,
    builders: Iterable[str] = (),
) -> CacheInputs:
    """What a stage would be made of now.

    `folder` is the run's, where recorded decisions may lie. `builders` are those of what the stage reads.
    """
    return CacheInputs(
        stage=stage,
        config=config,
        source=source,
        data=data_digest,
        libraries=library_versions(libraries),
        code=code_digests(stage),
        builders={name: source_digest(name) for name in sorted({*builders, *_builders(config)})},
        replayed=replay.read(folder, stage) if folder else None,
    )


def describe_changes(before: CacheInputs, now: CacheInputs) -> list[str]:
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
    missing = [name for name, version in found.items() if version is None and name not in SINGLE_TARGET_LIBRARIES]
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
    """Digests of what a stage's code does, by package: of the modules that it imports, directly or not.

    The origin of a run has none, because it only copies.
    """
    root = f"edgekit.stages.{stage}"
    if not source_code.exists(root):
        return {}
    modules = source_code.closure(
        [root], [*MODULES_WITHOUT_EFFECT, "edgekit.stages", *TIMING_ONLY_PACKAGES.get(stage, ())]
    )
    packages: dict[str, dict[str, str]] = {}
    for name, sha in sorted(modules.items()):
        parts = name.split(".")[1:]
        package = "/".join(parts[:2] if parts[:1] == ["stages"] else parts[:1])
        packages.setdefault(package or "edgekit", {})[name] = sha
    shipped = {pyz.NAME: _runner_digest()} if stage == "bundle" else {}
    return {package: digest(shas) for package, shas in packages.items()} | shipped


def _runner_digest() -> str:
    """Of the files that the bundle stage packs into edgerun.pyz, as they are written."""
    return digest({name: sha256_file(path) for name, path in pyz.sources().items()})


def source_digest(builder: str) -> str | None:
    """Digest of the source behind `package.module:function`: module or package, and what it imports beside it.

    None if there is no such source. Of edgekit's own networks it is the digest of what the code does.
    """
    if top_module(builder) == "edgekit":
        module = builder.partition(":")[0]
        return source_code.code_digest(module, without=MODULES_WITHOUT_EFFECT) if source_code.exists(module) else None
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
