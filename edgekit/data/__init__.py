"""Data: raw samples as the device will see them, in four disjoint splits.

A source is one file in `sources/` with `class Config(SourceConfig)`, `read(config, progress) -> Pools` and
`identity(config)`: a cheap sign that changes whenever the samples can have changed, or None where there is no such
sign. The file's name is what `source:` says in a config. `TASKS` are those that its labels serve; without it, all.
Splitting, limiting and checking are done here, once for all.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from edgekit.core import progress as steps
from edgekit.core import source_code
from edgekit.core.cache_key import library_versions
from edgekit.core.config import suggest, validate
from edgekit.core.errors import ConfigError
from edgekit.core.hashing import digest
from edgekit.core.tasks import TASKS, Task
from edgekit.data import sources
from edgekit.data.types import Data, Pools, ProgressCallback, SourceConfig, Split

__all__ = [
    "Data",
    "Pools",
    "SourceConfig",
    "Split",
    "config_class",
    "fingerprint",
    "load",
    "parse",
    "source_names",
    "tasks_served",
]


def source_names() -> tuple[str, ...]:
    """What `data.source` may be: the files of `sources/`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(sources.__path__)))


def parse(section: dict[str, Any], task: Task | None = None) -> SourceConfig:
    """Check the `data` section of a config whose `task` is this; without one, a `SourceConfig` as it was dumped.

    ConfigError names what was meant.
    """
    if not isinstance(section, dict) or "source" not in section:
        raise ConfigError(f"data: got {section!r}; it needs `source:`, one of {', '.join(source_names())}")
    name = section["source"]
    if not isinstance(name, str):
        raise ConfigError(f"data.source: got {name!r}; it must be one of {', '.join(source_names())}")
    if name not in source_names():
        raise ConfigError(f"data.source: got {name!r}; {suggest(name, source_names())}")
    if task and "task" in section:
        raise ConfigError("data.task: stands at the top level of the config, for all stages; move it there")
    values = {**section, "task": task} if task else section
    config: SourceConfig = validate(config_class(name), values, "data")
    served = supported_tasks(name)
    if config.task not in served:
        listed = " and ".join(filter(None, (", ".join(served[:-1]), served[-1])))
        raise ConfigError(
            f"task and data.source disagree: the labels of {name} serve {listed}, task is {config.task}; "
            "give the samples as npz, or by a python function"
        )
    return config


def config_class(name: str) -> type[SourceConfig]:
    """The class of a source's options: `ImageFolderConfig` for `image_folder`."""
    title = "".join(part.capitalize() for part in name.split("_"))
    options: type[SourceConfig] = getattr(_module(name), f"{title}Config")
    return options


def supported_tasks(name: str) -> tuple[str, ...]:
    """The tasks that the labels of a source can serve."""
    return tuple(getattr(_module(name), "TASKS", TASKS))


def load(config: SourceConfig, progress: ProgressCallback | None = None) -> Data:
    """Read, check, limit and split. The same config gives the same bytes, and so the same digest.

    Raises DataError for samples that cannot be used, ResourceError where a cache cannot be written.
    """
    from edgekit.data import checks, splits

    with steps.step("reading the data", "files") as shown:
        pools: Pools = _module(config.source).read(config, progress or shown.at)
        pools = checks.normalize_pools(pools, config.task)
        pools = splits.limit_pools(pools, config.limit, config.split_seed, config.task)
        return splits.divide(pools, config)


def fingerprint(config: SourceConfig) -> str | None:
    """Hex sha256 of what decides about the samples, without reading them; None where only reading tells.

    Same fingerprint, same `Data.digest`: the source's options, its identity, and the code that splits.
    """
    sign = _module(config.source).identity(config)
    if sign is None:
        return None
    code = source_code.code_digest(
        f"edgekit.data.sources.{config.source}",
        *("edgekit.data.splits", "edgekit.data.checks"),
        without=[*source_code.REPORTING, "edgekit.data.sources"],
    )
    return digest([config.model_dump(), sign, code, library_versions(("numpy",))])


def _module(name: str) -> Any:
    return importlib.import_module(f"edgekit.data.sources.{name}")
