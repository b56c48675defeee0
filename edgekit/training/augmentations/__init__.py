"""Augmentations beside shifts and mirror images: one file each, the file's name is its kind.

A file offers `class Options(AugmentationOptions)`, `KINDS` and `TASKS`, the samples and the tasks that it serves,
`MIXES`, whether it mixes samples with one another, and `apply(samples, options, random)`. That returns new samples of
the same shape and type, and a `Mix` where it mixes, else None. The module here imports no numpy: a config without
augmentations is checked without it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from edgekit.core.config import StrictModel, suggest, validate
from edgekit.core.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data import Data

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
FIELD = "augmentations"
PLURALS = {"image": "images", "window": "windows", "vector": "vectors", "audio": "sounds", "text": "texts"}


class AugmentationOptions(StrictModel):
    """Options that every augmentation takes. A file's own `Options` narrows `kind` to the file's name."""

    kind: str = Field(description="name of the augmentation")
    probability: float = Field(1.0, ge=0, le=1, description="probability that a sample is changed")


@dataclass(frozen=True, eq=False)
class Mix:
    """What a batch of n samples was mixed of.

    partners: (n,) int64, the place in the batch of the sample that was mixed in
    kept: (n,) floats, the share of its own that a sample kept; 1 where nothing was mixed in
    """

    partners: np.ndarray
    kept: np.ndarray


Apply = Callable[["np.ndarray", Any, "np.random.Generator"], tuple["np.ndarray", Mix | None]]


def parse(section: Any, where: str = FIELD) -> AugmentationOptions:
    """Check one entry of `augmentations`, `{"kind": "cutmix", "alpha": 1.0}`; ConfigError names what was meant."""
    if not isinstance(section, dict) or not isinstance(section.get("kind"), str):
        raise ConfigError(f"{where}: got {section!r}; it needs `kind:`, one of {', '.join(NAMES)}")
    if section["kind"] not in NAMES:
        raise ConfigError(f"{where}.kind: got {section['kind']!r}; {suggest(section['kind'], NAMES)}")
    options: AugmentationOptions = validate(_module(section["kind"]).Options, section, where)
    return options


def parse_all(sections: Sequence[Any], where: str = FIELD) -> list[AugmentationOptions]:
    """All entries, in their order; ConfigError for the first that is wrong."""
    return [parse(section, f"{where}.{place}") for place, section in enumerate(sections)]


def active(sections: Sequence[Any], data: Data, where: str = FIELD) -> list[AugmentationOptions]:
    """Those that change samples at all; ConfigError for one that makes no sense of these samples and labels."""
    found = parse_all(sections, where)
    for options in found:
        module = _module(options.kind)
        if data.kind not in module.KINDS:
            raise ConfigError(
                f"{where}: got {options.kind}, and the samples are {PLURALS.get(data.kind, data.kind)}; it changes "
                f"{' and '.join(PLURALS[kind] for kind in module.KINDS)} alone; leave it out"
            )
        if data.task not in module.TASKS:
            raise ConfigError(
                f"{where}: got {options.kind}, and task is {data.task}: the labels would not fit the changed samples; "
                f"it serves {', '.join(module.TASKS)}; leave it out"
            )
    return [options for options in found if options.probability > 0]


def function(options: AugmentationOptions) -> Apply:
    """`(samples, options, random) -> (samples, mix)`."""
    found: Apply = _module(options.kind).apply
    return found


def mixes(options: AugmentationOptions) -> bool:
    """Whether it mixes samples, and so makes labels soft."""
    return bool(_module(options.kind).MIXES)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
