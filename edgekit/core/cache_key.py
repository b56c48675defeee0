"""Determine the inputs that a stage's result depends on, its cache key, and the changes since the last run."""

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
"""Modules that no stage's result depends on, although stages import them: reporting, the types of records, data sources
(the key contains the digest of the samples instead), and devices and energy (they only provide evidence). If these
modules counted, rewording the description of a field would change the keys of stages.
"""
TIMING_ONLY_PACKAGES = {stage: ("edgekit.measure", "edgekit.targets") for stage in ("profile", "benchmark")}
"""Packages that a stage uses only to measure and to forecast latencies, which are evidence and not part of a key."""
SINGLE_TARGET_LIBRARIES = ("ai-edge-litert", "litert-converter", "litert-torch", "onnxruntime", "openvino")
"""Libraries that only one target needs.

A key leaves out those that are not installed, because a run whose config names no targets skips the targets for which a
library is missing.
"""
ONNX2TF = "1.29.24"
"""edgekit installs onnx2tf by itself when a run first needs it, in this version (models/files/compatibility.py). This
version is part of the key, even if it has not been installed yet.
"""
_SHOWN = 8
"""Number of a digest's hex digits that messages show."""


@dataclass(frozen=True)
class CacheInputs:
    """Everything that a stage's result depends on.

    Digests are in hex. `source` is the digest of the artifact that the stage reads.
    """

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
        """The cache key. Stages with the same key have the same result."""
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
    """Return the inputs that the stage's result would depend on if it ran now.

    Parameters
    ----------
    folder
        The run's folder, which may hold recorded decisions to replay.
    builders
        The builders of the artifact that the stage reads.
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
    """Describe each change in a short text: `ratio 0.5 → 0.4`, `torch 2.13.0 → 2.14.0`, `code of stages/prune`."""
    changes = [f"{name} {old} → {new}" for name, old, new in _changes(before.config, now.config)]
    if before.data != now.data:
        changes.append(f"data {before.data[:_SHOWN]} → {now.data[:_SHOWN]}")
    changes += [f"{name} {old} → {new}" for name, old, new in _changes(before.libraries, now.libraries)]
    changes += [f"code of edgekit/{part}" for part, _, _ in _changes(before.code, now.code)]
    changes += [f"source of {name}" for name, _, _ in _changes(before.builders, now.builders)]
    if before.replayed != now.replayed:
        changes.append("the decisions to replay")
    if before.source != now.source:
        changes.append("the artifact that it reads")
    return changes


def library_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return installed versions by distribution name. SINGLE_TARGET_LIBRARIES that are not installed are left out.

    Raises
    ------
    PackageNotFoundError
        Another library is not installed.
    """
    versions = installed_versions(libraries)
    missing = [name for name, version in versions.items() if version is None and name not in SINGLE_TARGET_LIBRARIES]
    if missing:
        raise metadata.PackageNotFoundError(missing[0])
    return {name: version for name, version in versions.items() if version is not None}


def installed_versions(libraries: Iterable[str]) -> dict[str, str | None]:
    """Return installed versions by distribution name, with None for libraries that are not installed."""
    versions: dict[str, str | None] = {}
    for name in sorted(libraries):
        try:
            versions[name] = _version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


@functools.cache
def _version(distribution: str) -> str:
    return ONNX2TF if distribution == "onnx2tf" else metadata.version(distribution)


def code_digests(stage: str) -> dict[str, str]:
    """Return digests of what a stage's code does, by package.

    They cover the modules that the stage imports, without `MODULES_WITHOUT_EFFECT` and, in some stages,
    `TIMING_ONLY_PACKAGES`. The origin of a run has no such digests, because it only copies files.
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
    runner = {pyz.NAME: _runner_digest()} if stage == "bundle" else {}
    return {package: digest(shas) for package, shas in packages.items()} | runner


def _runner_digest() -> str:
    """The digest of the files that the bundle stage packs into edgerun.pyz."""
    return digest({name: sha256_file(path) for name, path in pyz.sources().items()})


def source_digest(builder: str) -> str | None:
    """Return the digest of the source code behind `package.module:function`, or None if there is no such source.

    For a user's function, the digest covers the files of its module or package and of the modules beside it that these
    files import. For edgekit's own networks, it depends only on what the code does (`source_code.code_digest`).
    """
    if top_module(builder) == "edgekit":
        module = builder.partition(":")[0]
        return source_code.code_digest(module, without=MODULES_WITHOUT_EFFECT) if source_code.exists(module) else None
    files = _sources(top_module(builder))
    return digest([[name, sha256_file(path)] for name, path in sorted(files.items())]) if files else None


def top_module(builder: str) -> str:
    """Return `nets` for `nets.small:make_net`."""
    return builder.partition(":")[0].partition(".")[0]


def _sources(module: str) -> dict[str, Path]:
    """Return the files of a user's module or package and of the modules beside it that it imports, by relative name."""
    folder, pending, files = _parent_folder(module), {module}, dict[str, Path]()
    visited = set[str]()
    while folder and pending:
        top = pending.pop()
        visited.add(top)
        for path in (folder / f"{top}.py", *(folder / top).rglob("*.py")):
            if path.is_file():
                files[path.relative_to(folder).as_posix()] = path
                pending |= _imported(path) - visited
    return files


def _parent_folder(module: str) -> Path | None:
    """Return the folder that contains a top-level module, which may be a package without `__init__.py`."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
    return Path(places[0]).parent if places[0] and Path(places[0]).exists() else None


def _imported(path: Path) -> frozenset[str]:
    """Return the top-level names that a file imports. The caller follows only modules beside the file."""
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
"""Config keys whose values name code to call, as `package.module:function`."""


def _builders(value: Any) -> set[str]:
    """Return every function named anywhere in a stage's config."""
    if isinstance(value, dict):
        named = {value[key] for key in FUNCTION_KEYS if value.get(key) and isinstance(value[key], str)}
        return named.union(*(_builders(nested) for nested in value.values()))
    return set().union(*(_builders(nested) for nested in value)) if isinstance(value, list) else set()


def _changes(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted name, old, new) for every value that differs; "absent" stands for a value that does not exist."""
    for name in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(name, "absent"), now.get(name, "absent")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{prefix}{name}.")
        elif (old, type(old)) != (new, type(new)):
            yield f"{prefix}{name}", old, new
