"""Data: raw samples as the device will see them, in four disjoint splits.

A source is one file in this folder with `class Config(SourceConfig)` and `read(config, progress) -> Pools`;
the file's name is what `source:` says in a config. Splitting, limiting and checking are done here, once for all.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from edgekit.config import check, suggest
from edgekit.data import checks, splits
from edgekit.data.types import Data, Pools, Progress, SourceConfig, Split
from edgekit.errors import ConfigError

__all__ = ["Data", "Pools", "SourceConfig", "Split", "load", "parse", "sources"]


def sources() -> tuple[str, ...]:
    """Names of the sources this folder holds."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if _is_source(name)))


def parse(section: dict[str, Any]) -> SourceConfig:
    """Check the `data` section of a config; ConfigError names what was meant."""
    if not isinstance(section, dict) or "source" not in section:
        raise ConfigError(f"data: got {section!r}; it needs `source:`, one of {', '.join(sources())}")
    name = section["source"]
    if not isinstance(name, str):
        raise ConfigError(f"data.source: got {name!r}; it must be one of {', '.join(sources())}")
    if name not in sources():
        raise ConfigError(f"data.source: got {name!r}; {suggest(name, sources())}")
    config: SourceConfig = check(_module(name).Config, section, "data")
    return config


def load(config: SourceConfig, progress: Progress | None = None) -> Data:
    """Read, check, limit and split. The same config gives the same bytes, and so the same digest.

    Raises DataError for samples that cannot be used, ResourceError where a cache cannot be written.
    """
    pools: Pools = _module(config.source).read(config, progress)
    pools = checks.normal(pools)
    pools = splits.limited(pools, config.limit, config.split_seed)
    return splits.divide(pools, config)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def _is_source(name: str) -> bool:
    found = getattr(_module(name), "Config", None)
    return isinstance(found, type) and issubclass(found, SourceConfig)
