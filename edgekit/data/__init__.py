"""Load data: raw samples as the device will see them, in four disjoint splits.

A source is a module in `sources/`, and its name is what a config gives as `source`. It has a class of options
(`ImageFolderConfig` in `image_folder`), `read(config, progress) -> Pools`, and `identity(config)`: a cheap fingerprint
that changes whenever the samples may have changed, or None if the source cannot provide one. `TASKS` lists the tasks
that its labels can serve; a source without it serves all tasks. Splitting, limiting and checking are done here for all
sources.

Examples
--------
>>> from edgekit import data
>>> digits = data.load(data.parse({"source": "digits"}))
>>> digits.sample_description
'image 32×32×1 uint8'
>>> len(digits.train), len(digits.validation), len(digits.test)
(879, 359, 359)
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
    """Return the possible values of `data.source`: the modules of `sources/`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(sources.__path__)))


def parse(section: dict[str, Any], task: Task | None = None) -> SourceConfig:
    """Check the `data` section of a config and return its options.

    Parameters
    ----------
    section
        The section, with `source` and the options of that source.
    task
        The config's task. If it is None, `section` is a dumped `SourceConfig`, which contains its own task.

    Raises
    ------
    ConfigError
        The section is not valid. The message suggests what was probably meant.

    Examples
    --------
    >>> parse({"source": "digits", "size": 8}).raw_shape
    (8, 8, 1)
    """
    if not isinstance(section, dict) or "source" not in section:
        raise ConfigError(f"data: got {section!r}; it needs `source:`, one of {', '.join(source_names())}")
    name = section["source"]
    if not isinstance(name, str):
        raise ConfigError(f"data.source: got {name!r}; it must be one of {', '.join(source_names())}")
    if name not in source_names():
        raise ConfigError(f"data.source: got {name!r}; {suggest(name, source_names())}")
    if task and "task" in section:
        raise ConfigError(
            "data.task: belongs at the top level of the config, because all stages share it; move it there"
        )
    values = {**section, "task": task} if task else section
    config: SourceConfig = validate(config_class(name), values, "data")
    served = supported_tasks(name)
    if config.task not in served:
        listed = " and ".join(filter(None, (", ".join(served[:-1]), served[-1])))
        raise ConfigError(
            f"task and data.source disagree: the labels of {name} serve {listed}, but task is {config.task}; "
            "provide the samples with the source npz or python instead"
        )
    return config


def config_class(name: str) -> type[SourceConfig]:
    """Return the class of a source's options, for example `ImageFolderConfig` for `image_folder`."""
    title = "".join(part.capitalize() for part in name.split("_"))
    options: type[SourceConfig] = getattr(_module(name), f"{title}Config")
    return options


def supported_tasks(name: str) -> tuple[str, ...]:
    """Return the tasks that the labels of a source can serve."""
    return tuple(getattr(_module(name), "TASKS", TASKS))


def load(config: SourceConfig, progress: ProgressCallback | None = None) -> Data:
    """Read, check, limit and split the samples.

    The same config always gives the same bytes, and therefore the same digest.

    Raises
    ------
    DataError
        The samples cannot be used.
    ResourceError
        The cache cannot be written.
    """
    from edgekit.data import checks, splits

    with steps.step("reading the data", "files") as step:
        pools: Pools = _module(config.source).read(config, progress or step.update)
        pools = checks.normalize_pools(pools, config.task, config.class_order)
        pools = splits.limit_pools(pools, config.limit, config.split_seed, config.task)
        return splits.divide(pools, config)


def fingerprint(config: SourceConfig) -> str | None:
    """Return the hex SHA-256 of everything that determines the samples, without reading them.

    It covers the source's options, its identity and the code that reads and splits the samples. If two fingerprints are
    equal, so are the digests of the data (`Data.digest`). The fingerprint is None if the source has no identity.
    """
    identity = _module(config.source).identity(config)
    if identity is None:
        return None
    code = source_code.code_digest(
        f"edgekit.data.sources.{config.source}",
        *("edgekit.data.splits", "edgekit.data.checks"),
        without=[*source_code.REPORTING, "edgekit.data.sources"],
    )
    return digest([config.model_dump(), identity, code, library_versions(("numpy",))])


def _module(name: str) -> Any:
    return importlib.import_module(f"edgekit.data.sources.{name}")
